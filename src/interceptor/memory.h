// Device memory that is charged when it is taken and given back when it is freed: linear, pitched, managed, arrays,
// imported. Begin reserves before the driver is asked, End settles with what the driver gave.
//
// Large requests are charged in whole granules. Small ones share granules in the driver: the first that lands in a
// granule is charged with all of it, the last that leaves gives it back. What is charged is thus what the driver
// holds, whatever its packing, as long as it packs by granules; where it does not, mete charges too much, never too
// little.
//
// What has no address of its own (arrays, the variables of a module) is an Extent: whole granules, and small pieces
// that the driver puts together somehow. The small pieces of a context are one pile, charged in whole granules; what
// the pile gives up is deferred (deferred.h), since the pieces that stay may lie scattered.
//
// A free takes the record out before the driver is asked, since the address may be given to another thread at once, and
// puts it back if the driver refuses; the charge is given back when the driver has freed.
//
// Records are in shards by granule, a block beside the count of its (first) granule, so that an allocation and a free
// take one lock each. Thread-safe, no system calls but for growing tables. Bytes throughout.
#ifndef METE_INTERCEPTOR_MEMORY_H_
#define METE_INTERCEPTOR_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "interceptor/cuda_api.h"
#include "interceptor/extent.h"
#include "interceptor/open_table.h"
#include "interceptor/spin_lock.h"
#include "ledger/layout.h"

namespace mete::interceptor {

struct Process;
struct Pool;

// Whether an allocation fits: asks the ledger, and once more after the pools' unused memory was counted again, and
// after an audit if there is memory that only an audit can give back. Also looks after the connection to the broker now
// and then.
bool ReserveOrReclaim(Process& p, const ledger::View& view, uint64_t bytes);

// With its address half a cache line.
struct Block {
  enum Kind : uint8_t { kLarge, kSmall, kPool, kObject };
  CUcontext context;  // it goes with it
  union {
    Pool* pool;      // kPool
    uint64_t small;  // kObject: Extent::small
  };
  uint64_t bytes : 48;  // kLarge: charged; kSmall: its extent; kPool: its extent in the pool; kObject: Extent::large
  uint64_t gpu : 8;
  uint64_t kind : 7;
  uint64_t exported : 1;  // other processes may hold it
};
static_assert(sizeof(Block) == 24 && kAbsurd < uint64_t{1} << 48 && ledger::kMaxGpus <= 256);

// A block whose record was taken out, and what the ledger is owed when the driver has freed it.
struct Taken {
  Block block;
  uint64_t charged = 0;
  uint64_t deferred = 0;  // the part of it that goes back only after an audit
};

// One allocation under way.
struct Ticket {
  ledger::View view;
  CUcontext context = nullptr;
  uint64_t reserved = 0;
  bool charged = false;  // false: nothing to settle (no context, nothing asked for)
};

class Memory {
 public:
  // `bytes` as the caller asks. Not CUDA_SUCCESS: refused, do not ask the driver.
  CUresult Begin(Process& p, uint64_t bytes, Ticket* ticket);
  CUresult BeginObject(Process& p, const Extent& extent, Ticket* ticket);
  // The driver refused.
  void Cancel(const Ticket& ticket);
  // The driver gave `address`, of `bytes` in truth. False: no memory to remember it; the caller must free it.
  bool EndLinear(const Ticket& ticket, uint64_t address, uint64_t bytes);
  bool EndObject(const Ticket& ticket, uint64_t key, const Extent& extent);
  bool EndPooled(uint64_t address, const Block& block);

  // Takes the record out; false: unknown to us. Then either Settle (the driver freed it) or Restore.
  bool Take(uint64_t address, Taken* taken);
  void Restore(Process& p, uint64_t address, const Taken& taken);
  void Settle(Process& p, const Taken& taken);

  // Other processes may hold this block from now on.
  void Export(Process& p, uint64_t address);

  // Everything that goes with a context.
  void Forget(Process& p, CUcontext context);

  static uint64_t KeyOf(const void* handle) { return reinterpret_cast<uint64_t>(handle) | uint64_t{1} << 63; }
  size_t Size();

 private:
  CUresult Reserve(Process& p, uint64_t bytes, Ticket* ticket);
  struct alignas(64) Shard {
    SpinLock lock;
    OpenTable<Block> blocks;
    OpenTable<uint32_t> granules;  // number + 1 → small blocks in it
  };
  static uint64_t HashOfGranule(uint64_t granule) { return HashOf(granule + 1); }
  Shard& ShardOf(uint64_t granule_hash) { return shards_[granule_hash >> 58]; }
  // Raises or lowers a context's pile: by how many granules it has grown or shrunk.
  uint64_t Pile(CUcontext context, uint64_t bytes, bool raise);
  static bool Enter(Shard& shard, uint64_t granule, uint64_t hash);  // true: the first in it
  static bool Leave(Shard& shard, uint64_t granule, uint64_t hash);  // true: the last in it
  // Remembers a block; *charged: what it is charged with. False: no memory.
  bool Put(uint64_t address, const Block& block, uint64_t* charged);
  bool End(const Ticket& ticket, uint64_t address, const Block& block);

  Shard shards_[64];
  SpinLock piles_lock_;
  OpenTable<uint64_t> piles_;  // context → bytes of small pieces
  std::mutex forgetting_;      // one thread at a time holds two shards
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_MEMORY_H_
