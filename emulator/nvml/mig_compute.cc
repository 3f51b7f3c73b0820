// NVML's calls about compute instances: profiles and placements inside a GPU instance, making and destroying.
#include <cstddef>

#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::kAnyStart;
using emulator::MigAt;
using emulator::MigComputeInstance;
using emulator::MigComputeProfileInfo;
using emulator::MigProfileInfo;
using emulator::NvmlSession;
using emulator::WithMig;

constexpr unsigned kMostComputeProfiles = 16;  // beyond what NVML enumerates

// body(profile of the GPU instance, its compute profile); `none` where it has no such.
template <typename Body>
nvmlReturn_t WithComputeProfile(nvmlGpuInstance_t instance, unsigned id, nvmlReturn_t none, Body body) {
  return WithMig(instance, [&](NvmlSession& session, const MigAt& at) {
    MigProfileInfo profile = {};
    const nvmlReturn_t code = emulator::ProfilesOf(session, at, &profile, nullptr);
    if (code != NVML_SUCCESS) return code;
    const MigComputeProfileInfo* compute = emulator::FindProfile(profile, id);
    return compute == nullptr ? none : body(session, at, profile, *compute);
  });
}

template <typename Info>
void FillComputeProfile(const MigProfileInfo& profile, const MigComputeProfileInfo& compute, Info* info) {
  info->id = compute.id;
  info->sliceCount = compute.slices;
  info->instanceCount = compute.max_instances;
  info->multiprocessorCount = compute.sm_count;
  info->sharedCopyEngineCount = profile.copy_engines;
  info->sharedDecoderCount = profile.decoders;
  info->sharedEncoderCount = profile.encoders;
  info->sharedJpegCount = profile.jpegs;
  info->sharedOfaCount = profile.ofas;
}

