// Kernels that compute with floating point, against the same on the CPU. clang may fuse a product and a sum where the
// CPU code here does not, and approximate functions have the error that PTX allows: bounds say how far results may lie
// apart.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/ptx/half.h"
#include "tests/kernels/kernel_fixture.h"

namespace mete::emulator::ptx {
namespace {

class NumberKernels : public Kernels {
 protected:
  std::vector<float> Numbers(size_t n, float scale) {
    std::vector<float> values(n);
    for (float& v : values) v = (static_cast<float>(random_() % 20'001) - 10'000) / 10'000 * scale;
    return values;
  }
};

TEST_P(NumberKernels, Softmax) {
  ASSERT_NO_FATAL_FAILURE(Load("softmax"));
  const uint32_t width = 300, rows = 9;
  const std::vector<float> in = Numbers(width * rows, 20);
  const uint64_t pi = memory_.Put(in), po = memory_.Put(std::vector<float>(in.size()));
  Go(Parameters().Add(pi).Add(po).Add(width), {rows, 1}, {128, 1});
  const std::vector<float> out = memory_.Get<float>(po);
  for (uint32_t row = 0; row < rows; ++row) {
    const double highest = *std::max_element(&in[row * width], &in[row * width] + width);
    double sum = 0;
    for (uint32_t i = 0; i < width; ++i) sum += std::exp(in[row * width + i] - highest);
    for (uint32_t i = 0; i < width; ++i) {
      const double expected = std::exp(in[row * width + i] - highest) / sum;
      ASSERT_NEAR(out[row * width + i], expected, 1e-5 * expected + 1e-12) << row << " " << i;
    }
  }
}

TEST_P(NumberKernels, FivePointStencil) {
  ASSERT_NO_FATAL_FAILURE(Load("stencil"));
  const int width = 50, height = 34;
  const std::vector<float> in = Numbers(static_cast<size_t>(width * height), 3);
  const uint64_t pi = memory_.Put(in), po = memory_.Put(std::vector<float>(in.size()));
  Go(Parameters().Add(pi).Add(po).Add(width).Add(height), {4, 5}, {16, 8});
  const std::vector<float> out = memory_.Get<float>(po);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const size_t at = static_cast<size_t>(y * width + x), w = static_cast<size_t>(width);
      const bool rim = x == 0 || y == 0 || x == width - 1 || y == height - 1;
      const float expected =
          rim ? in[at] : 0.5f * in[at] + 0.125f * (in[at - 1] + in[at + 1] + in[at - w] + in[at + w]);
      ASSERT_NEAR(out[at], expected, 1e-6) << x << " " << y;
    }
  }
}

TEST_P(NumberKernels, AxpyInDoublePrecision) {
  ASSERT_NO_FATAL_FAILURE(Load("axpy"));
  const uint64_t n = 3'000;
  std::vector<double> x(n), y(n), expected(n);
  const double a = 1.0 / 3;
  for (uint64_t i = 0; i < n; ++i) {
    x[i] = static_cast<double>(random_()) / 7, y[i] = static_cast<double>(random_()) / 11;
    expected[i] = std::fma(a, x[i], y[i]);
  }
  const uint64_t px = memory_.Put(x), py = memory_.Put(y);
  Go(Parameters().Add(a).Add(px).Add(py).Add(n), {5, 1}, {128, 1});
  EXPECT_EQ(memory_.Get<double>(py), expected);
}

TEST_P(NumberKernels, AxpyOnHalves) {
  ASSERT_NO_FATAL_FAILURE(Load("half_axpy"));
  const uint32_t n = 1'000;
  std::vector<uint16_t> x(n), y(n), expected(n);
  const float a = 0.7f;
  for (uint32_t i = 0; i < n; ++i) {
    x[i] = static_cast<uint16_t>(random_() % 0x7c00), y[i] = static_cast<uint16_t>(0x8000 | random_() % 0x5000);
    expected[i] = HalfOfDouble(std::fma(a, FloatOfHalf(x[i]), FloatOfHalf(y[i])));
  }
  const uint64_t px = memory_.Put(x), py = memory_.Put(y);
  Go(Parameters().Add(a).Add(uint32_t{0}).Add(px).Add(py).Add(n), {8, 1}, {128, 1});
  EXPECT_EQ(memory_.Get<uint16_t>(py), expected);
}

TEST_P(NumberKernels, BodiesPullEachOther) {
  ASSERT_NO_FATAL_FAILURE(Load("nbody"));
  const uint32_t n = 150;
  const std::vector<float> bodies = Numbers(n * 4, 1);
  const uint64_t pb = memory_.Put(bodies), pa = memory_.Put(std::vector<float>(n * 4));
  Go(Parameters().Add(pb).Add(pa).Add(n), {3, 1}, {64, 1});
  const std::vector<float> out = memory_.Get<float>(pa);
  for (uint32_t i = 0; i < n; ++i) {
    double sum[3] = {}, size = 0;
    for (uint32_t k = 0; k < n; ++k) {
      double d[3], square = 0.01;
      for (int c = 0; c < 3; ++c) d[c] = bodies[k * 4 + c] - bodies[i * 4 + c], square += d[c] * d[c];
      for (int c = 0; c < 3; ++c) {
        const double pull = d[c] * bodies[k * 4 + 3] / (square * std::sqrt(square));
        sum[c] += pull;
        size += std::fabs(pull);
      }
    }
    for (int c = 0; c < 3; ++c) ASSERT_NEAR(out[i * 4 + c], sum[c], 1e-5 * size) << i;
  }
}

TEST_P(NumberKernels, SparseMatrixTimesVector) {
  ASSERT_NO_FATAL_FAILURE(Load("sparse"));
  const uint32_t rows = 123, columns_of_all = 400;
  std::vector<uint32_t> starts = {0}, columns;
  std::vector<float> values;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t k = random_() % 90; k > 0; --k) {
      columns.push_back(random_() % columns_of_all);
      values.push_back(static_cast<float>(random_() % 256));
    }
    starts.push_back(static_cast<uint32_t>(columns.size()));
  }
  std::vector<float> x(columns_of_all), expected(rows);
  for (float& v : x) v = static_cast<float>(random_() % 256);  // small whole numbers: exact in every order
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t i = starts[row]; i < starts[row + 1]; ++i) expected[row] += values[i] * x[columns[i]];
  const uint64_t ps = memory_.Put(starts), pc = memory_.Put(columns), pv = memory_.Put(values), px = memory_.Put(x);
  const uint64_t py = memory_.Put(std::vector<float>(rows));
  Go(Parameters().Add(ps).Add(pc).Add(pv).Add(px).Add(py).Add(rows), {(rows + 3) / 4, 1}, {128, 1});
  EXPECT_EQ(memory_.Get<float>(py), expected);
}

