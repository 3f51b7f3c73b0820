// Advice about managed memory, prefetching, and questions about both. Managed memory is the process's own pages, so
// advice changes nothing but what is told of it; a prefetch takes the time that its bytes take on the bus.
#include "emulator/cuda/managed.h"

#include <cstring>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {
namespace {

std::mutex g_managed;

CUresult FindRange(CUdeviceptr address, size_t bytes, std::shared_ptr<Advice>* advice) {
  if (address == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto found = Allocations::Get().Find(address);
  if (!found || found->kind != AllocationKind::kManaged || bytes > found->bytes - (address - found->address))
    return CUDA_ERROR_INVALID_VALUE;
  *advice = found->advice;
  return CUDA_SUCCESS;
}

// A location as an id: a device's ordinal, or the host.
CUresult IdOf(const CUmemLocation& location, int* id) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (Driver::Get()->DeviceAt(location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      *id = location.id;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: *id = Advice::kHost; return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (location.id < 0) return CUDA_ERROR_INVALID_VALUE;
      *id = Advice::kHost;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUmemLocation FromDevice(CUdevice dev) {
  return {dev == Advice::kHost ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
          dev == Advice::kHost ? 0 : dev};
}

CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, const CUmemLocation& location) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  std::shared_ptr<Advice> known;
  if (CUresult error = FindRange(address, bytes, &known)) return error;
  int id = Advice::kNowhere;
  const bool needs_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (needs_place) {
    if (CUresult error = IdOf(location, &id)) return error;
  }
  std::lock_guard lock(g_managed);
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY: known->read_mostly = true; return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY: known->read_mostly = false; return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: known->preferred = id; return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: known->preferred = Advice::kNowhere; return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY: known->accessed_by.insert(id); return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY: known->accessed_by.erase(id); return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation& location, unsigned int flags,
                  CUstream stream_handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Advice> known;
  if (CUresult error = FindRange(address, bytes, &known)) return error;
  int id = Advice::kNowhere;
  if (CUresult error = IdOf(location, &id)) return error;
  if (CUresult error = RefuseWhileCapturing(context, stream)) return error;
  bool moves = false;
  {
    std::lock_guard lock(g_managed);
    const int before = known->last_prefetch == Advice::kNowhere ? Advice::kHost : known->last_prefetch;
    moves = before != id;
    known->last_prefetch = id;
  }
  Item item;
  item.light = true;
  item.effect = [id, bytes, moves](Work* work) {
    work->kind = id == Advice::kHost ? WorkKind::kCopyDeviceToHost : WorkKind::kCopyHostToDevice;
    work->bytes = bytes;
    return moves;
  };
  return context->executor.Enqueue(stream, std::move(item));
}

CUresult Answer(const Advice& a, CUmem_range_attribute attribute, void* data, size_t bytes) {
  int value = 0;
  auto type = [](int id) {
    return id == Advice::kNowhere ? CU_MEM_LOCATION_TYPE_INVALID
           : id == Advice::kHost  ? CU_MEM_LOCATION_TYPE_HOST
                                  : CU_MEM_LOCATION_TYPE_DEVICE;
  };
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: value = a.read_mostly; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: value = a.preferred; break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: value = a.last_prefetch; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: value = type(a.preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: value = std::max(a.preferred, 0); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: value = type(a.last_prefetch); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: value = std::max(a.last_prefetch, 0); break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (bytes == 0 || bytes % sizeof(int) != 0 || !IsMapped(data, bytes)) return CUDA_ERROR_INVALID_VALUE;
      auto* out = static_cast<int*>(data);
      auto next = a.accessed_by.begin();
      for (size_t i = 0; i < bytes / sizeof(int); ++i)
        out[i] = next != a.accessed_by.end() ? *next++ : Advice::kNowhere;
      return CUDA_SUCCESS;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes != sizeof value) return CUDA_ERROR_INVALID_VALUE;
  memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Several ranges at once; each range's location is the last one whose index is not beyond it.
CUresult PrefetchBatch(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations, size_t* indices,
                       size_t location_count, unsigned long long flags, CUstream stream) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (count == 0 || !IsList(addresses, count) || !IsList(sizes, count) || location_count == 0 ||
      location_count > count || !IsList(locations, location_count) || !IsList(indices, location_count) ||
      indices[0] != 0 || flags != 0 || stream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 1; i < location_count; ++i) {
    if (indices[i] <= indices[i - 1] || indices[i] >= count) return CUDA_ERROR_INVALID_VALUE;
  }
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    if (at + 1 < location_count && indices[at + 1] <= i) ++at;
    if (CUresult error = Prefetch(addresses[i], sizes[i], locations[at], 0, stream)) return error;
  }
  return CUDA_SUCCESS;
}

// What is discarded need not be kept; keeping it is allowed.
CUresult Discard(CUdeviceptr* addresses, size_t* sizes, size_t count, unsigned long long flags, CUstream handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (count == 0 || !IsList(addresses, count) || !IsList(sizes, count) || flags != 0 || handle == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, handle, &stream)) return error;
  std::shared_ptr<Advice> known;
  for (size_t i = 0; i < count; ++i) {
    if (CUresult error = FindRange(addresses[i], sizes[i], &known)) return error;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice dev) {
  return Advise(address, bytes, advice, FromDevice(dev));
}

CUresult api::cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return Advise(address, bytes, advice, location);
}

CUresult api::cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice dev, CUstream stream) {
  return Prefetch(address, bytes, FromDevice(dev), 0, stream);
}

CUresult api::cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
                                    CUstream stream) {
  return Prefetch(address, bytes, location, flags, stream);
}

CUresult api::cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations,
                                      size_t* indices, size_t location_count, unsigned long long flags,
                                      CUstream stream) {
  return PrefetchBatch(addresses, sizes, count, locations, indices, location_count, flags, stream);
}

CUresult api::cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count, unsigned long long flags,
                                     CUstream stream) {
  return Discard(addresses, sizes, count, flags, stream);
}

CUresult api::cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                                CUmemLocation* locations, size_t* indices, size_t location_count,
                                                unsigned long long flags, CUstream stream) {
  if (CUresult error = Discard(addresses, sizes, count, flags, stream)) return error;
  return PrefetchBatch(addresses, sizes, count, locations, indices, location_count, flags, stream);
}

CUresult api::cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                                     CUdeviceptr address, size_t bytes) {
  return api::cuMemRangeGetAttributes(&data, &data_bytes, &attribute, 1, address, bytes);
}

CUresult api::cuMemRangeGetAttributes(void** data, size_t* data_bytes, CUmem_range_attribute* attributes, size_t count,
                                      CUdeviceptr address, size_t bytes) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (count == 0 || !IsList(data, count) || !IsList(data_bytes, count) || !IsList(attributes, count))
    return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Advice> known;
  if (CUresult error = FindRange(address, bytes, &known)) return error;
  std::lock_guard lock(g_managed);
  for (size_t i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = Answer(*known, attributes[i], data[i], data_bytes[i])) return error;
  }
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
