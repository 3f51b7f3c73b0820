// The exported functions of the proxy libnvidia-ml.so.1.
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <new>

#include "interceptor/nvml_driver.h"
#include "interceptor/view_nvml.h"
#include "ledger/layout.h"

#define METE_EXPORT extern "C" __attribute__((visibility("default")))

namespace mete::interceptor {

using nvml::abi::NVML_ERROR_FUNCTION_NOT_FOUND;
using nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE;
using nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
using nvml::abi::NVML_ERROR_MEMORY;
using nvml::abi::NVML_ERROR_NOT_FOUND;
using nvml::abi::NVML_ERROR_UNINITIALIZED;
using nvml::abi::NVML_ERROR_UNKNOWN;
using nvml::abi::NVML_SUCCESS;

NvmlDriver nvml_driver;

namespace {

__attribute__((constructor)) void LoadNvml() {
  void* handle = dlopen(kPrivateNvmlName, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return;
#define METE_NVML_RESOLVE(name, ...) \
  nvml_driver.name = reinterpret_cast<decltype(nvml_driver.name)>(dlsym(handle, #name));
  METE_NVML_WRAPPED(METE_NVML_RESOLVE)
#undef METE_NVML_RESOLVE
}

// The share, for functions that come after nvmlInit; null: the driver's word is final (not initialised).
const Share* Seen() { return Observe(); }

template <typename Real, typename... Arguments>
nvmlReturn_t Begin(Real real, Arguments... arguments) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  if (Observe() == nullptr) return NVML_ERROR_UNKNOWN;
  const nvmlReturn_t result = real(arguments...);
  if (result == NVML_SUCCESS) FindDevices();
  return result;
}

nvmlReturn_t Count(GetCount* real, unsigned* count) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = real(count);
  if (result != NVML_SUCCESS) return result;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  *count = share->visible;
  return result;
}

nvmlReturn_t Index(ByIndex* real, unsigned index, nvmlDevice_t* device) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  // The driver judges everything but which GPU it is: not initialised, no place for the answer.
  const nvmlReturn_t result = real(0, device);
  if (result == NVML_ERROR_UNINITIALIZED || (result != NVML_SUCCESS && device == nullptr)) return result;
  if (index >= share->visible) return NVML_ERROR_INVALID_ARGUMENT;
  *device = share->device[index];
  return NVML_SUCCESS;
}

nvmlReturn_t Name(ByName* real, const char* name, nvmlDevice_t* device) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = real(name, device);
  if (result != NVML_SUCCESS) return result;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  if (GpuOf(*share, *device) >= 0) return result;
  *device = nullptr;
  return NVML_ERROR_NOT_FOUND;
}

// Narrows total and free to the quota; the driver's figures where nothing is limited.
template <typename Memory>
nvmlReturn_t MemoryInfo(nvmlReturn_t (*real)(nvmlDevice_t, Memory*), nvmlDevice_t device, Memory* memory) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = real(device, memory);
  if (result != NVML_SUCCESS) return result;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  const int gpu = GpuOf(*share, device);
  if (gpu < 0) return result;
  const Usage usage = UsageOf(*share, gpu);
  const unsigned long long total = std::min<unsigned long long>(memory->total, usage.quota);
  memory->total = total;
  memory->used = std::min<unsigned long long>(usage.used, total);
  memory->free = std::min<unsigned long long>(memory->free, total - memory->used);
  if constexpr (requires { memory->reserved; }) {
    if (usage.quota != ledger::kNoQuota) memory->reserved = 0;  // what the driver keeps is not the tenant's
  }
  return result;
}

// Asks the real function into room of our own (it may know of many more), keeps what `ours` accepts, and answers with
// NVML's rule for arrays: too little room says how much is needed.
template <typename Item, typename Ask, typename Ours>
nvmlReturn_t Filter(unsigned* count, Item* items, Ask ask, Ours ours) {
  if (count == nullptr) return ask(count, items);
  unsigned room = 64;
  for (int attempt = 0; attempt < 8; ++attempt) {
    auto* all = static_cast<Item*>(calloc(room, sizeof(Item)));
    if (all == nullptr) return NVML_ERROR_MEMORY;
    unsigned found = room;
    const nvmlReturn_t result = ask(&found, all);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
      free(all);
      room = std::max(found, room) + 16;
      continue;
    }
    if (result != NVML_SUCCESS) {
      free(all);
      if (result != NVML_ERROR_NOT_FOUND) *count = 0;
      return result;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < found; ++i) {
      if (ours(all[i])) all[kept++] = all[i];
    }
    const unsigned given = *count;
    *count = kept;
    const bool fits = kept <= given && (kept == 0 || items != nullptr);
    if (fits) std::copy(all, all + kept, items);
    free(all);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
  }
  return NVML_ERROR_UNKNOWN;
}

