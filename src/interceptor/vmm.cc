#include "interceptor/vmm.h"

#include <new>

#include "interceptor/deferred.h"
#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {

CUresult Vmm::Create(Process& p, decltype(&::cuMemCreate) real, CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  // Host memory is not the GPU's; a wrong call is the driver's to refuse.
  if (handle == nullptr || properties == nullptr || size == 0 ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return real(handle, size, properties, flags);
  }
  const int gpu = GpuOfDevice(p, properties->location.id);
  if (gpu == -1) return kNotInShare;
  if (gpu < 0) return real(handle, size, properties, flags);
  const ledger::View view = ViewOf(p, static_cast<uint32_t>(gpu));
  if (size >= kAbsurd) return kOutOfMemory;
  const uint64_t bytes = RoundUp(size, kGranule);
  if (!ReserveOrReclaim(p, view, bytes)) return kOutOfMemory;
  auto* allocation = new (std::nothrow) Allocation{bytes, view.gpu, 1, 0, false};
  if (allocation == nullptr) {
    ledger::Return(view, bytes);
    return kOutOfMemory;
  }
  std::lock_guard lock(mutex_);
  const CUresult result = real(handle, size, properties, flags);
  if (result != CUDA_SUCCESS) {
    delete allocation;
    ledger::Return(view, bytes);
    return result;
  }
  handles_[*handle] = allocation;
  return result;
}

void Vmm::EndIfUnused(Process& p, Allocation* allocation) {
  if (allocation->handles != 0 || allocation->mappings != 0) return;
  if (allocation->exported) {
    GiveUp(p, allocation->gpu, allocation->bytes);
  } else {
    ledger::Return(ViewOf(p, allocation->gpu), allocation->bytes);
  }
  delete allocation;
}

CUresult Vmm::Release(Process& p, decltype(&::cuMemRelease) real, CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  const CUresult result = real(handle);
  auto found = handles_.find(handle);
  if (result != CUDA_SUCCESS || found == handles_.end()) return result;
  Allocation* allocation = found->second;
  if (--allocation->handles == 0) handles_.erase(found);
  EndIfUnused(p, allocation);
  return result;
}

CUresult Vmm::Map(decltype(&::cuMemMap) real, CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  std::lock_guard lock(mutex_);
  const CUresult result = real(address, size, offset, handle, flags);
  auto found = handles_.find(handle);
  if (result != CUDA_SUCCESS || found == handles_.end()) return result;
  if (mappings_.insert({address, {size, found->second}}).second) ++found->second->mappings;
  return result;
}

CUresult Vmm::Unmap(Process& p, decltype(&::cuMemUnmap) real, CUdeviceptr address, size_t size) {
  std::lock_guard lock(mutex_);
  const CUresult result = real(address, size);
  if (result != CUDA_SUCCESS) return result;
  // The driver takes whole mappings only, but several at once.
  for (auto it = mappings_.lower_bound(address); it != mappings_.end() && it->first - address < size;) {
    Allocation* allocation = it->second.allocation;
    it = mappings_.erase(it);
    --allocation->mappings;
    EndIfUnused(p, allocation);
  }
  return result;
}

CUresult Vmm::Retain(decltype(&::cuMemRetainAllocationHandle) real, CUmemGenericAllocationHandle* handle,
                     void* address) {
  std::lock_guard lock(mutex_);
  const CUresult result = real(handle, address);
  if (result != CUDA_SUCCESS || handle == nullptr) return result;
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  auto after = mappings_.upper_bound(at);
  if (after == mappings_.begin()) return result;
  const auto& [start, mapping] = *--after;
  if (at - start >= mapping.bytes) return result;
  ++mapping.allocation->handles;
  handles_[*handle] = mapping.allocation;
  return result;
}

CUresult Vmm::Export(Process& p, decltype(&::cuMemExportToShareableHandle) real, void* os_handle,
                     CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
  std::lock_guard lock(mutex_);
  const CUresult result = real(os_handle, handle, type, flags);
  auto found = handles_.find(handle);
  if (result != CUDA_SUCCESS || found == handles_.end()) return result;
  found->second->exported = true;
  ledger::MarkExported(ViewOf(p, found->second->gpu));
  return result;
}

CUresult Vmm::Import(decltype(&::cuMemImportFromShareableHandle) real, CUmemGenericAllocationHandle* handle,
                     void* os_handle, CUmemAllocationHandleType type) {
  std::lock_guard lock(mutex_);
  const CUresult result = real(handle, os_handle, type);
  if (result != CUDA_SUCCESS || handle == nullptr) return result;
  auto found = handles_.find(*handle);  // the driver gave the same one again
  if (found != handles_.end()) ++found->second->handles;
  return result;
}

}  // namespace mete::interceptor
