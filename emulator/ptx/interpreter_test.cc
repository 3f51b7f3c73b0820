#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "emulator/ptx/test_fixture.h"

namespace mete::emulator::ptx {
namespace {

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

TEST(Interpreter, LanesDivergeAndMeetAgain) {
  // Odd lanes loop x times, even lanes take the other side; the vote behind both sides sees all 32 lanes.
  const auto d = RunOverArray(OverArray(R"(
  mov.u32 %r3, 0; and.b32 %r4, %x, 1; setp.eq.u32 %p0, %r4, 0;
  @%p0 bra EVEN;
  mov.u32 %r5, 0;
LOOP:
  add.u32 %r3, %r3, %r5; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %x;
  @%p1 bra LOOP;
  bra.uni JOIN;
EVEN:
  mul.lo.u32 %r3, %x, 1000;
JOIN:
  activemask.b32 %r6; popc.b32 %r7, %r6; mad.lo.u32 %x, %r7, 1000000, %r3;)"),
                              Iota(64), 64);
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(d[i], 32'000'000 + (i % 2 == 0 ? i * 1000 : i * (i - 1) / 2)) << i;
  }
}

TEST(Interpreter, ALockBetweenLanesOfAWarpIsFreed) {
  // Every lane takes one spin lock in turn: the holder must get its turn although others spin at a lower pc.
  const std::string text = OverArray(R"(
SPIN:
  atom.global.cas.b32 %r3, [lock], 0, 1; setp.ne.u32 %p0, %r3, 0;
  @%p0 bra SPIN;
  ld.volatile.global.u32 %r4, [count]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [count], %r4;
  membar.gl; atom.global.exch.b32 %r5, [lock], 0; mov.u32 %x, %r4;)",
                                     ".global .u32 lock; .global .u32 count;\n");
  const auto d = RunOverArray(text, Iota(64), 64);
  std::vector<bool> seen(65);
  for (const uint32_t v : d) {
    ASSERT_LE(v, 64u);
    seen[v] = true;
  }
  for (uint32_t i = 1; i <= 64; ++i) EXPECT_TRUE(seen[i]) << i;
}

TEST(Interpreter, BarriersHoldTheWholeBlock) {
  // Each thread writes, waits, then reads its mirror image, five times.
  const auto d = RunOverArray(OverArray(R"(
  mov.u32 %r3, 0; mov.u32 %r8, buffer; mad.lo.u32 %r4, %r2, 4, %r8; not.b32 %r5, %r2; add.u32 %r5, %r5, %r1; mad.lo.u32 %r6, %r5, 4, %r8;
LOOP:
  st.shared.u32 [%r4], %x; bar.sync 0; ld.shared.u32 %x, [%r6]; barrier.sync 1; add.u32 %x, %x, 1;
  add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 5;
  @%p0 bra LOOP;)",
                                        "", ".shared .align 4 .b8 buffer[1024];\n"),
                              Iota(256), 256);
  for (uint32_t i = 0; i < 256; ++i) EXPECT_EQ(d[i], 255 - i + 5);
}

TEST(Interpreter, NamedBarriersCountTheirThreads) {
  // The first warp arrives without waiting, the second waits for both: 64 threads.
  const auto d = RunOverArray(OverArray(R"(
  setp.lt.u32 %p0, %r2, 32; mov.u32 %r8, buffer; and.b32 %r4, %r2, 31; mad.lo.u32 %r4, %r4, 4, %r8;
  @%p0 bra FIRST;
  bar.sync 3, 64; ld.shared.u32 %x, [%r4];
  bra DONE;
FIRST:
  mul.lo.u32 %x, %x, 7; st.shared.u32 [%r4], %x; bar.arrive 3, 64;
DONE:)",
                                        "", ".shared .align 4 .b8 buffer[128];\n"),
                              Iota(64), 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(d[i], (i % 32) * 7);
}

