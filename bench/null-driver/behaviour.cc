// The null driver: a libcuda of constant cost, for measuring what mete adds to a call and for testing what it counts.
//
// Nothing is computed. Launches are complete at once, or after null_driver_kernel_ns each, one after the other. Without
// tracking, addresses only go up and nothing is remembered; with it (null_driver_track), the driver keeps the truth
// about its memory the slow way, packs small blocks into granules, keeps freed pool memory until the next
// synchronisation, and refuses what does not fit. No system call but in tracking and when asked to wait. Every other
// function of the public driver API is generated and succeeds at once.
#include <errno.h>

#include "bench/null-driver/state.h"

#pragma GCC visibility push(default)

extern "C" {

void null_driver_track(int on) { track = on != 0; }
void null_driver_kernel_ns(unsigned long long ns) { kernel_ns = ns; }
unsigned long long null_driver_used(int device) {
  std::lock_guard lock(mutex);
  return used[device];
}
unsigned long long null_driver_events_on_captured_streams() { return captured_events; }

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return Look(symbol, pfn, cudaVersion, flags, nullptr);
}
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  return Look(symbol, pfn, cudaVersion, flags, symbolStatus);
}

CUresult cuDeviceGetCount(int* count) { return *count = kDevices, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  return *device = ordinal, CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  memset(uuid, 0xAB, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  return bytes == nullptr ? CUDA_ERROR_INVALID_VALUE : (*bytes = kTotal, CUDA_SUCCESS);
}
CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice) {
  return bytes == nullptr ? CUDA_ERROR_INVALID_VALUE : (*bytes = 0xFFFFFFFFu, CUDA_SUCCESS);
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  Context* context = Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (free != nullptr) *free = kTotal - used[context->device];
  if (total != nullptr) *total = kTotal;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  if (free != nullptr) *free = 0xFFFFFFFFu;
  if (total != nullptr) *total = 0xFFFFFFFFu;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int, CUdevice device) {
  if (context == nullptr || device < 0 || device >= kDevices || depth == 16) return CUDA_ERROR_INVALID_VALUE;
  auto* fresh = new Context{device};
  const CUresult result = OpenContext(fresh);
  if (result != CUDA_SUCCESS) return delete fresh, result;
  stack[depth++] = fresh;
  *context = reinterpret_cast<CUcontext>(fresh);
  return CUDA_SUCCESS;
}
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned int flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int, unsigned int flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxDestroy_v2(CUcontext context) { return CloseContext(reinterpret_cast<Context*>(context)); }
CUresult cuCtxDestroy(CUcontext context) { return CloseContext(reinterpret_cast<Context*>(context)); }
// As large as a context, and its own context when it is converted.
CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc, CUdevice device, unsigned int) {
  if (green == nullptr || device < 0 || device >= kDevices) return CUDA_ERROR_INVALID_VALUE;
  auto* fresh = new Context{device};
  const CUresult result = OpenContext(fresh);
  if (result != CUDA_SUCCESS) return delete fresh, result;
  *green = reinterpret_cast<CUgreenCtx>(fresh);
  return CUDA_SUCCESS;
}
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  return *context = reinterpret_cast<CUcontext>(green), CUDA_SUCCESS;
}
CUresult cuGreenCtxDestroy(CUgreenCtx green) { return CloseContext(reinterpret_cast<Context*>(green)); }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = reinterpret_cast<CUcontext>(Current()), CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) {
  if (depth == 0) depth = 1;
  stack[depth - 1] = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (depth == 16) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --depth;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(stack[depth]);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  Context* context = Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return *device = context->device, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (context == nullptr || device < 0 || device >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  if (primary_users[device] == 0) {
    const CUresult result = OpenContext(&primary[device]);
    if (result != CUDA_SUCCESS) return result;
  }
  ++primary_users[device];
  *context = reinterpret_cast<CUcontext>(&primary[device]);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (device < 0 || device >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  if (primary_users[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return --primary_users[device] == 0 ? CloseContext(&primary[device]) : CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  if (device < 0 || device >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  if (primary_users[device] == 0) return CUDA_SUCCESS;
  primary_users[device] = 0;
  return CloseContext(&primary[device]);
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) { return Alloc(p, bytes); }
CUresult cuMemAlloc(CUdeviceptr_v1* p, unsigned int bytes) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  const CUresult result = Alloc(&wide, bytes);
  if (result == CUDA_SUCCESS) *p = static_cast<CUdeviceptr_v1>(wide);
  return result;
}
CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes, unsigned int) { return Alloc(p, bytes); }
CUresult cuMemAllocPitch_v2(CUdeviceptr* p, size_t* pitch, size_t width, size_t height, unsigned int) {
  if (pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pitch = Round(width, 512);
  return Alloc(p, *pitch * height);
}
CUresult cuMemFree_v2(CUdeviceptr p) { return Free(p); }
CUresult cuMemFree(CUdeviceptr_v1 p) {
  if (!track) return CUDA_SUCCESS;
  std::lock_guard lock(mutex);
  for (auto it = blocks.begin(); it != blocks.end(); ++it) {
    if (static_cast<CUdeviceptr_v1>(it->first) == p) return FreeBlock(it), CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream) { return Free(p); }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream) { return Free(p); }

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return *pool = reinterpret_cast<CUmemoryPool>(&default_pool[device]), CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr* p, size_t bytes, CUstream) {
  Context* context = Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return PoolAlloc(p, bytes, &default_pool[context->device]);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* p, size_t bytes, CUstream stream) {
  return cuMemAllocAsync(p, bytes, stream);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* p, size_t bytes, CUmemoryPool pool, CUstream) {
  return PoolAlloc(p, bytes, reinterpret_cast<NullPool*>(pool));
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* p, size_t bytes, CUmemoryPool pool, CUstream) {
  return PoolAlloc(p, bytes, reinterpret_cast<NullPool*>(pool));
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.id < 0 || properties->location.id >= kDevices) return CUDA_ERROR_INVALID_VALUE;
  return *pool = reinterpret_cast<CUmemoryPool>(new NullPool{properties->location.id}), CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  auto* dead = reinterpret_cast<NullPool*>(pool);
  if (dead == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex);
  dead->destroyed = true;  // what is live stays until it is freed, so the object does
  TrimLocked(dead);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : (Trim(reinterpret_cast<NullPool*>(pool)), CUDA_SUCCESS);
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const auto* p = reinterpret_cast<NullPool*>(pool);
  unsigned long long answer = 0;
  if (track.load(std::memory_order_relaxed)) {
    std::lock_guard lock(mutex);
    answer = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? p->reserved : p->live;
  }
  memcpy(value, &answer, sizeof answer);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* p,
                     unsigned long long) {
  if (handle == nullptr || p == nullptr || bytes == 0 || bytes % kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex);
  const bool device = p->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int id = device ? p->location.id : 0;
  if (id < 0 || id >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  if (!Take(id, device ? bytes : 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = next_handle++;
  handles[*handle] = new Physical{device ? bytes : 0, id, 1, 0};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex);
  auto it = handles.find(handle);
  if (it == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  Physical* physical = it->second;
  if (--physical->handles == 0) handles.erase(it);
  EndPhysical(physical);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* p, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  std::lock_guard lock(mutex);
  return *p = Round(next_address.fetch_add(Round(bytes, kGranule) + kGranule), kGranule), CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  std::lock_guard lock(mutex);
  auto it = handles.find(handle);
  if (it == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  ++it->second->mappings;
  mappings[p] = {bytes, it->second};
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  std::lock_guard lock(mutex);
  bool any = false;
  for (auto it = mappings.lower_bound(p); it != mappings.end() && it->first < p + bytes; it = mappings.erase(it)) {
    any = true;
    --it->second.second->mappings;
    EndPhysical(it->second.second);
  }
  return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* p) {
  std::lock_guard lock(mutex);
  auto it = mappings.upper_bound(reinterpret_cast<unsigned long long>(p));
  if (it == mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  Physical* physical = std::prev(it)->second.second;
  for (auto& [key, value] : handles) {
    if (value == physical) return *handle = key, ++physical->handles, CUDA_SUCCESS;
  }
  *handle = next_handle++;
  ++physical->handles;
  handles[*handle] = physical;
  return CUDA_SUCCESS;
}

// Nobody closes what is exported: the memory stays for good.
CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
  std::lock_guard lock(mutex);
  auto it = handles.find(handle);
  if (it == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  ++it->second->outside;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
  std::lock_guard lock(mutex);
  auto it = blocks.upper_bound(p);
  if (it == blocks.begin()) return CUDA_ERROR_NOT_FOUND;
  --it;
  if (p - it->first >= it->second.bytes) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = it->first;
  if (size != nullptr) *size = it->second.bytes;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return MakeModule(module, image); }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  return MakeModule(module, image);
}
CUresult cuModuleUnload(CUmodule module) { return DestroyObject(module); }
CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned int, CUlibraryOption*,
                           void**, unsigned int) {
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return *library = reinterpret_cast<CUlibrary>(new int), CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : (*value = limits[limit], CUDA_SUCCESS);
}
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : (limits[limit] = value, CUDA_SUCCESS);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT             ? 108
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR ? 2048
                                                                             : 0;
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE
                      : MakeArray(array, d->Width, d->Height, 1, TexelBytes(d->Format, d->NumChannels), 1);
}
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE
                      : MakeArray(array, d->Width, d->Height, d->Depth, TexelBytes(d->Format, d->NumChannels), 1);
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned int levels) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE
                      : MakeArray(array, d->Width, d->Height, d->Depth, TexelBytes(d->Format, d->NumChannels), levels);
}
CUresult cuArrayDestroy(CUarray array) { return DestroyObject(array); }
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) { return DestroyObject(array); }
CUresult cuImportExternalMemory(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeArray(memory, d->size, 1, 1, 1, 1);
}
CUresult cuDestroyExternalMemory(CUexternalMemory memory) { return DestroyObject(memory); }

CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void**, void**) {
  return Launch();
}
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void**, void**) {
  return Launch();
}
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   CUstream, void**) {
  return Launch();
}
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) { return Launch(); }
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig*, CUfunction, void**, void**) { return Launch(); }
CUresult cuLaunch(CUfunction) { return Launch(); }
CUresult cuLaunchGrid(CUfunction, int, int) { return Launch(); }
CUresult cuLaunchGridAsync(CUfunction, int, int, CUstream) { return Launch(); }

