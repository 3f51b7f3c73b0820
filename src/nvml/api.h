// The entry points of an opened libnvidia-ml.so.1. Internal to this layer.
// Owns one NVML initialisation; the driver library itself stays loaded once NVML has started, because drivers
// do not support unloading.
#ifndef METE_NVML_API_H_
#define METE_NVML_API_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "mete/nvml_prototypes.h"
#include "nvml/abi.h"

namespace mete::nvml {

class Api {
 public:
  // Loads `file` and initialises NVML. `file` is a path, or a plain name for the loader.
  static StatusOr<std::shared_ptr<const Api>> Load(const std::string& file);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // OK, or what `call` means when it answered `code` for `object` ("GPU 0", "driver").
  Status Check(abi::nvmlReturn_t code, const std::string& call, const std::string& object) const;

  std::string file;
  bool emulated = false;

  using Device = abi::nvmlDevice_t;

  // Every driver since 450 has these.
  decltype(&abi::nvmlInit_v2) init = nullptr;
  decltype(&abi::nvmlShutdown) shutdown = nullptr;
  decltype(&abi::nvmlErrorString) error_string = nullptr;
  decltype(&abi::nvmlSystemGetDriverVersion) driver_version = nullptr;
  decltype(&abi::nvmlSystemGetNVMLVersion) nvml_version = nullptr;
  decltype(&abi::nvmlSystemGetCudaDriverVersion_v2) cuda_version = nullptr;
  decltype(&abi::nvmlDeviceGetCount_v2) count = nullptr;
  decltype(&abi::nvmlDeviceGetHandleByIndex_v2) handle_by_index = nullptr;
  decltype(&abi::nvmlDeviceGetName) name = nullptr;
  decltype(&abi::nvmlDeviceGetUUID) uuid = nullptr;
  decltype(&abi::nvmlDeviceGetMinorNumber) minor = nullptr;
  decltype(&abi::nvmlDeviceGetPciInfo_v3) pci_info = nullptr;
  decltype(&abi::nvmlDeviceGetCudaComputeCapability) capability = nullptr;
  decltype(&abi::nvmlDeviceGetMemoryInfo) memory = nullptr;
  decltype(&abi::nvmlDeviceGetComputeMode) compute_mode = nullptr;
  decltype(&abi::nvmlDeviceGetUtilizationRates) utilization = nullptr;
  decltype(&abi::nvmlDeviceGetProcessUtilization) process_utilization = nullptr;

  // Null where the driver is older.
  decltype(&abi::nvmlDeviceGetMemoryInfo_v2) memory_v2 = nullptr;
  decltype(&abi::nvmlDeviceGetMigMode) mig_mode = nullptr;
  // or _v2, which is the same
  decltype(&abi::nvmlDeviceGetComputeRunningProcesses_v3) processes = nullptr, graphics_processes = nullptr;
  decltype(&abi::nvmlSystemGetProcessName) process_name = nullptr;
  decltype(&abi::nvmlDeviceGetMemoryLimits_v1) memory_limits = nullptr;
  decltype(&abi::nvmlDeviceSetMemoryLimits_v1) set_memory_limits = nullptr;
  decltype(&abi::nvmlDeviceSetComputeMode) set_compute_mode = nullptr;
  decltype(&abi::nvmlDeviceSetMigMode) set_mig_mode = nullptr;
  decltype(&abi::nvmlDeviceGetGpuInstanceProfileInfo) gpu_instance_profile = nullptr;
  decltype(&abi::nvmlDeviceGetGpuInstances) gpu_instances = nullptr;
  decltype(&abi::nvmlDeviceGetGpuInstanceById) gpu_instance_by_id = nullptr;
  decltype(&abi::nvmlGpuInstanceGetInfo) gpu_instance_info = nullptr;
  decltype(&abi::nvmlDeviceCreateGpuInstanceWithPlacement) create_gpu_instance = nullptr;
  decltype(&abi::nvmlGpuInstanceDestroy) destroy_gpu_instance = nullptr;
  decltype(&abi::nvmlGpuInstanceGetComputeInstanceProfileInfo) compute_instance_profile = nullptr;
  decltype(&abi::nvmlGpuInstanceGetComputeInstances) compute_instances = nullptr;
  decltype(&abi::nvmlGpuInstanceGetComputeInstanceById) compute_instance_by_id = nullptr;
  decltype(&abi::nvmlComputeInstanceGetInfo_v2) compute_instance_info = nullptr;
  decltype(&abi::nvmlGpuInstanceCreateComputeInstance) create_compute_instance = nullptr;
  decltype(&abi::nvmlComputeInstanceDestroy) destroy_compute_instance = nullptr;
  decltype(&abi::nvmlDeviceGetMaxMigDeviceCount) most_mig_devices = nullptr;
  decltype(&abi::nvmlDeviceGetMigDeviceHandleByIndex) mig_device = nullptr;
  decltype(&abi::nvmlDeviceGetGpuInstanceId) gpu_instance_id = nullptr;
  decltype(&abi::nvmlDeviceGetComputeInstanceId) compute_instance_id = nullptr;

 private:
  Api() = default;
};

}  // namespace mete::nvml

#endif  // METE_NVML_API_H_
