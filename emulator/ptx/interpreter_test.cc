#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "emulator/ptx/ptx.h"
#include "emulator/ptx/test_memory.h"

namespace mete::emulator::ptx {
namespace {

const char kHead[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

struct Fixture {
  Module module;
  Error error;
  TestMemory memory;
  const Function* function = nullptr;

  explicit Fixture(const std::string& text) {
    const bool good = Parse(kHead + text, 90, &module, &error);
    EXPECT_TRUE(good) << error.line << ":" << error.column << ": " << error.message;
    if (!good) return;
    PlaceGlobals(&module, &memory);
    function = module.FindEntry("k");
    EXPECT_NE(function, nullptr);
  }
  Outcome Go(const Parameters& parameters, uint32_t grid, uint32_t block, Budget budget = Budget(),
             uint32_t dynamic_shared = 0) {
    Launch launch;
    launch.grid[0] = grid;
    launch.block[0] = block;
    launch.dynamic_shared_bytes = dynamic_shared;
    launch.parameters = parameters.data();
    if (function == nullptr) return Outcome();
    return Run(module, *function, launch, memory, budget, nullptr);
  }
};

TEST(Interpreter, AddsVectorsWithATail) {
  Fixture f(R"(
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd4, %r5, 4;
  add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
DONE:
  ret;
})");
  const uint32_t n = 1000;
  std::vector<float> a(n), b(n);
  for (uint32_t i = 0; i < n; ++i) a[i] = static_cast<float>(i), b[i] = 0.5f * static_cast<float>(i);
  const uint64_t pa = f.memory.Put(a), pb = f.memory.Put(b), pc = f.memory.Put(std::vector<float>(n));
  const Outcome out = f.Go(Parameters().Add(pa).Add(pb).Add(pc).Add(n), 4, 256);
  EXPECT_TRUE(out.effect);
  EXPECT_EQ(out.fidelity, Fidelity::kExact);
  EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  const std::vector<float> c = f.memory.Get<float>(pc);
  for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(c[i], 1.5f * static_cast<float>(i));
  EXPECT_EQ(out.cost.blocks, 4u);
  EXPECT_EQ(out.cost.threads_per_block, 256u);
  // 1000 threads touch three arrays of 4000 bytes.
  EXPECT_NEAR(out.cost.working_set_bytes, 12000, 3 * 128);
  EXPECT_NEAR(out.cost.memory_bytes * 4, 12000, 3 * 32);
  EXPECT_EQ(out.cost.warp_instructions[kFp32], 8.0);
  EXPECT_GT(out.cost.critical_cycles, 400);
  EXPECT_LT(out.cost.critical_cycles, 1000);
}

}  // namespace
}  // namespace mete::emulator::ptx