CUresult cuGraphCreate(CUgraph* graph, unsigned int) {
  return *graph = reinterpret_cast<CUgraph>(new NullGraph), CUDA_SUCCESS;
}
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  auto* fresh = new NullNode{*parameters};
  reinterpret_cast<NullGraph*>(graph)->nodes.push_back(fresh);
  *node = reinterpret_cast<CUgraphNode>(fresh);
  return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& all = reinterpret_cast<NullGraph*>(graph)->nodes;
  for (size_t i = 0; nodes != nullptr && i < std::min(*count, all.size()); ++i)
    nodes[i] = reinterpret_cast<CUgraphNode>(all[i]);
  *count = nodes == nullptr ? all.size() : std::min(*count, all.size());
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType* type) {
  return *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_SUCCESS;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return *parameters = reinterpret_cast<NullNode*>(node)->parameters, CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return *exec = reinterpret_cast<CUgraphExec>(MakeExec(reinterpret_cast<NullGraph*>(graph))), CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec exec, CUstream) {
  return exec == nullptr || !track ? CUDA_SUCCESS : LaunchGraph(reinterpret_cast<NullExec*>(exec));
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  const bool counted = exec != nullptr && track.load(std::memory_order_relaxed);
  const CUresult result = counted ? LaunchGraph(reinterpret_cast<NullExec*>(exec)) : CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? Launch() : result;
}
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (device < 0 || device >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex);
  ++trims;
  for (int each = 0; each < kDevices; ++each) Give(each, graph_memory[each]), graph_memory[each] = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute, void* value) {
  if (device < 0 || device >= kDevices || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex);
  memcpy(value, &graph_memory[device], sizeof graph_memory[device]);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned int) {
  return *stream = reinterpret_cast<CUstream>(new Stream), CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }  // kept, so that a late use is seen rather than fatal
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  if (IsReal(stream)) Of(stream)->capturing = true;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  if (IsReal(stream)) Of(stream)->capturing = false;
  return *graph = nullptr, CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const bool capturing = IsReal(stream) && Of(stream)->capturing;
  *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) { return Synchronize(); }
