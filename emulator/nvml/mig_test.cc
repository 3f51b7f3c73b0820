// MIG through NVML on a real engine: profiles, ids and placements are those of the fact tables, and what may stand
// beside what is worked out anew by an oracle that reads them for itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "emulator/engine/test_client.h"
#include "emulator/nvml/state.h"
#include "mete/nvml_prototypes.h"
#include "tests/oracle/mig_oracle.h"

namespace mete::emulator {

namespace {
TestNode* g_node = nullptr;  // that ConnectToNode connects to
uint32_t g_uid = TestNode::kOwner;
}  // namespace

bool ConnectToNode(std::unique_ptr<Client>* client, std::string*) {
  *client = std::make_unique<TestClient>(*g_node, 100, g_uid);
  return true;
}

}  // namespace mete::emulator

namespace mete::nvml::abi {
namespace {

using emulator::TestNode;
using oracle::MigOracle;
using oracle::OracleCompute;
using oracle::OracleInstance;
using oracle::OracleProfile;

const char* const kFacts = METE_DATA "/mig.yaml";
constexpr int kOperations = 10'000;

class MigTest : public testing::Test {
 protected:
  void Begin(const std::string& board, bool on = true) {
    node_ = std::make_unique<TestNode>(board);
    emulator::g_node = node_.get();
    emulator::g_uid = TestNode::kOwner;
    ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
    ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &gpu_), NVML_SUCCESS);
    nvmlReturn_t activation = NVML_ERROR_UNKNOWN;
    if (!on) return;
    ASSERT_EQ(nvmlDeviceSetMigMode(gpu_, 1, &activation), NVML_SUCCESS);
    ASSERT_EQ(activation, NVML_SUCCESS);
  }
  void Reconnect(uint32_t uid) {
    while (nvmlShutdown() == NVML_SUCCESS) {
    }
    emulator::g_uid = uid;
    ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  }
  void TearDown() override {
    while (nvmlShutdown() == NVML_SUCCESS) {
    }
  }
  nvmlGpuInstance_t MakeGpuInstance(unsigned profile) {
    nvmlGpuInstance_t made = nullptr;
    EXPECT_EQ(nvmlDeviceCreateGpuInstance(gpu_, profile, &made), NVML_SUCCESS);
    return made;
  }
  static nvmlComputeInstance_t MakeComputeInstance(nvmlGpuInstance_t instance, unsigned profile) {
    nvmlComputeInstance_t made = nullptr;
    EXPECT_EQ(nvmlGpuInstanceCreateComputeInstance(instance, profile, &made), NVML_SUCCESS);
    return made;
  }
  nvmlDevice_t Device(unsigned index) {
    nvmlDevice_t device = nullptr;
    EXPECT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(gpu_, index, &device), NVML_SUCCESS);
    return device;
  }

  std::unique_ptr<TestNode> node_;
  nvmlDevice_t gpu_ = nullptr;
};

// --- Against the facts ---------------------------------------------------------------------------------------------

class MigBoardTest : public MigTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { Begin(GetParam()); }
  MigOracle oracle_{kFacts, GetParam()};
};

