// MIG at the engine: who may change what, what an instance keeps to itself, what ends it.
#include "emulator/engine/mig.h"

#include <gtest/gtest.h>

#include <cstring>

#include "emulator/engine/test_node.h"

namespace mete::emulator {
namespace {

constexpr uint32_t k1g = 19, k2g = 14, k3g = 9, k7g = 0;  // profiles of an A100-SXM4-40GB
constexpr uint64_t kMib = 1 << 20;

// A node with requests about MIG.
class MigNode : public TestNode {
 public:
  explicit MigNode(const std::string& gpus = "A100-SXM4-40GB", bool on = true) : TestNode(gpus) {
    if (on) SetMode(1);
  }

  Result Send(MessageType type, uint32_t gpu_instance, uint32_t value, uint64_t amount = 0,
              ReplyHeader* reply = nullptr, std::vector<uint8_t>* payload = nullptr, const Process* by = nullptr) {
    Request request = Make(type);
    request.context = gpu_instance;
    request.value = value;
    request.amount = amount;
    const ReplyHeader header = Call(by == nullptr ? admin() : *by, request, payload);
    if (reply != nullptr) *reply = header;
    return static_cast<Result>(header.result);
  }
  // What became of putting the mode in force.
  Result SetMode(uint32_t on) {
    ReplyHeader reply;
    EXPECT_EQ(Send(MessageType::kSetMigMode, 0, on, 0, &reply), Result::kOk);
    return static_cast<Result>(reply.a);
  }
  MigState Mig() {
    std::vector<uint8_t> payload;
    EXPECT_EQ(Send(MessageType::kMigState, 0, 0, 0, nullptr, &payload), Result::kOk);
    MigState state = {};
    EXPECT_EQ(payload.size(), sizeof(state));
    if (payload.size() == sizeof(state)) std::memcpy(&state, payload.data(), sizeof(state));
    return state;
  }
  MigGpuInstance MakeGpuInstance(uint32_t profile, uint64_t start = kAnyStart) {
    return Made<MigGpuInstance>(MessageType::kCreateGpuInstance, 0, profile, start);
  }
  MigComputeInstance MakeComputeInstance(uint32_t gpu_instance, uint32_t profile, uint64_t start = kAnyStart) {
    return Made<MigComputeInstance>(MessageType::kCreateComputeInstance, gpu_instance, profile, start);
  }
  // A GPU instance with one compute instance that fills it, and a process with a context and a stream on that.
  Process AddMigTenant(uint32_t pid, const MigComputeInstance& device) {
    Process process = AddProcess(pid, kOwner + 1);
    ReplyHeader reply;
    EXPECT_EQ(Send(MessageType::kCreateMigContext, device.gpu_instance, device.id, 0, &reply, nullptr, &process),
              Result::kOk);
    process.context = reply.a;
    Request request = Make(MessageType::kOpenStream);
    request.context = process.context;
    process.stream = static_cast<uint32_t>(Call(process, request).a);
    return process;
  }
  MigComputeInstance MakeDevice(uint32_t profile, uint32_t compute_profile, uint64_t start = kAnyStart) {
    return MakeComputeInstance(MakeGpuInstance(profile, start).id, compute_profile);
  }
  std::vector<ProcessInfo> Processes() {
    std::vector<uint8_t> payload;
    Call(admin(), Make(MessageType::kProcesses), &payload);
    std::vector<ProcessInfo> list(payload.size() / sizeof(ProcessInfo));
    std::memcpy(static_cast<void*>(list.data()), payload.data(), list.size() * sizeof(ProcessInfo));
    return list;
  }
  uint64_t FreeIn(uint32_t gpu_instance) {
    ReplyHeader reply;
    EXPECT_EQ(Send(MessageType::kMigMemory, gpu_instance, 0, 0, &reply), Result::kOk);
    return reply.a;
  }
  uint64_t ContextBytes() { return engine().settings().gpus[0].info.context_bytes; }

