// A map from 64-bit keys (addresses, handles) to small values: O(1) at any size, 64 shards of open addressing, each
// under its own lock. Keys are never 0. Not resizable downwards; memory is never given back to a forked child's parent.
// Values are copied; nothing points into the table. Thread-safe.
#ifndef METE_INTERCEPTOR_SHARDED_MAP_H_
#define METE_INTERCEPTOR_SHARDED_MAP_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>

namespace mete::interceptor {

template <typename Value>
class ShardedMap {
 public:
  // Calls change(value, fresh) on the key's value, a zeroed one if it is new; false from it removes the key. Returns
  // false, without calling, when there is no memory for a new key.
  template <typename Change>
  bool Update(uint64_t key, Change change) {
    const uint64_t hash = Hash(key);
    Shard& shard = ShardOf(hash);
    std::lock_guard lock(shard.mutex);
    if ((shard.used + 1) * 4 > shard.capacity * 3 && !Grow(shard)) return false;
    size_t at = Find(shard, key, hash);
    const bool fresh = shard.cells[at].key == 0;
    if (fresh) {
      shard.cells[at] = {key, Value{}};
      ++shard.used;
    }
    if (!change(shard.cells[at].value, fresh)) Erase(shard, at);
    return true;
  }

  // Puts the value there, over an older one. False: no memory.
  bool Insert(uint64_t key, const Value& value) {
    return Update(key, [&](Value& cell, bool) {
      cell = value;
      return true;
    });
  }

  // Removes the key and hands out its value.
  bool Take(uint64_t key, Value* value) {
    const uint64_t hash = Hash(key);
    Shard& shard = ShardOf(hash);
    std::lock_guard lock(shard.mutex);
    if (shard.used == 0) return false;
    const size_t at = Find(shard, key, hash);
    if (shard.cells[at].key == 0) return false;
    *value = shard.cells[at].value;
    Erase(shard, at);
    return true;
  }

  // Removes every key for which wanted(value), and hands its key and value to taken.
  template <typename Wanted, typename Taken>
  void TakeAll(Wanted wanted, Taken taken) {
    for (Shard& shard : shards_) {
      std::lock_guard lock(shard.mutex);
      for (size_t at = 0; at < shard.capacity;) {
        Cell cell = shard.cells[at];
        if (cell.key == 0 || !wanted(cell.value)) {
          ++at;
          continue;
        }
        Erase(shard, at);  // moves a later one here, so look at the same place again
        taken(cell.key, cell.value);
      }
    }
  }

  size_t Size() {
    size_t size = 0;
    for (Shard& shard : shards_) {
      std::lock_guard lock(shard.mutex);
      size += shard.used;
    }
    return size;
  }

 private:
  struct Cell {
    uint64_t key;
    Value value;
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    Cell* cells = nullptr;
    size_t capacity = 0;  // a power of two, or 0
    size_t used = 0;
  };
  static constexpr size_t kShards = 64;

  static uint64_t Hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return key ^ (key >> 29);
  }
  Shard& ShardOf(uint64_t hash) { return shards_[hash >> 58]; }

  // The key's cell, or the empty one where it belongs.
  static size_t Find(const Shard& shard, uint64_t key, uint64_t hash) {
    size_t at = hash & (shard.capacity - 1);
    while (shard.cells[at].key != 0 && shard.cells[at].key != key) at = (at + 1) & (shard.capacity - 1);
    return at;
  }

  static bool Grow(Shard& shard) {
    const size_t capacity = shard.capacity == 0 ? 16 : shard.capacity * 2;
    auto* cells = static_cast<Cell*>(calloc(capacity, sizeof(Cell)));
    if (cells == nullptr) return false;
    Shard grown;
    grown.cells = cells;
    grown.capacity = capacity;
    for (size_t i = 0; i < shard.capacity; ++i) {
      const Cell& cell = shard.cells[i];
      if (cell.key != 0) cells[Find(grown, cell.key, Hash(cell.key))] = cell;
    }
    free(shard.cells);
    shard.cells = cells;
    shard.capacity = capacity;
    return true;
  }

  // Closes the gap so that no search ends early: no tombstones, so no slow decay.
  static void Erase(Shard& shard, size_t gap) {
    const size_t mask = shard.capacity - 1;
    for (size_t at = (gap + 1) & mask; shard.cells[at].key != 0; at = (at + 1) & mask) {
      const size_t home = Hash(shard.cells[at].key) & mask;
      if (((at - home) & mask) >= ((at - gap) & mask)) {
        shard.cells[gap] = shard.cells[at];
        gap = at;
      }
    }
    shard.cells[gap].key = 0;
    --shard.used;
  }

  Shard shards_[kShards];
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_SHARDED_MAP_H_
