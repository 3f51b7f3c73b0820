#include "mechanism/exclusive/exclusive.h"

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
using nvml::ComputeMode;
using ::testing::Contains;
using ::testing::HasSubstr;

class ExclusiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mete-exclusive-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    const fs::path lib = root_ / "node/usr/lib/x86_64-linux-gnu";
    for (const fs::path& folder : {lib, root_ / "node/usr/bin", root_ / "grants", root_ / "proc/71"}) {
      fs::create_directories(folder);
    }
    for (const fs::path& file : {lib / "libcuda.so.1", lib / "libnvidia-ml.so.1", root_ / "node/usr/bin/nvidia-smi"}) {
      std::ofstream(file) << "driver";
    }
    gpu_ = &driver_.Add();
    grant_.id = "0123456789abcdef0123456789abcdef";
    grant_.share = "a";
    grant_.mechanism = "exclusive";
    plan::GpuGrant part;
    part.uuid = gpu_->uuid();
    grant_.gpus.push_back(part);
  }
  void TearDown() override { fs::remove_all(root_); }

  Exclusive Make() const {
    return Exclusive(driver_, {(root_ / "node").string(), (root_ / "grants").string(), (root_ / "proc").string()});
  }
  bool GrantsLeft() const { return !fs::is_empty(root_ / "grants"); }

  nvml::FakeLibrary driver_;
  nvml::FakeDevice* gpu_ = nullptr;
  TestJournal journal_;
  fs::path root_;
  plan::Grant grant_;
};

