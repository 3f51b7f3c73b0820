#include "mechanism/time_slicing/time_slicing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "mechanism/testing_journal.h"
#include "mechanism/time_slicing/compute_policy.h"
#include "mechanism/tool.h"
#include "nvml/fake.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;
using plan::TimeSlice;
using ::testing::HasSubstr;

// A tool that keeps the class in a file, as the driver keeps it in its memory; what is in `refuses` it will not do.
constexpr const char* kSliceTool = R"SH(#!/bin/sh
here=$(dirname "$(readlink -f "$0")")/../..
case "$*" in
  "compute-policy -i "*" -l")
    printf '| GPU  Name            Value          |\n|   0  Timeslice       %-15s|\n' "$(cat $here/class)" ;;
  *--set-timeslice*)
    [ -e $here/refuses ] && echo "Insufficient Permissions" && exit 4
    for last; do :; done
    set -- Default Short Medium Long; shift $last; echo $1 > $here/class; echo "All done." ;;
  *) exit 2 ;;
esac
)SH";

class TimeSlicingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mete-slices-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    const fs::path lib = root_ / "node/usr/lib/x86_64-linux-gnu";
    for (const fs::path& folder : {lib, root_ / "node/usr/bin", root_ / "grants"}) fs::create_directories(folder);
    std::ofstream(lib / "libcuda.so.1") << "driver";
    std::ofstream(lib / "libnvidia-ml.so.1") << "driver";
    WriteTool();
    SetDriversClass("Default");
    driver_.Add();
    a_ = GrantOf("a", "a123456789abcdef0123456789abcdef");
    b_ = GrantOf("b", "b123456789abcdef0123456789abcdef");
  }
  void TearDown() override { fs::remove_all(root_); }

  void WriteTool() {
    const fs::path tool = root_ / "node/usr/bin/nvidia-smi";
    std::ofstream(tool) << kSliceTool;
    fs::permissions(tool, fs::perms::owner_all);
  }
  plan::Grant GrantOf(const std::string& name, const std::string& id) const {
    plan::Grant grant;
    grant.share = name;
    grant.id = id;
    grant.mechanism = "time-slicing";
    grant.time_slice = TimeSlice::kLong;
    plan::GpuGrant part;
    part.uuid = driver_.devices[0]->uuid();
    grant.gpus.push_back(part);
    return grant;
  }
  TimeSlicing Make() const { return TimeSlicing(driver_, {(root_ / "node").string(), (root_ / "grants").string()}); }
  void SetDriversClass(const std::string& word) const { std::ofstream(root_ / "node/class") << word << "\n"; }
  std::string DriversClass() const {
    std::string word;
    std::ifstream(root_ / "node/class") >> word;
    return word;
  }

  nvml::FakeLibrary driver_;
  TestJournal journal_;
  fs::path root_;
  plan::Grant a_, b_;
};

TEST_F(TimeSlicingTest, SetsTheClassAndTheLastSetsItBack) {
  SetDriversClass("Short");
  ASSERT_TRUE(Make().Prepare(a_, journal_).ok());
  EXPECT_EQ(DriversClass(), "Long");
  ASSERT_TRUE(Make().Prepare(b_, journal_).ok());
  EXPECT_TRUE(Make().Verify(a_, {}, journal_)->InForce());
  EXPECT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(DriversClass(), "Long");
  EXPECT_TRUE(Make().Verify(b_, {}, journal_)->InForce());
  EXPECT_TRUE(Make().Release(b_, journal_).ok());
  EXPECT_EQ(DriversClass(), "Short");
  EXPECT_TRUE(Make().Release(b_, journal_).ok());
  EXPECT_TRUE(fs::is_empty(root_ / "grants"));
  EXPECT_TRUE(journal_.all.empty());
}

TEST_F(TimeSlicingTest, WithoutAClassNothingIsSet) {
  a_.time_slice.reset();
  fs::remove(root_ / "node/usr/bin/nvidia-smi");
  EXPECT_TRUE(Make().Prepare(a_, journal_).ok());
  EXPECT_TRUE(Make().Verify(a_, {}, journal_)->InForce());
  EXPECT_TRUE(Make().Release(a_, journal_).ok());
  driver_.devices[0]->mode = nvml::ComputeMode::kExclusiveProcess;
  EXPECT_FALSE(Make().Verify(a_, {}, journal_)->InForce());
}

