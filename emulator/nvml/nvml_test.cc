#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "emulator/nvml/fake_node.h"
#include "emulator/nvml/pci.h"
#include "mete/nvml_prototypes.h"

extern "C" {
extern const int mete_emulated_node;
}

namespace mete::nvml::abi {
namespace {

using emulator::FakeNode;
using emulator::ProcessInfo;

ProcessInfo MakeProcess(uint32_t pid, uint32_t gpu, uint64_t bytes, const char* name) {
  ProcessInfo process = {};
  process.pid = pid;
  process.gpu = gpu;
  process.memory_bytes = bytes;
  snprintf(process.name, sizeof(process.name), "%s", name);
  return process;
}

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    node().Reset();
    ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &a100_), NVML_SUCCESS);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(1, &t4_), NVML_SUCCESS);
  }
  void TearDown() override {
    while (nvmlShutdown() == NVML_SUCCESS) {
    }
    EXPECT_EQ(node().open, 0) << "a connection outlived nvmlShutdown";
  }
  static FakeNode& node() { return FakeNode::Get(); }
  nvmlDevice_t a100_ = nullptr, t4_ = nullptr;
};

TEST_F(NvmlTest, InitialisationIsCounted) {
  EXPECT_EQ(nvmlInit(), NVML_SUCCESS);
  EXPECT_EQ(nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS), NVML_SUCCESS);
  EXPECT_EQ(node().connections, 1);
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  int active = 0;
  EXPECT_EQ(nvmlDeviceGetNvLinkState(a100_, 0, &active), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlInitWithFlags(1u << 30), NVML_ERROR_INVALID_ARGUMENT);

  // Again, with the old handle.
  EXPECT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  std::array<char, 96> name = {};
  EXPECT_EQ(nvmlDeviceGetName(a100_, name.data(), name.size()), NVML_SUCCESS);
}

TEST_F(NvmlTest, NoEngineIsNoDriver) {
  ASSERT_EQ(nvmlShutdown(), NVML_SUCCESS);
  node().up = false;
  EXPECT_EQ(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
  EXPECT_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED) << "a failed nvmlInit does not count";
}

TEST_F(NvmlTest, AChildConnectsAnew) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned index = 9;
    bool ok = nvmlDeviceGetIndex(t4_, &index) == NVML_SUCCESS && index == 1 && node().connections == 2;
    ok = ok && nvmlInit_v2() == NVML_SUCCESS && node().connections == 2;
    ok = ok && nvmlShutdown() == NVML_SUCCESS && nvmlShutdown() == NVML_SUCCESS && node().open == 1;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(node().connections, 1);
}

TEST_F(NvmlTest, VersionsAndTexts) {
  std::array<char, 80> text = {};
  EXPECT_EQ(nvmlSystemGetDriverVersion(text.data(), text.size()), NVML_SUCCESS);
  EXPECT_STREQ(text.data(), "580.65.06");
  EXPECT_EQ(nvmlSystemGetNVMLVersion(text.data(), text.size()), NVML_SUCCESS);
  EXPECT_STREQ(text.data(), "13.580.65.06");
  EXPECT_EQ(nvmlSystemGetDriverVersion(text.data(), 9), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlSystemGetDriverVersion(nullptr, 80), NVML_ERROR_INVALID_ARGUMENT);
  int cuda = 0;
  EXPECT_EQ(nvmlSystemGetCudaDriverVersion(&cuda), NVML_SUCCESS);
  EXPECT_EQ(cuda, 13000);
  EXPECT_STREQ(nvmlErrorString(NVML_ERROR_NOT_SUPPORTED), "Not Supported");
  EXPECT_STREQ(nvmlErrorString(static_cast<nvmlReturn_t>(12345)), "Unknown Error");
  EXPECT_EQ(mete_emulated_node, 1);
}

