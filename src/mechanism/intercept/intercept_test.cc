#include "mechanism/intercept/intercept.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "mechanism/testing_journal.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InterceptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mete-intercept-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    const fs::path lib = root_ / "node/usr/lib/x86_64-linux-gnu";
    fs::create_directories(lib);
    fs::create_directories(root_ / "node/usr/bin");
    fs::create_directories(root_ / "proxies");
    fs::create_directories(root_ / "grants");
    fs::create_directories(root_ / "proc/71");
    Write(lib / "libcuda.so.580", "driver");
    fs::create_symlink("libcuda.so.580", lib / "libcuda.so.1");
    Write(lib / "libnvidia-ml.so.1", "nvml");
    Write(root_ / "node/usr/bin/nvidia-smi", "tool");
    Write(root_ / "proxies/libcuda.so.1", "proxy");
    Write(root_ / "proxies/libnvidia-ml.so.1", "nvml proxy");
    Write(root_ / "proxies/libmete-preload.so", "preload");
    grant_.share = "a";
    grant_.id = "0123456789abcdef0123456789abcdef";
  }
  void TearDown() override { fs::remove_all(root_); }

  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Read(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Intercept Make() const {
    return Intercept({(root_ / "node").string(), (root_ / "proxies").string(), (root_ / "grants").string(),
                      (root_ / "proc").string()});
  }

  TestJournal journal_;
  fs::path root_;
  plan::Grant grant_;
};

TEST_F(InterceptTest, PreparesVerifiesAndReleases) {
  const Intercept intercept = Make();
  const StatusOr<Edits> edits = intercept.Prepare(grant_, journal_);
  ASSERT_TRUE(edits.ok()) << Message(edits.status());
  const fs::path directory = intercept.Directory(grant_);
  EXPECT_EQ(Read(directory / "libcuda.so.1"), "proxy");
  EXPECT_EQ(Read(directory / "libcuda.so"), "proxy");
  EXPECT_EQ(Read(directory / "libmete-driver-cuda.so.1"), "driver");
  EXPECT_EQ(Read(directory / "libmete-driver-ml.so.1"), "nvml");
  EXPECT_EQ(Read(directory / "bin/nvidia-smi"), "tool");
  EXPECT_THAT(edits->Apply({"PATH=/usr/bin", "HOME=/", "LD_LIBRARY_PATH="}),
              ElementsAre("PATH=" + (directory / "bin").string() + ":/usr/bin", "HOME=/",
                          "LD_LIBRARY_PATH=" + directory.string()));

  Write(root_ / "proc/71/maps", "7f00-7f01 r-xp 0 00:01 5    " + (directory / "libcuda.so.1").string() + "\n");
  EXPECT_TRUE(intercept.Verify(grant_, {{71, 1}}, journal_)->InForce());
  EXPECT_FALSE(intercept.Verify(grant_, {{71, 1}, {72, 1}}, journal_)->InForce());
  Write(root_ / "proc/71/maps", "7f00-7f01 r-xp 0 00:01 5    /usr/lib/libcuda.so.1\n");
  EXPECT_FALSE(intercept.Verify(grant_, {{71, 1}}, journal_)->InForce());

  EXPECT_TRUE(intercept.Release(grant_, journal_).ok());
  EXPECT_TRUE(intercept.Release(grant_, journal_).ok());
  EXPECT_TRUE(fs::is_empty(root_ / "grants"));
  EXPECT_EQ(Read(root_ / "node/usr/bin/nvidia-smi"), "tool");
}

TEST_F(InterceptTest, Fault47_AnUpgradeLeavesTheLibrariesOfRunningTenantsAlone) {
  const Intercept intercept = Make();
  ASSERT_TRUE(intercept.Prepare(grant_, journal_).ok());
  Write(root_ / "proxies/libcuda.so.1", "newer proxy");
  ASSERT_TRUE(intercept.Prepare(grant_, journal_).ok());
  EXPECT_EQ(Read(fs::path(intercept.Directory(grant_)) / "libcuda.so.1"), "proxy");
}

