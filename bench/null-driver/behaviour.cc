// The null driver: a libcuda of constant cost, for measuring what mete adds to a call and for testing what it counts.
//
// Nothing is computed. Launches are complete at once, or after null_driver_kernel_ns each, one after the other. Without
// tracking, addresses only go up and nothing is remembered; with it (null_driver_track), the driver keeps the truth
// about its memory the slow way, packs small blocks into granules, keeps freed pool memory until the next
// synchronisation, and refuses what does not fit. No system call but in tracking and when asked to wait. Every other
// function of the public driver API is generated and succeeds at once.
#include <errno.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#define METE_CUDA_NO_ALIASES
#include "mete/cuda.h"

#pragma GCC visibility push(default)

extern "C" {
struct NullEntry {
  const char* symbol;
  const char* name;
  int version;
  int stream;  // 0 none, 1 legacy, 2 per thread
  void* address;
};
extern const NullEntry null_entries[];
extern const unsigned null_entry_count;

void null_driver_track(int on);
void null_driver_kernel_ns(unsigned long long ns);
unsigned long long null_driver_used(int device);
unsigned long long null_driver_events_on_captured_streams();
}

namespace {

constexpr int kDevices = 2;
constexpr unsigned long long kTotal = 40ull << 30, kGranule = 2ull << 20, kContext = 300ull << 20;

struct Context {
  int device;
};
struct Event {
  std::atomic<unsigned long long> ready_at{0};
};
struct Stream {
  bool capturing = false;
};
struct Block {
  unsigned long long bytes;
  int device;
  const void* owner;  // context, or pool
  bool pooled;
};
struct Physical {
  unsigned long long bytes;
  int device, handles, mappings;
};
struct NullPool {
  int device;
  unsigned long long live = 0, reserved = 0;
};

std::atomic<bool> track{false};
std::atomic<unsigned long long> kernel_ns{0}, busy_until{0}, next_address{0x700000200000ull}, next_handle{1};
std::atomic<unsigned long long> captured_events{0};
NullPool default_pool[kDevices] = {{0}, {1}};
std::mutex mutex;
std::map<unsigned long long, Block> blocks;
std::map<std::pair<int, unsigned long long>, int> granules;  // small blocks in each
std::unordered_map<unsigned long long, Physical*> handles;
std::map<unsigned long long, std::pair<unsigned long long, Physical*>> mappings;
std::unordered_map<const void*, Block> objects;  // arrays, contexts
unsigned long long used[kDevices];
Context primary[kDevices] = {{0}, {1}};
int primary_users[kDevices];
int entry_of[1024];  // by hash of the name: index + 1; chained through next_entry
int next_entry[2048];

thread_local Context* stack[16];
thread_local int depth = 0;

unsigned Hash(const char* name) {
  unsigned h = 2166136261u;
  for (; *name; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 16777619u;
  return h % 1024;
}

__attribute__((constructor)) void Index() {
  for (unsigned i = 0; i < null_entry_count; ++i) {
    int& head = entry_of[Hash(null_entries[i].name)];
    next_entry[i] = head;
    head = static_cast<int>(i) + 1;
  }
}

unsigned long long Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<unsigned long long>(t.tv_sec) * 1000000000ull + static_cast<unsigned long long>(t.tv_nsec);
}

Context* Current() { return depth == 0 ? nullptr : stack[depth - 1]; }
unsigned long long Round(unsigned long long bytes, unsigned long long unit) { return (bytes + unit - 1) / unit * unit; }

bool Take(int device, unsigned long long bytes) {  // with the lock
  if (bytes > kTotal - used[device]) return false;
  used[device] += bytes;
  return true;
}

// Small blocks share granules, as a driver's sub-allocator does: the address decides.
CUresult Alloc(CUdeviceptr* p, unsigned long long bytes) {
  if (p == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool small = bytes < kGranule / 2;
  const unsigned long long extent = Round(bytes, small ? 512 : kGranule);
  unsigned long long at = next_address.fetch_add(extent, std::memory_order_relaxed);
  if (!track.load(std::memory_order_relaxed)) {
    *p = at;
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mutex);
  // In its own granule, or within one: never across a boundary.
  if (!small || at / kGranule != (at + extent - 1) / kGranule) {
    at = Round(at, kGranule);
    next_address.store(at + extent, std::memory_order_relaxed);
  }
  if (small) {
    int& inside = granules[{context->device, at / kGranule}];
    if (inside == 0 && !Take(context->device, kGranule)) return CUDA_ERROR_OUT_OF_MEMORY;
    ++inside;
  } else if (!Take(context->device, extent)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  blocks[at] = {extent, context->device, context, false};
  *p = at;
  return CUDA_SUCCESS;
}

void FreeBlock(std::map<unsigned long long, Block>::iterator it) {  // with the lock
  const Block block = it->second;
  if (block.pooled) {
    auto* pool = static_cast<NullPool*>(const_cast<void*>(block.owner));
    pool->live -= block.bytes;
  } else if (block.bytes < kGranule / 2 + 512 && block.bytes % kGranule != 0) {
    if (--granules[{block.device, it->first / kGranule}] == 0) used[block.device] -= kGranule;
  } else {
    used[block.device] -= block.bytes;
  }
  blocks.erase(it);
}

CUresult Free(unsigned long long p) {
  if (!track.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard lock(mutex);
  auto it = blocks.find(p);
  if (it == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
  FreeBlock(it);
  return CUDA_SUCCESS;
}

CUresult PoolAlloc(CUdeviceptr* p, unsigned long long bytes, NullPool* pool) {
  if (p == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned long long at = next_address.fetch_add(Round(bytes, 512), std::memory_order_relaxed);
  *p = at;
  if (!track.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard lock(mutex);
  const unsigned long long needed = Round(pool->live + Round(bytes, 512), kGranule);
  if (needed > pool->reserved) {
    if (!Take(pool->device, needed - pool->reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
    pool->reserved = needed;
  }
  pool->live += Round(bytes, 512);
  blocks[at] = {Round(bytes, 512), pool->device, pool, true};
  return CUDA_SUCCESS;
}

void Trim(NullPool* pool) {
  std::lock_guard lock(mutex);
  const unsigned long long keeps = Round(pool->live, kGranule);
  if (keeps < pool->reserved) {
    used[pool->device] -= pool->reserved - keeps;
    pool->reserved = keeps;
  }
}

CUresult Launch() {
  const unsigned long long ns = kernel_ns.load(std::memory_order_relaxed);
  if (ns == 0) return CUDA_SUCCESS;
  const unsigned long long now = Now();
  unsigned long long until = busy_until.load(std::memory_order_relaxed);
  while (!busy_until.compare_exchange_weak(until, (until > now ? until : now) + ns)) {
  }
  return CUDA_SUCCESS;
}

CUresult WaitUntil(unsigned long long ns) {
  if (ns == 0 || Now() >= ns) return CUDA_SUCCESS;
  const timespec t{static_cast<time_t>(ns / 1000000000ull), static_cast<long>(ns % 1000000000ull)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
  return CUDA_SUCCESS;
}

CUresult Synchronize() {
  const CUresult result = WaitUntil(busy_until.load(std::memory_order_relaxed));
  if (track.load(std::memory_order_relaxed)) {
    for (NullPool& pool : default_pool) Trim(&pool);
  }
  return result;
}

bool IsReal(CUstream s) { return reinterpret_cast<unsigned long long>(s) > 2; }
Stream* Of(CUstream s) { return reinterpret_cast<Stream*>(s); }

template <typename Handle>
CUresult MakeArray(Handle* handle, unsigned long long width, unsigned long long height, unsigned long long layers,
                   unsigned channels) {
  Context* context = Current();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const unsigned long long bytes = Round(width * (height ? height : 1) * (layers ? layers : 1) * 4 * channels, 65536);
  auto* object = new int;
  *handle = reinterpret_cast<Handle>(object);
  std::lock_guard lock(mutex);
  if (!Take(context->device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  objects[object] = {bytes, context->device, context, false};
  return CUDA_SUCCESS;
}

CUresult DestroyObject(const void* object) {
  std::lock_guard lock(mutex);
  auto it = objects.find(object);
  if (it == objects.end()) return CUDA_ERROR_INVALID_HANDLE;
  used[it->second.device] -= it->second.bytes;
  objects.erase(it);
  return CUDA_SUCCESS;
}

CUresult OpenContext(Context* context) {
  std::lock_guard lock(mutex);
  if (!Take(context->device, kContext)) return CUDA_ERROR_OUT_OF_MEMORY;
  objects[context] = {kContext, context->device, context, false};
  return CUDA_SUCCESS;
}

CUresult CloseContext(Context* context) {
  std::lock_guard lock(mutex);
  if (objects.find(context) == objects.end()) return CUDA_ERROR_INVALID_CONTEXT;
  for (auto it = blocks.begin(); it != blocks.end();) {
    auto next = std::next(it);
    if (it->second.owner == context) FreeBlock(it);
    it = next;
  }
  for (auto it = objects.begin(); it != objects.end();) {
    if (it->second.owner == context) {
      used[it->second.device] -= it->second.bytes;
      it = objects.erase(it);
    } else {
      ++it;
    }
  }
  if (Current() == context) stack[depth - 1] = nullptr, --depth;
  return CUDA_SUCCESS;
}

void EndPhysical(Physical* physical) {
  if (physical->handles != 0 || physical->mappings != 0) return;
  used[physical->device] -= physical->bytes;
  delete physical;
}

CUresult Look(const char* name, void** p, int version, unsigned long long flags,
              CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = nullptr;
  const NullEntry* best = nullptr;
  bool known = false;
  const int stream = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? 2 : 1;
  for (int i = entry_of[Hash(name)]; i != 0; i = next_entry[i - 1]) {
    const NullEntry& entry = null_entries[i - 1];
    if (strcmp(entry.name, name) != 0) continue;
    known = true;
    if (entry.version > version || (entry.stream != 0 && entry.stream != stream)) continue;
    if (best == nullptr || entry.version > best->version) best = &entry;
  }
  if (status != nullptr) {
    *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
              : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  if (best == nullptr) return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  *p = best->address;
  return CUDA_SUCCESS;
}

}  // namespace

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
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { return *bytes = kTotal, CUDA_SUCCESS; }
CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice) { return *bytes = 0xFFFFFFFFu, CUDA_SUCCESS; }
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
CUresult cuCtxDestroy_v2(CUcontext context) { return CloseContext(reinterpret_cast<Context*>(context)); }
CUresult cuCtxDestroy(CUcontext context) { return CloseContext(reinterpret_cast<Context*>(context)); }
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
  if (primary_users[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return --primary_users[device] == 0 ? CloseContext(&primary[device]) : CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  if (primary_users[device] == 0) return CUDA_SUCCESS;
  primary_users[device] = 0;
  return CloseContext(&primary[device]);
}

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) { return Alloc(p, bytes); }
CUresult cuMemAlloc(CUdeviceptr_v1* p, unsigned int bytes) {
  CUdeviceptr wide = 0;
  const CUresult result = Alloc(p == nullptr ? nullptr : &wide, bytes);
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
  return *pool = reinterpret_cast<CUmemoryPool>(new NullPool{properties->location.id}), CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  Trim(reinterpret_cast<NullPool*>(pool));  // what is live stays until it is freed, so the object does
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) { return Trim(reinterpret_cast<NullPool*>(pool)), CUDA_SUCCESS; }
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

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeArray(array, d->Width, d->Height, 1, d->NumChannels);
}
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeArray(array, d->Width, d->Height, d->Depth, d->NumChannels);
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned int) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeArray(array, d->Width, d->Height, d->Depth, d->NumChannels);
}
CUresult cuArrayDestroy(CUarray array) { return DestroyObject(array); }
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) { return DestroyObject(array); }
CUresult cuImportExternalMemory(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeArray(memory, d->size / 4, 1, 1, 1);
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
CUresult cuGraphLaunch(CUgraphExec, CUstream) { return Launch(); }

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
  reinterpret_cast<Event*>(event)->ready_at.store(busy_until.load(std::memory_order_relaxed),
                                                  std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  const unsigned long long at = reinterpret_cast<Event*>(event)->ready_at.load(std::memory_order_relaxed);
  return at == 0 || Now() >= at ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  return WaitUntil(reinterpret_cast<Event*>(event)->ready_at.load(std::memory_order_relaxed));
}
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }

}  // extern "C"

#pragma GCC visibility pop
