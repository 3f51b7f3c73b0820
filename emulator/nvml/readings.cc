// NVML's calls that read a GPU's state: memory, clocks, power, temperature, links, utilisation.
#include <time.h>

#include <algorithm>
#include <bit>
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

constexpr unsigned kCodecPeriodUs = 167'000;  // sampling period that drivers report for their engines
constexpr unsigned long long kClocksIdle = 1, kClocksNotHeldBack = 0;

template <typename T, typename Value>
nvmlReturn_t Give(nvmlDevice_t device, T* out, Value value) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *out = static_cast<T>(value(info, state));
    return NVML_SUCCESS;
  });
}

struct MemorySplit {
  uint64_t total, reserved, used, free;
};

MemorySplit Split(const GpuInfo& info, const GpuState& state) {
  uint64_t usable = info.memory_bytes - std::min(info.memory_bytes, info.reserved_bytes);
  uint64_t used = std::min(state.memory_used_bytes, usable);
  return {info.memory_bytes, info.memory_bytes - usable, used, usable - used};
}

// NVML has four clock domains; the engine models two.
bool ClockOf(const GpuInfo& info, const GpuState& state, int type, bool maximum, unsigned* mhz) {
  switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM: *mhz = (maximum ? info.clock_khz : state.sm_clock_khz) / 1000; return true;
    case NVML_CLOCK_MEM: *mhz = (maximum ? info.memory_clock_khz : state.memory_clock_khz) / 1000; return true;
    default: return false;
  }
}

nvmlReturn_t GiveClock(nvmlDevice_t device, int type, bool maximum, unsigned* clock) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (clock == nullptr || type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
    return ClockOf(info, state, type, maximum, clock) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return Give(device, memory, [](const GpuInfo& info, const GpuState& state) {
    MemorySplit split = Split(info, state);
    return nvmlMemory_t{split.total, split.free, split.reserved + split.used};
  });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != StructVersion<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    MemorySplit split = Split(info, state);
    *memory = {memory->version, split.total, split.reserved, split.free, split.used};
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* bar1Memory) {
  // An estimate: boards made for MIG map all their memory, the others a window of 256 MiB; a little is always in use.
  return Give(device, bar1Memory, [](const GpuInfo& info, const GpuState&) {
    unsigned long long total = info.mig_capable != 0 ? std::bit_ceil(info.memory_bytes) : 256ull << 20;
    unsigned long long used = 1ull << 20;
    return nvmlBAR1Memory_t{total, total - used, used};
  });
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  return Give(device, utilization, [](const GpuInfo&, const GpuState& state) {
    return nvmlUtilization_t{state.utilization_gpu, state.utilization_memory};
  });
}

// There is no video engine in the model; none of it is ever busy.
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int* utilization,
                                             unsigned int* samplingPeriodUs) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (utilization == nullptr || samplingPeriodUs == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *utilization = 0;
    *samplingPeriodUs = kCodecPeriodUs;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int* utilization,
                                             unsigned int* samplingPeriodUs) {
  return nvmlDeviceGetEncoderUtilization(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  return Give(device, power, [](const GpuInfo&, const GpuState& state) { return state.power_mw; });
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* limit) {
  return Give(device, limit, [](const GpuInfo& info, const GpuState&) { return info.max_power_mw; });
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* limit) {
  return nvmlDeviceGetPowerManagementLimit(device, limit);
}
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int* defaultLimit) {
  return nvmlDeviceGetPowerManagementLimit(device, defaultLimit);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* energy) {
  return Give(device, energy, [](const GpuInfo&, const GpuState& state) { return state.energy_mj; });
}

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

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return GiveClock(device, type, false, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return GiveClock(device, type, true, clock);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId,
                                unsigned int* clockMHz) {
  if (clockId == NVML_CLOCK_ID_CURRENT) return GiveClock(device, clockType, false, clockMHz);
  if (clockId == NVML_CLOCK_ID_CUSTOMER_BOOST_MAX) return GiveClock(device, clockType, true, clockMHz);
  return emulator::NvmlNotSupported("nvmlDeviceGetClock");  // no application clocks
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* clocksEventReasons) {
  return Give(device, clocksEventReasons, [](const GpuInfo&, const GpuState& state) {
    return state.utilization_gpu == 0 ? kClocksIdle : kClocksNotHeldBack;
  });
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

// The model has one performance state.
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return Give(device, pState, [](const GpuInfo&, const GpuState&) { return NVML_PSTATE_0; });
}
nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return nvmlDeviceGetPerformanceState(device, pState);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* currLinkGen) {
  return Give(device, currLinkGen, [](const GpuInfo& info, const GpuState&) { return info.pcie_gen; });
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* maxLinkGen) {
  return nvmlDeviceGetCurrPcieLinkGeneration(device, maxLinkGen);
}
nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* maxLinkGenDevice) {
  return nvmlDeviceGetCurrPcieLinkGeneration(device, maxLinkGenDevice);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* currLinkWidth) {
  return Give(device, currLinkWidth, [](const GpuInfo& info, const GpuState&) { return info.pcie_lanes; });
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* maxLinkWidth) {
  return nvmlDeviceGetCurrPcieLinkWidth(device, maxLinkWidth);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* busWidth) {
  return Give(device, busWidth, [](const GpuInfo& info, const GpuState&) { return info.memory_bus_bits; });
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t* values) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (valuesCount < 1 || values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    GpuState state = {};
    emulator::Result result = session.client->State(gpu, &state);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < valuesCount; ++i) {
      nvmlFieldValue_t& field = values[i];
      field.timestamp = static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
      field.latencyUsec = 0;
      field.valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
      field.nvmlReturn = NVML_SUCCESS;
      field.value.ullVal = 0;
      switch (field.fieldId) {
        case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
          field.valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
          field.value.ullVal = state.energy_mj;
          break;
        case NVML_FI_DEV_POWER_AVERAGE:
        case NVML_FI_DEV_POWER_INSTANT: field.value.uiVal = state.power_mw; break;
        case NVML_FI_DEV_POWER_MAX_LIMIT:
        case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
        case NVML_FI_DEV_POWER_CURRENT_LIMIT: field.value.uiVal = session.gpus()[gpu].max_power_mw; break;
        default:
          session.client->CountUnsupportedCall("nvmlDeviceGetFieldValues");
          field.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
      }
    }
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
