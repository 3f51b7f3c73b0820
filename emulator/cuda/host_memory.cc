// Page-locked host memory: ours, and the program's own once registered. Kernels and copies reach it at its host
// address.
#include <sys/mman.h>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {
namespace {

constexpr unsigned int kHostFlags = 1 | 2 | 4;  // portable, device map, write combined

CUresult AllocateHost(void** out, uint64_t bytes, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (CUresult error = RefuseUnsafe()) return error;
  if (out == nullptr || bytes == 0 || (flags & ~kHostFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > 1ull << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  // Not MAP_NORESERVE: the host must have it, or say so now.
  void* at = mmap(nullptr, RoundUp(bytes, 4096), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation;
  allocation.kind = AllocationKind::kHost;
  allocation.address = reinterpret_cast<uint64_t>(at);
  allocation.bytes = bytes;
  allocation.context = context;
  allocation.flags = flags;
  Driver::Get()->content().AddHost(allocation.address, bytes);
  Allocations::Get().Add(std::move(allocation));
  *out = at;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemAllocHost_v2(void** out, size_t bytes) { return AllocateHost(out, bytes, 0); }
CUresult api::cuMemAllocHost(void** out, unsigned int bytes) { return AllocateHost(out, bytes, 0); }
CUresult api::cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) { return AllocateHost(out, bytes, flags); }

CUresult api::cuMemFreeHost(void* p) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (p == nullptr) return CUDA_SUCCESS;
  auto found = Allocations::Get().Find(reinterpret_cast<uint64_t>(p));
  if (!found || found->kind != AllocationKind::kHost || found->address != reinterpret_cast<uint64_t>(p)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (CUresult error = found->context->executor.SynchronizeAll()) return error;
  if (auto taken = Allocations::Get().Take(found->address)) FreeAllocation(*taken);
  return CUDA_SUCCESS;
}

CUresult api::cuMemHostRegister_v2(void* p, size_t bytes, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (p == nullptr || bytes == 0 || (flags & ~15u) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & 12u) != 0) return CUDA_ERROR_NOT_SUPPORTED;  // I/O memory, read-only: attributes say so
  const auto address = reinterpret_cast<uint64_t>(p);
  if (bytes > (1ull << 47) || address > (1ull << 47) - bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!IsMapped(p, bytes)) return CUDA_ERROR_INVALID_VALUE;  // it could not be locked
  if (Allocations::Get().Touches(address, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Allocation allocation;
  allocation.kind = AllocationKind::kRegistered;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.context = context;
  allocation.flags = flags;
  Driver::Get()->content().AddHost(address, bytes);
  Allocations::Get().Add(std::move(allocation));
  return CUDA_SUCCESS;
}

CUresult api::cuMemHostUnregister(void* p) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto found = Allocations::Get().Find(reinterpret_cast<uint64_t>(p));
  if (!found || found->kind != AllocationKind::kRegistered || found->address != reinterpret_cast<uint64_t>(p)) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (CUresult error = found->context->executor.SynchronizeAll()) return error;
  if (auto taken = Allocations::Get().Take(found->address)) FreeAllocation(*taken);
  return CUDA_SUCCESS;
}

CUresult api::cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || p == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto found = Allocations::Get().Find(reinterpret_cast<uint64_t>(p));
  if (!found || (found->kind != AllocationKind::kHost && found->kind != AllocationKind::kRegistered)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = reinterpret_cast<uint64_t>(p);
  return CUDA_SUCCESS;
}

CUresult api::cuMemHostGetDevicePointer(CUdeviceptr_v1* out, void* p, unsigned int flags) {
  CUdeviceptr wide = 0;
  if (CUresult error = api::cuMemHostGetDevicePointer_v2(out == nullptr ? nullptr : &wide, p, flags)) return error;
  if (wide >> 32 != 0) return CUDA_ERROR_INVALID_VALUE;  // not an address that 32 bits hold
  *out = static_cast<CUdeviceptr_v1>(wide);
  return CUDA_SUCCESS;
}

CUresult api::cuMemHostGetFlags(unsigned int* flags, void* p) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (flags == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto found = Allocations::Get().Find(reinterpret_cast<uint64_t>(p));
  if (!found || found->kind != AllocationKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->flags | 2;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
