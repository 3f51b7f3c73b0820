// Kernels compiled to PTX by clang, at test time, give the results that the same computation gives on the CPU.
#include "tests/kernels/kernel_fixture.h"

namespace mete::emulator::ptx {
namespace {

TEST_P(Kernels, VectorAdd) {
  ASSERT_NO_FATAL_FAILURE(Load("vector_add"));
  const uint32_t n = 10'001;
  std::vector<float> a(n), b(n);
  for (uint32_t i = 0; i < n; ++i)
    a[i] = static_cast<float>(random_()) / 3.0f, b[i] = static_cast<float>(random_()) / 7.0f;
  const uint64_t pa = memory_.Put(a), pb = memory_.Put(b), ps = memory_.Put(std::vector<float>(n));
  Go(Parameters().Add(pa).Add(pb).Add(ps).Add(n), {(n + 127) / 128, 1}, {128, 1});
  const std::vector<float> sum = memory_.Get<float>(ps);
  for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << i;
}

TEST_P(Kernels, MatrixProductWithSharedMemoryAndBarriers) {
  ASSERT_NO_FATAL_FAILURE(Load("matmul"));
  const uint32_t side = 64;
  std::vector<float> a(side * side), b(side * side);
  for (float& v : a) v = static_cast<float>(random_() % 64);
  for (float& v : b) v = static_cast<float>(random_() % 64);
  const uint64_t pa = memory_.Put(a), pb = memory_.Put(b), pc = memory_.Put(std::vector<float>(side * side));
  const Outcome out = Go(Parameters().Add(pa).Add(pb).Add(pc).Add(side), {side / 16, side / 16}, {16, 16});
  EXPECT_EQ(out.cost.shared_bytes_per_block, 2u * 16 * 16 * 4);
  const std::vector<float> c = memory_.Get<float>(pc);
  for (uint32_t row = 0; row < side; ++row) {
    for (uint32_t column = 0; column < side; ++column) {
      float sum = 0;  // small whole numbers: exact in every order
      for (uint32_t k = 0; k < side; ++k) sum += a[row * side + k] * b[k * side + column];
      ASSERT_EQ(c[row * side + column], sum) << row << " " << column;
    }
  }
}

TEST_P(Kernels, ReductionWithShuffles) {
  ASSERT_NO_FATAL_FAILURE(Load("reduction"));
  for (const uint32_t threads : {32u, 96u, 256u, 1024u}) {
    const uint32_t n = 12'345, blocks = 5;
    std::vector<int32_t> values(n);
    for (int32_t& v : values) v = static_cast<int32_t>(random_());
    const uint64_t pv = memory_.Put(values), ps = memory_.Put(std::vector<int32_t>(blocks));
    Go(Parameters().Add(pv).Add(ps).Add(n), {blocks, 1}, {threads, 1});
    std::vector<uint32_t> expected(blocks);
    for (uint32_t i = 0; i < n; ++i) expected[i / threads % blocks] += static_cast<uint32_t>(values[i]);
    const std::vector<uint32_t> sums = memory_.Get<uint32_t>(ps);
    EXPECT_EQ(sums, expected) << threads;
  }
}

TEST_P(Kernels, HistogramWithAtomics) {
  ASSERT_NO_FATAL_FAILURE(Load("histogram"));
  const uint32_t n = 20'000;
  std::vector<uint8_t> values(n);
  std::vector<uint32_t> expected(256);
  for (uint8_t& v : values) v = static_cast<uint8_t>(random_() % 3 == 0 ? 7 : random_()), ++expected[v];
  const uint64_t pv = memory_.Put(values), pb = memory_.Put(std::vector<uint32_t>(256));
  Go(Parameters().Add(pv).Add(pb).Add(n), {6, 1}, {192, 1});
  EXPECT_EQ(memory_.Get<uint32_t>(pb), expected);
}

TEST_P(Kernels, CollatzWithDivergentLoops) {
  ASSERT_NO_FATAL_FAILURE(Load("collatz"));
  const uint32_t n = 1500;
  std::vector<uint64_t> start(n);
  std::vector<uint32_t> expected(n);
  for (uint32_t i = 0; i < n; ++i) {
    start[i] = 1 + random_() % 1'000'000'000;
    for (uint64_t v = start[i]; v != 1; v = v % 2 == 0 ? v / 2 : 3 * v + 1) ++expected[i];
  }
  const uint64_t pv = memory_.Put(start), ps = memory_.Put(std::vector<uint32_t>(n));
  Go(Parameters().Add(pv).Add(ps).Add(n), {(n + 255) / 256, 1}, {256, 1});
  EXPECT_EQ(memory_.Get<uint32_t>(ps), expected);
}

METE_EVERY_COMPILER(Kernels);

}  // namespace
}  // namespace mete::emulator::ptx
