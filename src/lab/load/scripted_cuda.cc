// A libcuda.so.1 for load_test: one GPU whose time is a number. Kernels take iterations × $METE_TEST_NS_PER_ITERATION
// ns (400) one after another, plus 3 µs each; every fourth launch waits 1 ms for a neighbour when $METE_TEST_NEIGHBOUR
// is set. Memory: $METE_TEST_MEMORY bytes (1 GiB). Nothing here waits.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#define METE_CUDA_NO_ALIASES
#include "mete/cuda.h"

namespace {

struct Gpu {
  std::mutex mutex;
  uint64_t now_ns = 0, used = 0, launches = 0;
  CUresult sticky = CUDA_SUCCESS;
};
Gpu g_gpu;

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? strtoull(text, nullptr, 10) : otherwise;
}

CUresult Take(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(g_gpu.mutex);
  if (g_gpu.sticky != CUDA_SUCCESS) return g_gpu.sticky;
  if (g_gpu.used + bytes > Setting("METE_TEST_MEMORY", 1 << 30)) return CUDA_ERROR_OUT_OF_MEMORY;
  g_gpu.used += bytes;
  return CUDA_SUCCESS;
}

template <typename T>
CUresult TakeFor(T* handle, uint64_t bytes) {
  CUresult result = Take(bytes);
  if (result == CUDA_SUCCESS) *handle = (T)0x10000;
  return result;
}

struct Kernel {
  char name[32];
};
struct Event {
  uint64_t at_ns;
};
// What programs leave to the context's end goes with it.
std::deque<Event> g_events;
std::deque<Kernel> g_kernels;

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) CUresult

API cuInit(unsigned) { return getenv("METE_TEST_NO_DEVICE") != nullptr ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
API cuDriverGetVersion(int* version) {
  *version = 12040;
  return CUDA_SUCCESS;
}
API cuGetErrorName(CUresult result, const char** name) {
  *name = result == CUDA_ERROR_OUT_OF_MEMORY        ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == CUDA_ERROR_ILLEGAL_ADDRESS    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == CUDA_ERROR_MISALIGNED_ADDRESS ? "CUDA_ERROR_MISALIGNED_ADDRESS"
          : result == CUDA_ERROR_LAUNCH_FAILED      ? "CUDA_ERROR_LAUNCH_FAILED"
                                                    : nullptr;
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
API cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
API cuDeviceGetName(char* name, int length, CUdevice) {
  strncpy(name, "Scripted GPU", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 10 : 2048;
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = (CUcontext)8;
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
API cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
API cuCtxSynchronize() { return g_gpu.sticky; }
API cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = Setting("METE_TEST_MEMORY", 1 << 30);
  *free = *total - g_gpu.used;
  return CUDA_SUCCESS;
}
API cuModuleLoadData(CUmodule* module, const void* image) {
  *module = (CUmodule)16;
  return strstr(static_cast<const char*>(image), ".visible .entry compute") != nullptr ? CUDA_SUCCESS
                                                                                       : CUDA_ERROR_INVALID_PTX;
}
API cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  std::lock_guard<std::mutex> lock(g_gpu.mutex);
  Kernel* kernel = &g_kernels.emplace_back();
  strncpy(kernel->name, name, sizeof(kernel->name) - 1);
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
API cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                   void** parameters, void**) {
  std::lock_guard<std::mutex> lock(g_gpu.mutex);
  const char* name = reinterpret_cast<Kernel*>(function)->name;
  if (strcmp(name, "illegal") == 0) g_gpu.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  if (strcmp(name, "misaligned") == 0) g_gpu.sticky = CUDA_ERROR_MISALIGNED_ADDRESS;
  if (strcmp(name, "trap") == 0) g_gpu.sticky = CUDA_ERROR_LAUNCH_FAILED;
  if (g_gpu.sticky != CUDA_SUCCESS) return CUDA_SUCCESS;
  uint32_t iterations = *static_cast<uint32_t*>(parameters[strcmp(name, "stream") == 0 ? 3 : 1]);
  if (getenv("METE_TEST_NEIGHBOUR") != nullptr && g_gpu.launches++ % 4 == 0) g_gpu.now_ns += 1'000'000;
  g_gpu.now_ns += 3000 + iterations * Setting("METE_TEST_NS_PER_ITERATION", 400);
  return CUDA_SUCCESS;
}
API cuStreamCreate(CUstream* stream, unsigned) {
  *stream = (CUstream)24;
  return CUDA_SUCCESS;
}
API cuStreamSynchronize(CUstream) { return g_gpu.sticky; }
API cuEventCreate(CUevent* event, unsigned) {
  std::lock_guard<std::mutex> lock(g_gpu.mutex);
  *event = reinterpret_cast<CUevent>(&g_events.emplace_back(Event{0}));
  return CUDA_SUCCESS;
}
API cuEventRecord(CUevent event, CUstream) {
  std::lock_guard<std::mutex> lock(g_gpu.mutex);
  reinterpret_cast<Event*>(event)->at_ns = g_gpu.now_ns;
  return CUDA_SUCCESS;
}
API cuEventSynchronize(CUevent) { return g_gpu.sticky; }
API cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  *ms = static_cast<float>(reinterpret_cast<Event*>(end)->at_ns - reinterpret_cast<Event*>(start)->at_ns) / 1e6f;
  return CUDA_SUCCESS;
}
API cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) { return TakeFor(pointer, bytes); }
API cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return TakeFor(pointer, *pitch * height);
}
API cuMemAllocManaged(CUdeviceptr* pointer, size_t, unsigned) {
  *pointer = 0x10000;  // never refuses, as a driver that oversubscribes
  return CUDA_SUCCESS;
}
API cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream) { return TakeFor(pointer, bytes); }
API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps*) {
  *pool = (CUmemoryPool)32;
  return CUDA_SUCCESS;
}
API cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool, CUstream) {
  return TakeFor(pointer, bytes);
}
API cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *granularity = 2 << 20;
  return CUDA_SUCCESS;
}
API cuMemAddressReserve(CUdeviceptr* pointer, size_t, size_t, CUdeviceptr, unsigned long long) {
  *pointer = 0x10000;
  return CUDA_SUCCESS;
}
API cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*, unsigned long long) {
  return TakeFor(handle, bytes);
}
API cuMemRelease(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
API cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) { return CUDA_SUCCESS; }
API cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
API cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* shape) {
  return TakeFor(array, shape->Width * shape->Height * 4 * shape->NumChannels);
}
API cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  return TakeFor(array, shape->Width * shape->Height * shape->Depth * 4 * shape->NumChannels);
}
// No cuMipmappedArrayCreate: an older driver.