TEST(Interpreter, ExitedThreadsDoNotHoldABarrier) {
  const auto d = RunOverArray(OverArray(R"(
  setp.ge.u32 %p0, %r2, 40;
  @%p0 exit;
  bar.sync 0; add.u32 %x, %x, 100;)"),
                              Iota(64), 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(d[i], i < 40 ? i + 100 : i);
}

TEST(Interpreter, ABarrierThatNobodyCompletesIsUnbounded) {
  Fixture f(OverArray("bar.sync 2, 96;"));
  const uint64_t p = f.memory.Put(Iota(64));
  const Outcome out = f.Go(Parameters().Add(p), 1, 64);
  EXPECT_EQ(out.fidelity, Fidelity::kUnbounded);
  EXPECT_FALSE(out.effect);
}

TEST(Interpreter, CallsTakeArgumentsAndGiveResults) {
  const std::string function = R"(
.func (.param .b32 out) twice_plus(.param .b32 a, .param .b64 where) {
  .reg .b32 %r<4>; .reg .b64 %rd<2>; .local .align 4 .b8 depot[8]; .reg .b64 %SPL;
  mov.u64 %SPL, depot; ld.param.u32 %r1, [a]; ld.param.u64 %rd1, [where];
  st.local.u32 [%SPL+4], %r1; ld.u32 %r2, [%rd1]; ld.local.u32 %r3, [%SPL+4];
  add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r2; st.u32 [%rd1], %r3;
  st.param.b32 [out+0], %r1; ret;
}
)";
  // Only lanes below 20 call; the caller's own local memory is handed over as a generic address.
  const auto d = RunOverArray(OverArray(R"(
  mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; add.u32 %r3, %x, 5; st.local.u32 [mine], %r3;
  setp.ge.u32 %p0, %x, 20;
  @%p0 bra SKIP;
  { .param .b32 p0; st.param.b32 [p0+0], %x; .param .b64 p1; st.param.b64 [p1+0], %rd2; .param .b32 r0;
    call.uni (r0), twice_plus, (p0, p1);
    ld.param.b32 %r4, [r0+0]; }
  ld.local.u32 %r5, [mine]; mad.lo.u32 %x, %r5, 1000, %r4;
SKIP:)",
                                        function, ".local .align 4 .b8 mine[4];\n"),
                              Iota(32), 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(d[i], i < 20 ? i * 1000 + 2 * i + i + 5 : i) << i;
}

