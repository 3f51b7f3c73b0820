// NVML's calls about modes of a GPU: compute mode, MIG, ECC, persistence, accounting, display.
#include <cstring>

#include "emulator/nvml/state.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithState;

constexpr unsigned kMaxMigDevices = 7;  // what drivers report for every board with MIG

// ECC is on where the board has it: all but the GeForce boards.
bool HasEcc(const GpuInfo& info) {
  return memmem(info.name, strnlen(info.name, sizeof(info.name)), "GeForce", 7) == nullptr;
}

// A value that every GPU of the node has.
template <typename T>
nvmlReturn_t Same(nvmlDevice_t device, T* out, T value) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *out = value;
    return NVML_SUCCESS;
  });
}

// A true answer, so not counted as missing.
nvmlReturn_t NoSuchFeature(nvmlDevice_t device) {
  return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_NOT_SUPPORTED; });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return WithState(device, [&](const GpuInfo&, const GpuState& state) {
    if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *mode = static_cast<int>(state.compute_mode);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) return NVML_ERROR_NOT_SUPPORTED;  // gone from drivers long ago
    if (mode < NVML_COMPUTEMODE_DEFAULT || mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
      return NVML_ERROR_INVALID_ARGUMENT;
    return emulator::FromResult(session.client->SetComputeMode(gpu, static_cast<uint32_t>(mode)));
  });
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode, unsigned int* pendingMode) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (currentMode == nullptr || pendingMode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (session.gpus()[gpu].mig_capable == 0) return NVML_ERROR_NOT_SUPPORTED;
    *currentMode = *pendingMode = NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *count = session.gpus()[gpu].mig_capable != 0 ? kMaxMigDevices : 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* isMigDevice) {
  return Same(device, isMigDevice, 0u);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t* migDevice) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (migDevice == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (session.gpus()[gpu].mig_capable == 0) return NVML_ERROR_NOT_SUPPORTED;
    return index < kMaxMigDevices ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (current == nullptr || pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!HasEcc(session.gpus()[gpu])) return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t* defaultMode) {
  nvmlEnableState_t pending = 0;
  return nvmlDeviceGetEccMode(device, defaultMode, &pending);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                         nvmlEccCounterType_t counterType, unsigned long long* eccCounts) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (eccCounts == nullptr || errorType < 0 || errorType > 1 || counterType < 0 || counterType > 1) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (!HasEcc(session.gpus()[gpu])) return NVML_ERROR_NOT_SUPPORTED;
    *eccCounts = 0;  // the node's memory does not fail
    return NVML_SUCCESS;
  });
}

// The engine keeps its state while nobody is connected, which is what persistence mode means.
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return Same(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  if (mode == NVML_FEATURE_DISABLED) return emulator::NvmlNotSupported("nvmlDeviceSetPersistenceMode");
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    return mode == NVML_FEATURE_ENABLED ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* display) {
  return Same(device, display, NVML_FEATURE_DISABLED);
}
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* isActive) {
  return Same(device, isActive, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t*) { return NoSuchFeature(device); }
// Boards without a fan of their own.
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int*) { return NoSuchFeature(device); }
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int* numFans) { return Same(device, numFans, 0u); }

}  // extern "C"

}  // namespace mete::nvml::abi
