// Virtual memory management: physical memory belongs to its allocation, which lives until the last handle is released
// and the last mapping is gone, in whatever order. It is charged on the GPU its properties name, from creation to end.
// If it was exported, others may hold it longer: then what we give up is deferred (deferred.h).
//
// One lock over the driver call and the record together: these calls take the driver many microseconds anyway, and a
// handle or address that the driver reuses at once can then never meet an older record. Bytes throughout.
#ifndef METE_INTERCEPTOR_VMM_H_
#define METE_INTERCEPTOR_VMM_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "interceptor/cuda_api.h"

namespace mete::interceptor {

struct Process;

class Vmm {
 public:
  CUresult Create(Process& p, decltype(&::cuMemCreate) real, CUmemGenericAllocationHandle* handle, size_t size,
                  const CUmemAllocationProp* properties, unsigned long long flags);
  CUresult Release(Process& p, decltype(&::cuMemRelease) real, CUmemGenericAllocationHandle handle);
  CUresult Map(decltype(&::cuMemMap) real, CUdeviceptr address, size_t size, size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags);
  CUresult Unmap(Process& p, decltype(&::cuMemUnmap) real, CUdeviceptr address, size_t size);
  CUresult Retain(decltype(&::cuMemRetainAllocationHandle) real, CUmemGenericAllocationHandle* handle, void* address);
  CUresult Export(Process& p, decltype(&::cuMemExportToShareableHandle) real, void* os_handle,
                  CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags);
  // Memory of somebody else in this share, who is charged for it while he has it; only another handle for us.
  CUresult Import(decltype(&::cuMemImportFromShareableHandle) real, CUmemGenericAllocationHandle* handle,
                  void* os_handle, CUmemAllocationHandleType type);

 private:
  struct Allocation {
    uint64_t bytes;
    uint32_t gpu;
    uint64_t handles;
    uint64_t mappings;
    bool exported;
  };
  struct Mapping {
    uint64_t bytes;
    Allocation* allocation;
  };
  void EndIfUnused(Process& p, Allocation* allocation);

  std::mutex mutex_;
  std::unordered_map<CUmemGenericAllocationHandle, Allocation*> handles_;
  std::map<CUdeviceptr, Mapping> mappings_;
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_VMM_H_
