// What a launch is said to cost: samples, counted loops, keys.
#include <gtest/gtest.h>

#include <string>

#include "emulator/ptx/test_fixture.h"
#include "tests/sanitized.h"

namespace mete::emulator::ptx {
namespace {

double Issued(const Outcome& out) {
  double sum = 0;
  for (const double n : out.cost.warp_instructions) sum += n;
  return sum;
}

// Runs the body once whole and once as a sample in which counted loops are extrapolated; their costs must agree.
void ExpectSameCost(const std::string& body, double tolerance, const std::string& declarations = "") {
  SCOPED_TRACE(body);
  Outcome outcomes[2];
  for (int sampled = 0; sampled < 2; ++sampled) {
    Fixture f(OverArray(body, "", declarations));
    const uint64_t p = f.memory.Put(Iota(4 * 64));
    Budget budget;
    budget.whole_instructions = sampled != 0 ? 100'000 : 1'000'000'000;
    budget.sample_instructions = 100'000;
    budget.warp_limit = sampled != 0 ? 400'000 : 1'000'000'000;
    outcomes[sampled] = f.Go(Parameters().Add(p), 4, 64, budget);
  }
  EXPECT_EQ(outcomes[0].fidelity, Fidelity::kExact);
  EXPECT_EQ(outcomes[1].fidelity, Fidelity::kExtrapolated);
  EXPECT_EQ(outcomes[1].fault, FaultKind::kNone) << outcomes[1].fault_detail;
  for (uint32_t i = 0; i < kInstructionClasses; ++i) {
    EXPECT_NEAR(outcomes[1].cost.warp_instructions[i], outcomes[0].cost.warp_instructions[i],
                tolerance * outcomes[0].cost.warp_instructions[i] + 1)
        << i;
  }
  EXPECT_NEAR(outcomes[1].cost.critical_cycles / outcomes[0].cost.critical_cycles, 1, tolerance);
  EXPECT_NEAR(outcomes[1].cost.memory_bytes, outcomes[0].cost.memory_bytes,
              tolerance * outcomes[0].cost.memory_bytes + 32);
}

// A sanitizer makes an instruction five times as long; the sample is far shorter than any of these all the same.
constexpr int kTurns = mete::testing::kSanitized ? 10'000 : 50'000;
std::string Turns(int times, int over = 1) { return std::to_string(kTurns * times / over); }

TEST(Cost, CountedLoopsOfEveryForm) {
  const std::string work = "mad.lo.u32 %x, %x, 3, 1; xor.b32 %x, %x, %r2;";
  // Counted up and down, signed and not, tested below and above, with a copy of the counter, by other steps than one.
  ExpectSameCost(
      "mov.u32 %r3, 0;\nL: " + work + " add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, " + Turns(1) + "; @%p0 bra L;",
      0.01);
  ExpectSameCost(
      "mov.u32 %r3, " + Turns(1) + ";\nL: " + work + " add.s32 %r3, %r3, -1; setp.ne.s32 %p0, %r3, 0; @%p0 bra L;",
      0.01);
  ExpectSameCost("mov.u32 %r3, -" + Turns(2, 5) + ";\nL: setp.ge.s32 %p0, %r3, " + Turns(3, 5) + "; @%p0 bra E; " +
                     work + " add.s32 %r3, %r3, 1; bra.uni L;\nE:",
                 0.01);
  ExpectSameCost("mov.u32 %r3, 0;\nL: " + work + " add.u32 %r4, %r3, 7; mov.u32 %r3, %r4; setp.gt.u32 %p0, " +
                     Turns(7) + ", %r4; @%p0 bra L;",
                 0.01);
  ExpectSameCost(
      "mov.u64 %rd1, " + Turns(8) + ";\nL: " + work + " sub.s64 %rd1, %rd1, 8; setp.le.s64 %p0, %rd1, 0; @!%p0 bra L;",
      0.01);
  // A stride that is a register, and lanes that begin apart.
  ExpectSameCost(
      "mov.u32 %r3, %r2;\nL: " + work + " add.u32 %r3, %r3, %r1; setp.lt.u32 %p0, %r3, " + Turns(60) + "; @%p0 bra L;",
      0.01);
  // One loop in another, and turns that differ.
  ExpectSameCost("mov.u32 %r3, 0;\nL: mov.u32 %r5, 0;\nM: " + work +
                     " add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 100; @%p1 bra M;\n"
                     "add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, " +
                     Turns(1, 100) + "; @%p0 bra L;",
                 0.02);
  ExpectSameCost("mov.u32 %r3, 0;\nL: and.b32 %r6, %r3, 3; setp.eq.u32 %p1, %r6, 0; @%p1 bra S;\n" + work +
                     "\nS: add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, " + Turns(1) + "; @%p0 bra L;",
                 0.02);
}

TEST(Cost, ALoopWithMemoryAndBarriers) {
  ExpectSameCost(
      "mov.u32 %r3, 0; mov.u64 %rd1, %at; shl.b32 %r8, %r2, 2;\nL: ld.global.u32 %r4, [%rd1]; "
      "st.shared.u32 [room], %r4; bar.sync 0; ld.shared.u32 %r5, [room]; add.u32 %x, %x, %r5; bar.sync 0; "
      "add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 20000; @%p0 bra L;",
      0.02, ".shared .u32 room;\n");
}

TEST(Cost, ASpinOnTheClock) {
  ExpectSameCost(
      "mov.u64 %rd1, %clock64; add.u64 %rd1, %rd1, 2000000;\nS: mov.u64 %rd2, %clock64; setp.lt.u64 %p0, %rd2, "
      "%rd1; @%p0 bra S;",
      0.2);
}

TEST(Cost, PointersThatALoopAdvancesArriveWhereItEnds) {
  // 64 KiB in steps of four: beyond it the load would fault.
  Fixture f(
      OverArray("mov.u32 %r3, 0; mov.u64 %rd1, %base;\nL: ld.global.u32 %r4, [%rd1]; add.u32 %x, %x, %r4; "
                "add.u64 %rd1, %rd1, 4; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 16384; @%p0 bra L;\n"
                "sub.u64 %rd2, %rd1, %base; cvt.u32.u64 %x, %rd2;"));
  const uint64_t p = f.memory.Put(Iota(16384));
  Budget budget;
  budget.whole_instructions = 100'000;
  budget.sample_instructions = 50'000;
  const Outcome out = f.Go(Parameters().Add(p), 4, 32, budget);
  EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  EXPECT_EQ(out.fidelity, Fidelity::kExtrapolated);
  EXPECT_EQ(f.memory.Get<uint32_t>(p)[0], 65536u);
  EXPECT_NEAR(out.cost.warp_instructions[kLoadStore], 16384 + 3, 20);
  EXPECT_GT(out.cost.working_set_bytes, 30'000);  // lines are counted whole
  EXPECT_LT(out.cost.working_set_bytes, 130'000);
}

TEST(Cost, AFaultBehindSkippedTurnsProvesNothing) {
  // The sum that a whole run would have is not there after a sample's loop: a trap on it is not the program's.
  Fixture f(
      OverArray("mov.u32 %r3, 0; mov.u32 %r4, 0;\nL: xor.b32 %r4, %r4, %r3; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, "
                "1000000; @%p0 bra L;\nsetp.ne.u32 %p1, %r4, 0; @%p1 trap;"));
  Budget budget;
  budget.whole_instructions = 100'000;
  const Outcome out = f.Go(Parameters().Add(f.memory.Put(Iota(64))), 2, 32, budget);
  EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  EXPECT_EQ(out.fidelity, Fidelity::kExtrapolated);
}

TEST(Cost, ATrillionTurnsHaveABoundAndWhileTrueHasNone) {
  Budget budget;
  budget.whole_instructions = 1'000'000;
  budget.sample_instructions = 100'000;
  budget.warp_limit = 5'000'000;
  Fixture counted(
      OverArray("mov.u64 %rd1, 0;\nL: mad.lo.u32 %x, %x, 3, 1; add.u64 %rd1, %rd1, 1; setp.lt.u64 %p0, %rd1, "
                "1000000000000; @%p0 bra L;"));
  Outcome out = counted.Go(Parameters().Add(counted.memory.Put(Iota(32))), 1, 32, budget);
  EXPECT_EQ(out.fidelity, Fidelity::kExtrapolated);
  EXPECT_GT(out.cost.critical_cycles, Issued(out));
  EXPECT_LT(out.cost.critical_cycles, 5 * Issued(out));
  EXPECT_NEAR(Issued(out), 4e12, 4e10);
  for (const char* endless :
       {"L: bra L;", "L: bar.sync 0; bra L;", "L: add.u32 %x, %x, 1; setp.ne.u32 %p0, %r1, 0; @%p0 bra L;",
        "L: ld.volatile.global.u32 %r3, [%at]; setp.ne.u32 %p0, %r3, 12345; @%p0 bra L;"}) {
    Fixture f(OverArray(endless));
    out = f.Go(Parameters().Add(f.memory.Put(Iota(64))), 1, 64, budget);
    EXPECT_EQ(out.fidelity, Fidelity::kUnbounded) << endless;
    EXPECT_EQ(out.cost.unbounded, 1u);
  }
}

TEST(Cost, MemorySteersOnlyWhatItSteers) {
  const auto steered = [](const std::string& body) {
    Fixture f(OverArray(body));
    return f.function != nullptr && f.function->steered_by_memory;
  };
  EXPECT_FALSE(steered("add.u32 %x, %x, 1;"));
  EXPECT_FALSE(steered("setp.gt.u32 %p0, %x, 5; @%p0 bra S; add.u32 %x, %x, 1;\nS:"));  // no loop
  EXPECT_FALSE(steered("mov.u32 %r3, 0;\nL: add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, %r1; @%p0 bra L;"));
  EXPECT_TRUE(steered("mov.u32 %r3, 0;\nL: add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, %x; @%p0 bra L;"));
  EXPECT_TRUE(steered("L: shr.u32 %x, %x, 1; setp.eq.u32 %p0, %x, 0; @%p0 bra E; bra L;\nE:"));
  EXPECT_TRUE(steered("L: shr.u32 %x, %x, 1; setp.eq.u32 %p0, %x, 0; not.pred %p1, %p0; @!%p1 ret; bra L;"));
}

TEST(Cost, ASampleExtrapolatesToTheWholeGrid) {
  const std::string text = OverArray(R"(
  mov.u32 %r3, 0; cvt.rn.f32.u32 %f1, %x;
LOOP:
  fma.rn.f32 %f1, %f1, 0f3F800001, 0f3F000000; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 100;
  @%p0 bra LOOP;
  mov.b32 %x, %f1;)");
  const auto cost = [&](const Budget& budget, Outcome* out) {
    Fixture f(text);
    const uint64_t p = f.memory.Put(Iota(64 * 512));
    *out = f.Go(Parameters().Add(p), 512, 64, budget);
  };
  Outcome whole, sample, warps;
  cost(Budget(), &whole);
  Budget small;
  small.whole_instructions = 1'000'000;
  small.sample_instructions = 200'000;
  cost(small, &sample);
  small.sample_instructions = 1'000;  // less than a block: single warps
  cost(small, &warps);
  EXPECT_EQ(whole.fidelity, Fidelity::kExact);
  EXPECT_TRUE(whole.effect);
  for (const Outcome* out : {&sample, &warps}) {
    EXPECT_EQ(out->fidelity, Fidelity::kExtrapolated);
    EXPECT_FALSE(out->effect);
    EXPECT_EQ(out->cost.blocks, 512u);
    for (uint32_t i = 0; i < kInstructionClasses; ++i)
      EXPECT_NEAR(out->cost.warp_instructions[i], whole.cost.warp_instructions[i], 1e-6) << i;
    EXPECT_NEAR(out->cost.memory_bytes, whole.cost.memory_bytes, 1);
    EXPECT_NEAR(out->cost.critical_cycles, whole.cost.critical_cycles, whole.cost.critical_cycles * 0.05);
    EXPECT_NEAR(out->cost.working_set_bytes, whole.cost.working_set_bytes, whole.cost.working_set_bytes * 0.05);
  }
  EXPECT_EQ(whole.cost.warp_instructions[kFp32], 200);  // two warps of a hundred
}

TEST(Cost, WarpsStandForABlockThatIsTooLong) {
  Fixture f(OverArray(R"(
  mov.u32 %r3, 0; cvt.rn.f32.u32 %f1, %x;
LOOP:
  fma.rn.f32 %f1, %f1, 0f3F800001, 0f3F000000; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 20000;
  @%p0 bra LOOP;
  mov.b32 %x, %f1;)"));
  const uint64_t p = f.memory.Put(Iota(256 * 100));
  const Outcome out = f.Go(Parameters().Add(p), 100, 256);
  EXPECT_EQ(out.fidelity, Fidelity::kExtrapolated);
  EXPECT_FALSE(out.effect);
  EXPECT_NEAR(out.cost.warp_instructions[kFp32], 8 * 20'000, 1e-3);
  EXPECT_NEAR(out.cost.warp_instructions[kControl], 8 * 20'001, 1e-3);
  EXPECT_GT(out.cost.critical_cycles, 20'000 * 4);
}

TEST(Cost, AFaultInASampleCounts) {
  Fixture f(OverArray("mov.u64 %at, 16;"));
  const uint64_t p = f.memory.Put(Iota(64 * 512));
  Budget small;
  small.whole_instructions = 1'000;
  const Outcome out = f.Go(Parameters().Add(p), 512, 64, small);
  EXPECT_EQ(out.fault, FaultKind::kIllegalAddress);
  EXPECT_EQ(out.fault_address, 16u);
}

TEST(Cost, TheKeyLeavesOutAddresses) {
  Fixture f(R"(
.visible .entry k(.param .u64 from, .param .u64 to, .param .u64 count, .param .u32 n) {
  .reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; ld.param.u64 %rd3, [count]; ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd4, %rd1; mov.u32 %r2, %tid.x; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd4, %rd5; add.s64 %rd7, %rd2, %rd5;
  setp.gt.u64 %p, %rd3, 5;
  @%p bra DONE;
  ld.global.u32 %r3, [%rd6]; st.global.u32 [%rd7], %r3;
DONE:
  ret;
})");
  ASSERT_NE(f.function, nullptr);
  EXPECT_TRUE(f.function->parameters[0].address_only);
  EXPECT_TRUE(f.function->parameters[1].address_only);
  EXPECT_FALSE(f.function->parameters[2].address_only);
  EXPECT_FALSE(f.function->parameters[3].address_only);
  const auto key = [&](uint64_t from, uint64_t to, uint64_t count, uint32_t n, uint32_t grid) {
    const Parameters parameters = Parameters().Add(from).Add(to).Add(count).Add(n);
    Launch launch;
    launch.grid[0] = grid;
    launch.parameters = parameters.data();
    return CostKey(*f.function, launch);
  };
  const std::string first = key(1, 2, 3, 4, 5);
  EXPECT_EQ(first, key(10, 20, 3, 4, 5));
  EXPECT_NE(first, key(1, 2, 30, 4, 5));
  EXPECT_NE(first, key(1, 2, 3, 40, 5));
  EXPECT_NE(first, key(1, 2, 3, 4, 50));
}

}  // namespace
}  // namespace mete::emulator::ptx
