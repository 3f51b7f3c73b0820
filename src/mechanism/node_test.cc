#include "mechanism/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A made-up machine: an empty host root, and a runtime folder of its own.
class FindNodeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "mete_node_XXXXXX";
    top_ = mkdtemp(pattern.data());
    for (const char* name : {"host", "runtime"}) fs::create_directories(top_ / name);
    chmod((top_ / "runtime").c_str(), 0700);
    places_.host = top_ / "host";
    places_.runtime = top_ / "runtime";
  }
  void TearDown() override { fs::remove_all(top_); }

  void Touch(const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }
  void AddDriver(const fs::path& root) {
    Touch(root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
    Touch(root / "dev/nvidiactl");
  }
  // An emulated node whose engine is `pid`.
  std::string AddNode(const std::string& name, pid_t pid, uint64_t start_time) {
    const fs::path root = top_ / name;
    fs::create_directories(root / "run");
    std::ofstream(root / "run/engine.json")
        << fmt::format(R"({{"driver_root": "{}", "pid": {}, "start_time": {}}})", root.string(), pid, start_time);
    fs::create_directories(top_ / "runtime/nodes");
    fs::create_directory_symlink(root, top_ / "runtime/nodes" / name);
    return root;
  }
  static uint64_t OwnStartTime() { return StartTimeOf(ReadFile("/proc/self/stat").value()); }

  fs::path top_;
  NodePlaces places_;
};

TEST_F(FindNodeTest, WithoutAnythingItTellsTheWaysOn) {
  const auto node = FindNode("", places_);
  EXPECT_EQ(ExitCodeFor(node.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(node.status()), HasSubstr("install the driver"));
  EXPECT_THAT(Message(node.status()), HasSubstr("mete emulate up"));
}

TEST_F(FindNodeTest, WhatIsNamedWinsOverEverything) {
  AddDriver(top_ / "host");
  fs::create_directories(top_ / "named");
  fs::create_directories(top_ / "variable");
  places_.variable = top_ / "variable";
  const auto named = FindNode((top_ / "named/").string(), places_);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->roots.driver, top_ / "named");
  EXPECT_EQ(named->found_by, FoundBy::kName);
  EXPECT_EQ(named->Description(), (top_ / "named").string() + " (named by --driver-root)");
  const auto variable = FindNode("", places_);
  ASSERT_TRUE(variable.ok());
  EXPECT_EQ(variable->roots.driver, top_ / "variable");
  EXPECT_EQ(variable->found_by, FoundBy::kVariable);
}

TEST_F(FindNodeTest, ANamedRootThatIsMissingIsNoSuch) {
  for (const char* name : {"missing", "host/file"}) {
    if (std::string(name) == "host/file") Touch(top_ / name);
    const auto node = FindNode((top_ / name).string(), places_);
    EXPECT_EQ(node.status().code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(Message(node.status()), HasSubstr("--driver-root"));
  }
  places_.variable = top_ / "missing";
  EXPECT_THAT(Message(FindNode("", places_).status()), HasSubstr("$METE_DRIVER_ROOT"));
}

TEST_F(FindNodeTest, TheHostNeedsLibraryAndDriver) {
  Touch(top_ / "host/usr/lib64/libnvidia-ml.so.1");  // a library that some package left, without a driver
  EXPECT_FALSE(FindNode("", places_).ok());
  Touch(top_ / "host/proc/driver/nvidia/version");
  const auto node = FindNode("", places_);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->found_by, FoundBy::kHost);
}

TEST_F(FindNodeTest, TheHostComesBeforeAnEmulatedNode) {
  AddNode("node", getpid(), OwnStartTime());
  AddDriver(top_ / "host");
  EXPECT_EQ(FindNode("", places_).value().found_by, FoundBy::kHost);
}

TEST_F(FindNodeTest, FindsTheEmulatedNodeThatIsUp) {
  const std::string root = AddNode("node", getpid(), OwnStartTime());
  AddNode("dead", getpid(), OwnStartTime() + 1);  // its pid was used again by another process
  AddNode("gone", 0x7ffffff0, 1);
  fs::create_directory_symlink(top_ / "nowhere", top_ / "runtime/nodes/dangling");
  Touch(top_ / "broken/run/engine.json");
  fs::create_directory_symlink(top_ / "broken", top_ / "runtime/nodes/broken");
  const auto node = FindNode("", places_);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->roots.driver, root);
  EXPECT_EQ(node->found_by, FoundBy::kEmulatedNode);
  struct stat info {};
  ASSERT_EQ(stat(root.c_str(), &info), 0);
  EXPECT_EQ(node->inode, info.st_ino);
  EXPECT_EQ(node->device, info.st_dev);
}

TEST_F(FindNodeTest, TwoNodesUpMustBeTold) {
  const std::string a = AddNode("a", getpid(), OwnStartTime());
  const std::string b = AddNode("b", getpid(), OwnStartTime());
  const auto node = FindNode("", places_);
  EXPECT_EQ(ExitCodeFor(node.status()), ExitCode::kUsage);
  EXPECT_THAT(Message(node.status()), HasSubstr(a + " and " + b));
}

TEST_F(FindNodeTest, ARuntimeFolderOthersMayWriteIsNotTrusted) {
  AddNode("node", getpid(), OwnStartTime());
  chmod((top_ / "runtime").c_str(), 0777);
  EXPECT_EQ(ExitCodeFor(FindNode("", places_).status()), ExitCode::kLacks);
}

TEST_F(FindNodeTest, ARootWithItsOwnDevicesIsAskedForThem) {
  AddDriver(top_ / "node");
  fs::create_directories(top_ / "node/sys/bus/pci");
  const auto node = FindNode((top_ / "node").string(), places_);
  ASSERT_TRUE(node.ok());
  EXPECT_EQ(node->roots.dev, top_ / "node");
  EXPECT_EQ(node->roots.sys, top_ / "node/sys");
  EXPECT_EQ(node->roots.proc, "/proc");
}

TEST(EngineFile, RefusesWhatIsNotOne) {
  for (const char* text : {"", "[]", "3", "{}", R"({"driver_root": "node", "pid": 1, "start_time": 1})",
                           R"({"driver_root": "/n", "pid": -1, "start_time": 1})", R"({"driver_root": "/n", "pid": 1})",
                           R"({"driver_root": "/n", "pid": 4294967297, "start_time": 1})",
                           R"({"driver_root": 1, "pid": 1, "start_time": 1})"}) {
    EXPECT_EQ(ExitCodeFor(ParseEngineFile(text, "engine.json").status()), ExitCode::kUsage) << text;
  }
  const auto file = ParseEngineFile(R"({"driver_root": "/n", "pid": 7, "start_time": 8, "more": []})", "engine.json");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->pid, 7U);
}

TEST(StartTime, SurvivesAnyProgramName) {
  const std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
  EXPECT_EQ(StartTimeOf("12 (sh)" + tail), 4711U);
  EXPECT_EQ(StartTimeOf("12 (a) S 1 (b c)" + tail), 4711U);
  EXPECT_EQ(StartTimeOf("12 (sh) S 1 2"), 0U);
  EXPECT_EQ(StartTimeOf(""), 0U);
}

}  // namespace
}  // namespace mete::mechanism