template <typename Item>
nvmlReturn_t Processes(nvmlReturn_t (*real)(nvmlDevice_t, unsigned*, Item*), nvmlDevice_t device, unsigned* count,
                       Item* items) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  const int gpu = GpuOf(*share, device);
  return Filter(
      count, items, [&](unsigned* c, Item* i) { return real(device, c, i); },
      [&](Item& item) {
        uint64_t bytes = 0;
        if (gpu < 0 || !HeldBy(*share, gpu, item.pid, &bytes)) return false;
        item.usedGpuMemory = bytes;
        return true;
      });
}

}  // namespace
}  // namespace mete::interceptor

namespace own = mete::interceptor;
using mete::interceptor::nvml_driver;
using mete::nvml::abi::nvmlDevice_t;
using mete::nvml::abi::nvmlMemory_t;
using mete::nvml::abi::nvmlMemory_v2_t;
using mete::nvml::abi::nvmlProcessInfo_v1_t;
using mete::nvml::abi::nvmlProcessInfo_v2_t;
using mete::nvml::abi::nvmlProcessUtilizationSample_t;
using mete::nvml::abi::nvmlReturn_t;

METE_EXPORT nvmlReturn_t nvmlInit() { return own::Begin(nvml_driver.nvmlInit); }
METE_EXPORT nvmlReturn_t nvmlInit_v2() { return own::Begin(nvml_driver.nvmlInit_v2); }
METE_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return own::Begin(nvml_driver.nvmlInitWithFlags, flags); }

METE_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  return own::Count(nvml_driver.nvmlDeviceGetCount, count);
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return own::Count(nvml_driver.nvmlDeviceGetCount_v2, count);
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  return own::Index(nvml_driver.nvmlDeviceGetHandleByIndex, index, device);
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return own::Index(nvml_driver.nvmlDeviceGetHandleByIndex_v2, index, device);
}
#define METE_BY_NAME(function)                                                \
  METE_EXPORT nvmlReturn_t function(const char* name, nvmlDevice_t* device) { \
    return own::Name(nvml_driver.function, name, device);                     \
  }
METE_BY_NAME(nvmlDeviceGetHandleByUUID)
METE_BY_NAME(nvmlDeviceGetHandleBySerial)
METE_BY_NAME(nvmlDeviceGetHandleByPciBusId)
METE_BY_NAME(nvmlDeviceGetHandleByPciBusId_v2)

METE_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  if (nvml_driver.nvmlDeviceGetIndex == nullptr) return mete::nvml::abi::NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = nvml_driver.nvmlDeviceGetIndex(device, index);
  if (result != mete::nvml::abi::NVML_SUCCESS) return result;
  const own::Share* share = own::Observe();
  if (share == nullptr) return mete::nvml::abi::NVML_ERROR_UNKNOWN;
  for (uint32_t i = 0; i < share->visible; ++i) {
    if (share->device[i] == device) *index = i;
  }
  return result;
}

METE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return own::MemoryInfo(nvml_driver.nvmlDeviceGetMemoryInfo, device, memory);
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return own::MemoryInfo(nvml_driver.nvmlDeviceGetMemoryInfo_v2, device, memory);
}

#define METE_PROCESSES(function, Item)                                                       \
  METE_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned* count, Item* processes) { \
    return own::Processes(nvml_driver.function, device, count, processes);                   \
  }
METE_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
METE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
METE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)
METE_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
METE_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
METE_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t)
METE_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
METE_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
METE_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)

METE_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* samples,
                                                         unsigned* count, unsigned long long since) {
  auto* const real = nvml_driver.nvmlDeviceGetProcessUtilization;
  if (real == nullptr) return mete::nvml::abi::NVML_ERROR_FUNCTION_NOT_FOUND;
  const own::Share* share = own::Observe();
  if (share == nullptr) return mete::nvml::abi::NVML_ERROR_UNKNOWN;
  const int gpu = own::GpuOf(*share, device);
  return own::Filter(
      count, samples, [&](unsigned* c, nvmlProcessUtilizationSample_t* s) { return real(device, s, c, since); },
      [&](const nvmlProcessUtilizationSample_t& sample) {
        uint64_t bytes;
        return gpu >= 0 && own::HeldBy(*share, gpu, sample.pid, &bytes);
      });
}
