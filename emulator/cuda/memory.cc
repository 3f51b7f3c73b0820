#include "emulator/cuda/memory.h"

#include <sys/mman.h>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/graph_memory.h"
#include "emulator/cuda/import.h"
#include "emulator/cuda/managed.h"

namespace mete::emulator::cuda {

Allocations& Allocations::Get() {
  static auto* allocations = new Allocations;  // never destroyed: other threads may run at exit
  return *allocations;
}

void Allocations::Add(Allocation allocation) {
  allocation.id = Driver::Get()->NextId();
  std::lock_guard lock(mutex_);
  const uint64_t address = allocation.address;
  map_[address] = std::move(allocation);
}

std::optional<Allocation> Allocations::Take(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = map_.find(address);
  if (it == map_.end()) return std::nullopt;
  Allocation found = std::move(it->second);
  map_.erase(it);
  return found;
}

std::optional<Allocation> Allocations::Find(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = map_.upper_bound(address);
  if (it == map_.begin()) return std::nullopt;
  --it;
  if (address - it->first >= it->second.bytes) return std::nullopt;
  return it->second;
}

bool Allocations::Touches(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto it = map_.upper_bound(address);
  if (it != map_.end() && it->first < address + bytes) return true;
  if (it == map_.begin()) return false;
  --it;
  return address - it->first < it->second.bytes;
}

bool Allocations::SetSyncMemops(uint64_t address, bool on) {
  std::lock_guard lock(mutex_);
  auto it = map_.upper_bound(address);
  if (it == map_.begin()) return false;
  --it;
  if (address - it->first >= it->second.bytes) return false;
  it->second.sync_memops = on;
  return true;
}

void Allocations::DropWithin(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  map_.erase(map_.lower_bound(address), map_.lower_bound(address + bytes));
}

void Allocations::TakeOf(Context* context, std::map<uint64_t, Allocation>* out) {
  std::lock_guard lock(mutex_);
  for (auto it = map_.begin(); it != map_.end();) {
    // Registered memory is the program's and mapped memory the device's; both outlive a context.
    const bool dies = it->second.context == context && it->second.kind != AllocationKind::kMapped;
    if (!dies) {
      ++it;
      continue;
    }
    out->insert(map_.extract(it++));
  }
}

void FreeAllocation(const Allocation& a) {
  Driver* driver = Driver::Get();
  switch (a.kind) {
    case AllocationKind::kLinear: a.context->heap.Free(a.address); break;
    case AllocationKind::kPool: FreeFromPool(a); break;
    case AllocationKind::kManaged:
      driver->content().Remove(a.region.get());
      munmap(reinterpret_cast<void*>(a.region->base), a.region->bytes);
      if (a.context->alive.load()) driver->client().ReturnManaged(a.context->engine, a.charged);
      break;
    case AllocationKind::kHost:
      driver->content().RemoveHost(a.address);
      munmap(reinterpret_cast<void*>(a.address), RoundUp(a.bytes, 4096));
      break;
    case AllocationKind::kRegistered: driver->content().RemoveHost(a.address); break;
    case AllocationKind::kMapped: break;
    case AllocationKind::kGraph: UnmapGraphAllocation(a.graph); break;
    case AllocationKind::kExternal: break;  // the memory goes with its external memory
    case AllocationKind::kImported: CloseImport(a.address, true); break;
  }
}

void DropAllocations(Context* context) {
  std::map<uint64_t, Allocation> dead;
  Allocations::Get().TakeOf(context, &dead);
  for (const auto& [address, allocation] : dead) {
    // Heaps are cleared whole by their owners.
    if (allocation.kind != AllocationKind::kLinear && allocation.kind != AllocationKind::kPool)
      FreeAllocation(allocation);
  }
}

namespace {

CUresult AllocateLinear(uint64_t bytes, bool low, CUdeviceptr* out) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (CUresult error = RefuseUnsafe()) return error;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  CUresult error = context->heap.Allocate(bytes, &address, low);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) {
    TrimPools(context, true);
    error = context->heap.Allocate(bytes, &address, low);
  }
  if (error != CUDA_SUCCESS) return error;
  Allocation allocation;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.context = context;
  Allocations::Get().Add(std::move(allocation));
  *out = address;
  return CUDA_SUCCESS;
}

CUresult AllocatePitch(uint64_t width, uint64_t height, unsigned int element, bool low, CUdeviceptr* out,
                       size_t* pitch) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = RoundUp(width, 512);  // the texture alignment
  if (width > 0x7fffffff || height > (1ull << 46) / row) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = AllocateLinear(row * height, low, out)) return error;
  *pitch = row;
  return CUDA_SUCCESS;
}

bool FitsLow(uint64_t value) { return value >> 32 == 0; }

}  // namespace

CUresult api::cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) { return AllocateLinear(bytes, false, out); }

CUresult api::cuMemAlloc(CUdeviceptr_v1* out, unsigned int bytes) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  if (CUresult error = AllocateLinear(bytes, true, &wide)) return error;
  *out = static_cast<CUdeviceptr_v1>(wide);
  return CUDA_SUCCESS;
}

CUresult api::cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned int element) {
  return AllocatePitch(width, height, element, false, out, pitch);
}

