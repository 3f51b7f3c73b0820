#include "emulator/engine/gpu_status.h"

#include <algorithm>

namespace mete::emulator {

SmClock SmClockOf(const GpuInfo& info, const GpuSettings& settings, double fault_factor, uint32_t fault_reasons) {
  SmClock clock = {info.clock_khz, 0};
  const auto lower = [&](uint32_t khz, uint64_t reason) {
    if (khz == 0 || khz >= clock.khz) return;
    clock.khz = std::max(khz, std::min(info.idle_clock_khz, clock.khz));
    clock.reasons = reason;  // what holds it back most
  };
  lower(settings.application_sm_khz, kClocksApplication);
  lower(settings.locked_max_khz, kClocksApplication);
  if (settings.power_limit_mw != 0 && settings.power_limit_mw < info.max_power_mw) {
    const double idle = kIdlePowerPart * info.max_power_mw;
    const double part = std::max(0.0, settings.power_limit_mw - idle) / (info.max_power_mw - idle);
    lower(std::max<uint32_t>(1, static_cast<uint32_t>(part * info.clock_khz)), kClocksPowerCap);
  }
  const double left = fault_factor * info.clock_khz;
  if (left < clock.khz) clock = {std::max<uint32_t>(1, static_cast<uint32_t>(left)), fault_reasons};
  return clock;
}

Result ChangeSetting(const GpuInfo& info, GpuSetting setting, uint64_t value, GpuSettings* settings) {
  const auto flag = [&](uint32_t* mode) {
    if (value > 1) return Result::kInvalid;
    *mode = static_cast<uint32_t>(value);
    return Result::kOk;
  };
  switch (setting) {
    case GpuSetting::kPersistence: return flag(&settings->persistence);
    case GpuSetting::kAccounting: return flag(&settings->accounting);
    case GpuSetting::kEcc: return flag(&settings->ecc_pending);
    case GpuSetting::kPowerLimit:
      if (value < info.min_power_mw || value > info.max_power_mw) return Result::kInvalid;
      settings->power_limit_mw = static_cast<uint32_t>(value);
      return Result::kOk;
    case GpuSetting::kApplicationClocks: {
      const auto sm = static_cast<uint32_t>(value), memory = static_cast<uint32_t>(value >> 32);
      const bool known = sm >= info.idle_clock_khz && sm <= info.clock_khz && memory == info.memory_clock_khz;
      if (value != 0 && !known) return Result::kInvalid;
      settings->application_sm_khz = sm;
      return Result::kOk;
    }
    case GpuSetting::kLockedSmClocks: {
      const auto least = static_cast<uint32_t>(value), most = static_cast<uint32_t>(value >> 32);
      if (value != 0 && (least > most || most < info.idle_clock_khz)) return Result::kInvalid;
      settings->locked_min_khz = std::min(least, info.clock_khz);
      settings->locked_max_khz = std::min(most, info.clock_khz);
      return Result::kOk;
    }
    case GpuSetting::kClearVolatileEcc:
    case GpuSetting::kClearAggregateEcc:
    case GpuSetting::kClearAccounting: return Result::kOk;
  }
  return Result::kInvalid;
}

GpuSettings AfterReset(GpuSettings settings) {
  settings.ecc = settings.ecc_pending;
  settings.application_sm_khz = settings.locked_min_khz = settings.locked_max_khz = 0;
  return settings;
}

}  // namespace mete::emulator
