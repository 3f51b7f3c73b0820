// NVML's calls about GPU instances: profiles, placements, making and destroying.
#include <algorithm>

#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::kAnyStart;
using emulator::kNoInstance;
using emulator::MigAt;
using emulator::MigGpuInstance;
using emulator::MigProfileInfo;
using emulator::MigState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithMig;

constexpr unsigned kMostProfiles = 32;  // beyond what NVML enumerates

// body(profile) of the profile for which `is` holds. `none`: the answer where the board has none such.
template <typename Is, typename Body>
nvmlReturn_t WithProfile(nvmlDevice_t device, nvmlReturn_t none, Is is, Body body) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    std::vector<MigProfileInfo> profiles;
    const nvmlReturn_t code = emulator::ReadProfiles(session, gpu, &profiles);
    if (code != NVML_SUCCESS) return code;
    const auto found = std::find_if(profiles.begin(), profiles.end(), is);
    return found == profiles.end() ? none : body(session, gpu, *found);
  });
}

auto HasId(unsigned id) {
  return [id](const MigProfileInfo& profile) { return profile.id == id; };
}

// What all versions of the structure have.
template <typename Info>
void FillProfile(const MigProfileInfo& profile, Info* info) {
  info->id = profile.id;
  info->sliceCount = profile.compute_slices;
  info->instanceCount = profile.max_instances;
  info->multiprocessorCount = profile.sm_count;
  info->copyEngineCount = profile.copy_engines;
  info->decoderCount = profile.decoders;
  info->encoderCount = profile.encoders;
  info->jpegCount = profile.jpegs;
  info->ofaCount = profile.ofas;
  info->memorySizeMB = profile.memory_bytes >> 20;
}

nvmlReturn_t FillVersion(const MigProfileInfo& profile, nvmlGpuInstanceProfileInfo_v2_t* out) {
  if (out->version == StructVersion<nvmlGpuInstanceProfileInfo_v2_t>(2)) {
    nvmlGpuInstanceProfileInfo_v2_t info = {};
    FillProfile(profile, &info);
    info.version = out->version;
    emulator::CopyProfileName(profile.name, info.name);
    *out = info;
    return NVML_SUCCESS;
  }
  nvmlGpuInstanceProfileInfo_v3_t info = {};
  FillProfile(profile, &info);
  info.version = out->version;
  emulator::CopyProfileName(profile.name, info.name);
  info.capabilities = profile.graphics != 0 ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0;
  std::memcpy(static_cast<void*>(out), &info, sizeof(info));
  return NVML_SUCCESS;
}

template <typename Is>
nvmlReturn_t GiveVersion(nvmlDevice_t device, nvmlReturn_t none, nvmlGpuInstanceProfileInfo_v2_t* info, Is is) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const bool known = info->version == StructVersion<nvmlGpuInstanceProfileInfo_v2_t>(2) ||
                       info->version == StructVersion<nvmlGpuInstanceProfileInfo_v3_t>(3);
    if (!known) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return WithProfile(device, none, is, [&](NvmlSession&, unsigned, const MigProfileInfo& profile) {
      return FillVersion(profile, info);
    });
  });
}