CUresult api::cuMemAllocPitch(CUdeviceptr_v1* out, unsigned int* pitch, unsigned int width, unsigned int height,
                              unsigned int element) {
  if (out == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  size_t wide_pitch = 0;
  if (CUresult error = AllocatePitch(width, height, element, true, &wide, &wide_pitch)) return error;
  *out = static_cast<CUdeviceptr_v1>(wide);
  *pitch = static_cast<unsigned int>(wide_pitch);
  return CUDA_SUCCESS;
}

CUresult api::cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (CUresult error = RefuseUnsafe()) return error;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > 1ull << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  Driver* driver = Driver::Get();
  // Counted in full on the device: an emulated GPU does not oversubscribe.
  const uint64_t rounded = RoundUp(bytes, kChunkBytes);
  Result result = driver->client().ReserveManaged(context->engine, rounded);
  if (result == Result::kOutOfMemory) {
    TrimPools(context, true);
    result = driver->client().ReserveManaged(context->engine, rounded);
  }
  if (result != Result::kOk) return context->Explain(result);
  void* raw = mmap(nullptr, rounded + kChunkBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    driver->client().ReturnManaged(context->engine, rounded);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Both sides use it: ordinary pages, at a chunk's alignment.
  const auto start = reinterpret_cast<uint64_t>(raw);
  const uint64_t base = RoundUp(start, kChunkBytes);
  if (base != start) munmap(raw, base - start);
  if (base + rounded != start + rounded + kChunkBytes) {
    munmap(reinterpret_cast<void*>(base + rounded), start + kChunkBytes - base);
  }
  mprotect(reinterpret_cast<void*>(base), rounded, PROT_READ | PROT_WRITE);
  Allocation allocation;
  allocation.kind = AllocationKind::kManaged;
  allocation.address = base;
  allocation.bytes = bytes;
  allocation.context = context;
  allocation.charged = rounded;
  allocation.region = std::make_shared<Region>();
  allocation.region->base = base;
  allocation.region->bytes = rounded;
  allocation.region->end = base + bytes;
  allocation.advice = std::make_shared<Advice>();
  driver->content().Add(allocation.region.get());
  Allocations::Get().Add(std::move(allocation));
  *out = base;
  return CUDA_SUCCESS;
}

CUresult api::cuMemFree_v2(CUdeviceptr address) {
  Context* current = nullptr;
  if (CUresult error = Current(&current)) return error;
  if (address == 0) return CUDA_SUCCESS;
  if (CUresult error = RefuseUnsafe()) return error;
  if (const auto graph = FindGraphAllocation(address)) {
    if (!ClaimGraphFree(*graph)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult error = current->executor.SynchronizeAll();
    UnmapGraphAllocation(graph);
    return error;
  }
  auto found = Allocations::Get().Find(address);
  if (!found || found->address != address) return CUDA_ERROR_INVALID_VALUE;
  const bool imported = found->kind == AllocationKind::kImported && found->pool != nullptr;
  if (found->kind != AllocationKind::kLinear && found->kind != AllocationKind::kManaged &&
      found->kind != AllocationKind::kPool && found->kind != AllocationKind::kExternal && !imported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Freeing waits for what may use the memory.
  if (CUresult error = found->context->executor.SynchronizeAll()) return error;
  if (imported) {
    CloseImport(address);
    return CUDA_SUCCESS;
  }
  auto taken = Allocations::Get().Take(address);
  if (!taken) return CUDA_ERROR_INVALID_VALUE;
  FreeAllocation(*taken);
  if (taken->kind == AllocationKind::kPool) TrimPools(taken->context, false);
  return CUDA_SUCCESS;
}

CUresult api::cuMemFree(CUdeviceptr_v1 address) { return api::cuMemFree_v2(address); }

CUresult api::cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t free_now = 0, total = 0;
  if (CUresult error = context->Explain(Driver::Get()->MemoryInfo(*context->device, &free_now, &total))) return error;
  if (free_bytes != nullptr) *free_bytes = free_now;
  if (total_bytes != nullptr) *total_bytes = total;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetInfo(unsigned int* free_bytes, unsigned int* total_bytes) {
  size_t free_now = 0, total = 0;
  const bool places = free_bytes != nullptr && total_bytes != nullptr;
  if (CUresult error = api::cuMemGetInfo_v2(places ? &free_now : nullptr, &total)) return error;
  *free_bytes = static_cast<unsigned int>(std::min<size_t>(free_now, ~0u));
  *total_bytes = static_cast<unsigned int>(std::min<size_t>(total, ~0u));
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t wide = 0;
  if (CUresult error = api::cuDeviceTotalMem_v2(&wide, dev)) return error;
  *bytes = static_cast<unsigned int>(std::min<size_t>(wide, ~0u));
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto found = Allocations::Get().Find(address);
  if (!found || found->kind == AllocationKind::kRegistered) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->address;
  if (bytes != nullptr) *bytes = found->bytes;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAddressRange(CUdeviceptr_v1* base, unsigned int* bytes, CUdeviceptr_v1 address) {
  CUdeviceptr wide = 0;
  size_t size = 0;
  if (CUresult error = api::cuMemGetAddressRange_v2(&wide, &size, address)) return error;
  if (!FitsLow(wide) || !FitsLow(size)) return CUDA_ERROR_INVALID_VALUE;
  if (base != nullptr) *base = static_cast<CUdeviceptr_v1>(wide);
  if (bytes != nullptr) *bytes = static_cast<unsigned int>(size);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
