// Stream-ordered memory: pools, and allocations from them. A pool keeps what it reserved until a synchronisation finds
// it above the release threshold. Memory is freed when the free is reached in its stream, ahead of modelled time;
// whoever gets it next is ordered after that by the executor.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/graph.h"
#include "emulator/cuda/graph_memory.h"
#include "emulator/cuda/import.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {

struct Pool : Handle {
  static constexpr HandleKind kKind = HandleKind::kPool;
  Pool() : Handle(kKind) {}
  Device* device = nullptr;
  bool is_default = false;
  // Of a pool whose memory other processes may open, or that another process has made.
  std::shared_ptr<ShareFile> shared;
  bool imported = false;
  std::unordered_map<int, CUmemAccess_flags> access;  // of other devices, by ordinal; guarded by mutex
  std::atomic<uint64_t> granted{0};                   // the same, as bits
  uint64_t max_bytes = 0;
  std::mutex mutex;  // of what follows
  uint64_t release_threshold = 0;
  int reuse[4] = {0, 1, 1, 1};                                // by attribute number
  std::unordered_map<Context*, std::unique_ptr<Heap>> heaps;  // the engine counts memory per context
  uint64_t live = 0;                                          // allocations not freed yet
  bool destroyed = false;                                     // goes when the last allocation is freed
};

namespace {

std::mutex g_pools_mutex;
std::vector<Pool*>& Pools() {
  static auto* pools = new std::vector<Pool*>;
  return *pools;
}

Pool* NewPool(Device* device) {
  auto* pool = new Pool;
  pool->device = device;
  std::lock_guard lock(g_pools_mutex);
  Pools().push_back(pool);
  return pool;
}

Pool* DefaultPool(Device* device) {
  std::lock_guard lock(device->mutex);
  if (device->default_pool == nullptr) {
    device->default_pool = NewPool(device);
    device->default_pool->is_default = true;
  }
  if (device->current_pool == nullptr) device->current_pool = device->default_pool;
  return device->default_pool;
}

Pool* CurrentPool(Device* device) {
  DefaultPool(device);
  std::lock_guard lock(device->mutex);
  return device->current_pool;
}

// While a stream captures, what it allocates is a graph's.
CUresult CaptureAllocation(const Pool* pool, uint64_t bytes, Stream* stream, CUdeviceptr* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, Driver::Get()->OrdinalOf(pool->device)};
  parameters.bytesize = bytes;
  AllocateOperation operation;
  if (CUresult error = NewGraphAllocation(parameters, &operation.allocation)) return error;
  const uint64_t address = operation.allocation->address;
  if (CUresult error = Perform(stream, std::move(operation))) return error;
  *out = address;
  return CUDA_SUCCESS;
}

CUresult AllocateFrom(Pool* pool, Context* context, uint64_t bytes, CUstream stream_handle, CUdeviceptr* out) {
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  if (out == nullptr || bytes == 0 || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (pool->device != context->device) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing.load()) return CaptureAllocation(pool, bytes, stream, out);
  if (CUresult error = RefuseWhileCapturing(context, stream)) return error;
  uint64_t address = 0;
  for (int attempt = 0;; ++attempt) {
    CUresult error;
    {
      std::lock_guard lock(pool->mutex);
      auto& heap = pool->heaps[context];
      if (heap == nullptr) {
        heap = std::make_unique<Heap>(context, true);
        heap->SetLimit(pool->max_bytes);
        heap->SetGranted(&pool->granted);
      }
      error = heap->Allocate(bytes, &address);
      if (error == CUDA_SUCCESS) ++pool->live;
    }
    if (error == CUDA_SUCCESS) break;
    if (error != CUDA_ERROR_OUT_OF_MEMORY || attempt == 1) return error;
    TrimPools(context, true);
  }
  Allocation allocation;
  allocation.kind = AllocationKind::kPool;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.context = context;
  allocation.pool = pool;
  Allocations::Get().Add(std::move(allocation));
  *out = address;
  return CUDA_SUCCESS;
}

