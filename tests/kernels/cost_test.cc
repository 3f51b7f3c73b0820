// The cost of a sample against the cost of running everything, for kernels as a compiler makes them: bounds that are
// known, bounds that an earlier kernel wrote, and loops that only the data ends.
#include "tests/kernels/kernel_fixture.h"

namespace mete::emulator::ptx {
namespace {

class KernelCosts : public Kernels {
 protected:
  static Budget Everything() {
    Budget budget;
    budget.whole_instructions = budget.warp_limit = 4'000'000'000;
    return budget;
  }
  static Budget Sample() {
    Budget budget;
    budget.whole_instructions = 1'000'000;
    budget.sample_instructions = 400'000;
    budget.warp_limit = 200'000'000;
    return budget;
  }
  static double Issued(const Outcome& out) {
    double sum = 0;
    for (const double n : out.cost.warp_instructions) sum += n;
    return sum;
  }
  static void ExpectClose(const Outcome& sample, const Outcome& whole, double tolerance) {
    EXPECT_EQ(whole.fidelity, Fidelity::kExact);
    EXPECT_EQ(sample.fidelity, Fidelity::kExtrapolated) << sample.fault_detail;
    EXPECT_FALSE(sample.effect);
    EXPECT_NEAR(Issued(sample) / Issued(whole), 1, tolerance);
    EXPECT_NEAR(sample.cost.critical_cycles / whole.cost.critical_cycles, 1, tolerance);
    EXPECT_NEAR((sample.cost.memory_bytes + 1) / (whole.cost.memory_bytes + 1), 1, tolerance);
  }
};

TEST_P(KernelCosts, ABoundThatAnEarlierKernelWrote) {
  ASSERT_NO_FATAL_FAILURE(Load("sum_to_bound"));
  EXPECT_TRUE(kernel_->steered_by_memory);
  const Function* set = module_.FindEntry("set_bound");
  ASSERT_NE(set, nullptr);
  EXPECT_FALSE(set->steered_by_memory);
  const uint64_t bound = memory_.Put(std::vector<uint32_t>(1)), out = memory_.Put(std::vector<float>(128 * 4));
  double issued[2];
  for (const uint32_t n : {10'000u, 40'000u}) {
    ASSERT_TRUE(Try(*set, Parameters().Add(bound).Add(n), {1, 1}, {1, 1}, Budget()).effect);
    const Parameters p = Parameters().Add(bound).Add(out);
    const Outcome whole = Try(*kernel_, p, {4, 1}, {128, 1}, Everything());
    const Outcome sample = Try(*kernel_, p, {4, 1}, {128, 1}, Sample());
    ExpectClose(sample, whole, 0.02);
    issued[n > 20'000] = Issued(sample);
  }
  EXPECT_NEAR(issued[1] / issued[0], 4, 0.1);
}

TEST_P(KernelCosts, ALoopOfABillionTurnsIsNotEndless) {
  if (GetParam().level == "-O0")
    GTEST_SKIP() << "at -O0 the counter lives in memory, and such loops run whole (emulator/ptx/README.md)";
  ASSERT_NO_FATAL_FAILURE(Load("sum_to_bound"));
  const uint64_t bound = memory_.Put(std::vector<uint32_t>{1'000'000'000}), out = memory_.Put(std::vector<float>(128));
  const Outcome sample = Try(*kernel_, Parameters().Add(bound).Add(out), {1, 1}, {128, 1}, Sample());
  EXPECT_EQ(sample.fidelity, Fidelity::kExtrapolated);
  EXPECT_EQ(sample.cost.unbounded, 0u);
  // Four warps; a turn is at least a product with a sum and the loop itself, and at most what -O2 makes of it unrolled.
  EXPECT_GT(Issued(sample), 4.0 * 3e9);
  EXPECT_LT(Issued(sample), 4.0 * 12e9);
}

TEST_P(KernelCosts, LoopsThatOnlyTheDataEnds) {
  ASSERT_NO_FATAL_FAILURE(Load("collatz"));
  EXPECT_TRUE(kernel_->steered_by_memory);
  const uint32_t n = 50'000;
  std::vector<uint64_t> start(n);
  for (uint64_t& v : start) v = 1 + random_() % 1'000'000'000;
  const uint64_t pv = memory_.Put(start), ps = memory_.Put(std::vector<uint32_t>(n));
  const Parameters p = Parameters().Add(pv).Add(ps).Add(n);
  Budget few = Sample();
  few.sample_instructions = 2'000'000;
  ExpectClose(Try(*kernel_, p, {(n + 255) / 256, 1}, {256, 1}, few),
              Try(*kernel_, p, {(n + 255) / 256, 1}, {256, 1}, Everything()), 0.2);
}

TEST_P(KernelCosts, ProductsOfMatrices) {
  ASSERT_NO_FATAL_FAILURE(Load("matmul"));
  // At -O0 counters live in memory.
  EXPECT_EQ(kernel_->steered_by_memory, GetParam().level == "-O0");
  const uint32_t side = 128;
  const uint64_t pa = memory_.Put(std::vector<float>(side * side, 1)),
                 pb = memory_.Put(std::vector<float>(side * side, 1)),
                 pc = memory_.Put(std::vector<float>(side * side));
  const Parameters p = Parameters().Add(pa).Add(pb).Add(pc).Add(side);
  const Outcome whole = Try(*kernel_, p, {8, 8}, {16, 16}, Everything());
  const Outcome sample = Try(*kernel_, p, {8, 8}, {16, 16}, Sample());
  ExpectClose(sample, whole, 0.05);
}

METE_EVERY_COMPILER(KernelCosts);

}  // namespace
}  // namespace mete::emulator::ptx