TEST_P(MigBoardTest, ProfilesAreTheTables) {
  size_t found = 0;
  for (unsigned enumeration = 0; enumeration < 32; ++enumeration) {
    nvmlGpuInstanceProfileInfo_v2_t info = {};
    info.version = StructVersion<nvmlGpuInstanceProfileInfo_v2_t>(2);
    const nvmlReturn_t code = nvmlDeviceGetGpuInstanceProfileInfoV(gpu_, enumeration, &info);
    const auto wanted = std::find_if(oracle_.profiles.begin(), oracle_.profiles.end(), [&](const OracleProfile& one) {
      return one.enumeration == static_cast<int>(enumeration);
    });
    if (wanted == oracle_.profiles.end()) {
      EXPECT_EQ(code, NVML_ERROR_NOT_SUPPORTED) << enumeration;
      continue;
    }
    ++found;
    ASSERT_EQ(code, NVML_SUCCESS) << wanted->name;
    const auto same = [&](unsigned measured, int fact) { EXPECT_EQ(static_cast<int>(measured), fact) << wanted->name; };
    EXPECT_EQ(std::string(info.name), "MIG " + wanted->name);
    same(info.id, wanted->id);
    same(info.sliceCount, wanted->compute);
    same(info.instanceCount, wanted->most);
    same(static_cast<unsigned>(info.memorySizeMB), wanted->mib);
    same(info.copyEngineCount, wanted->copy_engines);
    same(info.decoderCount, wanted->decoders);
    same(info.encoderCount, wanted->encoders);
    same(info.jpegCount, wanted->jpegs);
    same(info.ofaCount, wanted->ofas);
    if (wanted->sms != 0) same(info.multiprocessorCount, wanted->sms);
    EXPECT_GT(info.multiprocessorCount, 0u);
    unsigned count = 0;
    ASSERT_EQ(nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu_, info.id, nullptr, &count), NVML_SUCCESS);
    ASSERT_EQ(count, wanted->starts.size()) << wanted->name;
    std::vector<nvmlGpuInstancePlacement_t> placements(count);
    ASSERT_EQ(nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu_, info.id, placements.data(), &count), NVML_SUCCESS);
    for (size_t i = 0; i < count; ++i) {
      same(placements[i].start, wanted->starts[i]);
      same(placements[i].size, wanted->memory);
    }
  }
  EXPECT_EQ(found, oracle_.profiles.size());
  nvmlGpuInstanceProfileInfo_t old = {};
  EXPECT_EQ(nvmlDeviceGetGpuInstanceProfileInfo(gpu_, 4096, &old), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_P(MigBoardTest, ComputeProfilesAreTheTables) {
  for (const OracleProfile& profile : oracle_.profiles) {
    const nvmlGpuInstance_t instance = MakeGpuInstance(static_cast<unsigned>(profile.id));
    for (unsigned id = 0; id < 16; ++id) {
      nvmlComputeInstanceProfileInfo_v2_t info = {};
      info.version = StructVersion<nvmlComputeInstanceProfileInfo_v2_t>(2);
      const nvmlReturn_t code = nvmlGpuInstanceGetComputeInstanceProfileInfoV(
          instance, id, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info);
      const auto wanted = std::find_if(profile.computes.begin(), profile.computes.end(),
                                       [&](const OracleCompute& one) { return one.id == static_cast<int>(id); });
      if (wanted == profile.computes.end()) {
        EXPECT_EQ(code, NVML_ERROR_NOT_SUPPORTED) << profile.name << " " << id;
        continue;
      }
      ASSERT_EQ(code, NVML_SUCCESS) << wanted->name;
      EXPECT_EQ(std::string(info.name), "MIG " + wanted->name);
      EXPECT_EQ(static_cast<int>(info.sliceCount), wanted->slices);
      EXPECT_EQ(static_cast<int>(info.instanceCount), wanted->most) << wanted->name;
      unsigned count = 16;
      std::vector<nvmlComputeInstancePlacement_t> placements(count);
      ASSERT_EQ(nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance, id, placements.data(), &count),
                NVML_SUCCESS);
      ASSERT_EQ(count, wanted->starts.size()) << wanted->name;
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(static_cast<int>(placements[i].start), wanted->starts[i]);
    }
    EXPECT_EQ(nvmlGpuInstanceDestroy(instance), NVML_SUCCESS);
  }
}

// The oracle's book beside NVML's handles.
class RandomOperations {
 public:
  RandomOperations(nvmlDevice_t gpu, MigOracle* oracle, uint64_t seed) : gpu_(gpu), oracle_(*oracle), random_(seed) {}