CUresult FindPool(CUmemoryPool handle, Pool** pool) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *pool = FromHandle<Pool>(handle);
  return *pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult FindDevice(const CUmemLocation* location, Device** device) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;  // as the attributes say
  *device = driver->DeviceAt(location->id);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

bool FreeFromPool(const Allocation& a) {
  std::lock_guard lock(a.pool->mutex);
  auto it = a.pool->heaps.find(a.context);
  if (it == a.pool->heaps.end() || it->second->Free(a.address) == 0) return false;
  --a.pool->live;
  if (a.pool->destroyed && a.pool->live == 0) {
    for (auto& [context, heap] : a.pool->heaps) heap->Trim(0);
  }
  return true;
}

void TrimPools(Context* context, bool all) {
  std::lock_guard pools_lock(g_pools_mutex);
  for (Pool* pool : Pools()) {
    if (pool->device != context->device) continue;
    std::lock_guard lock(pool->mutex);
    for (auto& [owner, heap] : pool->heaps) heap->Trim(all ? 0 : pool->release_threshold);
  }
}

void DropPoolMemory(Context* context) {
  std::lock_guard pools_lock(g_pools_mutex);
  for (Pool* pool : Pools()) {
    std::lock_guard lock(pool->mutex);
    pool->heaps.erase(context);
  }
}

namespace {

CUresult CaptureFree(Stream* stream, const std::shared_ptr<GraphAllocation>& allocation) {
  if (CUresult error = Perform(stream, FreeOperation{allocation->address, allocation})) return error;
  std::lock_guard lock(GraphMutex());
  for (const GraphNode* node : stream->capture != nullptr ? stream->capture->graph->nodes : std::vector<GraphNode*>{}) {
    const auto* allocate = std::get_if<AllocateOperation>(&node->operation);
    if (allocate != nullptr && allocate->allocation == allocation) allocation->freed_by_graph = true;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  return AllocateFrom(CurrentPool(context->device), context, bytes, stream, out);
}

CUresult api::cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool handle, CUstream stream) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto* pool = FromHandle<Pool>(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AllocateFrom(pool, context, bytes, stream, out);
}

CUresult api::cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const auto graph = FindGraphAllocation(address)) {
    if (stream->capturing.load()) {
      if (graph->freed_by_graph) return CUDA_ERROR_INVALID_VALUE;
      return CaptureFree(stream, graph);
    }
    if (!ClaimGraphFree(*graph)) return CUDA_ERROR_INVALID_VALUE;
    return Perform(stream, FreeOperation{address, graph});
  }
  if (CUresult error = RefuseWhileCapturing(context, stream)) return error;
  auto found = Allocations::Get().Find(address);
  if (!found || found->address != address) return CUDA_ERROR_INVALID_VALUE;
  if (found->kind == AllocationKind::kImported && found->pool != nullptr) {
    Item item;
    item.light = true;
    item.effect = [address](Work*) {
      CloseImport(address);
      return false;
    };
    return context->executor.Enqueue(stream, std::move(item));
  }
  if (found->kind != AllocationKind::kLinear && found->kind != AllocationKind::kPool) return CUDA_ERROR_INVALID_VALUE;
  auto taken = Allocations::Get().Take(address);
  if (!taken) return CUDA_ERROR_INVALID_VALUE;
  Item item;
  item.light = true;
  item.effect = [allocation = *taken](Work*) {
    FreeAllocation(allocation);
    return false;
  };
  return context->executor.Enqueue(stream, std::move(item));
}