 private:
  template <typename T>
  T Made(MessageType type, uint32_t gpu_instance, uint32_t profile, uint64_t start) {
    std::vector<uint8_t> payload;
    EXPECT_EQ(Send(type, gpu_instance, profile, start, nullptr, &payload), Result::kOk);
    T made = {};
    EXPECT_EQ(payload.size(), sizeof(made));
    if (payload.size() == sizeof(made)) std::memcpy(&made, payload.data(), sizeof(made));
    return made;
  }
};

TEST(Mig, BoardsWithoutItSaySo) {
  MigNode node("T4", false);
  EXPECT_EQ(node.Mig().capable, 0u);
  EXPECT_EQ(node.Send(MessageType::kSetMigMode, 0, 1), Result::kNotSupported);
  EXPECT_EQ(node.Send(MessageType::kCreateGpuInstance, 0, k1g, kAnyStart), Result::kNotSupported);
  std::vector<uint8_t> payload;
  EXPECT_EQ(node.Send(MessageType::kMigProfiles, 0, 0, 0, nullptr, &payload), Result::kOk);
  EXPECT_TRUE(payload.empty());
}

TEST(Mig, ModeWaitsForAnIdleGpuAndAResetAppliesIt) {
  MigNode node("A100-SXM4-40GB", false);
  TestNode::Process tenant = node.AddTenant(2);
  EXPECT_EQ(node.SetMode(1), Result::kInUse);
  EXPECT_EQ(node.Mig().mode, 0u);
  EXPECT_EQ(node.Mig().pending, 1u);
  EXPECT_EQ(node.State().mig_pending, 1u);
  EXPECT_EQ(node.Reset(), Result::kInUse);
  node.End(tenant);
  EXPECT_EQ(node.Mig().mode, 0u);  // by itself nothing happens
  EXPECT_EQ(node.Reset(), Result::kOk);
  EXPECT_EQ(node.Mig().mode, 1u);
  EXPECT_EQ(node.SetMode(0), Result::kOk);  // idle: at once
  EXPECT_EQ(node.State().mig_mode, 0u);
}

TEST(Mig, ModeChangeTakesComputeModeAndAccountingAway) {
  MigNode node("A100-SXM4-40GB", false);
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kSetComputeMode, 0, 3), Result::kOk);
  const auto accounting = static_cast<uint32_t>(GpuSetting::kAccounting);
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kSet, 0, accounting, 1), Result::kOk);
  EXPECT_EQ(node.SetMode(1), Result::kOk);
  EXPECT_EQ(node.State().compute_mode, 0u);
  EXPECT_EQ(node.State().accounting_mode, 0u);
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kSetComputeMode, 0, 3), Result::kNotSupported);
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kSet, 0, accounting, 1), Result::kNotSupported);
}

TEST(Mig, OnlyTheOwnerChanges) {
  MigNode node;
  const MigComputeInstance device = node.MakeDevice(k1g, 0);
  const TestNode::Process other = node.AddProcess(9, TestNode::kOwner + 1);
  for (const MessageType type :
       {MessageType::kSetMigMode, MessageType::kCreateGpuInstance, MessageType::kCreateComputeInstance,
        MessageType::kDestroyGpuInstance, MessageType::kDestroyComputeInstance}) {
    EXPECT_EQ(node.Send(type, device.gpu_instance, 0, 0, nullptr, nullptr, &other), Result::kNotOwner);
  }
  EXPECT_EQ(node.Send(MessageType::kMigState, 0, 0, 0, nullptr, nullptr, &other), Result::kOk);
  EXPECT_EQ(node.Mig().compute_instances, 1u);
}

TEST(Mig, WithTheModeOnTheGpuItselfIsNoDevice) {
  MigNode node;
  const TestNode::Process process = node.AddProcess(2, TestNode::kOwner);
  EXPECT_EQ(node.Ask(process, MessageType::kCreateContext), Result::kNoSuchObject);
  EXPECT_EQ(node.Send(MessageType::kCreateMigContext, 7, 0, 0, nullptr, nullptr, &process), Result::kNoSuchObject);
}

TEST(Mig, APlacementIsChosenToLeaveRoom) {
  MigNode node;
  EXPECT_EQ(node.MakeGpuInstance(k1g).start, 6u);
  EXPECT_EQ(node.MakeGpuInstance(k2g).start, 4u);
  const MigGpuInstance last = node.MakeGpuInstance(5);  // 4g.20gb
  EXPECT_EQ(last.start, 0u);
  EXPECT_EQ(last.id, 1u);
  EXPECT_EQ(node.Send(MessageType::kCreateGpuInstance, 0, k1g, kAnyStart), Result::kInsufficient);  // 7 compute slices
  EXPECT_EQ(node.Send(MessageType::kCreateGpuInstance, 0, 77, kAnyStart), Result::kInvalid);
  EXPECT_EQ(node.Send(MessageType::kCreateGpuInstance, 0, k3g, 1), Result::kInvalid);
  EXPECT_EQ(node.Send(MessageType::kCreateGpuInstance, 0, k3g, 4), Result::kInsufficient);
}