TEST_F(TimeSlicingTest, WhatSomebodyElseSetStays) {
  ASSERT_TRUE(Make().Prepare(a_, journal_).ok());
  SetDriversClass("Medium");
  const StatusOr<Evidence> evidence = Make().Verify(a_, {}, journal_);
  EXPECT_FALSE(evidence->InForce());
  EXPECT_THAT(evidence->items[1].because, HasSubstr("says medium"));
  ASSERT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(DriversClass(), "Medium");
}

TEST_F(TimeSlicingTest, WhatTheToolWillNotDoIsSaid) {
  std::ofstream(root_ / "node/refuses") << "";
  const StatusOr<Edits> refused = Make().Prepare(a_, journal_);
  EXPECT_EQ(ExitCodeFor(refused.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(refused.status()), HasSubstr("Insufficient Permissions"));
  EXPECT_TRUE(Make().Release(a_, journal_).ok());
  EXPECT_EQ(DriversClass(), "Default");
  SetDriversClass("Not Supported");
  EXPECT_THAT(Message(Make().Prepare(a_, journal_).status()), HasSubstr("has no classes of time slices"));
  fs::remove(root_ / "node/usr/bin/nvidia-smi");
  fs::remove_all(root_ / "grants/a123456789abcdef");
  EXPECT_EQ(ExitCodeFor(Make().Prepare(a_, journal_).status()), ExitCode::kLacks);
}

TEST_F(TimeSlicingTest, StoppedAtEveryPoint) {
  SetDriversClass("Short");
  for (const char* point :
       {"time-slicing: class written down", "time-slicing: class set", "time-slicing: class set back"}) {
    journal_.reached = [point](const char* reached) {
      if (std::string(reached) == point) throw std::runtime_error("killed");
    };
    const auto tried = [&](const auto& step) {
      try {
        step();
      } catch (const std::runtime_error&) {
      }
    };
    tried([&] { (void)Make().Prepare(a_, journal_); });
    tried([&] { (void)Make().Release(a_, journal_); });
    journal_.reached = {};
    ASSERT_TRUE(Make().Release(a_, journal_).ok()) << point;
    EXPECT_EQ(DriversClass(), "Short") << point;
    EXPECT_TRUE(journal_.all.empty());
    EXPECT_TRUE(fs::is_empty(root_ / "grants"));
  }
}

TEST(ComputePolicy, ReadsTheTable) {
  const auto policies = ParseComputePolicies(
      "+-------------------------------------+\n"
      "| GPU compute policies:               |\n"
      "| GPU  Name            Value          |\n"
      "|=====================================|\n"
      "|   0  Timeslice       Short          |\n"
      "|  12  TimeSlice       Default        |\n"
      "|   1  Timeslice       Not Supported  |\n"
      "+-------------------------------------+\n");
  ASSERT_EQ(policies.size(), 3u);
  EXPECT_EQ(policies.at(0), TimeSlice::kShort);
  EXPECT_EQ(policies.at(12), TimeSlice::kDefault);
  EXPECT_EQ(policies.at(1), std::nullopt);
  EXPECT_TRUE(ParseComputePolicies("").empty());
}

TEST(Tool, ItsEndIsAResultAndSilenceIsNot) {
  const StatusOr<ToolResult> both = RunTool({"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, {});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->exit_status, 7);
  EXPECT_EQ(both->printed, "out\nerr\n");
  EXPECT_EQ(RunTool({"/bin/sh", "-c", "echo $LD_LIBRARY_PATH"}, "/some/where")->printed, "/some/where\n");
  EXPECT_EQ(RunTool({"/bin/sh", "-c", "kill -9 $$"}, {})->exit_status, 137);
  EXPECT_EQ(ExitCodeFor(RunTool({"/no/such/tool"}, {}).status()), ExitCode::kLacks);
  const StatusOr<ToolResult> late = RunTool({"/bin/sh", "-c", "exec sleep 600"}, {}, std::chrono::milliseconds(20));
  EXPECT_EQ(ExitCodeFor(late.status()), ExitCode::kLacks);
}

}  // namespace
}  // namespace mete::mechanism