// There is one engine profile: all engines are shared by the compute instances.
nvmlReturn_t UnlistedCompute(unsigned profile) {
  return profile < kMostComputeProfiles ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t Create(nvmlGpuInstance_t instance, unsigned id, const nvmlComputeInstancePlacement_t* placement,
                    nvmlComputeInstance_t* out) {
  return WithComputeProfile(
      instance, id, NVML_ERROR_INVALID_ARGUMENT,
      [&](NvmlSession& session, const MigAt& at, const MigProfileInfo&, const MigComputeProfileInfo& compute) {
        if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        if (placement != nullptr && placement->size != compute.slices) return NVML_ERROR_INVALID_ARGUMENT;
        MigComputeInstance made = {};
        const uint32_t start = placement == nullptr ? kAnyStart : placement->start;
        const emulator::Result result =
            session.client->CreateComputeInstance(at.gpu, at.instance->id, id, start, &made);
        if (result == emulator::Result::kOk) *out = emulator::ComputeInstanceHandle(at.gpu, made);
        return emulator::FromResult(result);
      });
}

nvmlReturn_t GiveInfo(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t* out, size_t bytes) {
  return WithMig(instance, [&](NvmlSession&, const MigAt& at) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const nvmlComputeInstanceInfo_t info = {emulator::NvmlHandle(at.gpu),
                                            emulator::GpuInstanceHandle(at.gpu, *at.instance),
                                            at.compute->id,
                                            at.compute->profile_id,
                                            {at.compute->start, at.compute->size}};
    std::memcpy(static_cast<void*>(out), &info, bytes);
    return NVML_SUCCESS;
  });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpuInstance, unsigned int profile,
                                                          unsigned int engProfile,
                                                          nvmlComputeInstanceProfileInfo_t* info) {
  return WithComputeProfile(
      gpuInstance, profile, UnlistedCompute(profile),
      [&](NvmlSession&, const MigAt&, const MigProfileInfo& of, const MigComputeProfileInfo& one) {
        if (info == nullptr || engProfile != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED) {
          return NVML_ERROR_INVALID_ARGUMENT;
        }
        *info = {};
        FillComputeProfile(of, one, info);
        return NVML_SUCCESS;
      });
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t gpuInstance, unsigned int profile,
                                                           unsigned int engProfile,
                                                           nvmlComputeInstanceProfileInfo_v2_t* info) {
  return WithMig(gpuInstance, [&](NvmlSession&, const MigAt&) {
    if (info == nullptr || engProfile != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    const bool second = info->version == StructVersion<nvmlComputeInstanceProfileInfo_v2_t>(2);
    if (!second && info->version != StructVersion<nvmlComputeInstanceProfileInfo_v3_t>(3)) {
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    return WithComputeProfile(
        gpuInstance, profile, UnlistedCompute(profile),
        [&](NvmlSession&, const MigAt&, const MigProfileInfo& of, const MigComputeProfileInfo& one) {
          nvmlComputeInstanceProfileInfo_v3_t filled = {};  // begins as the second one
          FillComputeProfile(of, one, &filled);
          filled.version = info->version;
          filled.capabilities = of.graphics != 0 ? NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX : 0;
          emulator::CopyProfileName(one.name, filled.name);
          std::memcpy(static_cast<void*>(info), &filled,
                      second ? sizeof(nvmlComputeInstanceProfileInfo_v2_t) : sizeof(filled));
          return NVML_SUCCESS;
        });
  });
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                                unsigned int* count) {
  return WithMig(gpuInstance, [&](NvmlSession& session, const MigAt& at) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return emulator::FromResult(session.client->MigRoom(at.gpu, at.instance->id, profileId, count));
  });
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                                 nvmlComputeInstancePlacement_t* placements,
                                                                 unsigned int* count) {
  return WithComputeProfile(gpuInstance, profileId, NVML_ERROR_INVALID_ARGUMENT,
                            [&](NvmlSession&, const MigAt&, const MigProfileInfo&, const MigComputeProfileInfo& one) {
                              std::vector<nvmlComputeInstancePlacement_t> list;
                              for (unsigned i = 0; i < one.start_count && i < emulator::kMostMigStarts; ++i) {
                                list.push_back({one.starts[i], one.slices});
                              }
                              return emulator::GiveAll(list, count, placements);
                            });
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                  nvmlComputeInstance_t* computeInstance) {
  return Create(gpuInstance, profileId, nullptr, computeInstance);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                               const nvmlComputeInstancePlacement_t* placement,
                                                               nvmlComputeInstance_t* computeInstance) {
  if (placement == nullptr) return Create(gpuInstance, profileId, nullptr, nullptr);  // which says what is wrong
  return Create(gpuInstance, profileId, placement, computeInstance);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t computeInstance) {
  return WithMig(computeInstance, [&](NvmlSession& session, const MigAt& at) {
    return emulator::FromResult(session.client->DestroyComputeInstance(at.gpu, at.instance->id, at.compute->id));
  });
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
                                                nvmlComputeInstance_t* computeInstances, unsigned int* count) {
  return WithComputeProfile(gpuInstance, profileId, NVML_ERROR_INVALID_ARGUMENT,
                            [&](NvmlSession&, const MigAt& at, const MigProfileInfo&, const MigComputeProfileInfo&) {
                              if (computeInstances == nullptr || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
                              *count = 0;
                              for (unsigned i = 0; i < at.state.compute_instances; ++i) {
                                const MigComputeInstance& one = at.state.compute_instance[i];
                                if (one.gpu_instance != at.instance->id || one.profile_id != profileId) continue;
                                computeInstances[(*count)++] = emulator::ComputeInstanceHandle(at.gpu, one);
                              }
                              return NVML_SUCCESS;
                            });
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpuInstance, unsigned int id,
                                                   nvmlComputeInstance_t* computeInstance) {
  return WithMig(gpuInstance, [&](NvmlSession&, const MigAt& at) {
    if (computeInstance == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < at.state.compute_instances; ++i) {
      const MigComputeInstance& one = at.state.compute_instance[i];
      if (one.gpu_instance != at.instance->id || one.id != id) continue;
      *computeInstance = emulator::ComputeInstanceHandle(at.gpu, one);
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t* info) {
  return GiveInfo(computeInstance, info, sizeof(*info));
}
// Without the placement, which the first structure did not have.
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t* info) {
  return GiveInfo(computeInstance, info, offsetof(nvmlComputeInstanceInfo_t, placement));
}

}  // extern "C"

}  // namespace mete::nvml::abi
