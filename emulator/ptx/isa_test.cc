// What kernels bring beside plain arithmetic: halves and pairs, carries, dot products, matrices, asynchronous copies,
// reductions at barriers, calls of every kind. Each against the same computation in C++.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "emulator/ptx/half.h"
#include "emulator/ptx/test_fixture.h"

namespace mete::emulator::ptx {
namespace {

template <typename F>
void Check(const std::string& body, F f, std::vector<uint32_t> values = Iota(64), const std::string& before = "",
           const std::string& declarations = "") {
  const auto d = RunOverArray(OverArray(body, before, declarations), values, 64);
  for (uint32_t i = 0; i < values.size(); ++i) EXPECT_EQ(d[i], f(i)) << body << " lane " << i;
}

uint32_t Pair(double low, double high) { return HalfOfDouble(low) | static_cast<uint32_t>(HalfOfDouble(high)) << 16; }
uint32_t BrainPair(double low, double high) {
  return BrainOfDouble(low) | static_cast<uint32_t>(BrainOfDouble(high)) << 16;
}

TEST(Isa, HalvesBrainsAndPairs) {
  EXPECT_EQ(BrainOfDouble(1.0), 0x3f80);
  EXPECT_EQ(BrainOfDouble(-2.0), 0xc000);
  EXPECT_EQ(BrainOfDouble(1.00390625), 0x3f80);  // a tie: to even
  EXPECT_EQ(BrainOfDouble(1.01171875), 0x3f82);  // a tie: to even
  EXPECT_EQ(BrainOfDouble(3.5e38), 0x7f80);
  EXPECT_EQ(BrainOfDouble(0x1p-133), 0x0001);
  EXPECT_EQ(HalfOfDouble(65519.0), 0x7bff);
  EXPECT_EQ(HalfOfDouble(65520.0), 0x7c00);
  std::vector<uint32_t> pairs(64), brains(64);
  for (uint32_t i = 0; i < 64; ++i) pairs[i] = Pair(i * 0.25, -3.0 * i), brains[i] = BrainPair(i * 0.5, -1.0 * i);
  Check(
      "fma.rn.f16x2 %x, %x, %x, %x;",
      [](uint32_t i) {
        const double a = i * 0.25, b = -3.0 * i;
        return Pair(a * a + a, b * b + b);
      },
      pairs);
  Check(
      "mov.b32 {%h0, %h1}, %x; add.f16 %h0, %h0, %h1; neg.f16 %h1, %h1; mov.b32 %x, {%h0, %h1};",
      [](uint32_t i) { return Pair(i * 0.25 - 3.0 * i, 3.0 * i); }, pairs);
  Check(
      "max.f16x2 %x, %x, %x; setp.lt.f16x2 %p0|%p1, %x, %x; selp.u32 %x, 1, 2, %p0;", [](uint32_t) { return 2u; },
      pairs);
  Check(
      "mov.b32 %r3, 0; setp.gt.f16x2 %p0|%p1, %x, %r3; selp.u32 %x, 1, 0, %p0; @%p1 add.u32 %x, %x, 2;",
      [](uint32_t i) { return i > 0 ? 1u : 0u; }, pairs);
  Check(
      "fma.rn.relu.bf16x2 %x, %x, %x, %x;",
      [](uint32_t i) {
        const double a = i * 0.5, b = -1.0 * i;
        return BrainPair(std::max(0.0, a * a + a), std::max(0.0, b * b + b));
      },
      brains);
  Check("cvt.rn.f32.u32 %f0, %x; mul.f32 %f1, %f0, 0f3EAAAAAB; cvt.rn.f16x2.f32 %x, %f0, %f1;",
        [](uint32_t i) { return Pair(static_cast<float>(i) * 0x1.555556p-2f, i); });
  Check(
      "cvt.rn.f32.u32 %f0, %x; mul.f32 %f1, %f0, 0f3EAAAAAB; cvt.rn.bf16.f32 %h0, %f1; mov.b32 %x, {%h0, %h0}; shl.b32 "
      "%r3, "
      "%x, 16; mov.b32 %f2, %r3; cvt.rn.bf16x2.f32 %x, %f2, %f2;",
      [](uint32_t i) {
        const double v = FloatOfBrain(BrainOfDouble(static_cast<float>(i) * 0x1.555556p-2f));
        return BrainPair(v, v);
      });
  Check("cvt.rn.f32.u32 %f0, %x; add.f32 %f0, %f0, 0f3A000000; cvt.rna.tf32.f32 %x, %f0;", [](uint32_t i) {
    const float v = static_cast<float>(i) + 0x1p-11f;
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return (bits + 0x1000) & 0xffffe000u;
  });
}

TEST(Isa, CarriesRunThroughWords) {
  // (x, 0xfffffff0) + (1, x) on 64 bits in two halves, and the product of two 64-bit numbers in four.
  Check("add.cc.u32 %r3, %x, 0xfffffff0; addc.u32 %x, %x, 1;",
        [](uint32_t i) { return static_cast<uint32_t>((((uint64_t{i} << 32 | i) + 0x1fffffff0ull)) >> 32); });
  Check("sub.cc.u32 %r3, %x, 32; subc.cc.u32 %r4, 0, 0; subc.u32 %x, 7, 0;",
        [](uint32_t i) { return i < 32 ? 6u : 7u; });
  Check("mul.lo.u32 %r3, %x, 0x12345678; mad.lo.cc.u32 %r4, %r3, %r3, 0xffffffff; madc.hi.u32 %x, %r3, %r3, 5;",
        [](uint32_t i) {
          const uint64_t a = static_cast<uint32_t>(i * 0x12345678u), square = a * a;
          const uint64_t low = (square & 0xffffffff) + 0xffffffff;
          return static_cast<uint32_t>((square >> 32) + 5 + (low >> 32));
        });
}

TEST(Isa, DotsFieldsAndSearches) {
  Check("mul.lo.u32 %r3, %x, 0x01020304; dp4a.u32.u32 %x, %r3, 0x01010101, %x;",
        [](uint32_t i) { return i + (i + 2 * i + 3 * i + 4 * i); });
  Check("dp4a.s32.u32 %x, 0xff01ff01, %x, 100;", [](uint32_t i) { return 100 + i; });
  Check("dp2a.lo.s32.s32 %x, 0xffff0002, 0x00000305, %x;", [](uint32_t i) { return i + 2 * 5 - 3; });
  Check("mul24.lo.u32 %x, %x, 0xff000003;", [](uint32_t i) { return 3 * i; });
  Check("mad24.hi.s32 %x, %x, 0x10000, 1;", [](uint32_t i) { return i + 1; });
  Check("fns.b32 %x, 0xaaaaaaaa, 3, 2;", [](uint32_t) { return 5u; });
  Check("fns.b32 %x, 0xaaaaaaaa, 8, -2;", [](uint32_t) { return 5u; });
  Check("fns.b32 %x, 0x1, 8, 1;", [](uint32_t) { return ~0u; });
  Check("and.b32 %r3, %x, 15; bmsk.clamp.b32 %x, %r3, 4;", [](uint32_t i) { return 15u << (i & 15); });
  Check("szext.wrap.s32 %x, %x, 3;", [](uint32_t i) { return (i & 7) < 4 ? i & 7 : (i & 7) | ~7u; });
  Check("prmt.b32.b4e %x, 0x33221100, 0x77665544, 1;", [](uint32_t) { return 0x66770011u; });
  Check("prmt.b32.rc16 %x, 0x33221100, 0, 1;", [](uint32_t) { return 0x33223322u; });
  Check("cvt.pack.sat.u8.s32.b32 %x, 300, -5, 0x1234;", [](uint32_t) { return 0x1234ff00u; });
}

TEST(Isa, ReductionsAtBarriersAndMatches) {
  Check("setp.lt.u32 %p0, %x, 40; bar.red.popc.u32 %x, 0, %p0;", [](uint32_t) { return 40u; });
  Check(
      "setp.lt.u32 %p0, %x, 40; barrier.sync 1; bar.red.and.pred %p1, 0, 64, %p0; bar.red.or.pred %p2, 0, !%p0; "
      "selp.u32 %x, 1, 0, %p1; "
      "@%p2 add.u32 %x, %x, 2;",
      [](uint32_t) { return 2u; });
  Check(
      "setp.ge.u32 %p0, %x, 32; selp.u32 %r3, 7, %x, %p0; match.all.sync.b32 %x|%p1, %r3, -1; @%p1 add.u32 %x, %x, 5;",
      [](uint32_t i) { return i < 32 ? 0u : 4u; });
  Check("elect.sync %r3|%p0, 0xfffffff0; selp.u32 %x, 100, %r3, %p0;",
        [](uint32_t i) { return i % 32 == 4 ? 100u : 4u; });
}

TEST(Isa, CallsThroughAddressesAndParametersInRegisters) {
  const std::string functions =
      ".func (.reg .b32 r) twice(.reg .b32 a) { add.u32 r, a, a; ret; }\n"
      ".func (.param .b32 r) square(.param .b32 a) { .reg .b32 %a; ld.param.b32 %a, [a]; mul.lo.u32 %a, %a, %a; "
      "st.param.b32 [r], %a; ret; }\n"
      ".func (.param .b32 r) plus(.param .b32 a) { .reg .b32 %a; .reg .b64 %p; mov.b64 %p, a; ld.param.b32 %a, [%p]; "
      "add.u32 %a, %a, 1000; "
      "st.param.b32 [r], %a; ret; }\n"
      ".global .align 8 .u64 table[2] = {square, plus};\n"
      ".global .align 8 .b8 bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0xFF(plus), 0xFF00(plus), 0xFF0000(plus), "
      "0xFF000000(plus), "
      "0xFF00000000(plus), 0xFF0000000000(plus), 0xFF000000000000(plus), 0xFF00000000000000(plus)};\n";
  Check(
      "call (%x), twice, (%x); call.uni (%r3), twice, (21); add.u32 %x, %x, %r3;",
      [](uint32_t i) { return 2 * i + 42; }, Iota(64), functions);
  const std::string indirect = R"(
  and.b32 %r3, %x, 1; mul.wide.u32 %rd1, %r3, 8; mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1; ld.global.u64 %rd3, [%rd2];
  { .param .b32 a; .param .b32 r; st.param.b32 [a], %x;
  proto: .callprototype (.param .b32 _) _ (.param .b32 _);
  call (r), %rd3, (a), proto; ld.param.b32 %x, [r]; })";
  Check(
      indirect, [](uint32_t i) { return i % 2 == 0 ? i * i : i + 1000; }, Iota(64), functions);
  Check(
      "ld.global.u64 %rd3, [bytes+8]; proto: .callprototype (.param .b32 _) _ (.param .b32 _); call (%x), %rd3, (%x), "
      "proto;",
      [](uint32_t i) { return i + 1000; }, Iota(64), functions);
  // An address that is no function, and a function of another shape.
  for (const char* address : {"mov.u64 %rd3, 4096;", "mov.u64 %rd3, other;", "mov.u64 %rd3, %base;"}) {
    Fixture f(OverArray(std::string(address) +
                            " proto: .callprototype (.param .b32 _) _ (.param .b32 _); call (%x), %rd3, (%x), proto;",
                        ".func other() { ret; }\n"));
    const Outcome out = f.Go(Parameters().Add(f.memory.Put(Iota(32))), 1, 32);
    EXPECT_EQ(out.fault, FaultKind::kLaunchFailed) << address;
    EXPECT_NE(out.fault_detail.find("no function"), std::string::npos) << out.fault_detail;
  }
}

TEST(Isa, BranchesThroughTables) {
  Check(
      "and.b32 %r3, %x, 3; brx.idx %r3, T;\nT: .branchtargets A, B, C, A;\nA: add.u32 %x, %x, 100; bra E;\nB: "
      "mul.lo.u32 %x, %x, 2; bra E;\n"
      "C: mov.u32 %x, 9;\nE: ",
      [](uint32_t i) { return i % 4 == 1   ? 2 * i
                              : i % 4 == 2 ? 9
                                           : i + 100; });
  Fixture f(OverArray("brx.idx %x, T;\nT: .branchtargets A;\nA:"));
  EXPECT_EQ(f.Go(Parameters().Add(f.memory.Put(Iota(32))), 1, 32).fault, FaultKind::kLaunchFailed);
}

TEST(Isa, AsynchronousCopiesAndBarrierObjects) {
  Check(
      "mad.lo.u32 %r4, %r2, 16, 0; cp.async.ca.shared.global [%r4], [%at], 4; cp.async.commit_group; "
      "cp.async.wait_group 0; bar.sync 0; "
      "xor.b32 %r5, %r4, 16; ld.shared.u32 %x, [%r5];",
      [](uint32_t i) { return i ^ 1; }, Iota(64), "", ".shared .align 16 .b8 room[1024];\n");
  Check(
      "cp.async.ca.shared.global [room], [%base], 8, 4; cp.async.wait_all; ld.shared.v2.u32 {%r3, %r4}, [room]; "
      "add.u32 %x, %r3, %r4;",
      [](uint32_t) { return 11u; }, std::vector<uint32_t>(64, 11), ".shared .align 16 .b8 room[16];\n");
  // Every thread arrives, then waits for the phase to be over; twice.
  Check(R"(
  setp.ne.u32 %p0, %r2, 0; @%p0 bra READY; mbarrier.init.shared.b64 [object], 64;
READY: st.shared.u32 [sum], 0; bar.sync 0; mov.u32 %r3, 0;
AGAIN:
  red.shared.add.u32 [sum], 1; mbarrier.arrive.shared.b64 %rd1, [object];
WAIT: mbarrier.try_wait.shared.b64 %p1, [object], %rd1; @!%p1 bra WAIT;
  add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 2; @%p2 bra AGAIN;
  ld.shared.u32 %x, [sum];)",
        [](uint32_t) { return 128u; }, Iota(64), "", ".shared .align 8 .b64 object; .shared .u32 sum;\n");
}