CUresult api::cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) {
  const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
  Device* device = nullptr;
  if (CUresult error = FindDevice(&location, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUmemoryPool>(DefaultPool(device));
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) {
  const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
  Device* device = nullptr;
  if (CUresult error = FindDevice(&location, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUmemoryPool>(CurrentPool(device));
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
  Device* device = nullptr;
  if (CUresult error = FindDevice(&location, &device)) return error;
  if (pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(device->mutex);
  device->current_pool = pool;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(location, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  *out = ToHandle<CUmemoryPool>(DefaultPool(device));
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(location, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  *out = ToHandle<CUmemoryPool>(CurrentPool(device));
  return CUDA_SUCCESS;
}

CUresult api::cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(location, &device)) return error;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  return api::cuDeviceSetMemPool(location->id, pool);
}

CUresult api::cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  const bool shared = props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!shared && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  Device* device = nullptr;
  if (CUresult error = FindDevice(&props->location, &device)) return error;
  std::shared_ptr<ShareFile> file;
  if (shared && (file = ShareFile::Make(ShareKind::kPool, 0, device)) == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Pool* pool = NewPool(device);
  pool->max_bytes = props->maxSize;
  pool->shared = std::move(file);
  *out = ToHandle<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolDestroy(CUmemoryPool handle) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(pool->device->mutex);
    if (pool->device->current_pool == pool) pool->device->current_pool = pool->device->default_pool;
  }
  std::lock_guard lock(pool->mutex);
  pool->kind.store(HandleKind::kDead);
  pool->destroyed = true;
  for (auto& [context, heap] : pool->heaps) heap->Trim(0);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  std::lock_guard lock(pool->mutex);
  for (auto& [context, heap] : pool->heaps) heap->Trim(keep);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(pool->mutex);
  auto sum = [pool](uint64_t (Heap::*of)() const) {
    cuuint64_t total = 0;
    for (auto& [context, heap] : pool->heaps) total += (heap.get()->*of)();
    return total;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *static_cast<int*>(value) = pool->reuse[attribute]; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *static_cast<cuuint64_t*>(value) = pool->release_threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *static_cast<cuuint64_t*>(value) = sum(&Heap::reserved); break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *static_cast<cuuint64_t*>(value) = sum(&Heap::reserved_high); break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *static_cast<cuuint64_t*>(value) = sum(&Heap::used); break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *static_cast<cuuint64_t*>(value) = sum(&Heap::used_high); break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(pool->mutex);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->reuse[attribute] = *static_cast<int*>(value) != 0;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->release_threshold = *static_cast<cuuint64_t*>(value); break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;  // can only be reset
      for (auto& [context, heap] : pool->heaps) {
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) heap->ResetUsedHigh();
        if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) heap->ResetReservedHigh();
      }
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  if (!IsList(map, count)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Device* device = nullptr;
    if (CUresult error = FindDevice(&map[i].location, &device)) return error;
    if (device == pool->device) {
      if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;  // it always has it
      continue;
    }
    if (map[i].flags != 0 && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (!CanReach(*device, *pool->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    std::lock_guard lock(pool->mutex);
    pool->access[map[i].location.id] = map[i].flags;
    const uint64_t bit = 1ull << map[i].location.id;
    pool->granted.store((pool->granted.load() & ~bit) | (map[i].flags != 0 ? bit : 0));
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  Device* device = nullptr;
  if (CUresult error = FindDevice(location, &device)) return error;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(pool->mutex);
  auto it = pool->access.find(location->id);
  *flags = device == pool->device     ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : it != pool->access.end() ? it->second
                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                               unsigned long long flags) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(handle, &pool)) return error;
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pool->shared == nullptr ||
      pool->imported)
    return CUDA_ERROR_INVALID_VALUE;
  const int descriptor = fcntl(pool->shared->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = descriptor;
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* os_handle, CUmemAllocationHandleType type,
                                                 unsigned long long flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const auto given = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  std::shared_ptr<ShareFile> file = ShareFile::Open(fcntl(given, F_DUPFD_CLOEXEC, 0), ShareKind::kPool);
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = file->device();
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Pool* pool = NewPool(device);
  pool->shared = std::move(file);
  pool->imported = true;
  *out = ToHandle<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  const auto found = Allocations::Get().Find(address);
  if (out == nullptr || !found || found->kind != AllocationKind::kPool || found->pool->shared == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  ShareHandle handle{};
  if (CUresult error = ShareAllocation(address, &handle)) return error;
  memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool pool_handle, CUmemPoolPtrExportData* data) {
  Pool* pool = nullptr;
  if (CUresult error = FindPool(pool_handle, &pool)) return error;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || data == nullptr || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  ShareHandle handle{};
  memcpy(&handle, data, sizeof handle);
  const CUresult result = OpenImport(context, handle, pool, out);
  return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
}

}  // namespace mete::emulator::cuda
