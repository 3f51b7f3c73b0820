#include "interceptor/pool.h"

#include <new>

#include "interceptor/deferred.h"
#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kPoolUnit = 512;  // of a block in a pool

bool Ask(CUmemoryPool handle, CUmemPool_attribute attribute, uint64_t* value) {
  cuuint64_t answer = 0;
  if (driver.cuMemPoolGetAttribute == nullptr ||
      driver.cuMemPoolGetAttribute(handle, attribute, &answer) != CUDA_SUCCESS) {
    return false;
  }
  *value = answer;
  return true;
}

}  // namespace

Pool* Pools::Find(CUmemoryPool handle, uint32_t gpu) {
  Pool* spent = nullptr;
  for (Pool* pool = first_; pool != nullptr; pool = pool->next) {
    if (pool->handle == handle && !pool->destroyed) return pool;
    if (pool->destroyed && pool->live == 0 && pool->charged == 0) spent = pool;
  }
  if (spent != nullptr) {
    *spent = {handle, gpu, 0, 0, false, false, spent->next};
    return spent;
  }
  auto* pool = new (std::nothrow) Pool{handle, gpu, 0, 0, false, false, first_};
  if (pool != nullptr) first_ = pool;
  return pool;
}

// Moves the ledger to what the pool holds now. `ahead` was reserved for it and becomes part of that.
bool Pools::Settle(Process& p, Pool& pool, uint64_t ahead) {
  uint64_t holds = RoundUp(pool.live, kGranule);
  if (!pool.destroyed) Ask(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &holds);
  const ledger::View view = ViewOf(p, pool.gpu);
  const uint64_t had = pool.charged + ahead;
  pool.charged = holds;
  if (holds > had) ledger::Charge(view, holds - had);
  // The blocks that are left of a destroyed pool may lie scattered, and nobody can be asked how much it holds for them.
  const bool unsure = pool.exported || (pool.destroyed && pool.live != 0);
  if (holds < had && unsure) GiveUp(p, pool.gpu, had - holds);
  if (holds < had && !unsure) ledger::Return(view, had - holds);
  return holds < had;
}

CUresult Pools::Begin(Process& p, uint64_t bytes, CUmemoryPool handle, Ticket* ticket, Pool** pool) {
  *pool = nullptr;
  Place place;
  if (!Locate(p, &place)) return kNotInShare;
  uint32_t gpu = place.gpu;
  if (handle == nullptr && place.context != nullptr) {
    CUdevice device = 0;
    if (driver.cuCtxGetDevice == nullptr || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        driver.cuDeviceGetMemPool == nullptr || driver.cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS) {
      handle = nullptr;
    }
  }
  uint64_t reserved = 0;
  if (handle == nullptr || !Ask(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)) {
    return p.memory.Begin(p, bytes, ticket);  // no figure to go by: like linear memory
  }
  {
    std::lock_guard lock(mutex_);
    *pool = Find(handle, gpu);
  }
  if (*pool == nullptr) return kOutOfMemory;
  gpu = (*pool)->gpu;
  ticket->view = ViewOf(p, gpu);
  ticket->context = place.context;
  if (bytes == 0) return CUDA_SUCCESS;
  if (bytes >= kAbsurd) return kOutOfMemory;
  const uint64_t wanted = RoundUp(bytes, kGranule);
  ticket->charged = true;
  if (ReserveOrReclaim(p, ticket->view, wanted)) {
    ticket->reserved = wanted;
    return CUDA_SUCCESS;
  }
  // No room for the pool to grow. What it holds unused may be in pieces too small for this request, so it is not relied
  // on: it is given back, which makes room, as the driver does with other pools when it runs out.
  if (driver.cuMemPoolTrimTo != nullptr && driver.cuMemPoolTrimTo(handle, 0) == CUDA_SUCCESS && Refresh(p) &&
      ReserveOrReclaim(p, ticket->view, wanted)) {
    ticket->reserved = wanted;
    return CUDA_SUCCESS;
  }
  ticket->charged = false;
  return kOutOfMemory;
}

CUresult Pools::End(Process& p, const Ticket& ticket, Pool* pool, uint64_t address, uint64_t bytes) {
  if (pool == nullptr) return p.memory.EndLinear(ticket, address, bytes) ? CUDA_SUCCESS : kOutOfMemory;
  std::lock_guard lock(mutex_);
  if (address == 0) {  // the driver refused
    Settle(p, *pool, ticket.reserved);
    return CUDA_SUCCESS;
  }
  const uint64_t before = pool->charged, extent = RoundUp(bytes, kPoolUnit);
  pool->live += extent;
  Settle(p, *pool, ticket.reserved);
  const uint64_t grown = pool->charged > before ? pool->charged - before : 0;
  const uint64_t quota = ticket.view.limits->gpu[pool->gpu].memory_quota.load(std::memory_order_relaxed);
  const bool over = grown > ticket.reserved && ledger::Used(ticket.view) > quota;
  if (!over && p.memory.EndPooled(address, {ticket.context, {pool}, extent, pool->gpu, Block::kPool, false}))
    return CUDA_SUCCESS;
  pool->live -= extent;
  loose_.store(true, std::memory_order_relaxed);
  return kOutOfMemory;
}

void Pools::Freed(Process& p, Pool* pool, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  pool->live -= bytes < pool->live ? bytes : pool->live;
  Settle(p, *pool, 0);
  loose_.store(pool->charged > pool->live, std::memory_order_relaxed);
}

void Pools::Created(Process& p, CUmemoryPool handle, const CUmemPoolProps& properties) {
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  const int gpu = GpuOfDevice(p, properties.location.id);
  if (gpu < 0) return;
  std::lock_guard lock(mutex_);
  if (Pool* pool = Find(handle, static_cast<uint32_t>(gpu))) pool->gpu = static_cast<uint32_t>(gpu);
}

void Pools::Destroyed(Process& p, CUmemoryPool handle) {
  std::lock_guard lock(mutex_);
  for (Pool* pool = first_; pool != nullptr; pool = pool->next) {
    if (pool->handle != handle || pool->destroyed) continue;
    pool->destroyed = true;  // its blocks keep their memory until they are freed
    Settle(p, *pool, 0);
    return;
  }
}

void Pools::Exported(Process& p, CUmemoryPool handle) {
  std::lock_guard lock(mutex_);
  for (Pool* pool = first_; pool != nullptr; pool = pool->next) {
    if (pool->handle != handle || pool->destroyed) continue;
    pool->exported = true;
    ledger::MarkExported(ViewOf(p, pool->gpu));
  }
}

bool Pools::Refresh(Process& p) {
  std::lock_guard lock(mutex_);
  bool given_back = false, loose = false;
  for (Pool* pool = first_; pool != nullptr; pool = pool->next) {
    if (pool->destroyed && pool->charged == 0) continue;
    given_back |= Settle(p, *pool, 0);
    loose |= pool->charged > pool->live;
  }
  loose_.store(loose, std::memory_order_relaxed);
  return given_back;
}

}  // namespace mete::interceptor
