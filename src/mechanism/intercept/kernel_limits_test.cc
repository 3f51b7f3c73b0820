#include "mechanism/intercept/kernel_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "nvml/fake.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;

// A driver of the kind that limits cgroups; a group is one that is a folder, as the driver opens it.
class LimitingDevice : public nvml::FakeDevice {
 public:
  mutable std::map<std::string, Bytes> hard;
  StatusOr<nvml::CgroupMemory> MemoryOfCgroup(const std::string& folder) const override {
    const auto found = hard.find(folder);
    if (found == hard.end() || !fs::is_directory(folder)) return NoSuch("no limit of {}", folder);
    return nvml::CgroupMemory{found->second, {kMiB}};
  }
  Status LimitCgroup(const std::string& folder, Bytes bytes) const override {
    if (!fs::is_directory(folder)) return NoSuch("there is no {}", folder);
    hard[folder] = bytes;
    return OkStatus();
  }
};

class LimitingLibrary : public nvml::FakeLibrary {
 public:
  bool limits_cgroups() const override { return true; }
};

class KernelLimitsTest : public testing::Test {
 protected:
  KernelLimitsTest() {
    std::string pattern = testing::TempDir() + "mete-cgroups-XXXXXX";
    root_ = mkdtemp(pattern.data());
    std::ofstream(root_ / "cgroup.controllers") << "cpu dmem\n";
    std::ofstream(root_ / "cgroup.subtree_control") << "cpu\n";
    device_ = std::make_shared<LimitingDevice>();
    library_.devices.push_back(device_);
    library_.driver_version_value = "615.36.01";
    grant_.id = "0123456789abcdef0123456789abcdef";
    grant_.share = "team";
    grant_.gpus.resize(1);
    grant_.gpus[0].uuid = device_->uuid_value;
  }
  ~KernelLimitsTest() override { fs::remove_all(root_); }
  std::string Text(const fs::path& path) const {
    std::ifstream file(root_ / path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path root_;
  LimitingLibrary library_;
  std::shared_ptr<LimitingDevice> device_;
  plan::Grant grant_;
};

TEST_F(KernelLimitsTest, AShareGetsAGroupWithTheControllerAndALimit) {
  const KernelLimits limits(library_, root_.string(), "node");
  ASSERT_TRUE(limits.Make(grant_).ok());
  ASSERT_TRUE(limits.Make(grant_).ok()) << "again";
  const std::string folder = limits.Folder(grant_);
  EXPECT_EQ(folder, (root_ / "mete/node/0123456789abcdef").string());
  EXPECT_EQ(Text("cgroup.subtree_control"), "cpu\n+dmem\n") << "once";
  EXPECT_EQ(Text("mete/node/cgroup.subtree_control"), "+dmem\n");
  ASSERT_TRUE(limits.Put(grant_, 4711).ok());
  EXPECT_EQ(Text("mete/node/0123456789abcdef/cgroup.procs"), "4711\n");
  EXPECT_FALSE(limits.Read(grant_, device_->uuid_value).ok());
  ASSERT_TRUE(limits.Limit(grant_, device_->uuid_value, Bytes{kGiB}).ok());
  EXPECT_EQ(limits.Read(grant_, device_->uuid_value)->hard.count, kGiB);
  EXPECT_FALSE(limits.Limit(grant_, "GPU-none", Bytes{kGiB}).ok());

  ASSERT_TRUE(limits.Remove(grant_).ok());
  EXPECT_EQ(device_->hard[folder].count, 0u) << "who is still in it gets nothing more";
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(limits.Remove(grant_).ok()) << "again";
}

TEST_F(KernelLimitsTest, NobodyIsTakenOutOfOtherLimits) {
  const KernelLimits limits(library_, root_.string(), "node", (root_ / "proc").string());
  ASSERT_TRUE(limits.Make(grant_).ok());
  fs::create_directories(root_ / "proc/4711");
  fs::create_directories(root_ / "jobs/one");
  std::ofstream(root_ / "proc/4711/cgroup") << "1:cpu:/elsewhere\n0::/jobs/one\n";
  std::ofstream(root_ / "jobs/one/cpu.max") << "max 100000\n";
  EXPECT_TRUE(limits.Put(grant_, 4711).ok());
  std::ofstream(root_ / "jobs/memory.max") << "1073741824\n";
  const Status put = limits.Put(grant_, 4711);
  EXPECT_EQ(ExitCodeFor(put), ExitCode::kLacks);
  EXPECT_NE(Message(put).find("/jobs,"), std::string::npos) << Message(put);
  EXPECT_EQ(Text("mete/node/0123456789abcdef/cgroup.procs"), "4711\n") << "once";
}

TEST_F(KernelLimitsTest, GroupsOfNoShareAreRemoved) {
  const KernelLimits limits(library_, root_.string(), "node");
  ASSERT_TRUE(limits.Make(grant_).ok());
  plan::Grant other = grant_;
  other.id = "fedcba9876543210fedcba9876543210";
  ASSERT_TRUE(limits.Make(other).ok());
  fs::create_directories(limits.Folder(other) + "/made/by/a/tenant");
  limits.RemoveOthers({limits.Folder(grant_)});
  EXPECT_TRUE(fs::exists(limits.Folder(grant_)));
  EXPECT_FALSE(fs::exists(limits.Folder(other)));
}

TEST_F(KernelLimitsTest, FailuresSayWhatIsMissing) {
  const KernelLimits nowhere(library_, (root_ / "none").string(), "node");
  EXPECT_EQ(ExitCodeFor(nowhere.Put(grant_, 1)), ExitCode::kLacks);
  std::ofstream(root_ / "mete") << "in the way";
  const KernelLimits blocked(library_, root_.string(), "node");
  const Status made = blocked.Make(grant_);
  EXPECT_EQ(ExitCodeFor(made), ExitCode::kLacks);
  EXPECT_NE(Message(made).find("cgroup"), std::string::npos);
}

TEST_F(KernelLimitsTest, WhetherANodeOffersThemIsSeenWithoutSettingOne) {
  KernelLimitFacts facts = LookForKernelLimits(library_, root_.string());
  EXPECT_EQ(WhyNoKernelLimits(facts), "");
  EXPECT_TRUE(facts.dmem);
  struct Case {
    void (*spoil)(KernelLimitFacts&);
    const char* says;
  };
  const Case cases[] = {
      {[](KernelLimitFacts& f) { f.driver_major = 580; }, "need driver 615, and this is 580"},
      {[](KernelLimitFacts& f) { f.calls = false; }, "no calls"},
      {[](KernelLimitFacts& f) { f.cgroup_v2 = false; }, "no cgroup v2 tree"},
      {[](KernelLimitFacts& f) { f.writable = false; }, "cannot be written"},
  };
  for (const Case& one : cases) {
    KernelLimitFacts spoiled = facts;
    one.spoil(spoiled);
    EXPECT_NE(WhyNoKernelLimits(spoiled).find(one.says), std::string::npos) << WhyNoKernelLimits(spoiled);
  }
  fs::remove(root_ / "cgroup.controllers");
  facts = LookForKernelLimits(library_, root_.string());
  EXPECT_FALSE(facts.cgroup_v2);
  EXPECT_FALSE(fs::exists(root_ / "mete")) << "nothing is made by looking";
}

}  // namespace
}  // namespace mete::mechanism
