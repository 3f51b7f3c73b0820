// What `mete top` shows, apart from the command: which part of each GPU is promised to whom, what of it is used, and
// where the holes are. Plain values and pure functions; single-threaded.
#ifndef METE_CLI_TOP_VIEW_H_
#define METE_CLI_TOP_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "nvml/library.h"

namespace mete::cli {

// A share's part of one GPU.
struct TopShare {
  std::string name;
  uint64_t quota_bytes = 0;
  bool promised = true;  // false: a cap only, of which nothing is kept for it
  uint64_t used_bytes = 0;
  std::string mode;                         // "hard", "soft", "work-conserving"
  std::optional<double> percent, measured;  // of the GPU's time: the limit; used in the last `over_seconds`
  double over_seconds = 0;
  uint64_t processes = 0;           // of the share, on all its GPUs
  std::vector<std::string> broken;  // promises that were asked for and are not kept
};

// A process that uses the GPU without a share.
struct TopForeigner {
  uint32_t pid = 0;
  std::string program;
  uint64_t used_bytes = 0;
};

// A GPU instance, where it stands.
struct TopInstance {
  std::string profile;
  int start = 0, size = 0;  // memory slices
  std::string share;        // that has it; empty: none
  double used = 0;          // part of its memory, 0 to 1
};

struct TopGpu {
  uint32_t index = 0;
  std::string uuid, name;
  std::optional<nvml::MemoryUse> memory;  // nothing when NVML does not tell
  std::optional<uint32_t> busy_percent;
  std::string trouble;  // what NVML could not answer; empty: nothing
  std::vector<TopShare> shares;
  std::vector<TopForeigner> foreigners;
  int slices = 0;                      // memory slices of a GPU in MIG mode; 0: it is not, or its board is not known
  std::vector<TopInstance> instances;  // by start

  uint64_t PromisedBytes() const;
  // What can still be promised: all of the memory but what is promised or held outside of promises.
  uint64_t FreeBytes() const;
};

struct Top {
  bool emulated = false;
  std::string driver_version;
  std::vector<TopGpu> gpus;
};

// Puts together what the driver says and the broker's reply to `list`. Lacks if the driver shows no GPU.
StatusOr<Top> TakeTop(const nvml::Library& library, const Json& list);

enum class Glyphs { kAscii, kUnicode };

// A GPU's memory as one line of `width` cells: a block for each promise, filled as far as it is used, then what is held
// without a promise, then the hole; and below it the names, cut to their blocks.
struct Strip {
  std::string cells, names;
};
// Of a GPU in MIG mode: a block for each instance where it stands, and holes where none does.
Strip StripOf(const TopGpu& gpu, size_t width, Glyphs glyphs);

std::string TopText(const Top& top, size_t width, Glyphs glyphs);
Json TopJson(const Top& top);

}  // namespace mete::cli

#endif  // METE_CLI_TOP_VIEW_H_
