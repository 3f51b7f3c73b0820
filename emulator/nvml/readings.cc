// NVML's calls that read a GPU's memory, use, power and temperature, and set its power limit.
#include <algorithm>

#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithState;

struct MemorySplit {
  uint64_t total, reserved, used, free;
};

MemorySplit Split(const GpuInfo& info, const GpuState& state) {
  uint64_t usable = info.memory_bytes - std::min(info.memory_bytes, info.reserved_bytes);
  uint64_t used = std::min(state.memory_used_bytes, usable);
  return {info.memory_bytes, info.memory_bytes - usable, used, usable - used};
}

// Of a MIG device: its GPU instance's, which its compute instances share. The driver keeps nothing of it.
MemorySplit Split(const emulator::MigGpuInstance& instance) {
  const uint64_t used = std::min(instance.used_bytes, instance.memory_bytes);
  return {instance.memory_bytes, 0, used, instance.memory_bytes - used};
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const auto whole = [](const MemorySplit& split) {
    return nvmlMemory_t{split.total, split.free, split.reserved + split.used};
  };
  return emulator::WithEither(
      device,
      [&](NvmlSession&, const emulator::MigAt& at) {
        if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        *memory = whole(Split(*at.instance));
        return NVML_SUCCESS;
      },
      [&] {
        return emulator::GiveState(
            device, memory, [&](const GpuInfo& info, const GpuState& state) { return whole(Split(info, state)); });
      });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return emulator::WithEither(
      device,
      [&](NvmlSession&, const emulator::MigAt& at) {
        if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        if (memory->version != StructVersion<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        const MemorySplit split = Split(*at.instance);
        *memory = {memory->version, split.total, split.reserved, split.free, split.used};
        return NVML_SUCCESS;
      },
      [&] {
        return emulator::GiveVersioned(device, memory, 2,
                                       [](const GpuInfo& info, const GpuState& state, nvmlMemory_v2_t* out) {
                                         const MemorySplit split = Split(info, state);
                                         *out = {0, split.total, split.reserved, split.free, split.used};
                                         return NVML_SUCCESS;
                                       });
      });
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* bar1Memory) {
  constexpr uint64_t kDrivers = 1 << 20;
  return emulator::WithEither(
      device,
      // An instance has its part of the window, but for what is the driver's.
      [&](NvmlSession& session, const emulator::MigAt& at) {
        if (bar1Memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        const uint64_t part =
            session.gpus()[at.gpu].bar1_bytes / std::max(at.state.memory_slices, 1u) * at.instance->size;
        const uint64_t left = part - std::min<uint64_t>(part, kDrivers);
        *bar1Memory = {left, left, 0};
        return NVML_SUCCESS;
      },
      [&] {
        return emulator::GiveInfo(device, bar1Memory, [=](const GpuInfo& info, unsigned) {
          const uint64_t used = std::min<uint64_t>(kDrivers, info.bar1_bytes);
          return nvmlBAR1Memory_t{info.bar1_bytes, info.bar1_bytes - used, used};
        });
      });
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* busWidth) {
  return emulator::GiveInfo(device, busWidth, [](const GpuInfo& info, unsigned) { return info.memory_bus_bits; });
}

// Not with MIG, says the documentation of this and of the use of engines and processes.
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  return WithState(device, [&](const GpuInfo&, const GpuState& state) {
    if (utilization == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (state.mig_mode != 0) return NVML_ERROR_NOT_SUPPORTED;
    *utilization = {state.utilization_gpu, state.utilization_memory};
    return NVML_SUCCESS;
  });
}

// --- Power ---------------------------------------------------------------------------------------------------------

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  return emulator::GiveState(device, power, [](const GpuInfo&, const GpuState& state) { return state.power_mw; });
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return emulator::GiveSame(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* limit) {
  return emulator::GiveState(device, limit, [](const GpuInfo&, const GpuState& state) { return state.power_limit_mw; });
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* limit) {
  return nvmlDeviceGetPowerManagementLimit(device, limit);
}
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int* defaultLimit) {
  return emulator::GiveInfo(device, defaultLimit, [](const GpuInfo& info, unsigned) { return info.max_power_mw; });
}
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int* minLimit,
                                                          unsigned int* maxLimit) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (minLimit == nullptr || maxLimit == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *minLimit = session.gpus()[gpu].min_power_mw;
    *maxLimit = session.gpus()[gpu].max_power_mw;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
  return emulator::Change(device, emulator::GpuSetting::kPowerLimit, limit);
}
nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t* powerValue) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (powerValue == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (powerValue->version != StructVersion<nvmlPowerValue_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (powerValue->powerScope > 3) return NVML_ERROR_INVALID_ARGUMENT;
    if (powerValue->powerScope != 0) return NVML_ERROR_NOT_SUPPORTED;
    return nvmlDeviceSetPowerManagementLimit(device, powerValue->powerValueMw);
  });
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* energy) {
  return emulator::GiveState(device, energy, [](const GpuInfo&, const GpuState& state) { return state.energy_mj; });
}

nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, nvmlPowerSource_t* powerSource) {
  return emulator::GiveSame(device, powerSource, 0u);  // the mains
}

// How long something held the clocks back. Application clocks and the board's base clock are no such thing here.
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t perfPolicyType,
                                          nvmlViolationTime_t* violTime) {
  return WithState(device, [&](const GpuInfo&, const GpuState& state) {
    const bool known = (perfPolicyType >= NVML_PERF_POLICY_POWER && perfPolicyType <= NVML_PERF_POLICY_RELIABILITY) ||
                       perfPolicyType == NVML_PERF_POLICY_TOTAL_APP_CLOCKS ||
                       perfPolicyType == NVML_PERF_POLICY_TOTAL_BASE_CLOCKS;
    if (violTime == nullptr || !known) return NVML_ERROR_INVALID_ARGUMENT;
    violTime->referenceTime = emulator::WallClockUs();
    violTime->violationTime = perfPolicyType == NVML_PERF_POLICY_POWER     ? state.power_capped_ns
                              : perfPolicyType == NVML_PERF_POLICY_THERMAL ? state.throttled_ns
                                                                           : 0;
    return NVML_SUCCESS;
  });
}

// --- Temperature ---------------------------------------------------------------------------------------------------

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int* temp) {
  return WithState(device, [&](const GpuInfo&, const GpuState& state) {
    if (temp == nullptr || sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    *temp = state.temperature_c;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  return WithState(device, [&](const GpuInfo&, const GpuState& state) {
    if (temperature == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != StructVersion<nvmlTemperature_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    temperature->temperature = static_cast<int>(state.temperature_c);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t thresholdType,
                                               unsigned int* temp) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const GpuInfo& info = session.gpus()[gpu];
    if (temp == nullptr || thresholdType < 0 || thresholdType >= NVML_TEMPERATURE_THRESHOLD_COUNT) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    switch (thresholdType) {
      case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: *temp = info.shutdown_c; return NVML_SUCCESS;
      case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: *temp = info.slowdown_c; return NVML_SUCCESS;
      case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
        *temp = info.slowdown_c - std::min<uint32_t>(info.slowdown_c, 4);  // software acts before hardware does
        return NVML_SUCCESS;
      case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
        if (info.hbm == 0) return NVML_ERROR_NOT_SUPPORTED;
        *temp = 95;
        return NVML_SUCCESS;
      default: return NVML_ERROR_NOT_SUPPORTED;  // acoustics: boards with a fan for a desk
    }
  });
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t* marginTempInfo) {
  return emulator::GiveVersioned(
      device, marginTempInfo, 1, [](const GpuInfo& info, const GpuState& state, nvmlMarginTemperature_t* out) {
        if (!emulator::HopperOrNewer(info)) return NVML_ERROR_NOT_SUPPORTED;
        out->marginTemperature = static_cast<int>(info.slowdown_c) - static_cast<int>(state.temperature_c);
        return NVML_SUCCESS;
      });
}

nvmlReturn_t nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int sensorIndex,
                                          nvmlGpuThermalSettings_t* pThermalSettings) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    constexpr unsigned kAll = 15;
    constexpr int kInternal = 1, kGpu = 1;
    if (pThermalSettings == nullptr || (sensorIndex != 0 && sensorIndex != kAll)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlGpuThermalSettings_t settings = {};
    settings.count = 1;
    settings.sensor[0] = {kInternal, 0, static_cast<int>(info.shutdown_c), static_cast<int>(state.temperature_c), kGpu};
    *pThermalSettings = settings;
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
