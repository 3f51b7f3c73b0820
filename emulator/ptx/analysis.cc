#include <algorithm>

#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {

uint32_t EstimateRegisters(std::vector<SlotInterval> intervals,
                           const std::vector<std::pair<uint32_t, uint32_t>>& loops) {
  // What is set before a loop and used in it lives until the loop's end. Inner loops first, and once for all is enough
  // for an estimate.
  std::vector<std::pair<uint32_t, uint32_t>> ordered = loops;
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.second - a.first < b.second - b.first; });
  if (ordered.size() > 256) ordered.resize(256);
  for (const auto& [begin, end] : ordered) {
    for (SlotInterval& i : intervals) {
      if (i.first < begin && i.last >= begin && i.last < end) i.last = end;
    }
  }
  std::vector<std::pair<uint32_t, int64_t>> edges;
  for (const SlotInterval& i : intervals) {
    const int64_t words = i.bytes == 8 ? 2 : i.bytes == 0 ? 0 : 1;
    edges.emplace_back(i.first, words);
    edges.emplace_back(i.last + 1, -words);
  }
  std::sort(edges.begin(), edges.end());  // at one place ends come before beginnings
  int64_t alive = 0, most = 0;
  for (const auto& [at, change] : edges) {
    alive += change;
    most = std::max(most, alive);
  }
  // A few for addresses and predicates that the assembler adds; allocated in eights, 255 at most.
  const int64_t rounded = (most + 6 + 7) / 8 * 8;
  return static_cast<uint32_t>(std::clamp<int64_t>(rounded, 16, 255));
}

}  // namespace mete::emulator::ptx
