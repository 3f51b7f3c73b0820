// What NVML says of a GPU's faults, limits, links and accounting is what the engine keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "emulator/nvml/control.h"
#include "emulator/nvml/fake_node.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {
namespace {

using emulator::FakeNode;
using emulator::GpuSetting;

class HealthTest : public testing::Test {
 protected:
  void SetUp() override {
    node().Reset();
    node().AddH100();
    ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &a100_), NVML_SUCCESS);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(1, &t4_), NVML_SUCCESS);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(2, &h100_), NVML_SUCCESS);
  }
  void TearDown() override {
    while (nvmlShutdown() == NVML_SUCCESS) {
    }
  }
  static FakeNode& node() { return FakeNode::Get(); }
  static void Happen(uint32_t gpu, uint32_t type, uint32_t xid) {
    node().events.push_back({node().events.size() + 1, 0, gpu, type, xid, 0});
  }
  nvmlDevice_t a100_ = nullptr, t4_ = nullptr, h100_ = nullptr;
};

TEST_F(HealthTest, EccCountersAreTheEngines) {
  node().states[0].health.ecc_volatile = {3, 1};
  node().states[0].health.ecc_aggregate = {30, 2};
  unsigned long long count = 0;
  ASSERT_EQ(nvmlDeviceGetTotalEccErrors(a100_, 0, 0, &count), NVML_SUCCESS);
  EXPECT_EQ(count, 3u);
  ASSERT_EQ(nvmlDeviceGetTotalEccErrors(a100_, 1, 1, &count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(nvmlDeviceGetMemoryErrorCounter(a100_, 0, 1, NVML_MEMORY_LOCATION_DRAM, &count), NVML_SUCCESS);
  EXPECT_EQ(count, 30u);
  ASSERT_EQ(nvmlDeviceGetMemoryErrorCounter(a100_, 0, 1, NVML_MEMORY_LOCATION_SRAM, &count), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(nvmlDeviceGetMemoryErrorCounter(a100_, 0, 1, 0, &count), NVML_ERROR_NOT_SUPPORTED) << "L1 on Ampere";
  EXPECT_EQ(nvmlDeviceGetMemoryErrorCounter(t4_, 0, 1, 0, &count), NVML_SUCCESS) << "L1 on Turing";
  nvmlEccErrorCounts_t detailed = {};
  ASSERT_EQ(nvmlDeviceGetDetailedEccErrors(a100_, 1, 0, &detailed), NVML_SUCCESS);
  EXPECT_EQ(detailed.deviceMemory, 1u);

  EXPECT_EQ(nvmlDeviceClearEccErrorCounts(a100_, NVML_VOLATILE_ECC), NVML_SUCCESS);
  EXPECT_EQ(node().set.count(GpuSetting::kClearVolatileEcc), 1u);
  EXPECT_EQ(nvmlDeviceSetEccMode(a100_, NVML_FEATURE_DISABLED), NVML_SUCCESS);
  EXPECT_EQ(node().set.at(GpuSetting::kEcc), 0u);
  node().states[0].ecc_mode = 0;
  EXPECT_EQ(nvmlDeviceGetTotalEccErrors(a100_, 0, 0, &count), NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(HealthTest, MemoryOutOfUseIsPagesBeforeAmpereAndRowsSince) {
  for (auto& state : node().states) {
    state.health.rows_remapped_correctable = 1;
    state.health.rows_remapped_uncorrectable = 2;
    state.health.remap_pending = 1;
  }
  unsigned corrected = 9, uncorrected = 9, pending = 9, failed = 9;
  ASSERT_EQ(nvmlDeviceGetRemappedRows(a100_, &corrected, &uncorrected, &pending, &failed), NVML_SUCCESS);
  EXPECT_EQ(corrected * 1000 + uncorrected * 100 + pending * 10 + failed, 1210u);
  EXPECT_EQ(nvmlDeviceGetRemappedRows(t4_, &corrected, &uncorrected, &pending, &failed), NVML_ERROR_NOT_SUPPORTED);
  nvmlRowRemapperHistogramValues_t banks = {};
  ASSERT_EQ(nvmlDeviceGetRowRemapperHistogram(a100_, &banks), NVML_SUCCESS);
  EXPECT_EQ(banks.high, 3u);
  EXPECT_GT(banks.max, banks.high);

  std::array<unsigned long long, 4> pages = {}, times = {};
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetRetiredPages(t4_, 1, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 2u);
  count = pages.size();
  ASSERT_EQ(nvmlDeviceGetRetiredPages_v2(t4_, 1, &count, pages.data(), times.data()), NVML_SUCCESS);
  EXPECT_NE(pages[0], pages[1]);
  EXPECT_LT(pages[0], node().gpus[1].memory_bytes);
  EXPECT_EQ(pages[0] % 4096, 0u);
  EXPECT_NE(times[1], 0u);
  int is_pending = 0;
  ASSERT_EQ(nvmlDeviceGetRetiredPagesPendingStatus(t4_, &is_pending), NVML_SUCCESS);
  EXPECT_EQ(is_pending, 1);
  EXPECT_EQ(nvmlDeviceGetRetiredPages(a100_, 1, &count, pages.data()), NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(HealthTest, EventsReachTheSetsThatWaitForThem) {
  Happen(0, emulator::kEventXid, 13);
  nvmlEventSet_t set = nullptr;
  ASSERT_EQ(nvmlEventSetCreate(&set), NVML_SUCCESS);
  ASSERT_EQ(nvmlDeviceRegisterEvents(a100_, nvmlEventTypeXidCriticalError, set), NVML_SUCCESS);
  nvmlEventData_t data = {};
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 1), NVML_ERROR_TIMEOUT) << "what happened before";
  Happen(1, emulator::kEventXid, 31);          // of another GPU
  Happen(0, emulator::kEventDoubleBitEcc, 0);  // of another kind
  Happen(0, emulator::kEventXid, 48);
  Happen(0, emulator::kEventXid, 94);
  ASSERT_EQ(nvmlEventSetWait_v2(set, &data, 1000), NVML_SUCCESS);
  EXPECT_EQ(data.device, a100_);
  EXPECT_EQ(data.eventType, nvmlEventTypeXidCriticalError);
  EXPECT_EQ(data.eventData, 48u);
  EXPECT_EQ(data.gpuInstanceId, 0xffffffffu);
  ASSERT_EQ(nvmlEventSetWait(set, &data, 1000), NVML_SUCCESS);
  EXPECT_EQ(data.eventData, 94u);
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 1), NVML_ERROR_TIMEOUT) << "each event once";

  // Another set has a memory of its own.
  nvmlEventSet_t other = nullptr;
  ASSERT_EQ(nvmlEventSetCreate(&other), NVML_SUCCESS);
  ASSERT_EQ(nvmlDeviceRegisterEvents(t4_, nvmlEventTypeXidCriticalError, other), NVML_SUCCESS);
  Happen(1, emulator::kEventXid, 43);
  Happen(0, emulator::kEventXid, 79);
  ASSERT_EQ(nvmlEventSetWait_v2(other, &data, 1000), NVML_SUCCESS);
  EXPECT_EQ(data.eventData, 43u);
  // The last word of a GPU that is lost, then that it is.
  node().lost = true;
  ASSERT_EQ(nvmlEventSetWait_v2(set, &data, 1000), NVML_SUCCESS);
  EXPECT_EQ(data.eventData, 79u);
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 1000), NVML_ERROR_GPU_IS_LOST);
  unsigned power = 0;
  EXPECT_EQ(nvmlDeviceGetPowerUsage(a100_, &power), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(nvmlDeviceGetPowerUsage(t4_, &power), NVML_SUCCESS);
  node().up = false;
  EXPECT_EQ(nvmlEventSetWait_v2(other, &data, 1000), NVML_ERROR_UNKNOWN);
}

TEST_F(HealthTest, SettingsGoToTheEngineAndItsRefusalComesBack) {
  EXPECT_EQ(nvmlDeviceSetPowerManagementLimit(a100_, 250'000), NVML_SUCCESS);
  EXPECT_EQ(node().set.at(GpuSetting::kPowerLimit), 250'000u);
  nvmlPowerValue_v2_t power = {StructVersion<nvmlPowerValue_v2_t>(2), 0, 300'000};
  EXPECT_EQ(nvmlDeviceSetPowerManagementLimit_v2(a100_, &power), NVML_SUCCESS);
  EXPECT_EQ(node().set.at(GpuSetting::kPowerLimit), 300'000u);
  EXPECT_EQ(nvmlDeviceSetApplicationsClocks(a100_, 1215, 1200), NVML_SUCCESS);
  EXPECT_EQ(node().set.at(GpuSetting::kApplicationClocks), 1'215'000ull << 32 | 1'200'000);
  EXPECT_EQ(nvmlDeviceSetApplicationsClocks(a100_, 1215, 1201), NVML_ERROR_INVALID_ARGUMENT) << "no step of the board";
  EXPECT_EQ(nvmlDeviceSetApplicationsClocks(a100_, 1000, 1200), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceSetGpuLockedClocks(a100_, 0, 99'999), NVML_SUCCESS) << "cut to the board's range";
  EXPECT_EQ(node().set.at(GpuSetting::kLockedSmClocks), 1'410'000ull << 32 | 210'000);
  EXPECT_EQ(nvmlDeviceSetPersistenceMode(a100_, NVML_FEATURE_DISABLED), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceSetPersistenceMode(a100_, 2), NVML_ERROR_INVALID_ARGUMENT);
  node().owner = false;
  for (nvmlReturn_t code :
       {nvmlDeviceSetPowerManagementLimit(a100_, 250'000), nvmlDeviceSetApplicationsClocks(a100_, 1215, 1200),
        nvmlDeviceResetApplicationsClocks(a100_), nvmlDeviceSetPersistenceMode(a100_, 1),
        nvmlDeviceSetAccountingMode(a100_, 1), nvmlDeviceClearAccountingPids(a100_), nvmlDeviceSetEccMode(a100_, 0),
        nvmlDeviceSetGpuLockedClocks(a100_, 300, 600)}) {
    EXPECT_EQ(code, NVML_ERROR_NO_PERMISSION);
  }
}

TEST_F(HealthTest, WhyAClockIsWhatItIs) {
  node().states[0].clocks_event_reasons = 4;
  node().states[0].power_capped_ns = 5'000;
  node().states[0].throttled_ns = 6'000;
  unsigned long long reasons = 0;
  ASSERT_EQ(nvmlDeviceGetCurrentClocksThrottleReasons(a100_, &reasons), NVML_SUCCESS);
  EXPECT_EQ(reasons, 4u);
  nvmlViolationTime_t time = {};
  ASSERT_EQ(nvmlDeviceGetViolationStatus(a100_, NVML_PERF_POLICY_POWER, &time), NVML_SUCCESS);
  EXPECT_EQ(time.violationTime, 5'000u);
  ASSERT_EQ(nvmlDeviceGetViolationStatus(a100_, NVML_PERF_POLICY_THERMAL, &time), NVML_SUCCESS);
  EXPECT_EQ(time.violationTime, 6'000u);
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetSupportedGraphicsClocks(a100_, 1215, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  std::vector<unsigned> clocks(count);
  ASSERT_EQ(nvmlDeviceGetSupportedGraphicsClocks(a100_, 1215, &count, clocks.data()), NVML_SUCCESS);
  EXPECT_EQ(clocks.front(), 1410u);
  EXPECT_EQ(clocks.back(), 210u);
  EXPECT_EQ(nvmlDeviceGetSupportedGraphicsClocks(a100_, 1216, &count, clocks.data()), NVML_ERROR_NOT_FOUND);
  std::array<int, 16> states = {};
  ASSERT_EQ(nvmlDeviceGetSupportedPerformanceStates(t4_, states.data(), sizeof(states)), NVML_SUCCESS);
  EXPECT_EQ(states[0] * 1000 + states[1] * 100 + states[2], 832);
}

TEST_F(HealthTest, AccountingIsTheEngines) {
  unsigned count = 4;
  std::array<unsigned, 4> pids = {};
  EXPECT_EQ(nvmlDeviceGetAccountingPids(a100_, &count, pids.data()), NVML_ERROR_NOT_SUPPORTED) << "it is off";
  node().states[0].accounting_mode = 1;
  node().accounted = {{41, 20, 3, 0, 0, 1 << 20, 500, 1234}, {42, 90, 10, 1, 0, 2 << 20, 0, 2345}};
  ASSERT_EQ(nvmlDeviceGetAccountingPids(a100_, &count, pids.data()), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(pids[1], 42u);
  nvmlAccountingStats_t stats = {};
  ASSERT_EQ(nvmlDeviceGetAccountingStats(a100_, 41, &stats), NVML_SUCCESS);
  EXPECT_EQ(stats.gpuUtilization, 20u);
  EXPECT_EQ(stats.maxMemoryUsage, 1u << 20);
  EXPECT_EQ(stats.time, 500u);
  EXPECT_EQ(stats.startTime, 1234u);
  EXPECT_EQ(stats.isRunning, 0u);
  EXPECT_EQ(nvmlDeviceGetAccountingStats(a100_, 43, &stats), NVML_ERROR_NOT_FOUND);
}

TEST_F(HealthTest, GpmIsWhatPassedBetweenTwoSamples) {
  nvmlGpmSupport_t support = {1, 9};
  ASSERT_EQ(nvmlGpmQueryDeviceSupport(a100_, &support), NVML_SUCCESS);
  EXPECT_EQ(support.isSupportedDevice, 0u);
  ASSERT_EQ(nvmlGpmQueryDeviceSupport(h100_, &support), NVML_SUCCESS);
  EXPECT_EQ(support.isSupportedDevice, 1u);
  auto get = std::make_unique<nvmlGpmMetricsGet_t>();
  get->version = 1;
  get->numMetrics = 4;
  get->metrics[0].metricId = 2;
  get->metrics[1].metricId = 10;
  get->metrics[2].metricId = 20;
  get->metrics[3].metricId = 200;
  ASSERT_EQ(nvmlGpmSampleAlloc(&get->sample1), NVML_SUCCESS);
  ASSERT_EQ(nvmlGpmSampleAlloc(&get->sample2), NVML_SUCCESS);
  EXPECT_EQ(nvmlGpmSampleGet(a100_, get->sample1), NVML_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(nvmlGpmSampleGet(h100_, get->sample1), NVML_SUCCESS);
  EXPECT_EQ(nvmlGpmMetricsGet(get.get()), NVML_ERROR_INVALID_ARGUMENT) << "the second was not taken";
  auto& state = node().states[2];
  state.engine_time_ns += 2'000'000'000;
  state.memory_busy_ns += 500'000'000;
  state.activity.sm_active_ns += 1'000'000'000;
  state.activity.pcie_tx_bytes += 64 << 20;
  ASSERT_EQ(nvmlGpmSampleGet(h100_, get->sample2), NVML_SUCCESS);
  ASSERT_EQ(nvmlGpmMetricsGet(get.get()), NVML_SUCCESS);
  EXPECT_DOUBLE_EQ(get->metrics[0].value, 50);
  EXPECT_DOUBLE_EQ(get->metrics[1].value, 25);
  EXPECT_DOUBLE_EQ(get->metrics[2].value, 32);
  EXPECT_EQ(get->metrics[3].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(nvmlGpmSampleFree(get->sample1), NVML_SUCCESS);
  EXPECT_EQ(nvmlGpmSampleFree(get->sample1), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlGpmMetricsGet(get.get()), NVML_ERROR_INVALID_ARGUMENT) << "a sample that is gone";
}

TEST_F(HealthTest, FieldsAnswerForThemselves) {
  node().states[0].health.need = emulator::Need::kReset;
  node().states[0].activity.pcie_rx_bytes = 77;
  std::array<nvmlFieldValue_t, 6> fields = {};
  const unsigned ids[] = {230, 198, 29, 91, 82, 60'000};
  for (size_t i = 0; i < fields.size(); ++i) fields[i].fieldId = ids[i];
  ASSERT_EQ(nvmlDeviceGetFieldValues(a100_, fields.size(), fields.data()), NVML_SUCCESS);
  EXPECT_EQ(fields[0].value.uiVal, 1u);
  EXPECT_EQ(fields[1].value.ullVal, 77u);
  EXPECT_EQ(fields[2].nvmlReturn, NVML_ERROR_NOT_SUPPORTED) << "retired pages on Ampere";
  EXPECT_EQ(fields[3].value.uiVal, 12u);
  EXPECT_EQ(fields[4].nvmlReturn, NVML_SUCCESS);
  EXPECT_EQ(fields[5].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(nvmlDeviceGetFieldValues(t4_, fields.size(), fields.data()), NVML_SUCCESS);
  EXPECT_EQ(fields[2].nvmlReturn, NVML_SUCCESS);
  EXPECT_EQ(fields[4].nvmlReturn, NVML_ERROR_NOT_SUPPORTED) << "no sensor in GDDR memory";
}

TEST_F(HealthTest, LinksComeUpBetweenTwoOfAKind) {
  int active = 9, status = 9, level = 9;
  ASSERT_EQ(nvmlDeviceGetNvLinkState(a100_, 0, &active), NVML_SUCCESS);
  EXPECT_EQ(active, 0) << "nothing at the other end";
  EXPECT_EQ(nvmlDeviceGetNvLinkState(a100_, 12, &active), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetNvLinkState(t4_, 0, &active), NVML_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(nvmlDeviceGetP2PStatus(a100_, t4_, NVML_P2P_CAPS_INDEX_READ, &status), NVML_SUCCESS);
  EXPECT_EQ(status, NVML_P2P_STATUS_OK);
  ASSERT_EQ(nvmlDeviceGetP2PStatus(a100_, t4_, NVML_P2P_CAPS_INDEX_NVLINK, &status), NVML_SUCCESS);
  EXPECT_EQ(status, NVML_P2P_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(nvmlDeviceGetTopologyCommonAncestor(a100_, t4_, &level), NVML_SUCCESS);
  EXPECT_EQ(level, NVML_TOPOLOGY_NODE);
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetTopologyNearestGpus(a100_, NVML_TOPOLOGY_NODE, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 2u);

  while (nvmlShutdown() == NVML_SUCCESS) {
  }
  node().gpus[2] = node().gpus[0];
  node().gpus[2].uuid[0] ^= 1;
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  ASSERT_EQ(nvmlDeviceGetNvLinkState(a100_, 0, &active), NVML_SUCCESS);
  EXPECT_EQ(active, 1);
  ASSERT_EQ(nvmlDeviceGetP2PStatus(a100_, h100_, NVML_P2P_CAPS_INDEX_NVLINK, &status), NVML_SUCCESS);
  EXPECT_EQ(status, NVML_P2P_STATUS_OK);
}

TEST_F(HealthTest, ABoardsFanFollowsItsTemperature) {
  unsigned speed = 0;
  EXPECT_EQ(nvmlDeviceGetFanSpeed(a100_, &speed), NVML_ERROR_NOT_SUPPORTED);
  while (nvmlShutdown() == NVML_SUCCESS) {
  }
  node().gpus[0].fans = 1;
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  ASSERT_EQ(nvmlDeviceGetFanSpeed_v2(a100_, 0, &speed), NVML_SUCCESS);
  EXPECT_EQ(speed, 30u);
  node().states[0].temperature_c = 92;
  ASSERT_EQ(nvmlDeviceGetFanSpeed(a100_, &speed), NVML_SUCCESS);
  EXPECT_EQ(speed, 100u);
  EXPECT_EQ(nvmlDeviceGetFanSpeed_v2(a100_, 1, &speed), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(HealthTest, TheLibrarysOwnNameChecksLikeTheOthers) {
  unsigned value = 4;
  EXPECT_EQ(mete_emulated_control(nullptr, kGetTimeSlice, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mete_emulated_control(a100_, kSetTimeSlice, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mete_emulated_control(a100_, 77, &value), NVML_ERROR_INVALID_ARGUMENT);
  node().states[0].time_slice_class = 2;
  EXPECT_EQ(mete_emulated_control(a100_, kGetTimeSlice, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 2u);
}

}  // namespace
}  // namespace mete::nvml::abi
