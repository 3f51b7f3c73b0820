// NVML's calls about modes of a GPU: compute mode, persistence; and who may set them.
#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return emulator::GiveState(device, mode, [](const GpuInfo&, const GpuState& state) { return state.compute_mode; });
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) return NVML_ERROR_NOT_SUPPORTED;  // gone from drivers long ago
    if (mode < NVML_COMPUTEMODE_DEFAULT || mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
      return NVML_ERROR_INVALID_ARGUMENT;
    return emulator::FromResult(session.client->SetComputeMode(gpu, static_cast<uint32_t>(mode)));
  });
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return emulator::GiveState(device, mode,
                             [](const GpuInfo&, const GpuState& state) { return state.persistence_mode; });
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  if (mode < 0 || mode > 1) return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_INVALID_ARGUMENT; });
  return emulator::Change(device, emulator::GpuSetting::kPersistence, static_cast<uint64_t>(mode));
}

// Application clocks are the administrator's; automatic boost is gone from the boards that the node can have.
nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, nvmlRestrictedAPI_t apiType,
                                         nvmlEnableState_t* isRestricted) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (isRestricted == nullptr || apiType < 0 || apiType > 1) return NVML_ERROR_INVALID_ARGUMENT;
    if (apiType == 1) return NVML_ERROR_NOT_SUPPORTED;
    *isRestricted = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
  });
}

// Taking a GPU out of use is not emulated, so none ever is.
nvmlReturn_t nvmlDeviceQueryDrainState(nvmlPciInfo_t* pciInfo, nvmlEnableState_t* currentState) {
  return emulator::WithNode([&](NvmlSession&) {
    if (pciInfo == nullptr || currentState == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlDevice_t device = nullptr;
    const nvmlReturn_t code = nvmlDeviceGetHandleByPciBusId_v2(pciInfo->busId, &device);
    if (code == NVML_SUCCESS) *currentState = NVML_FEATURE_DISABLED;
    return code;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
