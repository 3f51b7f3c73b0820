// For the tests: a kernel named k from PTX text, and launches of it on TestMemory.
#ifndef METE_EMULATOR_PTX_TEST_FIXTURE_H_
#define METE_EMULATOR_PTX_TEST_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emulator/ptx/ptx.h"
#include "emulator/ptx/test_memory.h"

namespace mete::emulator::ptx {

struct Fixture {
  Module module;
  Error error;
  TestMemory memory;
  const Function* function = nullptr;

  explicit Fixture(const std::string& text) {
    const bool good = Parse(".version 8.0\n.target sm_90\n.address_size 64\n" + text, 90, &module, &error);
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

// A kernel over one array of u32: %i is the global thread index, %x its element, %at its address. What ends in %x is
// stored back.
inline std::string OverArray(const std::string& body, const std::string& before = "",
                             const std::string& declarations = "") {
  return before + ".visible .entry k(.param .u64 p) {\n" + declarations +
         "  .reg .pred %p<8>; .reg .b32 %r<32>, %i, %x; .reg .b64 %rd<16>, %base, %at; .reg .f32 %f<8>; .reg .b16 "
         "%h<8>;\n"
         "  ld.param.u64 %base, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;\n"
         "  mad.lo.u32 %i, %r0, %r1, %r2; mad.wide.u32 %at, %i, 4, %base; ld.global.u32 %x, [%at];\n" +
         body + "\n  st.global.u32 [%at], %x;\n  ret;\n}\n";
}

inline std::vector<uint32_t> Iota(uint32_t n) {
  std::vector<uint32_t> values(n);
  for (uint32_t i = 0; i < n; ++i) values[i] = i;
  return values;
}

inline std::vector<uint32_t> RunOverArray(const std::string& text, const std::vector<uint32_t>& values, uint32_t block,
                                          uint32_t dynamic_shared = 0) {
  Fixture f(text);
  const uint64_t p = f.memory.Put(values);
  const Outcome out =
      f.Go(Parameters().Add(p), static_cast<uint32_t>(values.size()) / block, block, Budget(), dynamic_shared);
  EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  EXPECT_TRUE(out.effect);
  return f.memory.Get<uint32_t>(p);
}

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_TEST_FIXTURE_H_