TEST_P(NumberKernels, MandelbrotEscapes) {
  ASSERT_NO_FATAL_FAILURE(Load("mandelbrot"));
  const uint32_t width = 64, height = 48, limit = 200;
  const float scale = 0.05f;
  const uint64_t ps = memory_.Put(std::vector<uint16_t>(width * height));
  Go(Parameters().Add(ps).Add(width).Add(height).Add(scale).Add(limit), {4, 6}, {16, 8});
  const std::vector<uint16_t> steps = memory_.Get<uint16_t>(ps);
  uint32_t same = 0;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      const float cx = static_cast<float>(static_cast<int>(x) - static_cast<int>(width / 2)) * scale - 0.5f;
      const float cy = static_cast<float>(static_cast<int>(y) - static_cast<int>(height / 2)) * scale;
      float a = 0, b = 0;
      uint32_t count = 0;
      for (; count < limit && a * a + b * b < 4; ++count) {
        const float next = a * a - b * b + cx;
        b = 2 * a * b + cy;
        a = next;
      }
      same += steps[y * width + x] == count ? 1 : 0;
    }
  }
  // A fused product moves a point on the very rim; everywhere else the counts are the same.
  EXPECT_GE(same, width * height * 98 / 100);
}

METE_EVERY_COMPILER(NumberKernels);

}  // namespace
}  // namespace mete::emulator::ptx