CUresult cuStreamSynchronize_ptsz(CUstream) { return Synchronize(); }
CUresult cuCtxSynchronize(void) { return Synchronize(); }
CUresult cuStreamQuery(CUstream) {
  const unsigned long long until = busy_until.load(std::memory_order_relaxed);
  return until == 0 || Now() >= until ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventCreate(CUevent* event, unsigned int) {
  return *event = reinterpret_cast<CUevent>(new Event), CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (IsReal(stream) && Of(stream)->capturing) ++captured_events;
  Event& recorded = *reinterpret_cast<Event*>(event);
  const unsigned long long until = busy_until.load(std::memory_order_relaxed);
  recorded.ready_at.store(until, std::memory_order_relaxed);
  if (kernel_ns.load(std::memory_order_relaxed) != 0)
    recorded.happened_at.store(std::max(until, Now()), std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  const unsigned long long from = reinterpret_cast<Event*>(start)->happened_at;
  const unsigned long long to = reinterpret_cast<Event*>(end)->happened_at;
  if (from == 0 || to == 0) return CUDA_ERROR_INVALID_HANDLE;  // no times are kept
  *ms = static_cast<float>((static_cast<double>(to) - static_cast<double>(from)) / 1e6);
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned long long at = reinterpret_cast<Event*>(event)->ready_at.load(std::memory_order_relaxed);
  return at == 0 || Now() >= at ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return WaitUntil(reinterpret_cast<Event*>(event)->ready_at.load(std::memory_order_relaxed));
}
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }

}  // extern "C"

#pragma GCC visibility pop