TEST_F(InterceptTest, CompletesWhatAKilledAttemptLeft) {
  const Intercept intercept = Make();
  const fs::path directory = intercept.Directory(grant_);
  fs::create_directories(directory);
  Write(directory / "libcuda.so.1.part", "pro");
  fs::create_symlink("/nowhere", directory / "libmete-driver-cuda.so.1");
  ASSERT_TRUE(intercept.Prepare(grant_, journal_).ok());
  EXPECT_EQ(Read(directory / "libcuda.so.1"), "proxy");
  EXPECT_EQ(Read(directory / "libmete-driver-cuda.so.1"), "driver");
  EXPECT_FALSE(fs::exists(directory / "libcuda.so.1.part"));
}

TEST_F(InterceptTest, SaysWhatTheMachineLacks) {
  fs::remove(root_ / "proxies/libcuda.so.1");
  StatusOr<Edits> edits = Make().Prepare(grant_, journal_);
  EXPECT_EQ(ExitCodeFor(edits.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(edits.status()), HasSubstr("proxies/libcuda.so.1"));
  EXPECT_FALSE(Make().Probe({}).supported);
  fs::remove_all(root_ / "node/usr/lib");
  edits = Make().Prepare(grant_, journal_);
  EXPECT_EQ(ExitCodeFor(edits.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(edits.status()), HasSubstr("no NVIDIA driver there"));
}

// Where the linker would pass over the proxy or "cannot be preloaded: ignored", nothing is started.
TEST_F(InterceptTest, Fault46_WhatTheLinkerWouldIgnoreIsRefused) {
  for (const char* name : {"a:b", "a;b", "a$b", "a b"}) {
    const fs::path grants = root_ / name;
    fs::create_directories(grants);
    plan::Grant grant = grant_;
    grant.preload = strchr(name, ' ') != nullptr;
    const Intercept intercept({(root_ / "node").string(), (root_ / "proxies").string(), grants.string(), "/proc"});
    const StatusOr<Edits> edits = intercept.Prepare(grant, journal_);
    EXPECT_EQ(ExitCodeFor(edits.status()), ExitCode::kLacks) << name;
    EXPECT_TRUE(fs::is_empty(grants)) << name;
  }
}

TEST_F(InterceptTest, Fault46_APreloadedLibraryIsThereBeforeItIsNamed) {
  grant_.preload = true;
  const StatusOr<Edits> edits = Make().Prepare(grant_, journal_);
  ASSERT_TRUE(edits.ok()) << Message(edits.status());
  const std::string library = Make().Directory(grant_) + "/libmete-preload.so";
  EXPECT_EQ(Read(library), "preload");
  EXPECT_THAT(edits->Apply({"LD_PRELOAD=/own.so"}), ::testing::Contains("LD_PRELOAD=" + library + ":/own.so"));
  fs::remove_all(root_ / "grants" / grant_.id.substr(0, 16));
  fs::remove(root_ / "proxies/libmete-preload.so");
  EXPECT_EQ(ExitCodeFor(Make().Prepare(grant_, journal_).status()), ExitCode::kLacks);
}

TEST_F(InterceptTest, EditsSurviveTheirJson) {
  grant_.preload = true;
  Edits edits = Make().EditsOf(grant_);
  edits.mounts.push_back({"/a", "/b", true});
  edits.device_nodes.push_back("/dev/nvidia0");
  const StatusOr<Edits> back = EditsFromJson(ToJson(edits));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(ToJson(*back), ToJson(edits));
  EXPECT_FALSE(EditsFromJson(Json::parse(R"({"set":[["A"]],"prepend":[]})")).ok());
  EXPECT_FALSE(EditsFromJson(Json::parse("[]")).ok());
}

}  // namespace
}  // namespace mete::mechanism
