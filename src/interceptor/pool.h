// Stream-ordered memory: a pool is charged with what it holds of the device, by the driver's own account of it
// (RESERVED_MEM_CURRENT), because memory freed in stream order stays with the pool until the driver trims it.
//
// The invariant: a pool's `charged` is exactly what the ledger holds for it. Every look at the driver's figure moves
// both to that figure, so nothing can drift, whatever was missed in between. Where a driver has no such figure, blocks
// are charged like linear memory. One lock, never held over an allocation. Bytes throughout.
#ifndef METE_INTERCEPTOR_POOL_H_
#define METE_INTERCEPTOR_POOL_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "interceptor/cuda_api.h"
#include "interceptor/memory.h"

namespace mete::interceptor {

struct Pool {
  CUmemoryPool handle;
  uint32_t gpu;
  uint64_t charged;  // what the ledger holds for it
  uint64_t live;     // of blocks not freed
  bool destroyed;    // its handle is dead, its blocks are not
  bool exported;     // other processes may hold its blocks
  Pool* next;
};

class Pools {
 public:
  // Starts an allocation of `bytes` from `handle`, or from the current pool of the context's device if null.
  CUresult Begin(Process& p, uint64_t bytes, CUmemoryPool handle, Ticket* ticket, Pool** pool);
  // The driver gave `address`. CUDA_ERROR_OUT_OF_MEMORY: the pool grew over the quota; the caller must free it again.
  CUresult End(Process& p, const Ticket& ticket, Pool* pool, uint64_t address, uint64_t bytes);
  void Freed(Process& p, Pool* pool, uint64_t bytes);

  void Created(Process& p, CUmemoryPool handle, const CUmemPoolProps& properties);
  void Destroyed(Process& p, CUmemoryPool handle);
  void Exported(Process& p, CUmemoryPool handle);

  // Reads all pools anew. True when something was given back.
  bool Refresh(Process& p);
  // The same if memory was freed since the last look; for points at which the driver may have trimmed.
  void RefreshIfLoose(Process& p) {
    if (loose_.load(std::memory_order_relaxed)) Refresh(p);
  }

 private:
  Pool* Find(CUmemoryPool handle, uint32_t gpu);                 // with the lock
  bool Settle(Process& p, Pool& pool, uint64_t reserved_ahead);  // with the lock; true: given back

  std::mutex mutex_;
  Pool* first_ = nullptr;
  std::atomic<bool> loose_{false};
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_POOL_H_