TEST_F(NvmlTest, FindsAGpuByEveryName) {
  nvmlDevice_t found = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(2, &found), NVML_ERROR_INVALID_ARGUMENT);
  std::array<char, 96> text = {};
  ASSERT_EQ(nvmlDeviceGetUUID(t4_, text.data(), text.size()), NVML_SUCCESS);
  EXPECT_STREQ(text.data(), "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
  EXPECT_EQ(nvmlDeviceGetHandleByUUID(text.data(), &found), NVML_SUCCESS);
  EXPECT_EQ(found, t4_);
  EXPECT_EQ(nvmlDeviceGetHandleByUUID("GPU-nobody", &found), NVML_ERROR_NOT_FOUND);
  ASSERT_EQ(nvmlDeviceGetSerial(a100_, text.data(), 30), NVML_SUCCESS);
  EXPECT_EQ(strlen(text.data()), 13u);
  EXPECT_EQ(nvmlDeviceGetHandleBySerial(text.data(), &found), NVML_SUCCESS);
  EXPECT_EQ(found, a100_);
  for (const char* bus : {"00000000:08:00.0", "0000:08:00.0", "08:00.0", "8:0"}) {
    found = nullptr;
    EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2(bus, &found), NVML_SUCCESS) << bus;
    EXPECT_EQ(found, t4_) << bus;
  }
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("0000:09:00.0", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("rubbish", &found), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, RefusesHandlesOfNobody) {
  unsigned value = 0;
  auto next = reinterpret_cast<nvmlDevice_t>(reinterpret_cast<char*>(t4_) + 1);
  for (nvmlDevice_t bad : {static_cast<nvmlDevice_t>(nullptr), next, reinterpret_cast<nvmlDevice_t>(&value)}) {
    EXPECT_EQ(nvmlDeviceGetIndex(bad, &value), NVML_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(nvmlDeviceGetIndex(a100_, nullptr), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, PciInfoInItsThreeVersions) {
  nvmlPciInfo_t info;
  memset(&info, 0x5a, sizeof(info));
  ASSERT_EQ(nvmlDeviceGetPciInfo_v3(a100_, &info), NVML_SUCCESS);
  EXPECT_STREQ(info.busId, "00000000:07:00.0");
  EXPECT_STREQ(info.busIdLegacy, "0000:07:00.0");
  EXPECT_EQ(info.bus, 7u);
  EXPECT_EQ(info.pciDeviceId, 0x20B010DEu);

  memset(&info, 0x5a, sizeof(info));
  ASSERT_EQ(nvmlDeviceGetPciInfo_v2(a100_, &info), NVML_SUCCESS);
  EXPECT_EQ(info.pciSubSystemId, 0u);
  EXPECT_EQ(info.busId[0], 0x5a) << "wrote beyond the older structure";
  memset(&info, 0x5a, sizeof(info));
  ASSERT_EQ(nvmlDeviceGetPciInfo(a100_, &info), NVML_SUCCESS);
  EXPECT_EQ(info.pciDeviceId, 0x20B010DEu);
  EXPECT_EQ(info.pciSubSystemId, 0x5a5a5a5au) << "wrote beyond the oldest structure";
}

TEST_F(NvmlTest, MemoryCountsTheReservedPartOnce) {
  node().states[0].memory_used_bytes = 3ull << 30;
  nvmlMemory_t v1 = {};
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(a100_, &v1), NVML_SUCCESS);
  EXPECT_EQ(v1.total, 40960ull << 20);
  EXPECT_EQ(v1.used, (3ull << 30) + (512ull << 20));
  EXPECT_EQ(v1.free + v1.used, v1.total);
  nvmlMemory_v2_t v2 = {};
  EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(a100_, &v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  v2.version = StructVersion<nvmlMemory_v2_t>(2);
  ASSERT_EQ(nvmlDeviceGetMemoryInfo_v2(a100_, &v2), NVML_SUCCESS);
  EXPECT_EQ(v2.used, 3ull << 30);
  EXPECT_EQ(v2.reserved, 512ull << 20);
  EXPECT_EQ(v2.free + v2.used + v2.reserved, v2.total);
}

TEST_F(NvmlTest, ListsProcessesOfTheirGpuOnly) {
  node().processes = {MakeProcess(100, 0, 1 << 30, "/bin/train"), MakeProcess(101, 0, 2 << 20, "/bin/serve"),
                      MakeProcess(102, 1, 3 << 20, "/bin/other")};
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(a100_, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 2u);
  std::vector<nvmlProcessInfo_t> infos(8);
  count = 8;
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(a100_, &count, infos.data()), NVML_SUCCESS);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(infos[1].pid, 101u);
  EXPECT_EQ(infos[0].usedGpuMemory, 1u << 30);
  EXPECT_EQ(infos[0].gpuInstanceId, 0xffffffffu);
  std::vector<nvmlProcessInfo_v1_t> old(2);
  count = 2;
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses(a100_, &count, old.data()), NVML_SUCCESS);
  EXPECT_EQ(old[1].pid, 101u);
  EXPECT_EQ(old[1].usedGpuMemory, 2u << 20);
  count = 8;
  EXPECT_EQ(nvmlDeviceGetGraphicsRunningProcesses_v3(a100_, &count, infos.data()), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  count = 8;
  EXPECT_EQ(nvmlDeviceGetMPSComputeRunningProcesses_v3(a100_, &count, infos.data()), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  std::vector<nvmlProcessDetail_v1_t> details(2);
  nvmlProcessDetailList_t list = {StructVersion<nvmlProcessDetailList_t>(1), 0, 2, details.data()};
  ASSERT_EQ(nvmlDeviceGetRunningProcessDetailList(a100_, &list), NVML_SUCCESS);
  EXPECT_EQ(details[0].pid, 100u);

  std::array<char, 64> name = {};
  ASSERT_EQ(nvmlSystemGetProcessName(102, name.data(), name.size()), NVML_SUCCESS);
  EXPECT_STREQ(name.data(), "/bin/other");
  ASSERT_EQ(nvmlSystemGetProcessName(102, name.data(), 5), NVML_SUCCESS);
  EXPECT_STREQ(name.data(), "/bin");
  EXPECT_EQ(nvmlSystemGetProcessName(999, name.data(), name.size()), NVML_ERROR_NOT_FOUND);
}

TEST_F(NvmlTest, UtilisationOfAProcessIsItsShareOfTheInterval) {
  node().processes = {MakeProcess(100, 0, 0, "a"), MakeProcess(101, 0, 0, "b")};
  node().ns_per_look = 200'000'000;
  node().busy_ns_per_look = 60'000'000;  // each: 30 % of the time between two looks
  std::array<nvmlProcessUtilizationSample_t, 4> samples = {};
  unsigned count = samples.size();
  ASSERT_EQ(nvmlDeviceGetProcessUtilization(a100_, samples.data(), &count, 0), NVML_SUCCESS);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(samples[0].pid, 100u);
  EXPECT_EQ(samples[0].smUtil, 30u);
  EXPECT_EQ(samples[1].smUtil, 30u);
  EXPECT_EQ(samples[0].memUtil, 3u);
  count = samples.size();
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(a100_, samples.data(), &count, ~0ull), NVML_ERROR_NOT_FOUND);
  count = 0;
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(a100_, nullptr, &count, 0), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 2u);
  std::array<nvmlProcessUtilizationInfo_v1_t, 4> infos = {};
  nvmlProcessesUtilizationInfo_t info = {StructVersion<nvmlProcessesUtilizationInfo_t>(1), 4, 0, infos.data()};
  ASSERT_EQ(nvmlDeviceGetProcessesUtilizationInfo(a100_, &info), NVML_SUCCESS);
  EXPECT_EQ(infos[1].smUtil, 30u);
}

TEST_F(NvmlTest, Readings) {
  node().states[0].utilization_gpu = 77;
  node().states[0].energy_mj = 12345;
  nvmlUtilization_t utilization = {};
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(a100_, &utilization), NVML_SUCCESS);
  EXPECT_EQ(utilization.gpu, 77u);
  unsigned value = 0;
  EXPECT_EQ(nvmlDeviceGetPowerUsage(a100_, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 55'000u);
  EXPECT_EQ(nvmlDeviceGetEnforcedPowerLimit(t4_, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 70'000u);
  EXPECT_EQ(nvmlDeviceGetTemperature(a100_, NVML_TEMPERATURE_GPU, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 33u);
  EXPECT_EQ(nvmlDeviceGetClockInfo(a100_, NVML_CLOCK_SM, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 1410u);
  EXPECT_EQ(nvmlDeviceGetClockInfo(a100_, NVML_CLOCK_VIDEO, &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetClockInfo(a100_, 17, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetMaxPcieLinkWidth(a100_, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 16u);
  unsigned long long energy = 0;
  EXPECT_EQ(nvmlDeviceGetTotalEnergyConsumption(a100_, &energy), NVML_SUCCESS);
  EXPECT_EQ(energy, 12345u);
  std::array<nvmlFieldValue_t, 2> fields = {};
  fields[0].fieldId = NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;
  fields[1].fieldId = 999;
  EXPECT_EQ(nvmlDeviceGetFieldValues(a100_, 2, fields.data()), NVML_SUCCESS);
  EXPECT_EQ(fields[0].value.ullVal, 12345u);
  EXPECT_EQ(fields[1].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  node().up = false;
  EXPECT_EQ(nvmlDeviceGetPowerUsage(a100_, &value), NVML_ERROR_DRIVER_NOT_LOADED);
}

TEST_F(NvmlTest, Modes) {
  unsigned current = 9, pending = 9;
  EXPECT_EQ(nvmlDeviceGetMigMode(a100_, &current, &pending), NVML_SUCCESS);
  EXPECT_EQ(current + pending, 0u);
  EXPECT_EQ(nvmlDeviceGetMigMode(t4_, &current, &pending), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetMaxMigDeviceCount(a100_, &current), NVML_SUCCESS);
  EXPECT_EQ(current, 0u);
  EXPECT_EQ(nvmlDeviceGetMaxMigDeviceCount(t4_, &current), NVML_SUCCESS);
  EXPECT_EQ(current, 0u);
  nvmlDevice_t mig = nullptr;
  EXPECT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(a100_, 0, &mig), NVML_ERROR_NOT_FOUND);

  int mode = -1;
  EXPECT_EQ(nvmlDeviceSetComputeMode(a100_, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetComputeMode(a100_, &mode), NVML_SUCCESS);
  EXPECT_EQ(mode, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
  EXPECT_EQ(nvmlDeviceSetComputeMode(a100_, 77), NVML_ERROR_INVALID_ARGUMENT);
  node().owner = false;
  EXPECT_EQ(nvmlDeviceSetComputeMode(a100_, NVML_COMPUTEMODE_DEFAULT), NVML_ERROR_NO_PERMISSION);
  int ecc = 0, ecc_pending = 0, brand = 0, major = 0, minor = 0;
  unsigned architecture = 0;
  EXPECT_EQ(nvmlDeviceGetEccMode(a100_, &ecc, &ecc_pending), NVML_SUCCESS);
  EXPECT_EQ(ecc, NVML_FEATURE_ENABLED);
  EXPECT_EQ(nvmlDeviceGetBrand(t4_, &brand), NVML_SUCCESS);
  EXPECT_EQ(brand, NVML_BRAND_TESLA);
  EXPECT_EQ(nvmlDeviceGetArchitecture(t4_, &architecture), NVML_SUCCESS);
  EXPECT_EQ(architecture, NVML_DEVICE_ARCH_TURING);
  EXPECT_EQ(nvmlDeviceGetCudaComputeCapability(t4_, &major, &minor), NVML_SUCCESS);
  EXPECT_EQ(major * 10 + minor, 75);
}

TEST_F(NvmlTest, EventSetsEndWithTheirTimeLimit) {
  nvmlEventSet_t set = nullptr;
  ASSERT_EQ(nvmlEventSetCreate(&set), NVML_SUCCESS);
  unsigned long long types = 0;
  ASSERT_EQ(nvmlDeviceGetSupportedEventTypes(a100_, &types), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceRegisterEvents(a100_, types, set), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceRegisterEvents(a100_, 1ull << 60, set), NVML_ERROR_NOT_SUPPORTED);
  nvmlEventData_t data = {};
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 5), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(nvmlEventSetFree(set), NVML_SUCCESS);
  EXPECT_EQ(nvmlEventSetFree(set), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 5), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(PciAddressTest, ReadsItsFormsAndNothingElse) {
  emulator::PciAddress address;
  ASSERT_TRUE(emulator::ParsePciAddress("0000ABCD:1f:1F.7", &address));
  EXPECT_EQ(address, (emulator::PciAddress{0xABCD, 0x1f, 0x1f, 7}));
  EXPECT_EQ(emulator::ToPciBusId(address), "0000ABCD:1F:1F.7");
  for (const char* bad :
       {"", ":", "::", "1", "7:0.8", "7:20", "7:00.0 ", "100000000:07:00.0", "7:123", "g:0", "0:7:0:0", "7:0."}) {
    EXPECT_FALSE(emulator::ParsePciAddress(bad, &address)) << bad;
  }
}

}  // namespace
}  // namespace mete::nvml::abi