TEST(Interpreter, FunctionsMayRecurse) {
  const std::string function = R"(
.func (.param .b32 out) sum_to(.param .b32 n) {
  .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u32 %r1, [n]; mov.u32 %r2, 0; setp.eq.u32 %p, %r1, 0;
  @%p bra DONE;
  sub.u32 %r3, %r1, 1;
  { .param .b32 a; st.param.b32 [a], %r3; .param .b32 r; call (r), sum_to, (a); ld.param.u32 %r2, [r]; }
  add.u32 %r2, %r2, %r1;
DONE:
  st.param.b32 [out], %r2; ret;
}
)";
  const std::string call =
      "{ .param .b32 a; st.param.b32 [a], %x; .param .b32 r; call (r), sum_to, (a); ld.param.u32 %x, [r]; }";
  const auto d = RunOverArray(OverArray(call, function), Iota(32), 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(d[i], i * (i + 1) / 2);
  Fixture f(OverArray(call, function));
  const uint64_t p = f.memory.Put(std::vector<uint32_t>(32, 100'000));
  const Outcome out = f.Go(Parameters().Add(p), 1, 32);
  EXPECT_EQ(out.fault, FaultKind::kLaunchFailed);
  EXPECT_NE(out.fault_detail.find("stack"), std::string::npos) << out.fault_detail;
}

TEST(Interpreter, DeepStacksAreBoundedInMemory) {
  // A frame of half a MiB, called within itself: the stack is full long before 256 calls.
  std::string body = ".func deep() { .reg .b64 %m<2000>; ";
  for (int i = 0; i < 2000; ++i) body += "mov.u64 %m" + std::to_string(i) + ", 1; ";
  Fixture f(OverArray("call deep, ();", body + "call deep, (); ret; }\n"));
  const Outcome out = f.Go(Parameters().Add(f.memory.Put(Iota(32))), 1, 32);
  EXPECT_EQ(out.fault, FaultKind::kLaunchFailed);
  EXPECT_NE(out.fault_detail.find("stack is full"), std::string::npos) << out.fault_detail;
}

TEST(Interpreter, VariablesOfTheModuleAndItsInitialValues) {
  const auto d = RunOverArray(OverArray(R"(
  and.b32 %r3, %x, 3; mul.wide.u32 %rd1, %r3, 4; mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1; ld.const.u32 %r4, [%rd2];
  ld.global.u64 %rd3, [pointer]; ld.global.u32 %r5, [%rd3]; ld.global.f32 %f1, [real]; cvt.rzi.u32.f32 %r6, %f1;
  add.u32 %x, %r4, %r5; add.u32 %x, %x, %r6;)",
                                        ".const .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};\n"
                                        ".global .u32 words[3] = {10, 20, 1 << 5};\n.global .u64 pointer = "
                                        "generic(words)+8;\n.global .f32 real = 0f447A0000;\n"),
                              Iota(32), 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(d[i], i % 4 + 1 + 32 + 1000);
}

TEST(Interpreter, DynamicSharedMemoryStandsBehindTheStatic) {
  const std::string body = R"(
  mov.u32 %r8, room; mad.lo.u32 %r4, %r2, 4, %r8; st.shared.u32 [%r4], %x; bar.sync 0;
  mov.u32 %r9, %dynamic_smem_size; xor.b32 %r5, %r2, 1; mad.lo.u32 %r4, %r5, 4, %r8; ld.shared.u32 %x, [%r4];
  mad.lo.u32 %x, %r8, 1000, %x; cvta.shared.u64 %rd1, %rd2;)";
  const auto d = RunOverArray(OverArray("mov.u64 %rd2, 0; st.shared.u32 [fixed], 1;" + body,
                                        ".extern .shared .align 8 .b8 room[];\n", ".shared .align 4 .b8 fixed[20];\n"),
                              Iota(64), 64, 256);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(d[i], 32'000 + (i ^ 1)) << i;
}

TEST(Interpreter, AtomicsAndReductions) {
  Fixture f(OverArray(R"(
  atom.global.add.u32 %r3, [sum], %x; red.global.max.s32 [top], %x; red.global.min.u32 [low], %x; red.global.add.f32 [real], 0f3F000000;
  red.global.or.b32 [bits], %x; atom.global.inc.u32 %r4, [wrap], 9; red.global.add.u64 [wide], 0x100000000; atom.global.dec.u32 %r5, [down], 5;
  atom.shared.add.u32 %r6, [here], 1; bar.sync 0; ld.shared.u32 %x, [here];)",
                      ".global .u32 sum; .global .u32 top; .global .u32 low = 1000; .global .f32 real; .global .u32 "
                      "bits; .global .u32 wrap; .global .u64 wide; .global .u32 down = 3;\n",
                      ".shared .u32 here;\n"));
  const uint64_t p = f.memory.Put(Iota(128));
  const Outcome out = f.Go(Parameters().Add(p), 2, 64);
  ASSERT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  for (const uint32_t v : f.memory.Get<uint32_t>(p)) EXPECT_EQ(v, 64u);
  const uint64_t first = 0x7f00'0000'0000, apart = uint64_t{1} << 30;
  EXPECT_EQ(f.memory.Get<uint32_t>(first)[0], 127u * 128 / 2);
  EXPECT_EQ(f.memory.Get<uint32_t>(first + apart)[0], 127u);
  EXPECT_EQ(f.memory.Get<uint32_t>(first + 2 * apart)[0], 0u);
  EXPECT_EQ(f.memory.Get<float>(first + 3 * apart)[0], 64.0f);
  EXPECT_EQ(f.memory.Get<uint32_t>(first + 4 * apart)[0], 127u);
  EXPECT_EQ(f.memory.Get<uint32_t>(first + 5 * apart)[0], 128u % 10);
  EXPECT_EQ(f.memory.Get<uint64_t>(first + 6 * apart)[0], uint64_t{128} << 32);
  // 3 2 1 0 then 5 4 3 2 1 0 again and again.
  EXPECT_EQ(f.memory.Get<uint32_t>(first + 7 * apart)[0], 5u - (128 - 4) % 6);
  EXPECT_GT(out.cost.warp_instructions[kAtomic], 0);
}

TEST(Interpreter, ShufflesAndVotes) {
  const auto check = [](const std::string& body, auto f) {
    const auto d = RunOverArray(OverArray(body), Iota(32), 32);
    for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(d[i], f(i)) << body << " lane " << i;
  };
  check("shfl.sync.down.b32 %x, %x, 3, 31, -1;", [](uint32_t i) { return i + 3 < 32 ? i + 3 : i; });
  check("shfl.sync.up.b32 %x, %x, 3, 0, -1;", [](uint32_t i) { return i >= 3 ? i - 3 : i; });
  check("shfl.sync.bfly.b32 %x, %x, 5, 31, -1;", [](uint32_t i) { return i ^ 5; });
  check("shfl.sync.idx.b32 %x, %x, 9, 31, -1;", [](uint32_t) { return 9u; });
  // Segments of eight lanes.
  check("shfl.sync.down.b32 %x|%p0, %x, 2, 0x181f, -1; @!%p0 add.u32 %x, %x, 100;",
        [](uint32_t i) { return i % 8 < 6 ? i + 2 : i + 100; });
  check("setp.lt.u32 %p0, %x, 7; vote.sync.ballot.b32 %x, %p0, -1;", [](uint32_t) { return 127u; });
  check(
      "setp.lt.u32 %p0, %x, 7; vote.sync.any.pred %p1, %p0, -1; vote.sync.all.pred %p2, !%p0, -1; selp.u32 %x, 1, 0, "
      "%p1; @%p2 add.u32 %x, %x, 2;",
      [](uint32_t) { return 1u; });
  check("and.b32 %r3, %x, 3; match.any.sync.b32 %x, %r3, -1;", [](uint32_t i) { return 0x11111111u << (i % 4); });
  check("redux.sync.add.u32 %x, %x, -1;", [](uint32_t) { return 496u; });
}

TEST(Interpreter, AShuffleWaitsForTheLanesItNames) {
  // Lanes arrive on two ways; both meet at the shuffle because its mask names all.
  const auto d = RunOverArray(OverArray(R"(
  setp.lt.u32 %p0, %x, 16; mov.u32 %r3, %x;
  @%p0 bra LOW;
  add.u32 %r3, %r3, 100;
LOW:
  shfl.sync.bfly.b32 %x, %r3, 16, 31, -1;)"),
                              Iota(32), 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(d[i], i < 16 ? i + 116 : i - 16);
}

TEST(Interpreter, VectorsOfLoadsAndStores) {
  Fixture f(R"(
.visible .entry k(.param .u64 p, .param .align 8 .b8 s[16]) {
  .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 16, %rd1;
  ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2]; ld.param.v2.u32 {%r6, %r7}, [s+8];
  add.u32 %r2, %r2, %r6; add.u32 %r3, %r3, %r7;
  st.global.v2.u32 [%rd2+8], {%r2, %r3}; st.global.v2.u32 [%rd2], {%r4, %r5};
  ret;
})");
  const uint64_t p = f.memory.Put(Iota(128));
  const Outcome out = f.Go(Parameters().Add(p).Add(uint64_t{0}).Add(5u).Add(7u), 1, 32);
  ASSERT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  const auto d = f.memory.Get<uint32_t>(p);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(d[4 * i], 4 * i + 2);
    EXPECT_EQ(d[4 * i + 1], 4 * i + 3);
    EXPECT_EQ(d[4 * i + 2], 4 * i + 5);
    EXPECT_EQ(d[4 * i + 3], 4 * i + 8);
  }
}

