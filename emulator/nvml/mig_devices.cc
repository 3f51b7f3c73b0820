// NVML's calls about the MIG mode of a GPU, and about MIG devices: what CUDA programs run on when it is on.
#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::MigAt;
using emulator::MigComputeProfileInfo;
using emulator::MigProfileInfo;
using emulator::MigState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithMig;

// body(state) of a GPU whose board has MIG.
template <typename Body>
nvmlReturn_t WithMigState(nvmlDevice_t device, Body body) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    MigState state = {};
    const emulator::Result result = session.client->Mig(gpu, &state);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
    return body(gpu, state);
  });
}

// Of GPUs these say NOT_SUPPORTED, as most other calls do of MIG devices.
template <typename T, typename Give>
nvmlReturn_t OfMigDevice(nvmlDevice_t device, T* out, Give give) {
  return emulator::WithEither(
      device,
      [&](NvmlSession& session, const MigAt& at) {
        return out == nullptr ? NVML_ERROR_INVALID_ARGUMENT : give(session, at);
      },
      [&] { return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_NOT_SUPPORTED; }); });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode, unsigned int* pendingMode) {
  return WithMigState(device, [&](unsigned, const MigState& state) {
    if (currentMode == nullptr || pendingMode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (state.capable == 0) return NVML_ERROR_NOT_SUPPORTED;
    *currentMode = state.mode;
    *pendingMode = state.pending;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t* activationStatus) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (activationStatus == nullptr || mode > NVML_DEVICE_MIG_ENABLE) return NVML_ERROR_INVALID_ARGUMENT;
    emulator::Result activation = emulator::Result::kOk;
    const emulator::Result result = session.client->SetMigMode(gpu, mode == NVML_DEVICE_MIG_ENABLE, &activation);
    if (result == emulator::Result::kOk) *activationStatus = emulator::FromResult(activation);
    return emulator::FromResult(result);
  });
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return WithMigState(device, [&](unsigned, const MigState& state) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *count = state.mode != 0 ? state.compute_slices : 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t* migDevice) {
  return WithMigState(device, [&](unsigned gpu, const MigState& state) {
    if (migDevice == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (state.capable == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (index >= state.compute_slices) return NVML_ERROR_INVALID_ARGUMENT;
    if (index >= state.compute_instances) return NVML_ERROR_NOT_FOUND;
    *migDevice = emulator::MigDeviceHandle(gpu, state.compute_instance[index]);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* isMigDevice) {
  const auto give = [&](unsigned is) {
    if (isMigDevice == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *isMigDevice = is;
    return NVML_SUCCESS;
  };
  return emulator::WithEither(
      device, [&](NvmlSession&, const MigAt&) { return give(1); },
      [&] { return WithGpu(device, [&](NvmlSession&, unsigned) { return give(0); }); });
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice, nvmlDevice_t* device) {
  return WithMig(migDevice, [&](NvmlSession&, const MigAt& at) {
    if (device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *device = emulator::NvmlHandle(at.gpu);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int* id) {
  return OfMigDevice(device, id, [&](NvmlSession&, const MigAt& at) {
    *id = at.instance->id;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int* id) {
  return OfMigDevice(device, id, [&](NvmlSession&, const MigAt& at) {
    *id = at.compute->id;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return OfMigDevice(device, attributes, [&](NvmlSession& session, const MigAt& at) {
    MigProfileInfo profile = {};
    MigComputeProfileInfo compute = {};
    const nvmlReturn_t code = emulator::ProfilesOf(session, at, &profile, &compute);
    if (code != NVML_SUCCESS) return code;
    *attributes = {at.compute->sm_count,   profile.copy_engines, profile.decoders,
                   profile.encoders,       profile.jpegs,        profile.ofas,
                   profile.compute_slices, at.compute->size,     profile.memory_bytes >> 20};
    return NVML_SUCCESS;
  });
}
// The older name has the same structure, which grew since by nothing.
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return nvmlDeviceGetAttributes_v2(device, attributes);
}

}  // extern "C"

}  // namespace mete::nvml::abi
