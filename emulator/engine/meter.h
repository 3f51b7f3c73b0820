// NVML's numbers as integrals of a model's activity: utilisation over the last second, power, temperature, energy.
// Power and temperature are values of a simple model, not of a board. Not thread-safe. Times: ns.
#ifndef METE_EMULATOR_ENGINE_METER_H_
#define METE_EMULATOR_ENGINE_METER_H_

#include <cmath>
#include <cstdint>
#include <deque>

#include "emulator/engine/model.h"

namespace mete::emulator {

class Meter {
 public:
  static constexpr uint64_t kSampleNs = 50'000'000;
  static constexpr uint64_t kWindowNs = 1'000'000'000;

  // Call it about every kSampleNs while the GPU is busy and whenever the numbers are read; counters never fall.
  // `clock_part`: the SM clock as a part of the highest; switching costs that much less power.
  void Sample(uint64_t now_ns, const GpuCounters& counters, uint32_t max_power_mw, double clock_part = 1);
  // True while something in the last second was busy: the window still moves.
  bool Moving() const { return moving_; }
  uint64_t LastSampleNs() const { return samples_.empty() ? 0 : samples_.back().at_ns; }

  uint32_t UtilizationGpu() const { return gpu_percent_; }
  uint32_t UtilizationMemory() const { return memory_percent_; }
  uint32_t HostToDeviceKbps() const { return rx_kbps_; }  // KB/s of the last second
  uint32_t DeviceToHostKbps() const { return tx_kbps_; }
  uint32_t PowerMw() const { return power_mw_; }
  uint32_t TemperatureC() const { return static_cast<uint32_t>(std::lround(temperature_c_)); }
  uint64_t EnergyMj() const { return static_cast<uint64_t>(energy_mj_); }

 private:
  struct Point {
    uint64_t at_ns;
    GpuCounters counters;
  };
  std::deque<Point> samples_;
  bool moving_ = false;
  uint32_t gpu_percent_ = 0, memory_percent_ = 0, power_mw_ = 0, rx_kbps_ = 0, tx_kbps_ = 0;
  double temperature_c_ = kAmbientC, energy_mj_ = 0;
  static constexpr double kAmbientC = 30;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_METER_H_
