// Parts of a GPU that work side by side: what instances and partitions keep apart, and what they share.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "emulator/engine/model.h"

namespace mete::emulator {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr InstanceShape kSlice = {1.0 / 8, 1};
constexpr uint32_t kSliceSms = 14;

Work ComputeKernel() {
  Work work;
  work.kind = WorkKind::kKernel;
  work.kernel.blocks = 500;
  work.kernel.threads_per_block = 256;
  work.kernel.warp_instructions[kFp32] = 40'000;
  work.kernel.memory_bytes = 64 << 10;
  work.kernel.working_set_bytes = 500.0 * (64 << 10);
  return work;
}

// Reads memory, and hardly executes anything.
Work HogKernel() {
  Work work = ComputeKernel();
  work.kernel.warp_instructions[kFp32] = 10;
  work.kernel.memory_bytes = 16 << 20;
  work.kernel.working_set_bytes = 500.0 * (16 << 20);
  return work;
}

Work HostCopy(WorkKind kind) {
  Work work;
  work.kind = kind;
  work.bytes = 1'000'000'000;
  return work;
}

// A GPU with the parts that a test makes, and programs that repeat one kind of work on one of them.
class Parts {
 public:
  void Program(PartitionId partition, const Work& work) {
    const ContextId context = gpu.AddContext(0, partition);
    const StreamId stream = gpu.AddStream(context);
    programs_.push_back({context, stream, work});
    gpu.Submit(0, stream, work);
    gpu.Submit(0, stream, work);
  }
  // Pieces of work that each program has ended within the time.
  std::vector<uint64_t> Run(uint64_t ns) {
    std::map<StreamId, uint64_t> done;
    gpu.AdvanceTo(ns, [&](const Completion& one) {
      ++done[one.stream];
      for (const Repeated& program : programs_) {
        if (program.stream == one.stream) gpu.Submit(one.at_ns, program.stream, program.work);
      }
    });
    std::vector<uint64_t> counts;
    for (const Repeated& program : programs_) counts.push_back(done[program.stream]);
    return counts;
  }
  GpuModel gpu{GpuParameters{}};

