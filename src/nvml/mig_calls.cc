#include "nvml/mig_calls.h"

#include <algorithm>
#include <array>

namespace mete::nvml {
namespace {

using abi::nvmlComputeInstance_t;
using abi::nvmlDevice_t;
using abi::nvmlGpuInstance_t;
using abi::nvmlReturn_t;

// Enumerations grow with drivers: values that one does not know are answered as not supported or as no argument.
constexpr unsigned kMostProfiles = 64, kMostComputeProfiles = 16;
constexpr unsigned kMostMigDevices = 64;  // of a GPU; more than any has

// "1g.5gb" of "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
std::string ProfileOf(const std::string& device_name) {
  constexpr std::string_view kWord = " MIG ";
  const size_t at = device_name.rfind(kWord);
  return at == std::string::npos ? std::string() : device_name.substr(at + kWord.size());
}

}  // namespace

Status MigCalls::Check(nvmlReturn_t code, const char* call, const std::string& what) const {
  return api_.Check(code, call, what.empty() ? object_ : object_ + ", " + what);
}

Status MigCalls::Needs(bool all, const char* call) const {
  return all ? OkStatus() : Check(abi::NVML_ERROR_FUNCTION_NOT_FOUND, call);
}

Status MigCalls::SetMode(bool on) const {
  constexpr const char* kCall = "nvmlDeviceSetMigMode";
  METE_RETURN_IF_ERROR(Needs(api_.set_mig_mode != nullptr, kCall));
  nvmlReturn_t activation = abi::NVML_SUCCESS;
  const nvmlReturn_t code =
      api_.set_mig_mode(device_, on ? abi::NVML_DEVICE_MIG_ENABLE : abi::NVML_DEVICE_MIG_DISABLE, &activation);
  METE_RETURN_IF_ERROR(Check(code, kCall));
  // That it waits for a reset is a state, which the modes show; another reason why it is not active is an error.
  if (activation == abi::NVML_ERROR_RESET_REQUIRED) return OkStatus();
  return Check(activation, kCall, "activation");
}

StatusOr<std::vector<MigHandle>> MigCalls::Handles() const {
  constexpr const char* kCall = "nvmlDeviceGetMigDeviceHandleByIndex";
  METE_RETURN_IF_ERROR(Needs(api_.mig_device != nullptr && api_.most_mig_devices != nullptr &&
                                 api_.gpu_instance_id != nullptr && api_.compute_instance_id != nullptr,
                             kCall));
  unsigned most = 0;
  METE_RETURN_IF_ERROR(Check(api_.most_mig_devices(device_, &most), "nvmlDeviceGetMaxMigDeviceCount"));
  std::vector<MigHandle> handles;
  for (unsigned i = 0; i < std::min(most, kMostMigDevices); ++i) {
    MigHandle one;
    const nvmlReturn_t code = api_.mig_device(device_, i, &one.handle);
    // Not there, or one that this user may not open.
    if (code == abi::NVML_ERROR_NOT_FOUND || code == abi::NVML_ERROR_NO_PERMISSION) continue;
    METE_RETURN_IF_ERROR(Check(code, kCall));
    const std::string what = fmt::format("MIG device {}", i);
    std::array<char, 128> text = {};
    METE_RETURN_IF_ERROR(Check(api_.uuid(one.handle, text.data(), text.size() - 1), "nvmlDeviceGetUUID", what));
    one.uuid = text.data();
    text = {};
    METE_RETURN_IF_ERROR(Check(api_.name(one.handle, text.data(), text.size() - 1), "nvmlDeviceGetName", what));
    one.name = text.data();
    METE_RETURN_IF_ERROR(
        Check(api_.gpu_instance_id(one.handle, &one.gpu_instance), "nvmlDeviceGetGpuInstanceId", what));
    METE_RETURN_IF_ERROR(
        Check(api_.compute_instance_id(one.handle, &one.compute_instance), "nvmlDeviceGetComputeInstanceId", what));
    handles.push_back(std::move(one));
  }
  return handles;
}

std::vector<abi::nvmlGpuInstanceProfileInfo_t> MigCalls::Profiles() const {
  std::vector<abi::nvmlGpuInstanceProfileInfo_t> profiles;
  for (unsigned profile = 0; profile < kMostProfiles; ++profile) {
    abi::nvmlGpuInstanceProfileInfo_t info = {};
    if (api_.gpu_instance_profile(device_, profile, &info) != abi::NVML_SUCCESS) continue;
    const bool known =
        std::any_of(profiles.begin(), profiles.end(), [&info](const auto& other) { return other.id == info.id; });
    if (!known) profiles.push_back(info);
  }
  return profiles;
}

std::vector<abi::nvmlComputeInstanceProfileInfo_t> MigCalls::ComputeProfiles(nvmlGpuInstance_t handle) const {
  std::vector<abi::nvmlComputeInstanceProfileInfo_t> profiles;
  for (unsigned profile = 0; profile < kMostComputeProfiles; ++profile) {
    abi::nvmlComputeInstanceProfileInfo_t info = {};
    const nvmlReturn_t code =
        api_.compute_instance_profile(handle, profile, abi::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info);
    if (code == abi::NVML_SUCCESS) profiles.push_back(info);
  }
  return profiles;
}

StatusOr<ComputeInstance> MigCalls::DescribeCompute(nvmlComputeInstance_t handle) const {
  abi::nvmlComputeInstanceInfo_t info = {};
  METE_RETURN_IF_ERROR(Check(api_.compute_instance_info(handle, &info), "nvmlComputeInstanceGetInfo_v2"));
  ComputeInstance compute;
  compute.id = info.id;
  compute.start = static_cast<int>(info.placement.start);
  compute.size = static_cast<int>(info.placement.size);
  return compute;
}

StatusOr<GpuInstance> MigCalls::Describe(nvmlGpuInstance_t handle) const {
  abi::nvmlGpuInstanceInfo_t info = {};
  METE_RETURN_IF_ERROR(Check(api_.gpu_instance_info(handle, &info), "nvmlGpuInstanceGetInfo"));
  GpuInstance instance;
  instance.id = info.id;
  instance.profile_id = info.profileId;
  instance.start = static_cast<int>(info.placement.start);
  instance.size = static_cast<int>(info.placement.size);
  for (const auto& profile : ComputeProfiles(handle)) {
    std::vector<nvmlComputeInstance_t> handles(std::max(profile.instanceCount, 1U));
    auto count = static_cast<unsigned>(handles.size());
    METE_RETURN_IF_ERROR(Check(api_.compute_instances(handle, profile.id, handles.data(), &count),
                               "nvmlGpuInstanceGetComputeInstances", fmt::format("GPU instance {}", info.id)));
    for (unsigned i = 0; i < std::min<size_t>(count, handles.size()); ++i) {
      METE_ASSIGN_OR_RETURN(ComputeInstance compute, DescribeCompute(handles[i]));
      instance.compute.push_back(std::move(compute));
    }
  }
  return instance;
}

StatusOr<std::vector<GpuInstance>> MigCalls::All() const {
  constexpr const char* kCall = "nvmlDeviceGetGpuInstances";
  METE_ASSIGN_OR_RETURN(const std::vector<MigHandle> devices, Handles());
  METE_RETURN_IF_ERROR(Needs(api_.gpu_instances != nullptr && api_.gpu_instance_profile != nullptr &&
                                 api_.gpu_instance_info != nullptr && api_.compute_instance_profile != nullptr &&
                                 api_.compute_instances != nullptr && api_.compute_instance_info != nullptr,
                             kCall));
  std::vector<GpuInstance> instances;
  bool permitted = true;
  for (const auto& profile : Profiles()) {
    std::vector<nvmlGpuInstance_t> handles(std::max(profile.instanceCount, 1U));
    auto count = static_cast<unsigned>(handles.size());
    const nvmlReturn_t code = api_.gpu_instances(device_, profile.id, handles.data(), &count);
    permitted = code != abi::NVML_ERROR_NO_PERMISSION;
    if (!permitted) break;
    METE_RETURN_IF_ERROR(Check(code, kCall, fmt::format("profile {}", profile.id)));
    for (unsigned i = 0; i < std::min<size_t>(count, handles.size()); ++i) {
      METE_ASSIGN_OR_RETURN(GpuInstance instance, Describe(handles[i]));
      instances.push_back(std::move(instance));
    }
  }
  for (const MigHandle& device : devices) {
    auto owner = std::find_if(instances.begin(), instances.end(),
                              [&device](const GpuInstance& one) { return one.id == device.gpu_instance; });
    if (owner == instances.end()) {
      if (permitted) continue;  // made since
      instances.emplace_back();
      owner = std::prev(instances.end());
      owner->id = device.gpu_instance;
    }
    owner->profile = ProfileOf(device.name);
    auto compute = std::find_if(owner->compute.begin(), owner->compute.end(),
                                [&device](const ComputeInstance& one) { return one.id == device.compute_instance; });
    if (compute == owner->compute.end()) {
      owner->compute.emplace_back();
      compute = std::prev(owner->compute.end());
      compute->id = device.compute_instance;
    }
    compute->uuid = device.uuid;
  }
  std::sort(instances.begin(), instances.end(), [](const GpuInstance& a, const GpuInstance& b) { return a.id < b.id; });
  return instances;
}

StatusOr<nvmlGpuInstance_t> MigCalls::ById(uint32_t gpu_instance) const {
  constexpr const char* kCall = "nvmlDeviceGetGpuInstanceById";
  METE_RETURN_IF_ERROR(Needs(api_.gpu_instance_by_id != nullptr, kCall));
  nvmlGpuInstance_t handle = nullptr;
  METE_RETURN_IF_ERROR(Check(api_.gpu_instance_by_id(device_, gpu_instance, &handle), kCall,
                             fmt::format("GPU instance {}", gpu_instance)));
  return handle;
}

StatusOr<GpuInstance> MigCalls::Create(uint32_t profile, int start, int size) const {
  constexpr const char* kCall = "nvmlDeviceCreateGpuInstanceWithPlacement";
  METE_RETURN_IF_ERROR(Needs(
      api_.create_gpu_instance != nullptr && api_.gpu_instance_profile != nullptr && api_.gpu_instance_info != nullptr,
      kCall));
  abi::nvmlGpuInstanceProfileInfo_t info = {};
  METE_RETURN_IF_ERROR(
      Check(api_.gpu_instance_profile(device_, profile, &info), "nvmlDeviceGetGpuInstanceProfileInfo"));
  const abi::nvmlGpuInstancePlacement_t placement = {static_cast<unsigned>(start), static_cast<unsigned>(size)};
  nvmlGpuInstance_t handle = nullptr;
  METE_RETURN_IF_ERROR(Check(api_.create_gpu_instance(device_, info.id, &placement, &handle), kCall,
                             fmt::format("profile {} at {}:{}", info.id, start, size)));
  GpuInstance instance;
  abi::nvmlGpuInstanceInfo_t made = {};
  METE_RETURN_IF_ERROR(Check(api_.gpu_instance_info(handle, &made), "nvmlGpuInstanceGetInfo"));
  instance.id = made.id;
  instance.profile_id = made.profileId;
  instance.start = static_cast<int>(made.placement.start);
  instance.size = static_cast<int>(made.placement.size);
  return instance;
}

StatusOr<ComputeInstance> MigCalls::CreateCompute(uint32_t gpu_instance, int compute_slices) const {
  constexpr const char* kCall = "nvmlGpuInstanceCreateComputeInstance";
  METE_RETURN_IF_ERROR(Needs(api_.create_compute_instance != nullptr && api_.compute_instance_profile != nullptr &&
                                 api_.compute_instance_info != nullptr,
                             kCall));
  METE_ASSIGN_OR_RETURN(const nvmlGpuInstance_t instance, ById(gpu_instance));
  const auto profiles = ComputeProfiles(instance);
  const auto profile = std::find_if(profiles.begin(), profiles.end(), [compute_slices](const auto& one) {
    return one.sliceCount == static_cast<unsigned>(compute_slices);
  });
  if (profile == profiles.end()) {
    return Fault("{}: GPU instance {} has no profile of {} compute slices", object_, gpu_instance, compute_slices);
  }
  nvmlComputeInstance_t handle = nullptr;
  METE_RETURN_IF_ERROR(Check(api_.create_compute_instance(instance, profile->id, &handle), kCall,
                             fmt::format("GPU instance {}", gpu_instance)));
  METE_ASSIGN_OR_RETURN(ComputeInstance compute, DescribeCompute(handle));
  METE_ASSIGN_OR_RETURN(const std::vector<MigHandle> devices, Handles());
  for (const MigHandle& device : devices) {
    if (device.gpu_instance == gpu_instance && device.compute_instance == compute.id) compute.uuid = device.uuid;
  }
  return compute;
}

Status MigCalls::DestroyCompute(uint32_t gpu_instance, uint32_t compute_instance) const {
  METE_RETURN_IF_ERROR(Needs(api_.compute_instance_by_id != nullptr && api_.destroy_compute_instance != nullptr,
                             "nvmlComputeInstanceDestroy"));
  METE_ASSIGN_OR_RETURN(const nvmlGpuInstance_t instance, ById(gpu_instance));
  const std::string what = fmt::format("compute instance {} of GPU instance {}", compute_instance, gpu_instance);
  nvmlComputeInstance_t handle = nullptr;
  METE_RETURN_IF_ERROR(Check(api_.compute_instance_by_id(instance, compute_instance, &handle),
                             "nvmlGpuInstanceGetComputeInstanceById", what));
  return Check(api_.destroy_compute_instance(handle), "nvmlComputeInstanceDestroy", what);
}

Status MigCalls::Destroy(uint32_t gpu_instance) const {
  constexpr const char* kCall = "nvmlGpuInstanceDestroy";
  METE_RETURN_IF_ERROR(Needs(api_.destroy_gpu_instance != nullptr, kCall));
  METE_ASSIGN_OR_RETURN(const nvmlGpuInstance_t handle, ById(gpu_instance));
  return Check(api_.destroy_gpu_instance(handle), kCall, fmt::format("GPU instance {}", gpu_instance));
}

}  // namespace mete::nvml
