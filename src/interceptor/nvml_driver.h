// The real libnvidia-ml behind the NVML proxy, resolved once when the proxy is loaded. An entry is null where the real
// library has no such function.
#ifndef METE_INTERCEPTOR_NVML_DRIVER_H_
#define METE_INTERCEPTOR_NVML_DRIVER_H_

#include <type_traits>

#include "interceptor/view_nvml.h"
#include "nvml/abi_details.h"

namespace mete::interceptor {

using ProcessesV1 = nvmlReturn_t(nvmlDevice_t, unsigned*, nvml::abi::nvmlProcessInfo_v1_t*);
using ProcessesV2 = nvmlReturn_t(nvmlDevice_t, unsigned*, nvml::abi::nvmlProcessInfo_v2_t*);
using GetCount = nvmlReturn_t(unsigned*);
using ByIndex = nvmlReturn_t(unsigned, nvmlDevice_t*);
using ByName = nvmlReturn_t(const char*, nvmlDevice_t*);

// name, type
#define METE_NVML_WRAPPED(X)                                                                                       \
  X(nvmlInit, nvmlReturn_t())                                                                                      \
  X(nvmlInit_v2, nvmlReturn_t())                                                                                   \
  X(nvmlInitWithFlags, nvmlReturn_t(unsigned))                                                                     \
  X(nvmlDeviceGetCount, GetCount)                                                                                  \
  X(nvmlDeviceGetCount_v2, GetCount)                                                                               \
  X(nvmlDeviceGetHandleByIndex, ByIndex)                                                                           \
  X(nvmlDeviceGetHandleByIndex_v2, ByIndex)                                                                        \
  X(nvmlDeviceGetHandleByUUID, ByName)                                                                             \
  X(nvmlDeviceGetHandleBySerial, ByName)                                                                           \
  X(nvmlDeviceGetHandleByPciBusId, ByName)                                                                         \
  X(nvmlDeviceGetHandleByPciBusId_v2, ByName)                                                                      \
  X(nvmlDeviceGetIndex, nvmlReturn_t(nvmlDevice_t, unsigned*))                                                     \
  X(nvmlDeviceGetMemoryInfo, nvmlReturn_t(nvmlDevice_t, nvml::abi::nvmlMemory_t*))                                 \
  X(nvmlDeviceGetMemoryInfo_v2, nvmlReturn_t(nvmlDevice_t, nvml::abi::nvmlMemory_v2_t*))                           \
  X(nvmlDeviceGetComputeRunningProcesses, ProcessesV1)                                                             \
  X(nvmlDeviceGetComputeRunningProcesses_v2, ProcessesV2)                                                          \
  X(nvmlDeviceGetComputeRunningProcesses_v3, ProcessesV2)                                                          \
  X(nvmlDeviceGetGraphicsRunningProcesses, ProcessesV1)                                                            \
  X(nvmlDeviceGetGraphicsRunningProcesses_v2, ProcessesV2)                                                         \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessesV2)                                                         \
  X(nvmlDeviceGetMPSComputeRunningProcesses, ProcessesV1)                                                          \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v2, ProcessesV2)                                                       \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3, ProcessesV2)                                                       \
  X(nvmlDeviceGetProcessUtilization,                                                                               \
    nvmlReturn_t(nvmlDevice_t, nvml::abi::nvmlProcessUtilizationSample_t*, unsigned*, unsigned long long))         \
  X(nvmlDeviceGetProcessesUtilizationInfo, nvmlReturn_t(nvmlDevice_t, nvml::abi::nvmlProcessesUtilizationInfo_t*)) \
  X(nvmlDeviceGetRunningProcessDetailList, nvmlReturn_t(nvmlDevice_t, nvml::abi::nvmlProcessDetailList_t*))        \
  X(nvmlDeviceGetAccountingPids, nvmlReturn_t(nvmlDevice_t, unsigned*, unsigned*))                                 \
  X(nvmlDeviceGetAccountingStats, nvmlReturn_t(nvmlDevice_t, unsigned, nvml::abi::nvmlAccountingStats_t*))         \
  X(nvmlDeviceGetAccountingStats_v2, nvmlReturn_t(nvmlDevice_t, nvml::abi::nvmlAccountingStats_v2_t*))             \
  X(nvmlDeviceGetHandleByUUIDV, nvmlReturn_t(const nvml::abi::nvmlUUID_t*, nvmlDevice_t*))                         \
  X(nvmlDeviceGetTopologyNearestGpus, nvmlReturn_t(nvmlDevice_t, int, unsigned*, nvmlDevice_t*))                   \
  X(nvmlSystemGetTopologyGpuSet, nvmlReturn_t(unsigned, unsigned*, nvmlDevice_t*))                                 \
  X(nvmlDeviceGetMaxMigDeviceCount, nvmlReturn_t(nvmlDevice_t, unsigned*))                                         \
  X(nvmlDeviceGetMigDeviceHandleByIndex, nvmlReturn_t(nvmlDevice_t, unsigned, nvmlDevice_t*))                      \
  X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlReturn_t(nvmlDevice_t, nvmlDevice_t*))                       \
  X(nvmlDeviceSetMigMode, nvmlReturn_t(nvmlDevice_t, unsigned, nvmlReturn_t*))                                     \
  X(nvmlDeviceGetGpuInstances, nvmlReturn_t(nvmlDevice_t, unsigned, nvml::abi::nvmlGpuInstance_t*, unsigned*))     \
  X(nvmlDeviceGetGpuInstanceById, nvmlReturn_t(nvmlDevice_t, unsigned, nvml::abi::nvmlGpuInstance_t*))             \
  X(nvmlDeviceGetGpuInstanceId, nvmlReturn_t(nvmlDevice_t, unsigned*))                                             \
  X(nvmlDeviceCreateGpuInstance, nvmlReturn_t(nvmlDevice_t, unsigned, nvml::abi::nvmlGpuInstance_t*))              \
  X(nvmlDeviceCreateGpuInstanceWithPlacement,                                                                      \
    nvmlReturn_t(nvmlDevice_t, unsigned, const nvml::abi::nvmlGpuInstancePlacement_t*, nvml::abi::nvmlGpuInstance_t*))

struct NvmlDriver {
#define METE_NVML_FIELD(name, ...) std::add_pointer_t<__VA_ARGS__> name;
  METE_NVML_WRAPPED(METE_NVML_FIELD)
#undef METE_NVML_FIELD
};
extern NvmlDriver nvml_driver;

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_NVML_DRIVER_H_
