// The exported functions of the proxy libnvidia-ml.so.1.
#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "interceptor/nvml_driver.h"
#include "interceptor/nvml_filter.h"
#include "interceptor/own_names.h"
#include "interceptor/view_nvml.h"
#include "ledger/layout.h"

#define METE_EXPORT extern "C" __attribute__((visibility("default")))

namespace mete::interceptor {

using nvml::abi::NVML_ERROR_FUNCTION_NOT_FOUND;
using nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
using nvml::abi::NVML_ERROR_NO_PERMISSION;
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
  if (nvml_driver.nvmlInit_v2 == nullptr && nvml_driver.nvmlInit == nullptr) return;  // no driver at all
  const char* missing[64];
  size_t count = 0;
#define METE_NVML_MISSING(name, ...) \
  if (nvml_driver.name == nullptr && count < std::size(missing)) missing[count++] = #name;
  METE_NVML_WRAPPED(METE_NVML_MISSING)
#undef METE_NVML_MISSING
  HideOwnNames(missing, count);
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
  *count = share->seen.tops;
  return result;
}

nvmlReturn_t Index(ByIndex* real, unsigned index, nvmlDevice_t* device) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  // The driver judges everything but which GPU it is: not initialised, no place for the answer.
  const nvmlReturn_t result = real(0, device);
  if (result == NVML_ERROR_UNINITIALIZED || (result != NVML_SUCCESS && device == nullptr)) return result;
  if (index >= share->seen.tops) return NVML_ERROR_INVALID_ARGUMENT;
  *device = share->seen.top[index];
  return NVML_SUCCESS;
}

nvmlReturn_t Name(ByName* real, const char* name, nvmlDevice_t* device) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = real(name, device);
  if (result != NVML_SUCCESS) return result;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  if (share->seen.Has(*device)) return result;
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
  // What all instances of a GPU hold together is for those who may see all of it.
  if (share->seen.InParts(device)) return NVML_ERROR_NO_PERMISSION;
  const int gpu = share->seen.PageOf(device);
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

// A process of this share on the device.
bool Ours(const Share& share, nvmlDevice_t device, unsigned pid) {
  uint64_t bytes = 0;
  return HeldBy(share, device, pid, &bytes);
}

template <typename Item>
nvmlReturn_t Processes(nvmlReturn_t (*real)(nvmlDevice_t, unsigned*, Item*), nvmlDevice_t device, unsigned* count,
                       Item* items) {
  if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const Share* share = Seen();
  if (share == nullptr) return NVML_ERROR_UNKNOWN;
  return Filter(
      count, items, [&](unsigned* c, Item* i) { return real(device, c, i); },
      [&](Item& item) {
        uint64_t bytes = 0;
        if (!HeldBy(*share, device, item.pid, &bytes)) return false;
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
using mete::nvml::abi::nvmlProcessDetailList_t;
using mete::nvml::abi::nvmlProcessesUtilizationInfo_t;
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
  const int top = share->seen.TopIndex(device), mig = share->seen.MigIndex(device);
  if (top >= 0 || mig >= 0) *index = static_cast<unsigned>(top >= 0 ? top : mig);
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

// Begins a wrapper: the real function, or the error that there is none; the share, or the error that it is not in
// force.
#define METE_REAL(function)                                                   \
  auto* const real = nvml_driver.function;                                    \
  if (real == nullptr) return mete::nvml::abi::NVML_ERROR_FUNCTION_NOT_FOUND; \
  const own::Share* share = own::Observe();                                   \
  if (share == nullptr) return mete::nvml::abi::NVML_ERROR_UNKNOWN

METE_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* samples,
                                                         unsigned* count, unsigned long long since) {
  METE_REAL(nvmlDeviceGetProcessUtilization);
  return own::Filter(
      count, samples, [&](unsigned* c, nvmlProcessUtilizationSample_t* s) { return real(device, s, c, since); },
      [&](const nvmlProcessUtilizationSample_t& sample) { return own::Ours(*share, device, sample.pid); });
}

METE_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                               nvmlProcessesUtilizationInfo_t* info) {
  METE_REAL(nvmlDeviceGetProcessesUtilizationInfo);
  if (info == nullptr) return real(device, info);
  using Item = mete::nvml::abi::nvmlProcessUtilizationInfo_v1_t;
  return own::Filter(
      &info->processSamplesCount, info->procUtilArray,
      [&](unsigned* count, Item* items) {
        nvmlProcessesUtilizationInfo_t all = *info;
        all.processSamplesCount = *count;
        all.procUtilArray = items;
        const nvmlReturn_t result = real(device, &all);
        *count = all.processSamplesCount;
        return result;
      },
      [&](const Item& item) { return own::Ours(*share, device, item.pid); });
}

METE_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* list) {
  METE_REAL(nvmlDeviceGetRunningProcessDetailList);
  if (list == nullptr) return real(device, list);
  using Item = mete::nvml::abi::nvmlProcessDetail_v1_t;
  return own::Filter(
      &list->numProcArrayEntries, list->procArray,
      [&](unsigned* count, Item* items) {
        nvmlProcessDetailList_t all = *list;
        all.numProcArrayEntries = *count;
        all.procArray = items;
        const nvmlReturn_t result = real(device, &all);
        *count = all.numProcArrayEntries;
        return result;
      },
      [&](Item& item) {
        uint64_t bytes = 0;
        if (!own::HeldBy(*share, device, item.pid, &bytes)) return false;
        item.usedGpuMemory = bytes;
        return true;
      });
}

