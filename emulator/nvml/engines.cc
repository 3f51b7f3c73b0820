// NVML's calls about what the model has only as board facts: fans, video engines, displays.
#include <algorithm>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;

constexpr unsigned kCodecPeriodUs = 167'000;  // sampling period that drivers report for their engines
constexpr unsigned kLeastFanPercent = 30;

// A fan turns as fast as the board is hot.
unsigned FanPercent(const GpuInfo& info, const GpuState& state) {
  constexpr unsigned kCoolC = 40;
  const unsigned warm = std::max(info.slowdown_c, kCoolC + 1) - kCoolC;
  const unsigned above = state.temperature_c - std::min(state.temperature_c, kCoolC);
  return kLeastFanPercent + std::min(100 - kLeastFanPercent, above * (100 - kLeastFanPercent) / warm);
}

template <typename Value>
nvmlReturn_t OfFan(nvmlDevice_t device, unsigned fan, unsigned* out, Value value) {
  return emulator::WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (info.fans == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (fan >= info.fans) return NVML_ERROR_INVALID_ARGUMENT;
    *out = value(info, state);
    return NVML_SUCCESS;
  });
}

// There is no video engine in the model; none of it is ever busy.
nvmlReturn_t NeverBusy(nvmlDevice_t device, unsigned* utilization, unsigned* period_us) {
  return emulator::WithState(device, [&](const GpuInfo&, const GpuState& state) {
    if (utilization == nullptr || period_us == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (state.mig_mode != 0) return NVML_ERROR_NOT_SUPPORTED;
    *utilization = 0;
    *period_us = kCodecPeriodUs;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t NoSessions(nvmlDevice_t device, unsigned* count) { return emulator::GiveSame(device, count, 0u); }

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int* numFans) {
  return emulator::GiveInfo(device, numFans, [](const GpuInfo& info, unsigned) { return info.fans; });
}
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int* speed) {
  return OfFan(device, 0, speed, FanPercent);
}
nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int* speed) {
  return OfFan(device, fan, speed, FanPercent);
}
nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned int fan, unsigned int* targetSpeed) {
  return OfFan(device, fan, targetSpeed, FanPercent);
}
nvmlReturn_t nvmlDeviceGetFanControlPolicy_v2(nvmlDevice_t device, unsigned int fan, nvmlFanControlPolicy_t* policy) {
  return OfFan(device, fan, policy, [](const GpuInfo&, const GpuState&) { return 0u; });  // by temperature
}
nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int* minSpeed, unsigned int* maxSpeed) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (minSpeed == nullptr || maxSpeed == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (session.gpus()[gpu].fans == 0) return NVML_ERROR_NOT_SUPPORTED;
    *minSpeed = kLeastFanPercent;
    *maxSpeed = 100;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int* utilization,
                                             unsigned int* samplingPeriodUs) {
  return NeverBusy(device, utilization, samplingPeriodUs);
}
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int* utilization,
                                             unsigned int* samplingPeriodUs) {
  return NeverBusy(device, utilization, samplingPeriodUs);
}
nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int* utilization,
                                         unsigned int* samplingPeriodUs) {
  return NeverBusy(device, utilization, samplingPeriodUs);
}
nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int* utilization,
                                         unsigned int* samplingPeriodUs) {
  return NeverBusy(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int* sessionCount, unsigned int* averageFps,
                                       unsigned int* averageLatency) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (sessionCount == nullptr || averageFps == nullptr || averageLatency == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    *sessionCount = *averageFps = *averageLatency = 0;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int* sessionCount, nvmlEncoderSessionInfo_t*) {
  return NoSessions(device, sessionCount);
}
nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t* fbcStats) {
  return emulator::GiveSame(device, fbcStats, nvmlFBCStats_t{});
}
nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int* sessionCount, nvmlFBCSessionInfo_t*) {
  return NoSessions(device, sessionCount);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* display) {
  return emulator::GiveSame(device, display, NVML_FEATURE_DISABLED);
}
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* isActive) {
  return emulator::GiveSame(device, isActive, NVML_FEATURE_DISABLED);
}

}  // extern "C"

}  // namespace mete::nvml::abi