API cuGetProcAddress_v2(const char* name, void** pfn, int version, cuuint64_t, CUdriverProcAddressQueryResult* how) {
  static const std::map<std::string, void*> names = {
#define ENTRY(symbol, plain) {#plain, reinterpret_cast<void*>(&symbol)},
      ENTRY(cuInit, cuInit) ENTRY(cuDriverGetVersion, cuDriverGetVersion) ENTRY(cuGetErrorName, cuGetErrorName) ENTRY(
          cuDeviceGetCount, cuDeviceGetCount) ENTRY(cuDeviceGet, cuDeviceGet) ENTRY(cuDeviceGetName, cuDeviceGetName)
          ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute) ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)
              ENTRY(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease) ENTRY(cuCtxSetCurrent, cuCtxSetCurrent)
                  ENTRY(cuCtxSynchronize, cuCtxSynchronize) ENTRY(cuMemGetInfo_v2, cuMemGetInfo)
                      ENTRY(cuModuleLoadData, cuModuleLoadData) ENTRY(cuModuleGetFunction, cuModuleGetFunction)
                          ENTRY(cuLaunchKernel, cuLaunchKernel) ENTRY(cuStreamCreate, cuStreamCreate)
                              ENTRY(cuStreamSynchronize, cuStreamSynchronize) ENTRY(cuEventCreate, cuEventCreate)
                                  ENTRY(cuEventRecord, cuEventRecord) ENTRY(cuEventSynchronize, cuEventSynchronize)
                                      ENTRY(cuEventElapsedTime, cuEventElapsedTime) ENTRY(cuMemAlloc_v2, cuMemAlloc)
#undef ENTRY
  };
  auto found = names.find(name);
  *pfn = version >= 2000 && found != names.end() ? found->second : nullptr;
  *how = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