// Of processes that have ended nobody can say any more whose they were: they are not shown.
METE_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned* count, unsigned* pids) {
  METE_REAL(nvmlDeviceGetAccountingPids);
  return own::Filter(
      count, pids, [&](unsigned* c, unsigned* p) { return real(device, c, p); },
      [&](unsigned pid) { return own::Ours(*share, device, pid); });
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid,
                                                      mete::nvml::abi::nvmlAccountingStats_t* stats) {
  METE_REAL(nvmlDeviceGetAccountingStats);
  const nvmlReturn_t result = real(device, pid, stats);
  if (result != mete::nvml::abi::NVML_SUCCESS || own::Ours(*share, device, pid)) return result;
  *stats = {};
  return mete::nvml::abi::NVML_ERROR_NOT_FOUND;
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device,
                                                         mete::nvml::abi::nvmlAccountingStats_v2_t* stats) {
  METE_REAL(nvmlDeviceGetAccountingStats_v2);
  if (stats == nullptr) return real(device, stats);
  const unsigned pid = stats->pid;
  const nvmlReturn_t result = real(device, stats);
  if (result != mete::nvml::abi::NVML_SUCCESS || own::Ours(*share, device, pid)) return result;
  *stats = {};
  return mete::nvml::abi::NVML_ERROR_NOT_FOUND;
}

// GPUs of others stay unknown by these ways, too.
METE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const mete::nvml::abi::nvmlUUID_t* uuid, nvmlDevice_t* device) {
  METE_REAL(nvmlDeviceGetHandleByUUIDV);
  const nvmlReturn_t result = real(uuid, device);
  if (result != mete::nvml::abi::NVML_SUCCESS || share->seen.Has(*device)) return result;
  *device = nullptr;
  return mete::nvml::abi::NVML_ERROR_NOT_FOUND;
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned* count,
                                                          nvmlDevice_t* devices) {
  METE_REAL(nvmlDeviceGetTopologyNearestGpus);
  return own::Filter(
      count, devices, [&](unsigned* c, nvmlDevice_t* d) { return real(device, level, c, d); },
      [&](nvmlDevice_t other) { return share->seen.Has(other); });
}
METE_EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, nvmlDevice_t* devices) {
  METE_REAL(nvmlSystemGetTopologyGpuSet);
  return own::Filter(
      count, devices, [&](unsigned* c, nvmlDevice_t* d) { return real(cpu, c, d); },
      [&](nvmlDevice_t other) { return share->seen.Has(other); });
}

// Of a GPU that the tenant has MIG devices of, those are the ones there are.
METE_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned* count) {
  METE_REAL(nvmlDeviceGetMaxMigDeviceCount);
  const nvmlReturn_t result = real(device, count);
  if (result == mete::nvml::abi::NVML_SUCCESS && share->seen.InParts(device)) *count = share->seen.MigCount(device);
  return result;
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t* mig) {
  METE_REAL(nvmlDeviceGetMigDeviceHandleByIndex);
  const nvmlReturn_t result = real(device, index, mig);
  if (mig == nullptr || result == mete::nvml::abi::NVML_ERROR_UNINITIALIZED || !share->seen.Has(device)) return result;
  *mig = share->seen.MigAt(device, index);
  return *mig != nullptr ? mete::nvml::abi::NVML_SUCCESS : mete::nvml::abi::NVML_ERROR_NOT_FOUND;
}

// How the GPU is cut is not the tenant's to see or to change, whatever the driver would let its user do.
#define METE_NOT_OF_PARTS(function, parameters, arguments)                             \
  METE_EXPORT nvmlReturn_t function parameters {                                       \
    METE_REAL(function);                                                               \
    if (share->seen.InParts(device)) return mete::nvml::abi::NVML_ERROR_NO_PERMISSION; \
    return real arguments;                                                             \
  }
using mete::nvml::abi::nvmlGpuInstance_t;
using mete::nvml::abi::nvmlGpuInstancePlacement_t;
METE_NOT_OF_PARTS(nvmlDeviceSetMigMode, (nvmlDevice_t device, unsigned mode, nvmlReturn_t* activation),
                  (device, mode, activation))
METE_NOT_OF_PARTS(nvmlDeviceGetGpuInstances,
                  (nvmlDevice_t device, unsigned profile, nvmlGpuInstance_t* instances, unsigned* count),
                  (device, profile, instances, count))
METE_NOT_OF_PARTS(nvmlDeviceCreateGpuInstance, (nvmlDevice_t device, unsigned profile, nvmlGpuInstance_t* instance),
                  (device, profile, instance))
METE_NOT_OF_PARTS(nvmlDeviceCreateGpuInstanceWithPlacement,
                  (nvmlDevice_t device, unsigned profile, const nvmlGpuInstancePlacement_t* placement,
                   nvmlGpuInstance_t* instance),
                  (device, profile, placement, instance))

// The GPU instance of its own MIG device a tenant may look at.
METE_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t* instance) {
  METE_REAL(nvmlDeviceGetGpuInstanceById);
  bool ours = !share->seen.InParts(device);
  for (uint32_t i = 0; i < share->seen.count && !ours; ++i) {
    unsigned its = 0;
    ours = share->seen.parent[i] == device && nvml_driver.nvmlDeviceGetGpuInstanceId != nullptr &&
           nvml_driver.nvmlDeviceGetGpuInstanceId(share->seen.device[i], &its) == mete::nvml::abi::NVML_SUCCESS &&
           its == id;
  }
  return ours ? real(device, id, instance) : mete::nvml::abi::NVML_ERROR_NOT_FOUND;
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned* id) {
  METE_REAL(nvmlDeviceGetGpuInstanceId);
  return real(device, id);
}
METE_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t* device) {
  METE_REAL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
  return real(mig, device);
}