TEST(Mig, RoomIsWhatCanStillBeMade) {
  MigNode node;
  const auto room = [&](uint32_t instance, uint32_t profile) {
    ReplyHeader reply;
    EXPECT_EQ(node.Send(MessageType::kMigRoom, instance, profile, 0, &reply), Result::kOk);
    return reply.a;
  };
  EXPECT_EQ(room(kNoInstance, k1g), 7u);
  const MigGpuInstance half = node.MakeGpuInstance(k3g, 4);
  EXPECT_EQ(room(kNoInstance, k1g), 4u);
  EXPECT_EQ(room(kNoInstance, k3g), 1u);
  EXPECT_EQ(room(kNoInstance, k7g), 0u);
  EXPECT_EQ(room(half.id, 0), 3u);  // 1c.3g.20gb
  node.MakeComputeInstance(half.id, 1);
  EXPECT_EQ(room(half.id, 0), 1u);
  EXPECT_EQ(room(half.id, 2), 0u);
  ReplyHeader reply;
  EXPECT_EQ(node.Send(MessageType::kMigRoom, half.id, 9, 0, &reply), Result::kInvalid);
}

TEST(Mig, ComputeInstancesTakeSlicesOfTheirGpuInstance) {
  MigNode node;
  const MigGpuInstance half = node.MakeGpuInstance(k3g, 0);
  const MigComputeInstance first = node.MakeComputeInstance(half.id, 0, 1);
  EXPECT_EQ(first.sm_count, 14u);
  EXPECT_EQ(first.id, 0u);
  EXPECT_EQ(node.Send(MessageType::kCreateComputeInstance, half.id, 1, 0), Result::kInsufficient);  // 2c at 0 overlaps
  const MigComputeInstance second = node.MakeComputeInstance(half.id, 0);
  EXPECT_EQ(second.start, 0u);
  EXPECT_EQ(second.id, 1u);
  EXPECT_NE(std::memcmp(first.uuid, second.uuid, sizeof(first.uuid)), 0);
  EXPECT_EQ(first.uuid[6] >> 4, 5);
  EXPECT_EQ(node.Send(MessageType::kDestroyGpuInstance, half.id, 0), Result::kInUse);
  EXPECT_EQ(node.Send(MessageType::kDestroyComputeInstance, half.id, 0), Result::kOk);
  EXPECT_EQ(node.Send(MessageType::kDestroyComputeInstance, half.id, 0), Result::kNoSuchObject);
  const MigComputeInstance again = node.MakeComputeInstance(half.id, 0, 1);
  EXPECT_EQ(std::memcmp(first.uuid, again.uuid, sizeof(first.uuid)), 0);
  EXPECT_NE(first.serial, again.serial);
}