  void Step() {
    switch (random_() % 6) {
      case 0:
      case 1: Create(); break;
      case 2: Destroy(); break;
      case 3:
      case 4: CreateCompute(); break;
      default: DestroyCompute();
    }
  }
  // Everything that NVML lists is in the book, and the other way round.
  void Compare() {
    size_t listed = 0;
    for (const OracleProfile& profile : oracle_.profiles) {
      std::vector<nvmlGpuInstance_t> handles(static_cast<size_t>(profile.most));
      unsigned count = 0;
      ASSERT_EQ(nvmlDeviceGetGpuInstances(gpu_, Id(profile), handles.data(), &count), NVML_SUCCESS);
      listed += count;
      for (unsigned i = 0; i < count; ++i) {
        nvmlGpuInstanceInfo_t info = {};
        ASSERT_EQ(nvmlGpuInstanceGetInfo(handles[i], &info), NVML_SUCCESS);
        const OracleInstance key = {static_cast<int>(info.profileId), static_cast<int>(info.placement.start)};
        ASSERT_EQ(oracle_.instances.count(key), 1u);
        EXPECT_EQ(static_cast<int>(info.id), oracle_.InstanceId(key));
        EXPECT_EQ(static_cast<int>(info.placement.size), profile.memory);
        nvmlGpuInstance_t again = nullptr;
        ASSERT_EQ(nvmlDeviceGetGpuInstanceById(gpu_, info.id, &again), NVML_SUCCESS);
        EXPECT_EQ(again, handles[i]);
      }
      unsigned room = 0;
      ASSERT_EQ(nvmlDeviceGetGpuInstanceRemainingCapacity(gpu_, Id(profile), &room), NVML_SUCCESS);
      MigOracle trial = oracle_;
      unsigned most = 0;
      for (auto starts = trial.PossibleStarts(profile.id); !starts.empty(); starts = trial.PossibleStarts(profile.id)) {
        trial.instances.insert({profile.id, starts.front()});
        ++most;
      }
      EXPECT_EQ(room, most) << profile.name;
    }
    EXPECT_EQ(listed, oracle_.instances.size());
    size_t devices = 0;
    for (const auto& [key, book] : books_) devices += book.computes.size();
    nvmlDevice_t device = nullptr;
    for (unsigned i = 0; i < devices; ++i) {
      ASSERT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(gpu_, i, &device), NVML_SUCCESS);
    }
    EXPECT_NE(nvmlDeviceGetMigDeviceHandleByIndex(gpu_, static_cast<unsigned>(devices), &device), NVML_SUCCESS);
  }
  uint64_t made() const { return made_; }
  uint64_t made_computes() const { return made_computes_; }

 private:
  struct Book {
    nvmlGpuInstance_t handle = nullptr;
    MigOracle::Computes computes;
    std::map<int, nvmlComputeInstance_t> handles;  // by start
  };
  static unsigned Id(const OracleProfile& profile) { return static_cast<unsigned>(profile.id); }
  template <typename List>
  auto& Any(List& list) {
    return *std::next(list.begin(), static_cast<std::ptrdiff_t>(random_() % list.size()));
  }

  void Create() {
    const OracleProfile& profile = Any(oracle_.profiles);
    const std::vector<int> possible = oracle_.PossibleStarts(profile.id);
    Book book;
    OracleInstance key = {profile.id, 0};
    if (random_() % 3 == 0) {
      const nvmlReturn_t code = nvmlDeviceCreateGpuInstance(gpu_, Id(profile), &book.handle);
      ASSERT_EQ(code, possible.empty() ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_SUCCESS) << profile.name;
      if (code != NVML_SUCCESS) return;
      nvmlGpuInstanceInfo_t info = {};
      ASSERT_EQ(nvmlGpuInstanceGetInfo(book.handle, &info), NVML_SUCCESS);
      key.start = static_cast<int>(info.placement.start);
      ASSERT_TRUE(oracle_.Allows(profile.id, key.start)) << profile.name << " at " << key.start;
    } else {
      key.start = static_cast<int>(random_() % 13);
      const nvmlGpuInstancePlacement_t placement = {static_cast<unsigned>(key.start),
                                                    static_cast<unsigned>(profile.memory)};
      const bool listed = std::find(profile.starts.begin(), profile.starts.end(), key.start) != profile.starts.end();
      const nvmlReturn_t code = nvmlDeviceCreateGpuInstanceWithPlacement(gpu_, Id(profile), &placement, &book.handle);
      ASSERT_EQ(code, oracle_.Allows(profile.id, key.start) ? NVML_SUCCESS
                      : listed                              ? NVML_ERROR_INSUFFICIENT_RESOURCES
                                                            : NVML_ERROR_INVALID_ARGUMENT)
          << profile.name << " at " << key.start;
      if (code != NVML_SUCCESS) return;
    }
    ++made_;
    oracle_.instances.insert(key);
    books_[key] = book;
  }

  void Destroy() {
    if (books_.empty()) return;
    auto& [key, book] = Any(books_);
    const nvmlReturn_t code = nvmlGpuInstanceDestroy(book.handle);
    ASSERT_EQ(code, book.computes.empty() ? NVML_SUCCESS : NVML_ERROR_IN_USE);
    if (code != NVML_SUCCESS) return;
    EXPECT_EQ(nvmlGpuInstanceDestroy(book.handle), NVML_ERROR_INVALID_ARGUMENT);  // the handle went with it
    oracle_.instances.erase(key);
    books_.erase(OracleInstance(key));
  }

  void CreateCompute() {
    if (books_.empty()) return;
    auto& [key, book] = Any(books_);
    const OracleCompute& profile = Any(oracle_.Profile(key.profile_id).computes);
    const auto id = static_cast<unsigned>(profile.id);
    nvmlComputeInstance_t made = nullptr;
    int start = static_cast<int>(random_() % 8);
    if (random_() % 2 == 0) {
      const bool possible = std::any_of(profile.starts.begin(), profile.starts.end(),
                                        [&](int one) { return MigOracle::AllowsCompute(book.computes, profile, one); });
      const nvmlReturn_t code = nvmlGpuInstanceCreateComputeInstance(book.handle, id, &made);
      ASSERT_EQ(code, possible ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES) << profile.name;
      if (code != NVML_SUCCESS) return;
      nvmlComputeInstanceInfo_t info = {};
      ASSERT_EQ(nvmlComputeInstanceGetInfo_v2(made, &info), NVML_SUCCESS);
      start = static_cast<int>(info.placement.start);
      EXPECT_EQ(info.gpuInstance, book.handle);
      ASSERT_TRUE(MigOracle::AllowsCompute(book.computes, profile, start)) << profile.name << " at " << start;
    } else {
      const nvmlComputeInstancePlacement_t placement = {static_cast<unsigned>(start),
                                                        static_cast<unsigned>(profile.slices)};
      const bool listed = std::find(profile.starts.begin(), profile.starts.end(), start) != profile.starts.end();
      const nvmlReturn_t code = nvmlGpuInstanceCreateComputeInstanceWithPlacement(book.handle, id, &placement, &made);
      ASSERT_EQ(code, MigOracle::AllowsCompute(book.computes, profile, start) ? NVML_SUCCESS
                      : listed                                                ? NVML_ERROR_INSUFFICIENT_RESOURCES
                                                                              : NVML_ERROR_INVALID_ARGUMENT)
          << profile.name << " at " << start;
      if (code != NVML_SUCCESS) return;
    }
    ++made_computes_;
    book.computes[start] = profile;
    book.handles[start] = made;
  }

  void DestroyCompute() {
    if (books_.empty()) return;
    Book& book = Any(books_).second;
    if (book.handles.empty()) return;
    const auto [start, handle] = Any(book.handles);
    ASSERT_EQ(nvmlComputeInstanceDestroy(handle), NVML_SUCCESS);
    EXPECT_EQ(nvmlComputeInstanceDestroy(handle), NVML_ERROR_INVALID_ARGUMENT);
    book.computes.erase(start);
    book.handles.erase(start);
  }

  nvmlDevice_t gpu_;
  MigOracle& oracle_;
  std::mt19937_64 random_;
  std::map<OracleInstance, Book> books_;
  uint64_t made_ = 0, made_computes_ = 0;
};

