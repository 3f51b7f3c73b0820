// What the engine is told of launches: their cost where memory steers them, how it was found, what reads were lost. And
// what a module's initial values and a kernel's fixed block shape mean.
#include <cstring>
#include <vector>

#include "emulator/cuda/module.h"
#include "emulator/cuda/test_driver.h"
#include "emulator/engine/launch_label.h"

namespace mete::emulator::cuda {
namespace {

constexpr char kCostText[] = R"(
.version 7.0
.target sm_70
.address_size 64
.global .align 8 .u64 words[2] = {7, 9};
.global .align 8 .u64 second = generic(words)+8;
.visible .entry set(.param .u64 p, .param .u32 n)
{
  .reg .b64 %rd1; .reg .b32 %r1;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; st.global.u32 [%rd1], %r1; ret;
}
.visible .entry turn(.param .u64 p)
{
  .reg .b64 %rd1; .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; mov.u32 %r2, 0; mov.u32 %r3, 1;
LOOP:
  mad.lo.u32 %r3, %r3, 3, 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1;
  @%p bra LOOP;
  ret;
}
.visible .entry whole() .reqntid 32, 2 { ret; }
)";

class LaunchCostTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(::cuModuleLoadData(&module, kCostText), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemAlloc_v2(&p, 4096), CUDA_SUCCESS);
    fake->TakePosted();
  }
  CUfunction Get(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(::cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
    return function;
  }
  std::vector<Work> Kernels() {
    std::vector<Work> kernels;
    for (const auto& posted : fake->TakePosted()) {
      if (posted.work.kind == WorkKind::kKernel) kernels.push_back(posted.work);
    }
    return kernels;
  }
  CUmodule module = nullptr;
  CUdeviceptr p = 0;
};

TEST_F(LaunchCostTest, ABoundThatAnEarlierKernelWroteIsLookedAtInEachLaunch) {
  const CUfunction set = Get("set"), turn = Get("turn");
  double issued[2];
  for (uint32_t n : {1'000'000u, 4'000'000u}) {
    void* one[] = {&p, &n};
    ASSERT_EQ(::cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, nullptr, one, nullptr), CUDA_SUCCESS);
    void* two[] = {&p};
    ASSERT_EQ(::cuLaunchKernel(turn, 1000, 1, 1, 256, 1, 1, 0, nullptr, two, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
    const std::vector<Work> kernels = Kernels();
    ASSERT_EQ(kernels.size(), 2u);
    EXPECT_EQ(kernels[0].bytes, kLabelExact);
    EXPECT_EQ(kernels[1].bytes, kLabelExtrapolated | kLabelTimedOnly);
    issued[n > 2'000'000] = kernels[1].kernel.warp_instructions[kAlu];
    // Eight warps, three integer instructions a turn.
    EXPECT_NEAR(kernels[1].kernel.warp_instructions[kAlu], 8.0 * 3 * n, 0.02 * 8 * 3 * n);
  }
  EXPECT_NEAR(issued[1] / issued[0], 4, 0.05);
}

TEST_F(LaunchCostTest, TheAddendOfAnInitialAddressCounts) {
  CUdeviceptr words = 0, second = 0, value = 0;
  size_t bytes = 0;
  ASSERT_EQ(::cuModuleGetGlobal_v2(&words, &bytes, module, "words"), CUDA_SUCCESS);
  ASSERT_EQ(::cuModuleGetGlobal_v2(&second, &bytes, module, "second"), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoH_v2(&value, second, 8), CUDA_SUCCESS);
  EXPECT_EQ(value, words + 8);
}

TEST_F(LaunchCostTest, ReadsOfDroppedContentAreTold) {
  fake->SetBacking(8 * kMiB);
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 32 * kMiB), CUDA_SUCCESS);
  std::vector<uint8_t> host(32 * kMiB, 0x5a);
  ASSERT_EQ(::cuMemcpyHtoD_v2(a, host.data(), host.size()), CUDA_SUCCESS);
  fake->TakePosted();
  const uint64_t before = Driver::Get()->content().counters().undefined_reads;
  ASSERT_EQ(::cuMemcpyDtoH_v2(host.data(), a, host.size()), CUDA_SUCCESS);
  const uint64_t reads = Driver::Get()->content().counters().undefined_reads - before;
  EXPECT_GT(reads, 0u);
  uint64_t told = 0;
  for (const auto& posted : fake->TakePosted()) {
    if (posted.work.kind != WorkKind::kWaitFor) told += posted.work.wait_sequence;
  }
  EXPECT_EQ(told, reads);
  EXPECT_EQ(::cuMemFree_v2(a), CUDA_SUCCESS);
  fake->SetBacking(256 * kMiB);
}

TEST_F(LaunchCostTest, ARequiredBlockIsRequired) {
  const CUfunction whole = Get("whole");
  EXPECT_EQ(::cuLaunchKernel(whole, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuLaunchKernel(whole, 1, 1, 1, 32, 2, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace mete::emulator::cuda