TEST(Interpreter, FaultsNameTheirExactAddress) {
  Fixture f(OverArray("mad.wide.u32 %at, %i, 4, %at;"));
  const uint64_t p = f.memory.Put(Iota(64));
  Outcome out = f.Go(Parameters().Add(p), 1, 64);
  EXPECT_EQ(out.fault, FaultKind::kIllegalAddress);
  EXPECT_EQ(out.fault_address, p + 64 * 4);  // thread 32 writes to twice its place
  EXPECT_NE(out.fault_detail.find("thread (32,0,0)"), std::string::npos) << out.fault_detail;
  EXPECT_NE(out.fault_detail.find("line"), std::string::npos) << out.fault_detail;
  EXPECT_FALSE(out.effect);
  Fixture odd(OverArray("add.u64 %at, %at, 2;"));
  const uint64_t q = odd.memory.Put(Iota(64));
  out = odd.Go(Parameters().Add(q), 1, 64);
  EXPECT_EQ(out.fault, FaultKind::kMisalignedAddress);
  EXPECT_EQ(out.fault_address, q + 2);
  Fixture null(OverArray("mov.u64 %at, 0;"));
  out = null.Go(Parameters().Add(null.memory.Put(Iota(64))), 1, 64);
  EXPECT_EQ(out.fault, FaultKind::kIllegalAddress);
  EXPECT_EQ(out.fault_address, 0u);
  Fixture shared(OverArray("st.shared.u32 [64], %x;", "", ".shared .align 4 .b8 small[64];\n"));
  out = shared.Go(Parameters().Add(shared.memory.Put(Iota(64))), 1, 64);
  EXPECT_EQ(out.fault, FaultKind::kIllegalAddress);
}

