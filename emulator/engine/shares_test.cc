#include "emulator/engine/shares.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace mete::emulator {
namespace {

using ::testing::DoubleNear;

TEST(Occupancy, IsTheScarcestOfThreadsRegistersSharedMemoryAndSlots) {
  const GpuParameters gpu;
  KernelCost kernel;
  kernel.threads_per_block = 32;
  EXPECT_EQ(ResidentBlocksPerSm(gpu, kernel), 32u);  // block slots
  kernel.threads_per_block = 256;
  EXPECT_EQ(ResidentBlocksPerSm(gpu, kernel), 8u);  // threads
  kernel.registers_per_thread = 64;
  EXPECT_EQ(ResidentBlocksPerSm(gpu, kernel), 4u);  // registers
  kernel.shared_bytes_per_block = 100'000;
  EXPECT_EQ(ResidentBlocksPerSm(gpu, kernel), 1u);  // shared memory
}

TEST(WaterFill, GivesWhatOneLeavesToTheOthers) {
  std::vector<Demand> demands = {{1, 10}, {1, 100}, {2, 100}};
  WaterFill(100, demands);
  EXPECT_DOUBLE_EQ(demands[0].share, 10);
  EXPECT_DOUBLE_EQ(demands[1].share, 30);
  EXPECT_DOUBLE_EQ(demands[2].share, 60);
}

TEST(WaterFill, NeverExceedsDemandOrCapacity) {
  std::vector<Demand> demands = {{1, 1}, {5, 2}, {1, 0}};
  WaterFill(100, demands);
  EXPECT_DOUBLE_EQ(demands[0].share, 1);
  EXPECT_DOUBLE_EQ(demands[1].share, 2);
  EXPECT_DOUBLE_EQ(demands[2].share, 0);
}

KernelCost Streaming() {  // each byte once, far more of them than the L2 holds
  KernelCost kernel;
  kernel.blocks = 864;
  kernel.threads_per_block = 256;
  kernel.memory_bytes = 1 << 20;
  kernel.working_set_bytes = 864.0 * (1 << 20);
  return kernel;
}

TEST(ShareOut, StreamingKernelRunsAtTheBandwidthOfTheDram) {
  const GpuParameters gpu;
  const KernelCost cost = Streaming();
  std::vector<KernelLoad> kernels = {{&cost, IssueCycles(gpu, cost), 864}};
  std::vector<CopyLoad> copies;
  ShareOut(gpu, kernels, copies);
  EXPECT_THAT(kernels[0].dram_rate, DoubleNear(gpu.memory_bytes_per_s * 1e-9, 1e-6));
}

TEST(ShareOut, WarmSetThatFitsNeedsNoDram) {
  const GpuParameters gpu;
  KernelCost cost = Streaming();
  cost.working_set_bytes = 1 << 20;
  std::vector<KernelLoad> kernels = {{&cost, IssueCycles(gpu, cost), 864}};
  std::vector<CopyLoad> copies;
  ShareOut(gpu, kernels, copies);
  EXPECT_EQ(kernels[0].dram_rate, 0);
  const double warm = kernels[0].rate;
  kernels[0].cold = true;
  ShareOut(gpu, kernels, copies);
  EXPECT_GT(kernels[0].dram_rate, 0);
  EXPECT_LT(kernels[0].rate, warm);
}

TEST(ShareOut, TwoSetsThatFitOnlyAloneDisturbEachOther) {
  const GpuParameters gpu;
  KernelCost cost = Streaming();
  cost.working_set_bytes = 30.0 * (1 << 20);  // of 40 MiB; traffic 864 MiB, so mostly reuse
  std::vector<KernelLoad> kernels = {{&cost, IssueCycles(gpu, cost), 432}};
  std::vector<CopyLoad> copies;
  ShareOut(gpu, kernels, copies);
  EXPECT_EQ(kernels[0].dram_rate, 0);
  kernels.push_back(kernels[0]);
  ShareOut(gpu, kernels, copies);
  EXPECT_GT(kernels[0].dram_rate, 0);
}

TEST(ShareOut, BandwidthBoundKernelLeavesIssueSlotsToAComputeBoundOne) {
  const GpuParameters gpu;
  const KernelCost streaming = Streaming();
  KernelCost compute;
  compute.blocks = 432;
  compute.threads_per_block = 256;
  compute.warp_instructions[kFp32] = 1e6;
  std::vector<KernelLoad> both = {{&streaming, IssueCycles(gpu, streaming), 432},
                                  {&compute, IssueCycles(gpu, compute), 432}};
  std::vector<KernelLoad> alone = {both[1]};
  std::vector<CopyLoad> copies;
  ShareOut(gpu, alone, copies);
  ShareOut(gpu, both, copies);
  EXPECT_GT(both[1].rate, 0.8 * alone[0].rate);
  EXPECT_GT(both[0].dram_rate, 0.9 * gpu.memory_bytes_per_s * 1e-9);
}

TEST(Sanitized, ClampsWhatAStrangerWrote) {
  Work work;
  work.kind = static_cast<WorkKind>(99);
  work.kernel.blocks = 0;
  work.kernel.threads_per_block = 1u << 31;
  work.kernel.memory_bytes = std::numeric_limits<double>::quiet_NaN();
  work.kernel.critical_cycles = -1;
  work.kernel.warp_instructions[0] = std::numeric_limits<double>::infinity();
  const Work clean = Sanitized(work);
  EXPECT_EQ(clean.kind, WorkKind::kMarker);
  EXPECT_EQ(clean.kernel.blocks, 1u);
  EXPECT_EQ(clean.kernel.threads_per_block, 1024u);
  EXPECT_EQ(clean.kernel.memory_bytes, 0);
  EXPECT_EQ(clean.kernel.critical_cycles, 0);
  EXPECT_EQ(clean.kernel.warp_instructions[0], 0);
}

}  // namespace
}  // namespace mete::emulator
