// MIG in the emulated NVML: handles of GPU instances, compute instances and MIG devices, and how entry points get from
// a handle to what the engine says of it. A handle names an instance by the engine's serial number, so that it is valid
// over shutdown and fork, and an instance made again is another one. Any thread. Errors: NVML's codes.
#ifndef METE_EMULATOR_NVML_MIG_H_
#define METE_EMULATOR_NVML_MIG_H_

#include <cstring>
#include <string>
#include <vector>

#include "emulator/nvml/give.h"

namespace mete::emulator {

nvml::abi::nvmlDevice_t MigDeviceHandle(unsigned gpu, const MigComputeInstance& compute);
nvml::abi::nvmlGpuInstance_t GpuInstanceHandle(unsigned gpu, const MigGpuInstance& instance);
nvml::abi::nvmlComputeInstance_t ComputeInstanceHandle(unsigned gpu, const MigComputeInstance& compute);

// What a handle leads to. Not to be copied: it points into itself.
struct MigAt {
  MigAt() = default;
  MigAt(const MigAt&) = delete;
  MigAt& operator=(const MigAt&) = delete;
  unsigned gpu = 0, index = 0;  // index: of the MIG device on its GPU
  MigState state = {};
  const MigGpuInstance* instance = nullptr;
  const MigComputeInstance* compute = nullptr;  // null for a GPU instance's handle
};

// INVALID_ARGUMENT: no such handle, or the instance is gone.
nvml::abi::nvmlReturn_t FindMig(NvmlSession& session, nvml::abi::nvmlDevice_t device, MigAt* at);
nvml::abi::nvmlReturn_t FindMig(NvmlSession& session, nvml::abi::nvmlGpuInstance_t instance, MigAt* at);
nvml::abi::nvmlReturn_t FindMig(NvmlSession& session, nvml::abi::nvmlComputeInstance_t compute, MigAt* at);

// body(session, at) of a MIG device's or an instance's handle.
template <typename Handle, typename Body>
nvml::abi::nvmlReturn_t WithMig(Handle handle, Body body) noexcept {
  return WithNode([&](NvmlSession& session) {
    MigAt at;
    const nvml::abi::nvmlReturn_t code = FindMig(session, handle, &at);
    return code == nvml::abi::NVML_SUCCESS ? body(session, at) : code;
  });
}

// A MIG device's handle goes to of_mig(session, at), a GPU's to of_gpu().
template <typename OfMig, typename OfGpu>
nvml::abi::nvmlReturn_t WithEither(nvml::abi::nvmlDevice_t device, OfMig of_mig, OfGpu of_gpu) noexcept {
  unsigned gpu = 0;
  MigAt at;
  bool of_gpu_then = true;
  const nvml::abi::nvmlReturn_t code = WithNode([&](NvmlSession& session) {
    if (NvmlGpuOf(session, device, &gpu) || FindMig(session, device, &at) != nvml::abi::NVML_SUCCESS) {
      return nvml::abi::NVML_SUCCESS;
    }
    of_gpu_then = false;
    return of_mig(session, at);
  });
  return of_gpu_then ? of_gpu() : code;
}

// The board's profile with that id, as instances are made by; null if there is none.
const MigProfileInfo* FindProfile(const std::vector<MigProfileInfo>& profiles, uint32_t id);
const MigComputeProfileInfo* FindProfile(const MigProfileInfo& profile, uint32_t compute_id);
// Profiles of the GPU's board; NOT_SUPPORTED where there are none.
nvml::abi::nvmlReturn_t ReadProfiles(NvmlSession& session, unsigned gpu, std::vector<MigProfileInfo>* profiles);
// The profiles of the handle's GPU instance and, if it has one, compute instance.
nvml::abi::nvmlReturn_t ProfilesOf(NvmlSession& session, const MigAt& at, MigProfileInfo* profile,
                                   MigComputeProfileInfo* compute);

std::string MigUuidText(const MigComputeInstance& compute);  // "MIG-xxxxxxxx-…"

// NVML's names of profiles: "MIG 1g.5gb".
template <size_t N, size_t M>
void CopyProfileName(const char (&name)[N], char (&out)[M]) {
  CopyText("MIG " + std::string(name, strnlen(name, N)), out, M);
}

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_MIG_H_
