#include "emulator/nvml/mig.h"

#include "emulator/nvml/identity.h"

namespace mete::emulator {

namespace {

using nvml::abi::nvmlComputeInstance_t;
using nvml::abi::nvmlDevice_t;
using nvml::abi::nvmlGpuInstance_t;
using nvml::abi::nvmlReturn_t;

// No address of a program looks like that: a mark, what it is, the GPU, the serial number.
enum class Kind : uint64_t { kDevice = 1, kGpuInstance, kComputeInstance };
constexpr uint64_t kMark = 0x4d49;  // "MI"

uint64_t Number(Kind kind, unsigned gpu, uint32_t serial) {
  return kMark << 48 | static_cast<uint64_t>(kind) << 40 | uint64_t{gpu & 0xff} << 32 | serial;
}

template <typename Handle>
Handle ToHandle(Kind kind, unsigned gpu, uint32_t serial) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(Number(kind, gpu, serial)));
}

template <typename Handle>
nvmlReturn_t Look(NvmlSession& session, Kind kind, Handle handle, MigAt* at) {
  const uint64_t number = reinterpret_cast<uintptr_t>(handle);
  const auto gpu = static_cast<unsigned>(number >> 32 & 0xff);
  const auto serial = static_cast<uint32_t>(number);
  if (number != Number(kind, gpu, serial) || gpu >= session.gpus().size()) {
    return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
  }
  at->gpu = gpu;
  const Result result = session.client->Mig(gpu, &at->state);
  if (result != Result::kOk) return FromResult(result);
  const MigState& state = at->state;
  uint32_t gpu_instance = kNoInstance;
  for (unsigned i = 0; i < state.compute_instances && i < kMostMigInstances && kind != Kind::kGpuInstance; ++i) {
    if (state.compute_instance[i].serial != serial) continue;
    at->compute = &state.compute_instance[i];
    at->index = i;
    gpu_instance = at->compute->gpu_instance;
  }
  for (unsigned i = 0; i < state.gpu_instances && i < kMostMigInstances; ++i) {
    const MigGpuInstance& one = state.gpu_instance[i];
    if (kind == Kind::kGpuInstance ? one.serial == serial : one.id == gpu_instance) at->instance = &one;
  }
  return at->instance == nullptr ? nvml::abi::NVML_ERROR_INVALID_ARGUMENT : nvml::abi::NVML_SUCCESS;
}

}  // namespace

nvmlDevice_t MigDeviceHandle(unsigned gpu, const MigComputeInstance& compute) {
  return ToHandle<nvmlDevice_t>(Kind::kDevice, gpu, compute.serial);
}
nvmlGpuInstance_t GpuInstanceHandle(unsigned gpu, const MigGpuInstance& instance) {
  return ToHandle<nvmlGpuInstance_t>(Kind::kGpuInstance, gpu, instance.serial);
}
nvmlComputeInstance_t ComputeInstanceHandle(unsigned gpu, const MigComputeInstance& compute) {
  return ToHandle<nvmlComputeInstance_t>(Kind::kComputeInstance, gpu, compute.serial);
}

nvmlReturn_t FindMig(NvmlSession& session, nvmlDevice_t device, MigAt* at) {
  return Look(session, Kind::kDevice, device, at);
}
nvmlReturn_t FindMig(NvmlSession& session, nvmlGpuInstance_t instance, MigAt* at) {
  return Look(session, Kind::kGpuInstance, instance, at);
}
nvmlReturn_t FindMig(NvmlSession& session, nvmlComputeInstance_t compute, MigAt* at) {
  return Look(session, Kind::kComputeInstance, compute, at);
}

nvmlReturn_t NvmlNotAGpu(NvmlSession& session, nvmlDevice_t device) {
  MigAt at;
  const nvmlReturn_t code = FindMig(session, device, &at);
  return code == nvml::abi::NVML_SUCCESS ? nvml::abi::NVML_ERROR_NOT_SUPPORTED : code;
}

const MigProfileInfo* FindProfile(const std::vector<MigProfileInfo>& profiles, uint32_t id) {
  for (const MigProfileInfo& profile : profiles) {
    if (profile.id == id) return &profile;
  }
  return nullptr;
}

const MigComputeProfileInfo* FindProfile(const MigProfileInfo& profile, uint32_t compute_id) {
  for (unsigned i = 0; i < profile.compute_count && i < kMostMigComputeProfiles; ++i) {
    if (profile.compute[i].id == compute_id) return &profile.compute[i];
  }
  return nullptr;
}

nvmlReturn_t ReadProfiles(NvmlSession& session, unsigned gpu, std::vector<MigProfileInfo>* profiles) {
  const Result result = session.client->MigProfiles(gpu, profiles);
  if (result != Result::kOk) return FromResult(result);
  return profiles->empty() ? nvml::abi::NVML_ERROR_NOT_SUPPORTED : nvml::abi::NVML_SUCCESS;
}

nvmlReturn_t ProfilesOf(NvmlSession& session, const MigAt& at, MigProfileInfo* profile,
                        MigComputeProfileInfo* compute) {
  std::vector<MigProfileInfo> profiles;
  const nvmlReturn_t code = ReadProfiles(session, at.gpu, &profiles);
  if (code != nvml::abi::NVML_SUCCESS) return code;
  const MigProfileInfo* found = FindProfile(profiles, at.instance->profile_id);
  if (found == nullptr) return nvml::abi::NVML_ERROR_UNKNOWN;
  *profile = *found;
  if (at.compute == nullptr) return nvml::abi::NVML_SUCCESS;
  const MigComputeProfileInfo* found_compute = FindProfile(*found, at.compute->profile_id);
  if (found_compute == nullptr) return nvml::abi::NVML_ERROR_UNKNOWN;
  *compute = *found_compute;
  return nvml::abi::NVML_SUCCESS;
}

std::string MigUuidText(const MigComputeInstance& compute) { return UuidTextOf("MIG-", compute.uuid); }

}  // namespace mete::emulator