TEST(Interpreter, ATrapFailsTheLaunch) {
  Fixture f(OverArray("setp.eq.u32 %p0, %x, 45; @%p0 trap;"));
  const uint64_t p = f.memory.Put(Iota(64));
  const Outcome out = f.Go(Parameters().Add(p), 1, 64);
  EXPECT_EQ(out.fault, FaultKind::kLaunchFailed);
  EXPECT_NE(out.fault_detail.find("thread (45,0,0)"), std::string::npos) << out.fault_detail;
}

TEST(Interpreter, AnEndlessLoopIsUnbounded) {
  Fixture f(OverArray("LOOP:\n bra LOOP;"));
  const uint64_t p = f.memory.Put(Iota(32));
  Budget budget;
  budget.whole_instructions = 1'000'000;
  budget.sample_instructions = 100'000;
  budget.warp_limit = 5'000'000;
  const Outcome out = f.Go(Parameters().Add(p), 1, 32, budget);
  EXPECT_EQ(out.fidelity, Fidelity::kUnbounded);
  EXPECT_EQ(out.cost.unbounded, 1u);
  EXPECT_FALSE(out.effect);
}

TEST(Interpreter, ACancelledRunEnds) {
  Fixture f(OverArray("LOOP:\n bra LOOP;"));
  const uint64_t p = f.memory.Put(Iota(32));
  const Parameters parameters = Parameters().Add(p);
  Launch launch;
  launch.block[0] = 32;
  launch.parameters = parameters.data();
  const bool cancelled = true;
  Budget endless;
  endless.whole_instructions = endless.warp_limit = ~uint64_t{0};
  const Outcome out = ptx::Run(f.module, *f.function, launch, f.memory, endless, &cancelled);
  EXPECT_FALSE(out.effect);
}

TEST(Interpreter, ASpinOnTheClockEndsAndCostsItsTime) {
  for (const char* const clock : {"clock64", "globaltimer"}) {
    // Waits for a million units: cycles or nanoseconds.
    Fixture f(OverArray(std::string("mov.u64 %rd1, %") + clock +
                        "; add.u64 %rd1, %rd1, 1000000;\nSPIN:\n mov.u64 %rd2, %" + clock +
                        "; setp.lt.u64 %p0, %rd2, %rd1;\n @%p0 bra SPIN;"));
    const uint64_t p = f.memory.Put(Iota(32));
    const Outcome out = f.Go(Parameters().Add(p), 1, 32);
    EXPECT_TRUE(out.effect);
    const double expected = std::string(clock) == "clock64" ? 1e6 : 1.41e6;
    EXPECT_NEAR(out.cost.critical_cycles, expected, expected * 0.02) << clock;
  }
  // A second: far beyond what could be stepped through cycle by cycle.
  Fixture f(
      OverArray("mov.u64 %rd1, %globaltimer; add.u64 %rd1, %rd1, 1000000000;\nSPIN:\n mov.u64 %rd2, %globaltimer; "
                "setp.lt.u64 %p0, %rd2, %rd1;\n @%p0 bra SPIN;"));
  const uint64_t p = f.memory.Put(Iota(32));
  const Outcome out = f.Go(Parameters().Add(p), 1, 32);
  EXPECT_TRUE(out.effect);
  EXPECT_NEAR(out.cost.critical_cycles, 1.41e9, 1.41e9 * 0.02);
}

TEST(Interpreter, BlocksThatWaitForEachOtherFinish) {
  // Block 0 waits for a word that the last block writes.
  const auto d = RunOverArray(OverArray(R"(
  setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r0, 3;
  @%p0 bra OTHER;
WAIT:
  ld.volatile.global.u32 %r3, [flag]; setp.eq.u32 %p2, %r3, 0;
  @%p2 bra WAIT;
  add.u32 %x, %x, 1000;
  bra DONE;
OTHER:
  @%p1 bra DONE;
  st.volatile.global.u32 [flag], 1;
DONE:)",
                                        ".global .u32 flag;\n"),
                              Iota(128), 32);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(d[i], i < 32 ? i + 1000 : i);
}

}  // namespace
}  // namespace mete::emulator::ptx
