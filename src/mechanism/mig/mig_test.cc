#include "mechanism/mig/mig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "mechanism/testing_journal.h"
#include "nvml/fake.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;
using nvml::MigMode;
using ::testing::Contains;
using ::testing::HasSubstr;

class MigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mete-mig-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    const fs::path lib = root_ / "node/usr/lib/x86_64-linux-gnu";
    fs::create_directories(lib);
    fs::create_directories(root_ / "grants");
    std::ofstream(lib / "libcuda.so.1") << "driver";
    std::ofstream(lib / "libnvidia-ml.so.1") << "driver";
    gpu_ = &driver_.Add();
    const gpu::MigBoard* board = *MigBoardOf(*gpu_);
    gpu_->id_of_profile = [board](uint32_t wanted) {
      for (const gpu::MigProfile& profile : board->profiles) {
        if (profile.nvml_profile == wanted) return profile.id;
      }
      return UINT32_MAX;
    };
    a_ = GrantOf("a", "a123456789abcdef0123456789abcdef", {"1g.5gb", 6, 1});
    b_ = GrantOf("b", "b123456789abcdef0123456789abcdef", {"3g.20gb", 0, 4});
  }
  void TearDown() override { fs::remove_all(root_); }

  plan::Grant GrantOf(const std::string& name, const std::string& id, plan::Instance place) const {
    plan::Grant grant;
    grant.share = name;
    grant.id = id;
    grant.mechanism = "mig";
    plan::GpuGrant part;
    part.uuid = gpu_->uuid();
    part.instance = std::move(place);
    grant.gpus.push_back(part);
    return grant;
  }
  Mig Make(const std::string& boot = "boot-1") const {
    return Mig(driver_, {(root_ / "node").string(), (root_ / "grants").string(), boot, (root_ / "proc").string()});
  }
  // As somebody else makes one: no word of it in the journal.
  nvml::GpuInstance ByHand(const std::string& profile, int start) const {
    const gpu::MigProfile* known = (*MigBoardOf(*gpu_))->Find(profile);
    const auto made = gpu_->CreateGpuInstance(known->nvml_profile, start, known->memory_slices);
    (void)gpu_->CreateComputeInstance(made->id, known->compute_slices);
    return gpu_->instances.back();
  }
  void ExpectNothingOurs() const {
    EXPECT_TRUE(journal_.all.empty());
    EXPECT_TRUE(fs::is_empty(root_ / "grants"));
  }

  nvml::FakeLibrary driver_;
  nvml::FakeDevice* gpu_ = nullptr;
  TestJournal journal_;
  fs::path root_;
  plan::Grant a_, b_;
};

TEST_F(MigTest, MakesInstancesAndLeavesTheGpuAsFound) {
  const StatusOr<Edits> edits = Make().Prepare(a_, journal_);
  ASSERT_TRUE(edits.ok()) << edits.status();
  EXPECT_EQ(gpu_->mig.current, MigMode::kEnabled);
  ASSERT_EQ(gpu_->instances.size(), 1u);
  EXPECT_EQ(gpu_->instances[0].start, 6);
  const std::string uuid = gpu_->instances[0].compute.at(0).uuid;
  EXPECT_THAT(edits->Apply({}), Contains("CUDA_VISIBLE_DEVICES=" + uuid));
  ASSERT_TRUE(Make().Prepare(a_, journal_).ok());  // again: nothing more
  ASSERT_TRUE(Make().Prepare(b_, journal_).ok());
  EXPECT_EQ(gpu_->instances.size(), 2u);
  EXPECT_TRUE(Make().Verify(a_, {}, journal_)->InForce());

  gpu_->processes = {{71, Bytes{kGiB}, "p", gpu_->instances[0].id, 0}};
  EXPECT_FALSE(Make().Verify(a_, {}, journal_)->InForce());  // a stranger on it
  EXPECT_TRUE(Make().Verify(b_, {}, journal_)->InForce());
  EXPECT_EQ(ExitCodeFor(Make().Release(a_, journal_)), ExitCode::kRefused);  // in use
  EXPECT_EQ(gpu_->instances.size(), 2u);
  gpu_->processes.clear();
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(gpu_->mig.current, MigMode::kEnabled);  // b is there
  ASSERT_TRUE(Make().Release(b_, journal_).ok());
  ASSERT_TRUE(Make().Release(b_, journal_).ok());
  EXPECT_TRUE(gpu_->instances.empty());
  EXPECT_EQ(gpu_->mig.current, MigMode::kDisabled);
  ExpectNothingOurs();
}

TEST_F(MigTest, AdoptsAndNeverDestroysWhatItDidNotMake) {
  gpu_->mig = {MigMode::kEnabled, MigMode::kEnabled};
  const nvml::GpuInstance there = ByHand("1g.5gb", 6);
  const StatusOr<Edits> edits = Make().Prepare(a_, journal_);
  ASSERT_TRUE(edits.ok()) << edits.status();
  EXPECT_THAT(edits->Apply({}), Contains("CUDA_VISIBLE_DEVICES=" + there.compute[0].uuid));
  EXPECT_TRUE(Make().Verify(a_, {}, journal_)->InForce());
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(gpu_->instances.size(), 1u);
  EXPECT_EQ(gpu_->mig.current, MigMode::kEnabled);
  ExpectNothingOurs();

  // Ours, but somebody puts another in its place, or one of their own into it.
  ASSERT_TRUE(Make().Prepare(b_, journal_).ok());
  gpu_->instances.back().compute.at(0).uuid = "MIG-somebody-elses";
  EXPECT_FALSE(Make().Verify(b_, {}, journal_)->InForce());
  ASSERT_TRUE(Make().Release(b_, journal_).ok());
  EXPECT_EQ(gpu_->instances.size(), 2u);
  ExpectNothingOurs();
}

