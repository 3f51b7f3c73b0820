// NVML's calls about clocks and performance states. SM and graphics clock are one; memory has one clock, and a second
// for sleep on boards with GDDR memory.
#include <algorithm>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithState;

constexpr unsigned kStepMhz = 15;  // between the SM clocks that a board can be set to
constexpr unsigned long long kEveryReason = 0x1 | 0x2 | 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

// value(info, state, kind of clock): kHz of the SM clock or of the memory clock.
template <typename Sm, typename Memory>
nvmlReturn_t GiveClock(nvmlDevice_t device, int type, unsigned* clock, Sm sm, Memory memory) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (clock == nullptr || type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
    if (type == NVML_CLOCK_VIDEO) return NVML_ERROR_NOT_SUPPORTED;  // there is no video engine in the model
    *clock = (type == NVML_CLOCK_MEM ? memory(info, state) : sm(info, state)) / 1000;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t GiveHighest(nvmlDevice_t device, int type, unsigned* clock) {
  return GiveClock(
      device, type, clock, [](const GpuInfo& info, const GpuState&) { return info.clock_khz; },
      [](const GpuInfo& info, const GpuState&) { return info.memory_clock_khz; });
}

// From the highest down.
std::vector<unsigned> SmClocks(const GpuInfo& info) {
  std::vector<unsigned> clocks;
  const unsigned least = std::max(kStepMhz, info.idle_clock_khz / 1000);
  for (unsigned mhz = info.clock_khz / 1000; mhz >= least; mhz -= kStepMhz) clocks.push_back(mhz);
  return clocks;
}

bool Sleeps(const GpuInfo& info) { return info.hbm == 0 && info.idle_memory_clock_khz != 0; }

std::vector<unsigned> MemoryClocks(const GpuInfo& info) {
  std::vector<unsigned> clocks = {info.memory_clock_khz / 1000};
  if (Sleeps(info)) clocks.push_back(info.idle_memory_clock_khz / 1000);
  return clocks;
}

bool Contains(const std::vector<unsigned>& list, unsigned value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

nvmlReturn_t GiveReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return emulator::GiveState(device, reasons,
                             [](const GpuInfo&, const GpuState& state) { return state.clocks_event_reasons; });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return GiveClock(
      device, type, clock, [](const GpuInfo&, const GpuState& state) { return state.sm_clock_khz; },
      [](const GpuInfo&, const GpuState& state) { return state.memory_clock_khz; });
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return GiveHighest(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                                unsigned int* clockMHz) {
  return GiveHighest(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int* clockMHz) {
  return GiveClock(
      device, clockType, clockMHz, [](const GpuInfo&, const GpuState& state) { return state.application_sm_khz; },
      [](const GpuInfo&, const GpuState& state) { return state.application_memory_khz; });
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                                   unsigned int* clockMHz) {
  return GiveHighest(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId,
                                unsigned int* clockMHz) {
  switch (clockId) {
    case NVML_CLOCK_ID_CURRENT: return nvmlDeviceGetClockInfo(device, clockType, clockMHz);
    case NVML_CLOCK_ID_APP_CLOCK_TARGET: return nvmlDeviceGetApplicationsClock(device, clockType, clockMHz);
    case NVML_CLOCK_ID_APP_CLOCK_DEFAULT:
    case NVML_CLOCK_ID_CUSTOMER_BOOST_MAX: return GiveHighest(device, clockType, clockMHz);
    default: return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_INVALID_ARGUMENT; });
  }
}

nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memClockMHz,
                                             unsigned int graphicsClockMHz) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const GpuInfo& info = session.gpus()[gpu];
    if (memClockMHz != info.memory_clock_khz / 1000 || !Contains(SmClocks(info), graphicsClockMHz)) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    const uint64_t both = uint64_t{info.memory_clock_khz} << 32 | graphicsClockMHz * 1000ull;
    return emulator::FromResult(session.client->Set(gpu, emulator::GpuSetting::kApplicationClocks, both));
  });
}

nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) {
  return emulator::Change(device, emulator::GpuSetting::kApplicationClocks, 0);
}

// A clock outside the board's range counts as the end of the range, as the driver does it.
nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int minGpuClockMHz,
                                          unsigned int maxGpuClockMHz) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const GpuInfo& info = session.gpus()[gpu];
    if (minGpuClockMHz > maxGpuClockMHz || maxGpuClockMHz == 0) return NVML_ERROR_INVALID_ARGUMENT;
    const auto khz = [&](unsigned mhz) {
      return std::clamp<uint64_t>(uint64_t{mhz} * 1000, info.idle_clock_khz,
                                  std::max(info.idle_clock_khz, info.clock_khz));
    };
    const uint64_t both = khz(maxGpuClockMHz) << 32 | khz(minGpuClockMHz);
    return emulator::FromResult(session.client->Set(gpu, emulator::GpuSetting::kLockedSmClocks, both));
  });
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
  return emulator::Change(device, emulator::GpuSetting::kLockedSmClocks, 0);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int* count, unsigned int* clocksMHz) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    return emulator::GiveList(MemoryClocks(session.gpus()[gpu]), count, clocksMHz);
  });
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz, unsigned int* count,
                                                  unsigned int* clocksMHz) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const GpuInfo& info = session.gpus()[gpu];
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!Contains(MemoryClocks(info), memoryClockMHz)) return NVML_ERROR_NOT_FOUND;
    return emulator::GiveList(SmClocks(info), count, clocksMHz);
  });
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* clocksEventReasons) {
  return GiveReasons(device, clocksEventReasons);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* clocksThrottleReasons) {
  return GiveReasons(device, clocksThrottleReasons);
}
nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
                                                      unsigned long long* supportedClocksEventReasons) {
  return emulator::GiveSame(device, supportedClocksEventReasons, kEveryReason);
}
nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
                                                         unsigned long long* supportedClocksThrottleReasons) {
  return emulator::GiveSame(device, supportedClocksThrottleReasons, kEveryReason);
}

// --- Performance states --------------------------------------------------------------------------------------------

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return emulator::GiveState(device, pState,
                             [](const GpuInfo&, const GpuState& state) { return state.performance_state; });
}
nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return nvmlDeviceGetPerformanceState(device, pState);
}

nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t* pstates, unsigned int size) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (pstates == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::vector<int> states = {NVML_PSTATE_0};
    if (Sleeps(session.gpus()[gpu])) states.push_back(NVML_PSTATE_8);
    const unsigned room = size / sizeof(nvmlPstates_t);
    if (room < states.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < room && i < 16; ++i) pstates[i] = i < states.size() ? states[i] : NVML_PSTATE_UNKNOWN;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type, nvmlPstates_t pstate,
                                              unsigned int* minClockMHz, unsigned int* maxClockMHz) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const GpuInfo& info = session.gpus()[gpu];
    const bool asleep = pstate == NVML_PSTATE_8 && Sleeps(info);
    if (minClockMHz == nullptr || maxClockMHz == nullptr || type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    if ((pstate != NVML_PSTATE_0 && !asleep) || type == NVML_CLOCK_VIDEO) return NVML_ERROR_NOT_SUPPORTED;
    if (type == NVML_CLOCK_MEM) {
      *minClockMHz = *maxClockMHz = (asleep ? info.idle_memory_clock_khz : info.memory_clock_khz) / 1000;
    } else {
      *minClockMHz = info.idle_clock_khz / 1000;
      *maxClockMHz = info.clock_khz / 1000;
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t* pDynamicPstatesInfo) {
  return emulator::GiveState(device, pDynamicPstatesInfo, [](const GpuInfo&, const GpuState& state) {
    nvmlGpuDynamicPstatesInfo_t info = {};
    info.flags = 1;  // in use
    info.utilization[0] = {1, state.utilization_gpu, 0, 0};
    info.utilization[1] = {1, state.utilization_memory, 0, 0};
    return info;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
