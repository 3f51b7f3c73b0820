// Open addressing from 64-bit keys to small values: O(1) at any size, at most half full, no tombstones, so no slow
// decay. Keys are never 0. Grows, never shrinks. Not thread-safe: whoever owns it has a lock. Values are copied; a
// pointer into the table holds until the next call.
#ifndef METE_INTERCEPTOR_OPEN_TABLE_H_
#define METE_INTERCEPTOR_OPEN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace mete::interceptor {

// Both halves of the product, so that every bit of the key counts: addresses come in steps of large powers of two.
inline uint64_t HashOf(uint64_t key) {
  __extension__ const unsigned __int128 product = static_cast<unsigned __int128>(key) * 0xD6E8FEB86659FD93ull;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

template <typename Value>
class OpenTable {
 public:
  constexpr OpenTable() = default;
  OpenTable(const OpenTable&) = delete;
  OpenTable& operator=(const OpenTable&) = delete;
  ~OpenTable() { free(cells_); }

  size_t Size() const { return used_; }

  // The key's value, zeroed if it is new (*fresh). Null: no memory for a new key.
  Value* Put(uint64_t key, uint64_t hash, bool* fresh) {
    if ((used_ + 1) * 2 > capacity_ && !Grow()) return nullptr;
    Cell& cell = cells_[At(key, hash)];
    *fresh = cell.key == 0;
    if (*fresh) {
      cell = {key, Value{}};
      ++used_;
    }
    return &cell.value;
  }

  Value* Find(uint64_t key, uint64_t hash) {
    if (used_ == 0) return nullptr;
    Cell& cell = cells_[At(key, hash)];
    return cell.key == 0 ? nullptr : &cell.value;
  }

  // Removes what Put or Find has just returned.
  void Erase(Value* value) {
    auto* cell = reinterpret_cast<Cell*>(reinterpret_cast<char*>(value) - offsetof(Cell, value));
    EraseAt(static_cast<size_t>(cell - cells_));
  }

  // Removes every key for which wanted(value), and hands its key and value to taken.
  template <typename Wanted, typename Taken>
  void TakeAll(Wanted wanted, Taken taken) {
    for (size_t at = 0; at < capacity_;) {
      const Cell cell = cells_[at];
      if (cell.key == 0 || !wanted(cell.value)) {
        ++at;
        continue;
      }
      EraseAt(at);  // moves a later one here, so look at the same place again
      taken(cell.key, cell.value);
    }
  }

 private:
  struct Cell {
    uint64_t key;
    Value value;
  };

  // The key's cell, or the empty one where it belongs.
  size_t At(uint64_t key, uint64_t hash) const {
    size_t at = hash & (capacity_ - 1);
    while (cells_[at].key != 0 && cells_[at].key != key) at = (at + 1) & (capacity_ - 1);
    return at;
  }

  bool Grow() {
    const size_t old_capacity = capacity_;
    Cell* const old = cells_;
    const size_t capacity = old_capacity == 0 ? 16 : old_capacity * 2;
    auto* cells = static_cast<Cell*>(calloc(capacity, sizeof(Cell)));
    if (cells == nullptr) return false;
    cells_ = cells;
    capacity_ = capacity;
    for (size_t i = 0; i < old_capacity; ++i) {
      if (old[i].key != 0) cells_[At(old[i].key, HashOf(old[i].key))] = old[i];
    }
    free(old);
    return true;
  }

  // Closes the gap so that no search ends early.
  void EraseAt(size_t gap) {
    const size_t mask = capacity_ - 1;
    for (size_t at = (gap + 1) & mask; cells_[at].key != 0; at = (at + 1) & mask) {
      const size_t home = HashOf(cells_[at].key) & mask;
      if (((at - home) & mask) >= ((at - gap) & mask)) {
        cells_[gap] = cells_[at];
        gap = at;
      }
    }
    cells_[gap].key = 0;
    --used_;
  }

  Cell* cells_ = nullptr;
  size_t capacity_ = 0;  // a power of two, or 0
  size_t used_ = 0;
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_OPEN_TABLE_H_
