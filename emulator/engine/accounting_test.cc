#include "emulator/engine/accounting.h"

#include <gtest/gtest.h>

#include "emulator/engine/gpu_status.h"
#include "emulator/engine/test_node.h"

namespace mete::emulator {
namespace {

TEST(AccountingTest, CountsProcessesThatBeganWhileItWasOn) {
  Accounting accounting;
  accounting.ContextBegan(1, 0, 100);
  accounting.Enable(true);
  accounting.ContextBegan(2, kSecond, 200);
  accounting.ContextBegan(2, kSecond, 201);
  accounting.MemoryChanged(2, 700);
  accounting.MemoryChanged(2, -200);
  accounting.Used(2, kSecond, kSecond / 2);
  accounting.ContextEnded(1, 2 * kSecond);
  accounting.ContextEnded(2, 2 * kSecond);

  ProcessInfo present = {};
  present.pid = 2;
  present.busy_ns = kSecond;
  std::vector<AccountingRecord> records = accounting.Records(5 * kSecond, {present});
  ASSERT_EQ(records.size(), 1u) << "process 1 was there before";
  EXPECT_EQ(records[0].pid, 2u);
  EXPECT_EQ(records[0].running, 1);
  EXPECT_EQ(records[0].most_memory_bytes, 700u);
  EXPECT_EQ(records[0].started_us, 200u);
  EXPECT_EQ(records[0].milliseconds, 0u);
  EXPECT_EQ(records[0].utilization_gpu, 50) << "two of four seconds";

  accounting.ContextEnded(2, 3 * kSecond);
  accounting.Enable(false);
  records = accounting.Records(9 * kSecond, {});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].running, 0);
  EXPECT_EQ(records[0].milliseconds, 2000u);
  EXPECT_EQ(records[0].utilization_gpu, 50) << "one of two seconds";
  EXPECT_EQ(records[0].utilization_memory, 25);
  accounting.Clear();
  EXPECT_TRUE(accounting.Records(9 * kSecond, {}).empty());
}

TEST(AccountingTest, KeepsTheNewest) {
  Accounting accounting;
  accounting.Enable(true);
  for (uint32_t pid = 1; pid <= kMostAccounted + 5; ++pid) {
    accounting.ContextBegan(pid, pid, pid);
    accounting.ContextEnded(pid, pid + 1);
  }
  const std::vector<AccountingRecord> records = accounting.Records(kSecond, {});
  ASSERT_EQ(records.size(), kMostAccounted);
  EXPECT_EQ(records.front().pid, 6u);
}

GpuInfo Board() {
  GpuInfo info = {};
  info.clock_khz = 1'000'000;
  info.idle_clock_khz = 200'000;
  info.memory_clock_khz = 900'000;
  info.max_power_mw = 100'000;
  info.min_power_mw = 40'000;
  info.compute_major = 7;
  return info;
}

TEST(GpuStatusTest, TheLowestLimitHoldsTheClockAndIsTheReason) {
  const GpuInfo info = Board();
  GpuSettings set;
  EXPECT_EQ(SmClockOf(info, set, 1, 0).khz, 1'000'000u);
  EXPECT_EQ(SmClockOf(info, set, 1, 0).reasons, 0u);
  set.power_limit_mw = 56'000;  // idle power 12 W; half of the rest
  EXPECT_EQ(SmClockOf(info, set, 1, 0).khz, 500'000u);
  EXPECT_EQ(SmClockOf(info, set, 1, 0).reasons, kClocksPowerCap);
  set.application_sm_khz = 600'000;
  EXPECT_EQ(SmClockOf(info, set, 1, 0).reasons, kClocksPowerCap);
  set.application_sm_khz = 400'000;
  EXPECT_EQ(SmClockOf(info, set, 1, 0).reasons, kClocksApplication);
  EXPECT_EQ(SmClockOf(info, set, 0.3, kReasonThermal).khz, 300'000u);
  EXPECT_EQ(SmClockOf(info, set, 0.3, kReasonThermal).reasons, kReasonThermal);
  EXPECT_EQ(SmClockOf(info, set, 0.5, kReasonThermal).reasons, kClocksApplication);
}

TEST(GpuStatusTest, RefusesValuesOutOfRange) {
  const GpuInfo info = Board();
  GpuSettings set;
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kPowerLimit, 39'999, &set), Result::kInvalid);
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kPowerLimit, 100'001, &set), Result::kInvalid);
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kPowerLimit, 40'000, &set), Result::kOk);
  EXPECT_EQ(set.power_limit_mw, 40'000u);
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kPersistence, 2, &set), Result::kInvalid);
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kApplicationClocks, 900'000ull << 32 | 1'000'001, &set), Result::kInvalid);
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kApplicationClocks, 500'000, &set), Result::kInvalid) << "no memory clock";
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kApplicationClocks, 900'000ull << 32 | 500'000, &set), Result::kOk);
  EXPECT_EQ(ChangeSetting(info, static_cast<GpuSetting>(99), 0, &set), Result::kInvalid);
  EXPECT_EQ(ChangeSetting(info, GpuSetting::kEcc, 0, &set), Result::kOk);
  EXPECT_EQ(set.ecc, 1u) << "not before a reset";
  EXPECT_EQ(AfterReset(set).ecc, 0u);
  EXPECT_EQ(AfterReset(set).application_sm_khz, 0u);
}

}  // namespace
}  // namespace mete::emulator
