// What a launch costs in GPU time, learnt from how long launches of the same function and shape took. A guess that only
// bounds how much is put in flight at once; what is charged is measured. Lock-free, fixed size, any thread. ns.
#ifndef METE_INTERCEPTOR_COST_H_
#define METE_INTERCEPTOR_COST_H_

#include <atomic>
#include <cstdint>

namespace mete::interceptor {

// Never 0.
inline uint64_t CostKey(const void* function, uint64_t grid, uint64_t block) {
  uint64_t h = reinterpret_cast<uint64_t>(function) * 0x9E3779B97F4A7C15ull;
  h = (h ^ (h >> 31) ^ grid) * 0xBF58476D1CE4E5B9ull;
  h = (h ^ (h >> 29) ^ block) * 0x94D049BB133111EBull;
  return (h ^ (h >> 32)) | 1;
}

class CostTable {
 public:
  // 0: never seen.
  uint64_t Predict(uint64_t key) const {
    for (uint64_t i = 0; i < kProbes; ++i) {
      const Cell& cell = cells_[(key + i) % kCells];
      if (cell.key.load(std::memory_order_relaxed) == key) return cell.ns.load(std::memory_order_relaxed);
    }
    return 0;
  }

  // A launch was seen to take `ns`. Late notice only ever makes it look longer, so the way down is taken faster.
  void Learn(uint64_t key, uint64_t ns) {
    if (ns == 0) ns = 1;
    Cell* free = nullptr;
    for (uint64_t i = 0; i < kProbes; ++i) {
      Cell& cell = cells_[(key + i) % kCells];
      const uint64_t present = cell.key.load(std::memory_order_relaxed);
      if (present == key) {
        const uint64_t old = cell.ns.load(std::memory_order_relaxed);
        cell.ns.store(ns < old ? old - (old - ns) / 2 : old + (ns - old) / 8, std::memory_order_relaxed);
        return;
      }
      if (present == 0 && free == nullptr) free = &cell;
    }
    if (free == nullptr) free = &cells_[key % kCells];  // an older shape makes room
    free->ns.store(ns, std::memory_order_relaxed);
    free->key.store(key, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kCells = 4096, kProbes = 4;
  struct Cell {
    std::atomic<uint64_t> key{0};
    std::atomic<uint64_t> ns{0};
  };
  Cell cells_[kCells];
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_COST_H_
