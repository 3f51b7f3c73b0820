// Lane instructions per second of the interpreter, by kind of kernel; and the cost of a parse and of a small launch.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "emulator/ptx/ptx.h"
#include "emulator/ptx/test_memory.h"

namespace mete::emulator::ptx {
namespace {

std::string Loop(const std::string& body) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
         "  .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .shared .align 4 .b8 room[1024];\n"
         "  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, "
         "%r2, %r3, %r1;\n"
         "  mad.wide.u32 %rd2, %r4, 4, %rd1; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F000000; mov.u32 %r5, 0; mov.u32 "
         "%r6, %r1; shl.b32 %r8, %r1, 2;\n"
         "LOOP:\n" +
         body +
         "\n  add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 256;\n  @%p1 bra LOOP;\n"
         "  cvt.rzi.u32.f32 %r7, %f1; add.u32 %r7, %r7, %r6; st.global.u32 [%rd2], %r7; ret;\n}\n";
}

const char kArithmetic[] =
    "add.u32 %r6, %r6, %r5; xor.b32 %r6, %r6, %r1; shl.b32 %r9, %r6, 3; mul.lo.u32 %r6, %r9, %r6; min.u32 %r6, %r6, "
    "1000; sub.u32 %r6, %r6, %r1;";
const char kFused[] =
    "fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f3, %f1, %f2, %f1; mul.f32 %f4, %f3, %f2; add.f32 %f1, %f4, %f2;";
const char kGlobal[] = "ld.global.u32 %r9, [%rd2]; add.u32 %r9, %r9, %r5; st.global.u32 [%rd2], %r9;";
const char kInShared[] = "st.shared.u32 [%r8], %r6; ld.shared.u32 %r9, [%r8]; add.u32 %r6, %r6, %r9;";
const char kDivergent[] =
    "and.b32 %r9, %r6, 1; setp.eq.u32 %p2, %r9, 0;\n @%p2 bra EVEN;\n mad.lo.u32 %r6, %r6, 3, 1;\n bra JOIN;\nEVEN:\n "
    "shr.u32 %r6, %r6, 1;\nJOIN:";

void Interpret(benchmark::State& state, const char* body, uint32_t block) {
  Module module;
  Error error;
  if (!Parse(Loop(body), 90, &module, &error)) {
    state.SkipWithError(error.message.c_str());
    return;
  }
  TestMemory memory;
  const uint64_t p = memory.Put(std::vector<uint32_t>(4096, 1));
  const Parameters parameters = Parameters().Add(p);
  Launch launch;
  launch.grid[0] = 4;
  launch.block[0] = block;
  launch.parameters = parameters.data();
  double lanes = 0;
  for ([[maybe_unused]] auto _ : state) {
    const Outcome out = Run(module, *module.FindEntry("k"), launch, memory, Budget(), nullptr);
    if (!out.effect) state.SkipWithError(out.fault_detail.c_str());
    double instructions = 0;
    for (const double n : out.cost.warp_instructions) instructions += n;
    lanes += instructions * static_cast<double>(out.cost.blocks) * 32;
  }
  state.counters["lane_instructions"] = benchmark::Counter(lanes, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(Interpret, integer, kArithmetic, 256);
BENCHMARK_CAPTURE(Interpret, fused_multiply_add, kFused, 256);
BENCHMARK_CAPTURE(Interpret, global_memory, kGlobal, 256);
BENCHMARK_CAPTURE(Interpret, shared_memory, kInShared, 256);
BENCHMARK_CAPTURE(Interpret, divergent, kDivergent, 256);
BENCHMARK_CAPTURE(Interpret, partial_warp, kArithmetic, 20);

void ParseText(benchmark::State& state) {
  const std::string text = Loop(kArithmetic);
  for ([[maybe_unused]] auto _ : state) {
    Module module;
    Error error;
    benchmark::DoNotOptimize(Parse(text, 90, &module, &error));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(text.size()));
}
BENCHMARK(ParseText);

void SmallLaunch(benchmark::State& state) {
  Module module;
  Error error;
  if (!Parse(".version 7.0\n.target sm_70\n.visible .entry k() { ret; }\n", 90, &module, &error)) std::abort();
  TestMemory memory;
  Launch launch;
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(Run(module, *module.FindEntry("k"), launch, memory, Budget(), nullptr));
}
BENCHMARK(SmallLaunch);

}  // namespace
}  // namespace mete::emulator::ptx

BENCHMARK_MAIN();