auto HasEnumeration(unsigned profile) {
  return [profile](const MigProfileInfo& one) { return one.nvml_profile == profile; };
}
nvmlReturn_t Unlisted(unsigned profile) {
  return profile < kMostProfiles ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t Create(nvmlDevice_t device, unsigned profile_id, const nvmlGpuInstancePlacement_t* placement,
                    nvmlGpuInstance_t* out) {
  return WithProfile(device, NVML_ERROR_INVALID_ARGUMENT, HasId(profile_id),
                     [&](NvmlSession& session, unsigned gpu, const MigProfileInfo& profile) {
                       if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
                       if (placement != nullptr && placement->size != profile.memory_slices)
                         return NVML_ERROR_INVALID_ARGUMENT;
                       MigGpuInstance made = {};
                       const uint32_t start = placement == nullptr ? kAnyStart : placement->start;
                       const emulator::Result result = session.client->CreateGpuInstance(gpu, profile_id, start, &made);
                       if (result == emulator::Result::kOk) *out = emulator::GpuInstanceHandle(gpu, made);
                       return emulator::FromResult(result);
                     });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t* info) {
  return WithProfile(device, Unlisted(profile), HasEnumeration(profile),
                     [&](NvmlSession&, unsigned, const MigProfileInfo& found) {
                       if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
                       *info = {};
                       FillProfile(found, info);
                       return NVML_SUCCESS;
                     });
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t* info) {
  return GiveVersion(device, Unlisted(profile), info, HasEnumeration(profile));
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int profileId,
                                                      nvmlGpuInstanceProfileInfo_v2_t* info) {
  return GiveVersion(device, NVML_ERROR_INVALID_ARGUMENT, info, HasId(profileId));
}

// All of the profile's, whatever is in use.
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profileId,
                                                           nvmlGpuInstancePlacement_t* placements,
                                                           unsigned int* count) {
  return WithProfile(device, NVML_ERROR_INVALID_ARGUMENT, HasId(profileId),
                     [&](NvmlSession&, unsigned, const MigProfileInfo& profile) {
                       std::vector<nvmlGpuInstancePlacement_t> list;
                       for (unsigned i = 0; i < profile.start_count && i < emulator::kMostMigStarts; ++i) {
                         list.push_back({profile.starts[i], profile.memory_slices});
                       }
                       return emulator::GiveAll(list, count, placements);
                     });
}
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int profileId,
                                                        nvmlGpuInstancePlacement_t* placements, unsigned int* count) {
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profileId, placements, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profileId,
                                                       unsigned int* count) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return emulator::FromResult(session.client->MigRoom(gpu, kNoInstance, profileId, count));
  });
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t* gpuInstance) {
  return Create(device, profileId, nullptr, gpuInstance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profileId,
                                                      const nvmlGpuInstancePlacement_t* placement,
                                                      nvmlGpuInstance_t* gpuInstance) {
  if (placement == nullptr) return Create(device, profileId, nullptr, nullptr);  // which says what is wrong
  return Create(device, profileId, placement, gpuInstance);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gpuInstance) {
  return WithMig(gpuInstance, [&](NvmlSession& session, const MigAt& at) {
    return emulator::FromResult(session.client->DestroyGpuInstance(at.gpu, at.instance->id));
  });
}

// The caller's room is the profile's instanceCount; *count says only how many there are.
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t* gpuInstances,
                                       unsigned int* count) {
  return WithProfile(device, NVML_ERROR_INVALID_ARGUMENT, HasId(profileId),
                     [&](NvmlSession& session, unsigned gpu, const MigProfileInfo&) {
                       if (gpuInstances == nullptr || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
                       MigState state = {};
                       const emulator::Result result = session.client->Mig(gpu, &state);
                       if (result != emulator::Result::kOk) return emulator::FromResult(result);
                       if (state.mode == 0) return NVML_ERROR_NOT_SUPPORTED;
                       *count = 0;
                       for (unsigned i = 0; i < state.gpu_instances; ++i) {
                         const MigGpuInstance& one = state.gpu_instance[i];
                         if (one.profile_id == profileId) {
                           gpuInstances[(*count)++] = emulator::GpuInstanceHandle(gpu, one);
                         }
                       }
                       return NVML_SUCCESS;
                     });
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t* gpuInstance) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (gpuInstance == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    MigState state = {};
    const emulator::Result result = session.client->Mig(gpu, &state);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
    if (state.mode == 0) return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < state.gpu_instances; ++i) {
      if (state.gpu_instance[i].id != id) continue;
      *gpuInstance = emulator::GpuInstanceHandle(gpu, state.gpu_instance[i]);
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpuInstance, nvmlGpuInstanceInfo_t* info) {
  return WithMig(gpuInstance, [&](NvmlSession&, const MigAt& at) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *info = {emulator::NvmlHandle(at.gpu),
             at.instance->id,
             at.instance->profile_id,
             {at.instance->start, at.instance->size}};
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