TEST_F(MigTest, WhatIsHalfMadeIsTakenBack) {
  gpu_->compute_failure = Refused("no");
  EXPECT_FALSE(Make().Prepare(a_, journal_).ok());
  EXPECT_TRUE(gpu_->instances.empty());
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(gpu_->mig.current, MigMode::kDisabled);
  ExpectNothingOurs();
}

TEST_F(MigTest, AResetThatIsWaitedForIsAState) {
  gpu_->resets_alone = false;
  const StatusOr<Edits> first = Make().Prepare(a_, journal_);
  EXPECT_EQ(ExitCodeFor(first.status()), ExitCode::kRefused);
  EXPECT_THAT(Message(first.status()), HasSubstr("nvidia-smi --gpu-reset -i 0"));
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(gpu_->mig.pending, MigMode::kEnabled);  // the next request goes on from there
  EXPECT_EQ(ExitCodeFor(Make().Prepare(a_, journal_).status()), ExitCode::kRefused);
  gpu_->mig.current = MigMode::kEnabled;  // reset
  EXPECT_TRUE(Make().Prepare(a_, journal_).ok());
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
}

TEST_F(MigTest, WithoutTheRightNothingIsMade) {
  gpu_->may_change = false;
  EXPECT_EQ(ExitCodeFor(Make().Prepare(a_, journal_).status()), ExitCode::kLacks);
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
  ExpectNothingOurs();
  // What is there can be used all the same, also by who is not told the places.
  gpu_->may_change = true;
  gpu_->mig = {MigMode::kEnabled, MigMode::kEnabled};
  ByHand("1g.5gb", 6);
  gpu_->may_change = false;
  gpu_->instances[0].profile_id.reset();
  gpu_->instances[0].profile = "1g.5gb";
  gpu_->instances[0].start = -1;
  const gpu::MigBoard* board = *MigBoardOf(*gpu_);
  gpu_->instances[0].id = board->InstanceId(*board->Find("1g.5gb"), 6);
  EXPECT_TRUE(Make().Prepare(a_, journal_).ok());
  EXPECT_TRUE(Make().Verify(a_, {}, journal_)->InForce());
  EXPECT_TRUE(Make().Release(a_, journal_).ok());
}

TEST_F(MigTest, AfterARebootInstancesAreMadeAgainAndOthersAreNotTakenForOurs) {
  ASSERT_TRUE(Make().Prepare(a_, journal_).ok());
  ASSERT_TRUE(Make().Prepare(b_, journal_).ok());
  gpu_->instances.clear();  // the mode stays, instances do not
  EXPECT_FALSE(Make("boot-2").Verify(a_, {}, journal_)->InForce());
  ASSERT_TRUE(Make("boot-2").Prepare(a_, journal_).ok());
  EXPECT_TRUE(Make("boot-2").Verify(a_, {}, journal_)->InForce());
  ByHand("3g.20gb", 0);  // somebody was faster
  ASSERT_TRUE(Make("boot-2").Prepare(b_, journal_).ok());
  ASSERT_TRUE(Make("boot-2").Release(b_, journal_).ok());
  ASSERT_TRUE(Make("boot-2").Release(a_, journal_).ok());
  ASSERT_EQ(gpu_->instances.size(), 1u);
  EXPECT_EQ(gpu_->instances[0].start, 0);
  ExpectNothingOurs();
}

// Stopped anywhere, in making or in taking back: another attempt completes it, and a release leaves nothing of ours.
TEST_F(MigTest, StoppedAtEveryPoint) {
  for (const char* point :
       {"mig: mode written down", "mig: mode set", "mig: instance written down", "mig: GPU instance made",
        "mig: compute instance made", "mig: compute instance gone", "mig: GPU instance gone", "mig: mode set back"}) {
    for (const bool again : {false, true}) {
      bool stopped = false;
      journal_.reached = [&stopped, point](const char* reached) {
        if (stopped || std::string(reached) != point) return;
        stopped = true;
        throw std::runtime_error("killed");
      };
      const auto tried = [&](const auto& step) {
        try {
          step();
        } catch (const std::runtime_error&) {
        }
      };
      tried([&] { (void)Make().Prepare(a_, journal_); });
      if (!stopped) tried([&] { (void)Make().Release(a_, journal_); });
      EXPECT_TRUE(stopped) << point;
      if (again) {
        ASSERT_TRUE(Make().Prepare(a_, journal_).ok()) << point;
        EXPECT_EQ(gpu_->instances.size(), 1u) << point;
        EXPECT_TRUE(Make().Verify(a_, {}, journal_)->InForce()) << point;
      }
      ASSERT_TRUE(Make().Release(a_, journal_).ok()) << point;
      EXPECT_TRUE(gpu_->instances.empty()) << point;
      EXPECT_EQ(gpu_->mig.current, MigMode::kDisabled) << point;
      ExpectNothingOurs();
    }
  }
}

TEST_F(MigTest, WhatTheBookSaysIsChecked) {
  journal_.all.push_back({a_.id, "instance", gpu_->uuid(), "1g.5gb@6", {{"profile", 5}}});
  EXPECT_EQ(ExitCodeFor(Make().Release(a_, journal_)), ExitCode::kFault);
}

}  // namespace
}  // namespace mete::mechanism
