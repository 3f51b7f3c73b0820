// A map from 64-bit keys (addresses, handles) to small values for many threads: 64 open tables, each under its own
// lock. Keys are never 0. Values are copied; nothing points into the tables. Thread-safe.
#ifndef METE_INTERCEPTOR_SHARDED_MAP_H_
#define METE_INTERCEPTOR_SHARDED_MAP_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "interceptor/open_table.h"
#include "interceptor/spin_lock.h"

namespace mete::interceptor {

template <typename Value>
class ShardedMap {
 public:
  // Calls change(value, fresh) on the key's value, a zeroed one if it is new; false from it removes the key. Returns
  // false, without calling, when there is no memory for a new key.
  template <typename Change>
  bool Update(uint64_t key, Change change) {
    const uint64_t hash = HashOf(key);
    Shard& shard = shards_[hash >> 58];
    std::lock_guard lock(shard.lock);
    bool fresh;
    Value* value = shard.table.Put(key, hash, &fresh);
    if (value == nullptr) return false;
    if (!change(*value, fresh)) shard.table.Erase(value);
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
    const uint64_t hash = HashOf(key);
    Shard& shard = shards_[hash >> 58];
    std::lock_guard lock(shard.lock);
    Value* found = shard.table.Find(key, hash);
    if (found == nullptr) return false;
    *value = *found;
    shard.table.Erase(found);
    return true;
  }

  // Removes every key for which wanted(value), and hands its key and value to taken.
  template <typename Wanted, typename Taken>
  void TakeAll(Wanted wanted, Taken taken) {
    for (Shard& shard : shards_) {
      std::lock_guard lock(shard.lock);
      shard.table.TakeAll(wanted, taken);
    }
  }

  size_t Size() {
    size_t size = 0;
    for (Shard& shard : shards_) {
      std::lock_guard lock(shard.lock);
      size += shard.table.Size();
    }
    return size;
  }

 private:
  struct alignas(64) Shard {
    SpinLock lock;
    OpenTable<Value> table;
  };
  Shard shards_[64];
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_SHARDED_MAP_H_
