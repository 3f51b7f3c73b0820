#include "emulator/engine/meter.h"

#include <gtest/gtest.h>

#include "emulator/engine/test_node.h"

namespace mete::emulator {
namespace {

constexpr uint32_t kPowerMw = 400'000;

// Runs the meter as the engine does: a sample every 50 ms; busy for `busy` of each.
void Operate(Meter& meter, GpuCounters& counters, uint64_t& now, uint64_t span, double busy) {
  for (const uint64_t end = now + span; now < end;) {
    now += 50 * kMs;
    counters.busy_ns += static_cast<uint64_t>(50.0 * kMs * busy);
    counters.sm_busy_ns += static_cast<uint64_t>(50.0 * kMs * busy);
    meter.Sample(now, counters, kPowerMw);
  }
}

TEST(Meter, UtilisationIsThatOfTheLastSecond) {
  Meter meter;
  GpuCounters counters;
  uint64_t now = 1000 * kMs;
  meter.Sample(now, counters, kPowerMw);
  Operate(meter, counters, now, 3000 * kMs, 1.0);
  EXPECT_EQ(meter.UtilizationGpu(), 100u);
  Operate(meter, counters, now, 500 * kMs, 0);
  EXPECT_EQ(meter.UtilizationGpu(), 50u);
  EXPECT_TRUE(meter.Moving());
  Operate(meter, counters, now, 1500 * kMs, 0);
  EXPECT_EQ(meter.UtilizationGpu(), 0u);
  EXPECT_FALSE(meter.Moving());
  Operate(meter, counters, now, 3000 * kMs, 0.3);
  EXPECT_NEAR(meter.UtilizationGpu(), 30, 1);
}

TEST(Meter, ReadsInBetweenChangeNothing) {
  Meter meter;
  GpuCounters counters;
  uint64_t now = 1000 * kMs;
  meter.Sample(now, counters, kPowerMw);
  for (int i = 0; i < 30'000; ++i) {
    now += kMs / 10;
    counters.busy_ns += kMs / 20;
    meter.Sample(now, counters, kPowerMw);
  }
  EXPECT_NEAR(meter.UtilizationGpu(), 50, 1);
}

TEST(Meter, EnergyAndTemperatureFollowActivity) {
  Meter idle, busy;
  GpuCounters none, some;
  uint64_t now = 0, other = 0;
  idle.Sample(0, none, kPowerMw);
  busy.Sample(0, some, kPowerMw);
  Operate(idle, none, now, 10'000 * kMs, 0);
  Operate(busy, some, other, 10'000 * kMs, 1);
  EXPECT_GT(idle.PowerMw(), 0u);
  EXPECT_GT(busy.PowerMw(), 2 * idle.PowerMw());
  EXPECT_LE(busy.PowerMw(), kPowerMw);
  EXPECT_NEAR(static_cast<double>(busy.EnergyMj()), 10.0 * busy.PowerMw(), 0.02 * 10 * busy.PowerMw());
  EXPECT_GT(busy.TemperatureC(), idle.TemperatureC());
}

}  // namespace
}  // namespace mete::emulator
