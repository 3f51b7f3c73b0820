// Limits of device memory by cgroup: what the engine refuses, and where it counts.
#include "emulator/engine/cgroups.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "emulator/engine/cgroup_files.h"
#include "emulator/engine/test_node.h"

namespace mete::emulator {
namespace {

constexpr uint64_t kLimit = 1 << 30;

TEST(CgroupsTest, AChargeCountsInAllGroupsAboveAndTheLeastLimitHolds) {
  Cgroups cgroups(2);
  const Cgroups::Id leaf = cgroups.IdOf("mete/a/b"), above = cgroups.IdOf("mete/a"), beside = cgroups.IdOf("mete/c");
  cgroups.SetLimits(above, 0, {0, 100});
  cgroups.SetLimits(leaf, 0, {0, 200});
  EXPECT_EQ(cgroups.RoomOf(leaf, 0).most, 100u);
  EXPECT_TRUE(cgroups.Charge(leaf, 0, 60));
  EXPECT_FALSE(cgroups.Charge(leaf, 0, 41));
  EXPECT_TRUE(cgroups.Charge(leaf, 0, 40));
  EXPECT_TRUE(cgroups.Charge(leaf, 1, 1000)) << "another GPU";
  EXPECT_TRUE(cgroups.Charge(beside, 0, 1000));
  EXPECT_EQ(cgroups.Current(above, 0), 100u);
  EXPECT_EQ(cgroups.Current(cgroups.IdOf("mete"), 0), 1100u);
  cgroups.SetLimits(above, 0, {0, 10});
  EXPECT_EQ(cgroups.RoomOf(leaf, 0).left, 0u) << "below what is in use: nothing more";
  cgroups.Uncharge(leaf, 0, 95);
  EXPECT_EQ(cgroups.RoomOf(leaf, 0).left, 5u);
  EXPECT_EQ(cgroups.Limited(), (std::vector<Cgroups::Id>{above, leaf}));
  cgroups.ClearLimits(above);
  EXPECT_EQ(cgroups.RoomOf(leaf, 0).left, 195u);
  EXPECT_EQ(cgroups.RoomOf(0, 0).most, kNoMemoryLimit);
}

class FakeTree : public CgroupTree {
 public:
  std::map<uint32_t, std::string> member;
  std::set<std::string> folders;
  std::string GroupOf(uint32_t pid) override { return member.count(pid) != 0 ? member[pid] : ""; }
  bool Exists(const std::string& path) override { return folders.count(path) != 0; }
  bool HasController(const std::string& path) override { return Exists(path); }
  std::map<std::string, uint64_t> shown;  // what was in use
  void Show(const std::string& path, uint32_t, const MemoryLimits&, uint64_t current) override {
    shown[path] = current;
  }
};

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() : tree_(std::make_shared<FakeTree>()), node_("T4", {}, tree_) {
    tree_->folders = {"mete", "mete/a"};
    tree_->member = {{1, "mete/a"}, {2, "mete/a"}};
  }
  Result Set(uint64_t hard, uint64_t soft = 0, const char* group = "mete/a", const TestNode::Process* by = nullptr) {
    Request request = TestNode::Make(MessageType::kSetLimits);
    request.amount = hard;
    request.context = soft;
    std::strcpy(request.text, group);
    return static_cast<Result>(node_.Call(by == nullptr ? node_.admin() : *by, request).result);
  }
  uint64_t Current() {
    Request request = TestNode::Make(MessageType::kGetLimits);
    std::strcpy(request.text, "mete/a");
    std::vector<uint8_t> payload;
    EXPECT_EQ(node_.Call(node_.admin(), request, &payload).result, 0);
    uint64_t current = 0;
    EXPECT_EQ(payload.size(), sizeof(current));
    std::memcpy(&current, payload.data(), std::min(payload.size(), sizeof(current)));
    return current;
  }
  uint64_t Context() { return node_.engine().settings().gpus[0].info.context_bytes; }