TEST(Mig, MemoryIsTheInstancesAndItsProcessesAreNamed) {
  MigNode node;
  const MigComputeInstance small = node.MakeDevice(k1g, 0), large = node.MakeDevice(k3g, 2);
  TestNode::Process one = node.AddMigTenant(2, small), two = node.AddMigTenant(3, large);
  EXPECT_EQ(node.FreeIn(small.gpu_instance), 4864 * kMib - node.ContextBytes());
  EXPECT_EQ(node.Ask(one, MessageType::kReserveMemory, 0, 0, 4864 * kMib), Result::kOutOfMemory);
  EXPECT_EQ(node.Ask(one, MessageType::kReserveMemory, 0, 0, node.FreeIn(small.gpu_instance)), Result::kOk);
  EXPECT_EQ(node.FreeIn(small.gpu_instance), 0u);
  EXPECT_EQ(node.Ask(one, MessageType::kReserveMemory, 0, 0, 1), Result::kOutOfMemory);
  EXPECT_EQ(node.Ask(two, MessageType::kReserveMemory, 0, 0, 10'000 * kMib), Result::kOk);
  EXPECT_EQ(node.State().memory_used_bytes, 14'864 * kMib + node.ContextBytes());
  for (const ProcessInfo& process : node.Processes()) {
    const MigComputeInstance& device = process.pid == 2 ? small : large;
    EXPECT_EQ(process.gpu_instance, device.gpu_instance);
    EXPECT_EQ(process.compute_instance, device.id);
  }
  EXPECT_EQ(node.Send(MessageType::kDestroyComputeInstance, small.gpu_instance, small.id), Result::kInUse);
  node.End(one);
  EXPECT_EQ(node.FreeIn(small.gpu_instance), 4864 * kMib);
  EXPECT_EQ(node.Mig().gpu_instances, 2u);  // instances outlive their clients
  EXPECT_EQ(node.Send(MessageType::kDestroyComputeInstance, small.gpu_instance, small.id), Result::kOk);
  EXPECT_EQ(node.Send(MessageType::kDestroyGpuInstance, small.gpu_instance, 0), Result::kOk);
}

TEST(Mig, MemoryThatOutlivesItsContextKeepsItsInstance) {
  MigNode node;
  const MigComputeInstance device = node.MakeDevice(k1g, 0);
  TestNode::Process tenant = node.AddMigTenant(2, device);
  Request request = TestNode::Make(MessageType::kMakePhysical);
  request.context = tenant.context;
  request.amount = 64 * kMib;
  ASSERT_EQ(node.Call(tenant, request).result, 0);
  EXPECT_EQ(node.Ask(tenant, MessageType::kDestroyContext), Result::kOk);
  EXPECT_EQ(node.FreeIn(device.gpu_instance), 4800 * kMib);
  EXPECT_EQ(node.Processes().at(0).gpu_instance, device.gpu_instance);
  EXPECT_EQ(node.Send(MessageType::kDestroyComputeInstance, device.gpu_instance, device.id), Result::kInUse);
  EXPECT_EQ(node.Reset(), Result::kOk);  // no context: the reset ends the instance under it
  node.End(tenant);
  EXPECT_EQ(node.State().memory_used_bytes, 0u);
}

TEST(Mig, InstancesRunBesideEachOther) {
  MigNode node;
  const MigComputeInstance a = node.MakeDevice(k1g, 0), b = node.MakeDevice(k1g, 0);
  TestNode::Process one = node.AddMigTenant(2, a), two = node.AddMigTenant(3, b);
  const Work kernel = node.Kernel(1e6);  // a millisecond on the whole GPU
  node.Submit(one, kernel);
  node.Submit(two, kernel);
  node.Pass(7'000'000);
  EXPECT_EQ(one.Done(), 0u);
  node.Pass(2'000'000);  // 108 SMs to 14
  EXPECT_EQ(one.Done(), 1u);
  EXPECT_EQ(two.Done(), 1u);
}

TEST(Mig, AFaultStaysInItsInstanceUnlessItIsTheBoards) {
  MigNode node;
  const MigComputeInstance a = node.MakeDevice(k1g, 0), b = node.MakeDevice(k1g, 0);
  TestNode::Process faulty = node.AddMigTenant(2, a), beside = node.AddMigTenant(3, a), next = node.AddMigTenant(4, b);
  const auto busy = [&](TestNode::Process& process) { node.Submit(process, node.Kernel(1e9)); };
  busy(faulty), busy(beside), busy(next);
  node.Pass(kMs);
  EXPECT_EQ(node.Xid(31, 2), Result::kOk);
  EXPECT_EQ(faulty.Word(), ContextWord::kDead);
  EXPECT_EQ(beside.Word(), ContextWord::kAlive);
  EXPECT_EQ(node.Xid(44, 3), Result::kOk);  // of everybody busy on the engine: this instance's
  EXPECT_EQ(beside.Word(), ContextWord::kDead);
  EXPECT_EQ(next.Word(), ContextWord::kAlive);
  std::vector<uint8_t> payload;
  node.Call(node.admin(), TestNode::Make(MessageType::kEvents), &payload);
  EventInfo event;
  ASSERT_GE(payload.size(), sizeof(event));
  std::memcpy(&event, payload.data(), sizeof(event));
  EXPECT_EQ(event.gpu_instance, a.gpu_instance);
  EXPECT_EQ(node.Xid(95), Result::kOk);
  EXPECT_EQ(next.Word(), ContextWord::kDead);
}

TEST(Mig, AResetEndsInstancesAndADriversRestartTheModeOfNewerBoards) {
  for (const char* board : {"A100-SXM4-40GB", "H100-SXM5-80GB"}) {
    MigNode node(board);
    node.MakeDevice(k1g, 0);
    EXPECT_EQ(node.Reset(), Result::kOk);
    EXPECT_EQ(node.Mig().mode, 1u);
    EXPECT_EQ(node.Mig().gpu_instances, 0u);
    node.MakeDevice(k1g, 0);
    FaultSpec restart;
    restart.kind = FaultKind::kDriverRestart;
    EXPECT_EQ(node.Inject(restart), Result::kOk);
    EXPECT_EQ(node.Mig().mode, board[0] == 'A' ? 1u : 0u);
    EXPECT_EQ(node.Mig().gpu_instances, 0u);
  }
}

TEST(Mig, TimeSlicePoliciesDoNotReachInstances) {
  MigNode node;
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kSetTimeSlice, 0, 3), Result::kOk);
  const MigComputeInstance device = node.MakeDevice(k1g, 0);
  TestNode::Process one = node.AddMigTenant(2, device), two = node.AddMigTenant(3, device);
  node.Submit(one, node.Kernel(1e9));
  node.Submit(two, node.Kernel(1e9));
  node.Pass(100 * kMs);
  EXPECT_NEAR(static_cast<double>(node.engine().SwitchesOf(0)), 48, 2);  // every 2.048 ms
}

}  // namespace
}  // namespace mete::emulator