TEST_P(MigBoardTest, RandomCreationsAndDeletionsAgreeWithTheOracle) {
  RandomOperations operations(gpu_, &oracle_, 20'251'130);
  for (int i = 0; i < kOperations && !HasFatalFailure(); ++i) {
    operations.Step();
    if (i % 100 == 0) operations.Compare();
  }
  EXPECT_GT(operations.made(), 500u);
  EXPECT_GT(operations.made_computes(), 500u);
}

INSTANTIATE_TEST_SUITE_P(Boards, MigBoardTest, testing::ValuesIn(MigOracle::Boards(kFacts)), [](const auto& board) {
  std::string name = board.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// --- What is asked of MIG devices ----------------------------------------------------------------------------------

TEST_F(MigTest, DevicesHaveNamesUuidsAndTheirGpu) {
  Begin("A100-SXM4-40GB");
  MakeComputeInstance(MakeGpuInstance(9), 0);   // 1c.3g.20gb
  MakeComputeInstance(MakeGpuInstance(19), 0);  // 1g.5gb
  unsigned most = 0;
  EXPECT_EQ(nvmlDeviceGetMaxMigDeviceCount(gpu_, &most), NVML_SUCCESS);
  EXPECT_EQ(most, 7u);
  const char* const names[] = {"NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"};
  for (unsigned i = 0; i < 2; ++i) {
    char text[96] = {};
    const nvmlDevice_t device = Device(i);
    EXPECT_EQ(nvmlDeviceGetName(device, text, sizeof(text)), NVML_SUCCESS);
    EXPECT_STREQ(text, names[i]);
    EXPECT_EQ(nvmlDeviceGetUUID(device, text, sizeof(text)), NVML_SUCCESS);
    EXPECT_EQ(std::string(text).rfind("MIG-", 0), 0u);
    EXPECT_EQ(std::string(text).size(), 40u);
    nvmlDevice_t found = nullptr;
    EXPECT_EQ(nvmlDeviceGetHandleByUUID(text, &found), NVML_SUCCESS);
    EXPECT_EQ(found, device);
    EXPECT_EQ(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &found), NVML_SUCCESS);
    EXPECT_EQ(found, gpu_);
    unsigned number = 9;
    EXPECT_EQ(nvmlDeviceIsMigDeviceHandle(device, &number), NVML_SUCCESS);
    EXPECT_EQ(number, 1u);
    EXPECT_EQ(nvmlDeviceGetIndex(device, &number), NVML_SUCCESS);
    EXPECT_EQ(number, i);
    EXPECT_EQ(nvmlDeviceGetPowerUsage(device, &number), NVML_ERROR_NOT_SUPPORTED);
  }
  unsigned number = 9;
  EXPECT_EQ(nvmlDeviceIsMigDeviceHandle(gpu_, &number), NVML_SUCCESS);
  EXPECT_EQ(number, 0u);
  nvmlDevice_t none = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByUUID("MIG-00000000-0000-0000-0000-000000000000", &none), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(gpu_, 2, &none), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvmlDeviceGetMigDeviceHandleByIndex(gpu_, 7, &none), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(MigTest, DevicesHaveTheirInstancesSizeAndProcesses) {
  Begin("A100-SXM4-40GB");
  const nvmlGpuInstance_t half = MakeGpuInstance(9);
  MakeComputeInstance(half, 1);  // at 0
  MakeComputeInstance(half, 0);
  const nvmlDevice_t second = Device(1);
  unsigned gpu_instance = 0, compute_instance = 0;
  EXPECT_EQ(nvmlDeviceGetGpuInstanceId(second, &gpu_instance), NVML_SUCCESS);
  EXPECT_EQ(gpu_instance, 2u);  // at 4
  EXPECT_EQ(nvmlDeviceGetComputeInstanceId(second, &compute_instance), NVML_SUCCESS);
  EXPECT_EQ(compute_instance, 1u);
  EXPECT_EQ(nvmlDeviceGetGpuInstanceId(gpu_, &gpu_instance), NVML_ERROR_NOT_SUPPORTED);
  nvmlDeviceAttributes_t attributes = {};
  EXPECT_EQ(nvmlDeviceGetAttributes_v2(second, &attributes), NVML_SUCCESS);
  EXPECT_EQ(attributes.multiprocessorCount, 14u);
  EXPECT_EQ(attributes.sharedCopyEngineCount, 3u);
  EXPECT_EQ(attributes.gpuInstanceSliceCount, 3u);
  EXPECT_EQ(attributes.computeInstanceSliceCount, 1u);
  EXPECT_EQ(attributes.memorySizeMB, 19968u);

  emulator::TestClient tenant(*node_, 4711, TestNode::kOwner + 1);
  uint64_t context = 0;
  ASSERT_EQ(tenant.CreateMigContext(0, 2, 1, &context), emulator::Result::kOk);
  ASSERT_EQ(tenant.ReserveMemory(context, 1 << 30), emulator::Result::kOk);
  nvmlMemory_t memory = {};
  for (const unsigned i : {0u, 1u}) {  // of the GPU instance, whichever compute instance holds it
    EXPECT_EQ(nvmlDeviceGetMemoryInfo(Device(i), &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.total, 19968ull << 20);
    EXPECT_EQ(memory.used, (1ull << 30) + node_->engine().settings().gpus[0].info.context_bytes);
    EXPECT_EQ(memory.free, memory.total - memory.used);
  }
  nvmlMemory_v2_t newer = {};
  newer.version = StructVersion<nvmlMemory_v2_t>(2);
  EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(second, &newer), NVML_SUCCESS);
  EXPECT_EQ(newer.used, memory.used);
  nvmlBAR1Memory_t bar1 = {};
  EXPECT_EQ(nvmlDeviceGetBAR1MemoryInfo(second, &bar1), NVML_SUCCESS);
  EXPECT_EQ(bar1.bar1Total, 32767ull << 20);

  nvmlProcessInfo_t infos[4] = {};
  unsigned count = 4;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(Device(0), &count, infos), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  for (const nvmlDevice_t device : {second, gpu_}) {
    count = 4;
    ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(infos[0].pid, 4711u);
    EXPECT_EQ(infos[0].gpuInstanceId, 2u);
    EXPECT_EQ(infos[0].computeInstanceId, 1u);
  }
  nvmlComputeInstance_t busy = nullptr;
  EXPECT_EQ(nvmlGpuInstanceGetComputeInstanceById(half, 1, &busy), NVML_SUCCESS);
  EXPECT_EQ(nvmlComputeInstanceDestroy(busy), NVML_ERROR_IN_USE);
}

TEST_F(MigTest, WithMigSomeReadingsAreNoLongerThere) {
  Begin("A100-SXM4-40GB");
  nvmlUtilization_t utilization = {};
  unsigned number = 0;
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(gpu_, &utilization), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(gpu_, nullptr, &number, 0), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetDecoderUtilization(gpu_, &number, &number), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceSetComputeMode(gpu_, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceSetAccountingMode(gpu_, 1), NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(MigTest, OthersSeeAndDoNotChange) {
  Begin("A100-SXM4-40GB");
  const nvmlGpuInstance_t instance = MakeGpuInstance(19);
  const nvmlComputeInstance_t compute = MakeComputeInstance(instance, 0);
  Reconnect(TestNode::kOwner + 1);
  nvmlReturn_t activation = NVML_SUCCESS;
  nvmlGpuInstance_t made = nullptr;
  nvmlComputeInstance_t made_compute = nullptr;
  EXPECT_EQ(nvmlDeviceSetMigMode(gpu_, 0, &activation), NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(nvmlDeviceCreateGpuInstance(gpu_, 19, &made), NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(nvmlGpuInstanceCreateComputeInstance(instance, 0, &made_compute), NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(nvmlComputeInstanceDestroy(compute), NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(nvmlGpuInstanceDestroy(instance), NVML_ERROR_NO_PERMISSION);
  nvmlGpuInstanceInfo_t info = {};
  EXPECT_EQ(nvmlGpuInstanceGetInfo(instance, &info), NVML_SUCCESS);  // a handle is valid over shutdown
  EXPECT_NE(Device(0), nullptr);
}

TEST_F(MigTest, ModeIsPendingWhileSomethingRuns) {
  Begin("A100-SXM4-40GB", false);
  unsigned current = 9, pending = 9;
  nvmlReturn_t activation = NVML_SUCCESS;
  nvmlGpuInstance_t made = nullptr;
  EXPECT_EQ(nvmlDeviceCreateGpuInstance(gpu_, 19, &made), NVML_ERROR_NOT_SUPPORTED);
  TestNode::Process tenant = node_->AddTenant(5);
  EXPECT_EQ(nvmlDeviceSetMigMode(gpu_, 1, &activation), NVML_SUCCESS);
  EXPECT_EQ(activation, NVML_ERROR_IN_USE);
  EXPECT_EQ(nvmlDeviceGetMigMode(gpu_, &current, &pending), NVML_SUCCESS);
  EXPECT_EQ(current, NVML_DEVICE_MIG_DISABLE);
  EXPECT_EQ(pending, NVML_DEVICE_MIG_ENABLE);
  node_->End(tenant);
  EXPECT_EQ(nvmlDeviceSetMigMode(gpu_, 1, &activation), NVML_SUCCESS);
  EXPECT_EQ(activation, NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceSetMigMode(gpu_, 2, &activation), NVML_ERROR_INVALID_ARGUMENT);
  made = MakeGpuInstance(19);
  EXPECT_EQ(nvmlDeviceSetMigMode(gpu_, 0, &activation), NVML_SUCCESS);
  EXPECT_EQ(activation, NVML_ERROR_IN_USE);
}

TEST_F(MigTest, ProfilesInTheirThreeVersions) {
  Begin("RTX-PRO-6000-Blackwell-96GB");
  nvmlGpuInstanceProfileInfo_t first = {};
  ASSERT_EQ(nvmlDeviceGetGpuInstanceProfileInfo(gpu_, 10, &first), NVML_SUCCESS);  // 1g.24gb+gfx
  nvmlGpuInstanceProfileInfo_v3_t third = {};
  third.version = StructVersion<nvmlGpuInstanceProfileInfo_v3_t>(3);
  auto* as_second = reinterpret_cast<nvmlGpuInstanceProfileInfo_v2_t*>(&third);
  ASSERT_EQ(nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu_, first.id, as_second), NVML_SUCCESS);
  EXPECT_EQ(third.id, first.id);
  EXPECT_EQ(third.memorySizeMB, first.memorySizeMB);
  EXPECT_STREQ(third.name, "MIG 1g.24gb+gfx");
  EXPECT_EQ(third.capabilities, NVML_GPU_INSTANCE_PROFILE_CAPS_GFX);
}

}  // namespace
}  // namespace mete::nvml::abi