TEST_F(ExclusiveTest, GivesTheDriverAsItIsAndOneGpuToSee) {
  const Exclusive exclusive = Make();
  const StatusOr<Edits> edits = exclusive.Prepare(grant_, journal_);
  ASSERT_TRUE(edits.ok()) << edits.status();
  const std::string directory = (root_ / "grants/0123456789abcdef").string();
  EXPECT_EQ(fs::read_symlink(directory + "/libcuda.so.1"), root_ / "node/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  const auto environment = edits->Apply({"PATH=/usr/bin"});
  EXPECT_THAT(environment, Contains("CUDA_VISIBLE_DEVICES=" + gpu_->uuid()));
  EXPECT_THAT(environment, Contains("NVIDIA_VISIBLE_DEVICES=" + gpu_->uuid()));
  EXPECT_THAT(environment, Contains("LD_LIBRARY_PATH=" + directory));
  EXPECT_THAT(environment, Contains("PATH=" + directory + "/bin:/usr/bin"));
  // Any number of processes: the mode stays.
  EXPECT_EQ(gpu_->mode, ComputeMode::kDefault);
  EXPECT_TRUE(exclusive.Verify(grant_, {}, journal_)->InForce());

  std::ofstream(root_ / "proc/71/environ") << "A=1" << '\0' << "CUDA_VISIBLE_DEVICES=" << gpu_->uuid() << '\0';
  gpu_->processes = {{71, Bytes{kGiB}, "mine", {}, {}}};
  EXPECT_TRUE(exclusive.Verify(grant_, {{71, 1}}, journal_)->InForce());
  gpu_->processes.push_back({72, Bytes{kGiB}, "other", {}, {}});
  EXPECT_FALSE(exclusive.Verify(grant_, {{71, 1}}, journal_)->InForce());
  gpu_->processes.pop_back();
  std::ofstream(root_ / "proc/71/environ") << "CUDA_VISIBLE_DEVICES=0" << '\0';
  EXPECT_FALSE(exclusive.Verify(grant_, {{71, 1}}, journal_)->InForce());

  EXPECT_TRUE(exclusive.Release(grant_, journal_).ok());
  EXPECT_TRUE(exclusive.Release(grant_, journal_).ok());
  EXPECT_FALSE(GrantsLeft());
}

TEST_F(ExclusiveTest, ForOneProcessTheDriverKeepsOthersOff) {
  grant_.processes = 1;
  for (const ComputeMode found : {ComputeMode::kDefault, ComputeMode::kProhibited, ComputeMode::kExclusiveProcess}) {
    gpu_->mode = found;
    const Exclusive exclusive = Make();
    for (int times = 0; times < 2; ++times) {
      ASSERT_TRUE(exclusive.Prepare(grant_, journal_).ok());
      EXPECT_EQ(gpu_->mode, ComputeMode::kExclusiveProcess);
      EXPECT_TRUE(exclusive.Verify(grant_, {}, journal_)->InForce());
    }
    for (int times = 0; times < 2; ++times) {
      ASSERT_TRUE(exclusive.Release(grant_, journal_).ok());
      EXPECT_EQ(gpu_->mode, found);
      EXPECT_TRUE(journal_.all.empty());
    }
  }
}

TEST_F(ExclusiveTest, WhatSomebodyElseSetStays) {
  grant_.processes = 1;
  ASSERT_TRUE(Make().Prepare(grant_, journal_).ok());
  gpu_->mode = ComputeMode::kProhibited;
  EXPECT_FALSE(Make().Verify(grant_, {}, journal_)->InForce());
  ASSERT_TRUE(Make().Release(grant_, journal_).ok());
  EXPECT_EQ(gpu_->mode, ComputeMode::kProhibited);
}

TEST_F(ExclusiveTest, WithoutTheRightTheAuditWatchesAlone) {
  grant_.processes = 1;
  gpu_->may_change = false;
  ASSERT_TRUE(Make().Prepare(grant_, journal_).ok());
  EXPECT_TRUE(journal_.all.empty());
  const StatusOr<Evidence> evidence = Make().Verify(grant_, {}, journal_);
  EXPECT_TRUE(evidence->InForce());
  EXPECT_THAT(evidence->items[0].because, HasSubstr("may not change it"));
  EXPECT_TRUE(Make().Release(grant_, journal_).ok());
}

// Stopped anywhere, a second attempt completes it, and a release leaves the mode that was found.
TEST_F(ExclusiveTest, StoppedAtEveryPoint) {
  grant_.processes = 1;
  gpu_->mode = ComputeMode::kProhibited;
  for (const char* point : {"exclusive: mode written down", "exclusive: mode set", "exclusive: mode set back"}) {
    for (const bool again : {false, true}) {
      journal_.reached = [point](const char* reached) {
        if (std::string(reached) == point) throw std::runtime_error("killed");
      };
      const auto tried = [&](const auto& step) {
        try {
          step();
        } catch (const std::runtime_error&) {
        }
      };
      tried([&] { (void)Make().Prepare(grant_, journal_); });
      tried([&] { (void)Make().Release(grant_, journal_); });
      journal_.reached = {};
      if (again) {
        ASSERT_TRUE(Make().Prepare(grant_, journal_).ok());
        EXPECT_EQ(gpu_->mode, ComputeMode::kExclusiveProcess);
      }
      ASSERT_TRUE(Make().Release(grant_, journal_).ok()) << point;
      EXPECT_EQ(gpu_->mode, ComputeMode::kProhibited) << point;
      EXPECT_TRUE(journal_.all.empty());
      EXPECT_FALSE(GrantsLeft());
    }
  }
}

TEST_F(ExclusiveTest, NothingIsSetThatCouldNotBeWrittenDown) {
  grant_.processes = 1;
  journal_.failure = Lacks("the disk is full");
  EXPECT_FALSE(Make().Prepare(grant_, journal_).ok());
  EXPECT_EQ(gpu_->mode, ComputeMode::kDefault);
}

TEST_F(ExclusiveTest, AGpuThatIsGoneIsReleased) {
  grant_.processes = 1;
  ASSERT_TRUE(Make().Prepare(grant_, journal_).ok());
  driver_.devices.clear();
  EXPECT_FALSE(Make().Verify(grant_, {}, journal_).ok());
  EXPECT_TRUE(Make().Release(grant_, journal_).ok());
  EXPECT_TRUE(journal_.all.empty());
}

}  // namespace
}  // namespace mete::mechanism
