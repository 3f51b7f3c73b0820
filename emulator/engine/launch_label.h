// How a client came to a kernel's cost, and what it could not do: counted by the engine and shown by `mete emulate
// status`. Plain values in fields of Work that the kind does not use: Work::bytes of a kernel is its label;
// Work::wait_sequence of anything but kWaitFor is the number of reads of content that was dropped since the last
// submission. A hostile client can only make its own counts wrong.
#ifndef METE_EMULATOR_ENGINE_LAUNCH_LABEL_H_
#define METE_EMULATOR_ENGINE_LAUNCH_LABEL_H_

#include <algorithm>
#include <cstdint>

#include "emulator/engine/work.h"

namespace mete::emulator {

inline constexpr uint64_t kLabelExact = 0, kLabelExtrapolated = 1, kLabelCached = 2, kLabelUnbounded = 3;
inline constexpr uint64_t kLabelOrigin = 3, kLabelTimedOnly = 4;  // mask of the above; a bit beside it

struct LaunchCounts {
  uint64_t by_origin[4] = {};
  uint64_t timed_only = 0;       // launches whose results are not there
  uint64_t undefined_reads = 0;  // of content beyond the backing, which read as zero

  void Add(const Work& work) {
    if (work.kind == WorkKind::kWaitFor) return;
    undefined_reads += std::min<uint64_t>(work.wait_sequence, uint64_t{1} << 40);
    if (work.kind != WorkKind::kKernel) return;
    ++by_origin[work.bytes & kLabelOrigin];
    if ((work.bytes & kLabelTimedOnly) != 0) ++timed_only;
  }
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_LAUNCH_LABEL_H_