 private:
  struct Repeated {
    ContextId context;
    StreamId stream;
    Work work;
  };
  std::vector<Repeated> programs_;
};

TEST(ModelInstances, AHogNextDoorChangesNothing) {
  Parts alone;
  alone.Program(alone.gpu.AddPartition(alone.gpu.AddInstance(kSlice), kSliceSms), ComputeKernel());
  const uint64_t before = alone.Run(kSecondNs)[0];
  ASSERT_GT(before, 100u);

  Parts beside;
  beside.Program(beside.gpu.AddPartition(beside.gpu.AddInstance(kSlice), kSliceSms), ComputeKernel());
  beside.Program(beside.gpu.AddPartition(beside.gpu.AddInstance({0.5, 3}), 42), HogKernel());
  const std::vector<uint64_t> both = beside.Run(kSecondNs);
  EXPECT_NEAR(static_cast<double>(both[0]), static_cast<double>(before), 1);
  EXPECT_GT(both[1], 10u);
}

TEST(ModelInstances, PartitionsOfOneInstanceShareItsMemoryButNotTheirSms) {
  const auto run = [](const Work& first, const Work* neighbour) {
    Parts parts;
    const InstanceId instance = parts.gpu.AddInstance({0.5, 3});
    parts.Program(parts.gpu.AddPartition(instance, 14), first);
    if (neighbour != nullptr) parts.Program(parts.gpu.AddPartition(instance, 28), *neighbour);
    return static_cast<double>(parts.Run(kSecondNs)[0]);
  };
  Work compute = ComputeKernel();
  compute.kernel.memory_bytes = compute.kernel.working_set_bytes = 0;
  const Work hog = HogKernel();
  EXPECT_NEAR(run(compute, &hog), run(compute, nullptr), 1);
  EXPECT_NEAR(run(hog, &compute), run(hog, nullptr), 1);
  EXPECT_NEAR(run(hog, &hog) / run(hog, nullptr), 0.5, 0.05);
}

TEST(ModelInstances, SpeedFollowsSmsAndBandwidth) {
  const auto run = [](double memory_part, uint32_t sms, const Work& work) {
    Parts parts;
    parts.Program(parts.gpu.AddPartition(parts.gpu.AddInstance({memory_part, 3}), sms), work);
    return static_cast<double>(parts.Run(kSecondNs)[0]);
  };
  Work compute = ComputeKernel();
  compute.kernel.blocks = 4 * 8 * 14 * 3;  // whole waves on 14 SMs, 28 and 42
  compute.kernel.memory_bytes = compute.kernel.working_set_bytes = 0;
  EXPECT_NEAR(run(0.25, 28, compute) / run(0.125, 14, compute), 2, 0.05);
  EXPECT_NEAR(run(0.5, 42, compute) / run(0.125, 14, compute), 3, 0.1);
  EXPECT_NEAR(run(0.5, 42, HogKernel()) / run(0.125, 14, HogKernel()), 4, 0.1);
}

TEST(ModelInstances, TheWayToTheHostIsShared) {
  Parts parts;
  parts.Program(parts.gpu.AddPartition(parts.gpu.AddInstance(kSlice), 14), HostCopy(WorkKind::kCopyHostToDevice));
  parts.Program(parts.gpu.AddPartition(parts.gpu.AddInstance(kSlice), 14), HostCopy(WorkKind::kCopyHostToDevice));
  const std::vector<uint64_t> both = parts.Run(kSecondNs);  // 25 GB/s
  EXPECT_NEAR(static_cast<double>(both[0]), 12, 1);
  EXPECT_NEAR(static_cast<double>(both[1]), 12, 1);
}

TEST(ModelInstances, OneCopyEngineServesBothDirections) {
  for (const uint32_t engines : {1u, 2u}) {
    Parts parts;
    const PartitionId partition = parts.gpu.AddPartition(parts.gpu.AddInstance({0.25, engines}), 14);
    parts.Program(partition, HostCopy(WorkKind::kCopyHostToDevice));
    parts.Program(partition, HostCopy(WorkKind::kCopyDeviceToHost));
    const std::vector<uint64_t> both = parts.Run(kSecondNs);
    EXPECT_NEAR(static_cast<double>(both[0]), engines == 1 ? 12 : 24, 1);
    EXPECT_NEAR(static_cast<double>(both[1]), engines == 1 ? 12 : 24, 1);
  }
}

TEST(ModelInstances, ContextsOfAPartitionTakeTurns) {
  Parts parts;
  const PartitionId partition = parts.gpu.AddPartition(parts.gpu.AddInstance(kSlice), kSliceSms);
  parts.Program(partition, ComputeKernel());
  parts.Program(partition, ComputeKernel());
  const std::vector<uint64_t> both = parts.Run(kSecondNs);
  EXPECT_NEAR(static_cast<double>(both[0]), static_cast<double>(both[1]), 3);
  EXPECT_GT(parts.gpu.Counters().switches, 100u);
}

TEST(ModelInstances, WhatIsRemovedGoesWithItsLastContext) {
  Parts parts;
  const InstanceId instance = parts.gpu.AddInstance(kSlice);
  const PartitionId partition = parts.gpu.AddPartition(instance, kSliceSms);
  const ContextId context = parts.gpu.AddContext(0, partition);
  parts.gpu.RemoveInstance(instance);
  EXPECT_EQ(parts.gpu.AddContext(0, partition), 0u);
  EXPECT_EQ(parts.gpu.AddPartition(instance, 1), 0u);
  const StreamId stream = parts.gpu.AddStream(context);
  parts.gpu.Submit(0, stream, ComputeKernel());
  uint64_t ended = 0;
  parts.gpu.AdvanceTo(kSecondNs, [&](const Completion&) { ++ended; });
  EXPECT_EQ(ended, 1u);
  parts.gpu.RemoveContext(2 * kSecondNs, context);  // later: the partition is still there until then
  parts.gpu.AdvanceTo(3 * kSecondNs, [](const Completion&) {});
  EXPECT_EQ(parts.gpu.ActiveContext(partition), 0u);
  EXPECT_NE(parts.gpu.AddContext(0), 0u);  // the whole GPU is always there
}

}  // namespace
}  // namespace mete::emulator
