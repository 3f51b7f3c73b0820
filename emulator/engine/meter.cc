#include "emulator/engine/meter.h"

#include <algorithm>
#include <cmath>

#include "emulator/engine/gpu_status.h"

namespace mete::emulator {

namespace {

// A board draws a part of its limit when idle; issue slots, DRAM and being awake at all make up the rest. Shares are
// estimates that make a saturated GPU reach its limit.
constexpr double kSmPart = 0.55, kMemoryPart = 0.30, kAwakePart = 0.15;
// Steady state at full power, and how slowly it is reached.
constexpr double kRiseC = 45, kThermalNs = 30e9;

}  // namespace

void Meter::Sample(uint64_t now_ns, const GpuCounters& counters, uint32_t max_power_mw, double clock_part) {
  const auto power = [&](const Point& from, const Point& to) {
    const double idle = kIdlePowerPart * max_power_mw;
    const double ns = static_cast<double>(to.at_ns - from.at_ns);
    if (ns <= 0) return idle;
    const auto part = [&](uint64_t GpuCounters::*field) {
      return std::min(1.0, static_cast<double>(to.counters.*field - from.counters.*field) / ns);
    };
    const double active = kSmPart * part(&GpuCounters::sm_busy_ns) + kMemoryPart * part(&GpuCounters::memory_busy_ns) +
                          kAwakePart * part(&GpuCounters::busy_ns);
    return idle + (max_power_mw - idle) * active * clock_part;
  };

  const Point now = {now_ns, counters};
  if (!samples_.empty() && now_ns > samples_.back().at_ns) {
    const double ns = static_cast<double>(now_ns - samples_.back().at_ns);
    const double milliwatts = power(samples_.back(), now);
    energy_mj_ += milliwatts * ns * 1e-9;
    const double steady = kAmbientC + kRiseC * milliwatts / std::max<uint32_t>(max_power_mw, 1);
    temperature_c_ = steady + (temperature_c_ - steady) * std::exp(-ns / kThermalNs);
  }
  // Reads between two samples replace the newest point, so that the window holds a bounded number of them.
  if (samples_.size() >= 2 && now_ns - samples_[samples_.size() - 2].at_ns < kSampleNs) samples_.pop_back();
  samples_.push_back(now);
  const uint64_t begin = now_ns > kWindowNs ? now_ns - kWindowNs : 0;
  while (samples_.size() > 2 && samples_[1].at_ns <= begin) samples_.pop_front();

  // The counters at the window's beginning, between the two points around it.
  Point from = samples_.front();
  if (samples_.size() > 1 && from.at_ns < begin) {
    const Point& after = samples_[1];
    const double part =
        std::min(1.0, static_cast<double>(begin - from.at_ns) / static_cast<double>(after.at_ns - from.at_ns));
    const auto between = [&](uint64_t GpuCounters::*field) {
      from.counters.*field +=
          static_cast<uint64_t>(static_cast<double>(after.counters.*field - from.counters.*field) * part);
    };
    between(&GpuCounters::busy_ns);
    between(&GpuCounters::memory_busy_ns);
    between(&GpuCounters::sm_busy_ns);
    between(&GpuCounters::host_to_device_bytes);
    between(&GpuCounters::device_to_host_bytes);
    from.at_ns = begin;
  }
  const double window = static_cast<double>(std::max<uint64_t>(now_ns - from.at_ns, 1));
  const auto percent = [&](uint64_t GpuCounters::*field) {
    const double part = static_cast<double>(counters.*field - from.counters.*field) / window;
    return static_cast<uint32_t>(std::lround(100 * std::min(part, 1.0)));
  };
  gpu_percent_ = percent(&GpuCounters::busy_ns);
  memory_percent_ = percent(&GpuCounters::memory_busy_ns);
  const auto kbps = [&](uint64_t GpuCounters::*field) {  // bytes per ns are 10^6 KB per second
    return static_cast<uint32_t>(1e6 * static_cast<double>(counters.*field - from.counters.*field) / window);
  };
  rx_kbps_ = kbps(&GpuCounters::host_to_device_bytes);
  tx_kbps_ = kbps(&GpuCounters::device_to_host_bytes);
  power_mw_ = static_cast<uint32_t>(power(from, now));
  moving_ = counters.busy_ns != samples_.front().counters.busy_ns ||
            counters.memory_busy_ns != samples_.front().counters.memory_busy_ns;  // copies move DRAM, too
}

}  // namespace mete::emulator
