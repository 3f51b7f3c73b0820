// What a GPU is set to and what has happened to it, besides the work it does, and what follows from both for its
// clocks. Plain data and pure functions; the engine owns one of each for a GPU.
#ifndef METE_EMULATOR_ENGINE_GPU_STATUS_H_
#define METE_EMULATOR_ENGINE_GPU_STATUS_H_

#include <cstdint>

#include "emulator/engine/client.h"

namespace mete::emulator {

// NVML's bits of the reasons why a clock is what it is.
inline constexpr uint64_t kClocksIdle = 1, kClocksApplication = 2, kClocksPowerCap = 4;
inline constexpr uint64_t kClocksFault = 0x8 | 0x20 | 0x40 | 0x80;  // hardware, heat, heat in hardware, power brake

// By the node's owner. 0 where a value says "the board's own".
struct GpuSettings {
  uint32_t persistence = 1, accounting = 0;
  uint32_t ecc = 1, ecc_pending = 1;
  uint32_t power_limit_mw = 0;
  uint32_t application_sm_khz = 0;
  uint32_t locked_min_khz = 0, locked_max_khz = 0;
};

struct SmClock {
  uint32_t khz = 0;      // while the GPU is awake
  uint64_t reasons = 0;  // without kClocksIdle
};

// The power limit holds in the simplest way: the clock is the one at which a saturated board draws just so much.
// `fault_factor`: the clock that a fault leaves, as a part of the highest, for `fault_reasons`; 1 and 0 without a
// fault.
SmClock SmClockOf(const GpuInfo& info, const GpuSettings& settings, double fault_factor, uint32_t fault_reasons);

// A GPU that was reset: error correction as was asked for, clocks the board's own.
GpuSettings AfterReset(GpuSettings settings);

// The part of a board's power limit that it draws without work.
inline constexpr double kIdlePowerPart = 0.12;

// Changes one setting. kInvalid: out of its range; kNotSupported: this board has no such thing. What needs the engine
// (clearing, resetting, the model) is not done here.
Result ChangeSetting(const GpuInfo& info, GpuSetting setting, uint64_t value, GpuSettings* settings);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_GPU_STATUS_H_
