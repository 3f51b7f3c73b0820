// Kernels that move, count and order data, against the same on the CPU.
#include <algorithm>

#include "tests/kernels/kernel_fixture.h"

namespace mete::emulator::ptx {
namespace {

class DataKernels : public Kernels {};

TEST_P(DataKernels, ScanInsideBlocks) {
  ASSERT_NO_FATAL_FAILURE(Load("scan"));
  const uint32_t n = 1'111;
  std::vector<uint32_t> values(n);
  for (uint32_t& v : values) v = random_();
  for (const uint32_t threads : {32u, 100u, 256u}) {
    const uint64_t pv = memory_.Put(values), ps = memory_.Put(std::vector<uint32_t>(n));
    Go(Parameters().Add(pv).Add(ps).Add(n), {(n + threads - 1) / threads, 1}, {threads, 1});
    const std::vector<uint32_t> sums = memory_.Get<uint32_t>(ps);
    for (uint32_t i = 0; i < n; ++i) {
      uint32_t want = 0;
      for (uint32_t k = i / threads * threads + 1; k <= i; ++k) want += values[k - 1];
      ASSERT_EQ(sums[i], want) << i << " of " << threads;
    }
  }
}

TEST_P(DataKernels, TransposeThroughSharedMemory) {
  ASSERT_NO_FATAL_FAILURE(Load("transpose"));
  const uint32_t width = 75, height = 42;
  std::vector<double> in(width * height);
  for (double& v : in) v = static_cast<double>(random_()) / 7;
  const uint64_t pi = memory_.Put(in), po = memory_.Put(std::vector<double>(width * height));
  Go(Parameters().Add(pi).Add(po).Add(width).Add(height), {5, 3}, {16, 16});
  const std::vector<double> out = memory_.Get<double>(po);
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x) ASSERT_EQ(out[x * height + y], in[y * width + x]) << x << " " << y;
}

TEST_P(DataKernels, BitonicSort) {
  ASSERT_NO_FATAL_FAILURE(Load("bitonic_sort"));
  std::vector<int64_t> keys(3 * 512);
  for (int64_t& k : keys) k = static_cast<int64_t>(random_()) << 32 | random_();
  keys[7] = keys[300] = -5;
  const uint64_t pk = memory_.Put(keys);
  Go(Parameters().Add(pk), {3, 1}, {256, 1});
  for (int block = 0; block < 3; ++block) std::sort(keys.begin() + block * 512, keys.begin() + (block + 1) * 512);
  EXPECT_EQ(memory_.Get<int64_t>(pk), keys);
}

TEST_P(DataKernels, ConvolutionOfBytesWithAConstantFilter) {
  ASSERT_NO_FATAL_FAILURE(Load("convolution"));
  const int width = 61, height = 37;
  static const int kFilter[5][5] = {
      {1, 4, 6, 4, 1}, {4, 16, 24, 16, 4}, {6, 24, -36, 24, 6}, {4, 16, 24, 16, 4}, {1, 4, 6, 4, 1}};
  std::vector<uint8_t> in(width * height), expected(width * height);
  for (uint8_t& v : in) v = static_cast<uint8_t>(random_());
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      int sum = 0;
      for (int j = -2; j <= 2; ++j)
        for (int i = -2; i <= 2; ++i)
          sum += kFilter[j + 2][i + 2] * in[std::clamp(y + j, 0, height - 1) * width + std::clamp(x + i, 0, width - 1)];
      expected[y * width + x] = static_cast<uint8_t>(std::clamp(sum / 184, 0, 255));
    }
  }
  const uint64_t pi = memory_.Put(in), po = memory_.Put(std::vector<uint8_t>(in.size()));
  Go(Parameters().Add(pi).Add(po).Add(width).Add(height), {8, 10}, {8, 4});
  EXPECT_EQ(memory_.Get<uint8_t>(po), expected);
}

TEST_P(DataKernels, RadixCountsWithBallots) {
  ASSERT_NO_FATAL_FAILURE(Load("radix_count"));
  const uint32_t n = 5'000, threads = 192, blocks = (n + threads - 1) / threads, shift = 8;
  std::vector<uint32_t> keys(n), expected(blocks * 16);
  for (uint32_t i = 0; i < n; ++i) keys[i] = random_(), ++expected[i / threads * 16 + (keys[i] >> shift & 15)];
  const uint64_t pk = memory_.Put(keys), pc = memory_.Put(std::vector<uint32_t>(blocks * 16));
  Go(Parameters().Add(pk).Add(pc).Add(shift).Add(n), {blocks, 1}, {threads, 1});
  EXPECT_EQ(memory_.Get<uint32_t>(pc), expected);
}

uint64_t Choose(uint32_t n, uint32_t k) { return k == 0 || k == n ? 1 : Choose(n - 1, k - 1) + Choose(n - 1, k); }

TEST_P(DataKernels, RecursionAndStructuresByValue) {
  ASSERT_NO_FATAL_FAILURE(Load("recursion"));
  const uint32_t n = 11;
  const uint64_t pr = memory_.Put(std::vector<uint64_t>(64));
  Go(Parameters().Add(pr).Add(n), {2, 1}, {32, 1});
  const std::vector<uint64_t> results = memory_.Get<uint64_t>(pr);
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t k = i % 32 % (n + 1);
    const uint64_t c = Choose(n, k);
    const uint64_t expected[] = {c + 3, c ^ 5, c * 7, ~c, c >> 1};
    ASSERT_EQ(results[i], expected[k % 5]) << i;
  }
}

METE_EVERY_COMPILER(DataKernels);

}  // namespace
}  // namespace mete::emulator::ptx