  std::shared_ptr<FakeTree> tree_;
  TestNode node_;
};

TEST_F(LimitsTest, HoldForAllProcessesOfAGroupTogetherContextsIncluded) {
  ASSERT_EQ(Set(kLimit), Result::kOk);
  TestNode::Process one = node_.AddTenant(1), two = node_.AddTenant(2), other = node_.AddTenant(3);
  EXPECT_EQ(Current(), 2 * Context());
  const uint64_t left = kLimit - 2 * Context();
  EXPECT_EQ(node_.Ask(one, MessageType::kReserveMemory, 0, 0, left + 1), Result::kOutOfMemory);
  EXPECT_EQ(node_.Ask(one, MessageType::kReserveMemory, 0, 0, left), Result::kOk);
  EXPECT_EQ(node_.Ask(two, MessageType::kReserveMemory, 0, 0, 1), Result::kOutOfMemory);
  EXPECT_EQ(node_.Ask(two, MessageType::kMakePhysical, 0, 0, 2 << 20), Result::kOutOfMemory);
  EXPECT_EQ(node_.Ask(two, MessageType::kReserveManaged, 0, 0, kLimit), Result::kOk) << "the host's memory to a group";
  EXPECT_EQ(node_.Ask(two, MessageType::kReturnMemory, 0, 0, 1), Result::kRefused) << "managed memory is not this";
  EXPECT_EQ(node_.Ask(other, MessageType::kReserveMemory, 0, 0, kLimit), Result::kOk) << "in no group";
  Request request = TestNode::Make(MessageType::kMemoryInfo);
  ReplyHeader reply = node_.Call(two, request);
  EXPECT_EQ(reply.a, 0u);
  EXPECT_EQ(reply.b, kLimit);
  node_.End(one);
  reply = node_.Call(two, request);
  EXPECT_EQ(reply.a, left + Context());
  node_.End(two);
  EXPECT_EQ(Current(), 0u);
}

TEST_F(LimitsTest, FilesFollowWithoutBeingWrittenForEachAllocation) {
  const TestNode::Process tenant = node_.AddTenant(1);
  node_.Pass(Engine::kCgroupFilesNs);
  EXPECT_EQ(tree_->shown["mete/a"], Context());
  EXPECT_EQ(tree_->shown["mete"], Context());
  ASSERT_EQ(node_.Ask(tenant, MessageType::kReserveMemory, 0, 0, 100), Result::kOk);
  EXPECT_EQ(tree_->shown["mete/a"], Context());
  ASSERT_TRUE(node_.engine().NextEventNs());
  EXPECT_LE(*node_.engine().NextEventNs(), node_.now() + Engine::kCgroupFilesNs);
  node_.Pass(Engine::kCgroupFilesNs);
  EXPECT_EQ(tree_->shown["mete/a"], Context() + 100);
  ASSERT_EQ(Set(kLimit), Result::kOk);
  EXPECT_EQ(tree_->shown["mete/a"], Context() + 100);
}

TEST_F(LimitsTest, AContextThatDoesNotFitIsRefused) {
  ASSERT_EQ(Set(Context() - 1), Result::kOk);
  EXPECT_EQ(node_.AddTenant(1).context, 0u);
  EXPECT_NE(node_.AddTenant(3).context, 0u);
  EXPECT_EQ(Current(), 0u);
}

TEST_F(LimitsTest, MemoryStaysChargedToTheGroupOfItsMaker) {
  ASSERT_EQ(Set(kLimit), Result::kOk);
  TestNode::Process maker = node_.AddTenant(1), other = node_.AddTenant(3);
  Request request = TestNode::Make(MessageType::kMakePhysical);
  request.context = maker.context;
  request.amount = 64 << 20;
  const uint64_t name = node_.Call(maker, request).a;
  ASSERT_EQ(node_.Ask(other, MessageType::kHoldPhysical, 0, 0, name), Result::kOk);
  node_.End(maker);
  EXPECT_EQ(Current(), 64u << 20);
  EXPECT_EQ(node_.Ask(other, MessageType::kDropPhysical, 0, 0, name), Result::kOk);
  EXPECT_EQ(Current(), 0u);
}

TEST_F(LimitsTest, AreTheOwnersToSetAndGoWithTheFolder) {
  const TestNode::Process tenant = node_.AddTenant(1);
  EXPECT_EQ(Set(kLimit, 0, "mete/a", &tenant), Result::kNotOwner);
  EXPECT_EQ(Set(kLimit, 0, "mete/b"), Result::kNoSuchObject);
  EXPECT_EQ(Set(kLimit, kLimit + 1), Result::kInvalid);
  EXPECT_EQ(Set(1ull << 50), Result::kInvalid);
  ASSERT_EQ(Set(Context()), Result::kOk);
  EXPECT_EQ(node_.Ask(tenant, MessageType::kReserveMemory, 0, 0, 1), Result::kOutOfMemory);
  tree_->folders = {"mete"};
  EXPECT_EQ(Set(0, 0, "mete"), Result::kOk) << "somebody removed the folder";
  ASSERT_EQ(Set(kNoMemoryLimit, 0, "mete"), Result::kOk);
  EXPECT_EQ(node_.Ask(tenant, MessageType::kReserveMemory, 0, 0, 1), Result::kOk);
  TestNode older("T4");
  Request request = TestNode::Make(MessageType::kGetLimits);
  EXPECT_EQ(static_cast<Result>(older.Call(older.admin(), request).result), Result::kRefused);
}

TEST_F(LimitsTest, WhatAGroupKeepsIsKeptAboveIt) {
  tree_->folders = {"mete", "mete/a", "mete/b"};
  const auto above = [&] {
    Request request = TestNode::Make(MessageType::kGetLimits);
    std::strcpy(request.text, "mete");
    return node_.Call(node_.admin(), request).b;
  };
  ASSERT_EQ(Set(kLimit, 100), Result::kOk);
  ASSERT_EQ(Set(kLimit, 50, "mete/b"), Result::kOk);
  EXPECT_EQ(above(), 150u);
  ASSERT_EQ(Set(kLimit, 30), Result::kOk);
  EXPECT_EQ(above(), 80u);
}

TEST(CgroupFilesTest, MembersAreListedOrDescendFromAListedProcess) {
  const std::filesystem::path root = testing::TempDir() + "mete_cgroup_files";
  std::filesystem::remove_all(root);
  GpuInfo gpu = {};
  std::strcpy(gpu.pci_bus_id, "00000000:0A:00.0");
  gpu.memory_bytes = 1000;
  ASSERT_TRUE(MakeCgroupRoot(root.string(), {gpu}).ok());
  const std::filesystem::path tree = root / kCgroupFolder;
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(read(tree / "dmem.capacity"), "drm/0000:0a:00.0/vram0 1000\n");
  const auto files = OpenCgroups(root.string(), {gpu});
  std::filesystem::create_directories(tree / "mete/x");
  EXPECT_TRUE(files->Exists("mete/x"));
  EXPECT_FALSE(files->HasController("mete/x"));
  std::ofstream(tree / "cgroup.subtree_control") << "+dmem\n";
  EXPECT_FALSE(files->HasController("mete/x")) << "the level between does not hand it down";
  std::ofstream(tree / "mete/cgroup.subtree_control") << "+dmem\n";
  EXPECT_TRUE(files->HasController("mete/x"));
  EXPECT_FALSE(files->Exists("mete/../../.."));
  EXPECT_FALSE(files->Exists("/etc"));

  const auto self = static_cast<uint32_t>(getpid());
  EXPECT_EQ(files->GroupOf(self), "");
  std::ofstream(tree / "mete/x/cgroup.procs") << "nonsense";
  EXPECT_EQ(files->GroupOf(self), "");
  std::ofstream(tree / "mete/x/cgroup.procs") << "999999999\n" << self << "\n";
  EXPECT_EQ(files->GroupOf(self), "mete/x");
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(hold[1]);
    _exit(static_cast<int>(::read(hold[0], &byte, 1)));
  }
  EXPECT_EQ(files->GroupOf(static_cast<uint32_t>(child)), "mete/x") << "its parent is listed";
  close(hold[0]);
  close(hold[1]);
  waitpid(child, nullptr, 0);

  files->Show("mete/x", 0, {5, kNoMemoryLimit}, 7);
  EXPECT_EQ(read(tree / "mete/x/dmem.max"), "drm/0000:0a:00.0/vram0 max\n");
  EXPECT_EQ(read(tree / "mete/x/dmem.min"), "drm/0000:0a:00.0/vram0 5\n");
  EXPECT_EQ(read(tree / "mete/x/dmem.current"), "drm/0000:0a:00.0/vram0 7\n");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace mete::emulator
