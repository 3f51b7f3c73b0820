#include "nvml/api.h"

#include <dlfcn.h>

namespace mete::nvml {

namespace {

using abi::nvmlReturn_t;

template <typename F>
bool Resolve(void* library, const char* symbol, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, symbol));
  return *function != nullptr;
}

}  // namespace

StatusOr<std::shared_ptr<const Api>> Api::Load(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Lacks("cannot load {}: {}. Install the NVIDIA driver, or name another one with --driver-root", file,
                 why != nullptr ? why : "unknown reason");
  }
  std::shared_ptr<Api> api(new Api);
  api->file = file;

  const char* missing = nullptr;
  auto need = [&](const char* symbol, auto* function) {
    if (!Resolve(library, symbol, function) && missing == nullptr) missing = symbol;
  };
  need("nvmlInit_v2", &api->init);
  need("nvmlShutdown", &api->shutdown);
  need("nvmlErrorString", &api->error_string);
  need("nvmlSystemGetDriverVersion", &api->driver_version);
  need("nvmlSystemGetNVMLVersion", &api->nvml_version);
  need("nvmlSystemGetCudaDriverVersion_v2", &api->cuda_version);
  need("nvmlDeviceGetCount_v2", &api->count);
  need("nvmlDeviceGetHandleByIndex_v2", &api->handle_by_index);
  need("nvmlDeviceGetName", &api->name);
  need("nvmlDeviceGetUUID", &api->uuid);
  need("nvmlDeviceGetMinorNumber", &api->minor);
  need("nvmlDeviceGetPciInfo_v3", &api->pci_info);
  need("nvmlDeviceGetCudaComputeCapability", &api->capability);
  need("nvmlDeviceGetMemoryInfo", &api->memory);
  need("nvmlDeviceGetComputeMode", &api->compute_mode);
  need("nvmlDeviceGetUtilizationRates", &api->utilization);
  need("nvmlDeviceGetProcessUtilization", &api->process_utilization);
  if (missing != nullptr) {
    api->shutdown = nullptr;  // never initialised
    dlclose(library);
    return Lacks("{} has no {}: it is no NVML, or older than driver 450. Install a newer NVIDIA driver", file, missing);
  }
  Resolve(library, "nvmlDeviceGetMemoryInfo_v2", &api->memory_v2);
  Resolve(library, "nvmlDeviceGetMigMode", &api->mig_mode);
  if (!Resolve(library, "nvmlDeviceGetComputeRunningProcesses_v3", &api->processes)) {
    Resolve(library, "nvmlDeviceGetComputeRunningProcesses_v2", &api->processes);
  }
  if (!Resolve(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", &api->graphics_processes)) {
    Resolve(library, "nvmlDeviceGetGraphicsRunningProcesses_v2", &api->graphics_processes);
  }
  Resolve(library, "nvmlSystemGetProcessName", &api->process_name);
  Resolve(library, "nvmlDeviceGetMemoryLimits_v1", &api->memory_limits);
  Resolve(library, "nvmlDeviceSetMemoryLimits_v1", &api->set_memory_limits);
  Resolve(library, "nvmlDeviceSetComputeMode", &api->set_compute_mode);
  Resolve(library, "nvmlDeviceSetMigMode", &api->set_mig_mode);
  Resolve(library, "nvmlDeviceGetGpuInstanceProfileInfo", &api->gpu_instance_profile);
  Resolve(library, "nvmlDeviceGetGpuInstances", &api->gpu_instances);
  Resolve(library, "nvmlDeviceGetGpuInstanceById", &api->gpu_instance_by_id);
  Resolve(library, "nvmlGpuInstanceGetInfo", &api->gpu_instance_info);
  Resolve(library, "nvmlDeviceCreateGpuInstanceWithPlacement", &api->create_gpu_instance);
  Resolve(library, "nvmlGpuInstanceDestroy", &api->destroy_gpu_instance);
  Resolve(library, "nvmlGpuInstanceGetComputeInstanceProfileInfo", &api->compute_instance_profile);
  Resolve(library, "nvmlGpuInstanceGetComputeInstances", &api->compute_instances);
  Resolve(library, "nvmlGpuInstanceGetComputeInstanceById", &api->compute_instance_by_id);
  Resolve(library, "nvmlComputeInstanceGetInfo_v2", &api->compute_instance_info);
  Resolve(library, "nvmlGpuInstanceCreateComputeInstance", &api->create_compute_instance);
  Resolve(library, "nvmlComputeInstanceDestroy", &api->destroy_compute_instance);
  Resolve(library, "nvmlDeviceGetMaxMigDeviceCount", &api->most_mig_devices);
  Resolve(library, "nvmlDeviceGetMigDeviceHandleByIndex", &api->mig_device);
  Resolve(library, "nvmlDeviceGetGpuInstanceId", &api->gpu_instance_id);
  Resolve(library, "nvmlDeviceGetComputeInstanceId", &api->compute_instance_id);
  api->emulated = dlsym(library, "mete_emulated_node") != nullptr;

  if (nvmlReturn_t code = api->init(); code != abi::NVML_SUCCESS) {
    Status status = api->Check(code, "nvmlInit_v2", file);
    api->shutdown = nullptr;
    dlclose(library);
    return status;
  }
  return std::shared_ptr<const Api>(std::move(api));
}

Api::~Api() {
  if (shutdown != nullptr) shutdown();
}

Status Api::Check(nvmlReturn_t code, const std::string& call, const std::string& object) const {
  if (code == abi::NVML_SUCCESS) return OkStatus();
  const char* words = error_string(code);
  std::string text = fmt::format("{}: {} answered {} ({})", object, call, static_cast<int>(code),
                                 words != nullptr ? words : "no description");
  switch (code) {
    case abi::NVML_ERROR_NOT_SUPPORTED:
    case abi::NVML_ERROR_FUNCTION_NOT_FOUND:
    case abi::NVML_ERROR_DEPRECATED: return absl::UnimplementedError(text);
    case abi::NVML_ERROR_NO_PERMISSION:
      return Lacks("{}. It needs more rights: run as root, or through the agent", text);
    case abi::NVML_ERROR_DRIVER_NOT_LOADED:
      return Lacks(
          "{}. The driver does not run: load the NVIDIA kernel modules, or for an emulated node run "
          "'mete emulate up'",
          text);
    case abi::NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return Lacks("{}. Library and kernel driver are of different versions: reboot, or reinstall the driver", text);
    case abi::NVML_ERROR_LIBRARY_NOT_FOUND:
      return Lacks("{}. Part of the NVIDIA driver is missing: reinstall it", text);
    case abi::NVML_ERROR_GPU_IS_LOST:
    case abi::NVML_ERROR_RESET_REQUIRED: return Lacks("{}. Reset the GPU (nvidia-smi --gpu-reset) or reboot", text);
    case abi::NVML_ERROR_IN_USE: return Refused("{}. Something uses it: end that first", text);
    case abi::NVML_ERROR_INSUFFICIENT_RESOURCES: return Refused("{}. There is no room for it there", text);
    case abi::NVML_ERROR_NOT_FOUND:
    case abi::NVML_ERROR_GPU_NOT_FOUND: return NoSuch("{}", text);
    default: return Fault("{}", text);
  }
}

}  // namespace mete::nvml