TEST(Isa, MatricesOfAWarp) {
  // A[row][k] = row + k, B[k][n] = k - n, C = 1: halves in, floats out; D goes back as integers.
  const std::string fill = R"(
  mov.u32 %r3, %laneid; shr.u32 %r4, %r3, 2; and.b32 %r5, %r3, 3; shl.b32 %r6, %r5, 1;
  add.u32 %r7, %r4, %r6; cvt.rn.f32.u32 %f0, %r7; add.f32 %f1, %f0, 0f3F800000; cvt.rn.f16x2.f32 %r8, %f1, %f0;
  add.f32 %f2, %f0, 0f41000000; add.f32 %f3, %f1, 0f41000000; cvt.rn.f16x2.f32 %r9, %f3, %f2;
  add.f32 %f4, %f2, 0f41000000; add.f32 %f5, %f3, 0f41000000; cvt.rn.f16x2.f32 %r10, %f5, %f4;
  sub.u32 %r7, %r6, %r4; cvt.rn.f32.s32 %f0, %r7; add.f32 %f1, %f0, 0f3F800000; cvt.rn.f16x2.f32 %r11, %f1, %f0;
  add.f32 %f2, %f0, 0f41000000; add.f32 %f3, %f1, 0f41000000; cvt.rn.f16x2.f32 %r12, %f3, %f2;
  mov.f32 %f7, 0f3F800000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r8, %r9, %r9, %r10}, {%r11, %r12}, {%f7, %f7, %f7, %f7};
  and.b32 %r13, %i, 32; setp.eq.u32 %p0, %r13, 0; selp.f32 %f0, %f1, %f2, %p0; cvt.rzi.s32.f32 %x, %f0;)";
  Check(fill, [](uint32_t i) {
    const uint32_t lane = i % 32, row = lane / 4 + (i < 32 ? 0 : 8), column = 2 * (lane % 4) + (i < 32 ? 1 : 0);
    int sum = 1;
    for (int k = 0; k < 16; ++k) sum += (static_cast<int>(row) + k) * (k - static_cast<int>(column));
    return static_cast<uint32_t>(sum);
  });
  // ldmatrix of rows that hold 8 row + column, and the same transposed.
  const std::string load = R"(
  shl.b32 %r3, %r2, 1; cvt.u16.u32 %h0, %r2; st.shared.u16 [%r3], %h0; bar.sync 0;
  and.b32 %r4, %r2, 7; shl.b32 %r4, %r4, 4; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r4];
  ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r6}, [%r4];
  and.b32 %r7, %i, 32; setp.eq.u32 %p0, %r7, 0; selp.u32 %x, %r5, %r6, %p0;)";
  Check(
      load,
      [](uint32_t i) {
        const uint32_t lane = i % 32, row = lane / 4, column = 2 * (lane % 4);
        return i < 32 ? (row * 8 + column) | (row * 8 + column + 1) << 16
                      : (column * 8 + row) | ((column + 1) * 8 + row) << 16;
      },
      Iota(64), "", ".shared .align 16 .b8 room[128];\n");
  // Bytes: A is all twos, B all minus ones, depth 32.
  Check(
      "mov.b32 %r3, 0x02020202; mov.b32 %r4, -1; mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%r5, %r6, %r7, %r8}, "
      "{%r3, %r3, %r3, %r3}, "
      "{%r4, %r4}, {%x, %x, %x, %x}; mov.u32 %x, %r7;",
      [](uint32_t i) { return i - 64; });
}

TEST(Isa, AtomicsOnHalves) {
  Fixture f(
      OverArray("mov.b16 %h0, 0x3c00; atom.global.add.noftz.f16 %h1, [one], %h0; mov.b32 %r3, 0x3c003c00; "
                "red.global.add.noftz.f16x2 "
                "[two], %r3; atom.global.cas.b16 %h2, [three], 5, 6;",
                ".global .align 4 .b16 one[2]; .global .u32 two; .global .align 4 .b16 three[2] = {5, 5};\n"));
  const Outcome out = f.Go(Parameters().Add(f.memory.Put(Iota(64))), 1, 64);
  ASSERT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  const uint64_t first = 0x7f00'0000'0000, apart = uint64_t{1} << 30;
  EXPECT_EQ(f.memory.Get<uint16_t>(first)[0], HalfOfDouble(64));
  EXPECT_EQ(f.memory.Get<uint32_t>(first + apart)[0], Pair(64, 64));
  EXPECT_EQ(f.memory.Get<uint32_t>(first + 2 * apart)[0], 0x00050006u);
}

}  // namespace
}  // namespace mete::emulator::ptx
