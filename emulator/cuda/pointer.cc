// What a pointer is: the pointer attributes of the driver API.
#include <cstring>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {
namespace {

bool IsHostSide(AllocationKind kind) { return kind == AllocationKind::kHost || kind == AllocationKind::kRegistered; }

// `found` empty: memory that the driver does not know.
CUresult Answer(const std::optional<Allocation>& found, CUpointer_attribute attribute, uint64_t address, void* data) {
  auto put = [data](auto value) {
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  const Allocation& a = *found;
  const bool host = IsHostSide(a.kind);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(a.kind == AllocationKind::kMapped || a.kind == AllocationKind::kPool ||
                         a.kind == AllocationKind::kGraph
                     ? CUcontext{nullptr}
                     : ToHandle<CUcontext>(static_cast<Handle*>(a.context)));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(static_cast<unsigned int>(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host && a.kind != AllocationKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return put(reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(static_cast<unsigned int>(a.sync_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(static_cast<unsigned long long>(a.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(static_cast<unsigned int>(a.kind == AllocationKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(Driver::Get()->OrdinalOf(a.context->device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(static_cast<unsigned int>(a.kind == AllocationKind::kLinear));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return put(0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put(CUdeviceptr{a.address});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put(size_t{a.bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put(0ull);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(static_cast<unsigned int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(reinterpret_cast<CUmemoryPool>(a.pool));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return put(static_cast<unsigned long long>(a.id));
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// What an unknown pointer gives in the query of several attributes: nothing, without an error.
void Nothing(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: memset(data, 0, 8); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      const int none = -2;  // an invalid device
      memcpy(data, &none, sizeof none);
      break;
    }
    default: memset(data, 0, 4); break;
  }
}

}  // namespace

CUresult api::cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Answer(Allocations::Get().Find(address), attribute, address, data);
}

CUresult api::cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                     CUdeviceptr address) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (count == 0 || !IsList(attributes, count) || !IsList(data, count)) return CUDA_ERROR_INVALID_VALUE;
  // All of the question is looked at before anything is written.
  for (unsigned int i = 0; i < count; ++i) {
    if (data[i] == nullptr || attributes[i] < 1 || attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
      return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found = Allocations::Get().Find(address);
  for (unsigned int i = 0; i < count; ++i) {
    if (Answer(found, attributes[i], address, data[i]) != CUDA_SUCCESS) Nothing(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  unsigned int on = 0;
  memcpy(&on, value, sizeof on);
  return Allocations::Get().SetSyncMemops(address, on != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace mete::emulator::cuda
