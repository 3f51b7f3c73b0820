// Kernels compiled to PTX by clang, at test time, give the results that the same computation gives on the CPU.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "emulator/ptx/ptx.h"
#include "emulator/ptx/test_memory.h"

namespace mete::emulator::ptx {
namespace {

// METE_CLANGS: the compilers CMake found, ':' between them; METE_KERNELS: the folder of the sources.
std::vector<std::string> Compilers() {
  std::vector<std::string> found;
  std::string rest = METE_CLANGS;
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    found.push_back(rest.substr(0, end));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return found;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class Kernels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "none")
      GTEST_SKIP() << "no clang was found when this was configured: install clang-14 or clang-16";
  }
  // Compiles tests/kernels/NAME.cl; its only entry becomes kernel_.
  void Load(const std::string& name) {
    const std::string stem = testing::TempDir() + "mete_kernel_" + name + "_" + std::to_string(getpid());
    const std::string command =
        GetParam() +
        " -x cl --target=nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang sm_70 -Xclang -target-feature"
        " -Xclang +ptx70 -O2 -S -o " +
        stem + ".ptx " METE_KERNELS "/" + name + ".cl >" + stem + ".log 2>&1";
    const int status = std::system(command.c_str());
    const std::string log = ReadAll(stem + ".log"), text = ReadAll(stem + ".ptx");
    std::remove((stem + ".log").c_str());
    std::remove((stem + ".ptx").c_str());
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << log;
    Error error;
    ASSERT_TRUE(Parse(text, 90, &module_, &error)) << error.line << ":" << error.column << ": " << error.message << "\n"
                                                   << text;
    for (const Function& f : module_.functions()) {
      if (f.is_entry) kernel_ = &f;
    }
    ASSERT_NE(kernel_, nullptr);
    PlaceGlobals(&module_, &memory_);
  }
  Outcome Go(const Parameters& parameters, std::array<uint32_t, 2> grid, std::array<uint32_t, 2> block) {
    Launch launch;
    launch.grid[0] = grid[0];
    launch.grid[1] = grid[1];
    launch.block[0] = block[0];
    launch.block[1] = block[1];
    launch.parameters = parameters.data();
    const Outcome out = ptx::Run(module_, *kernel_, launch, memory_, Budget(), nullptr);
    EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
    EXPECT_TRUE(out.effect);
    EXPECT_EQ(out.fidelity, Fidelity::kExact);
    return out;
  }

  Module module_;
  TestMemory memory_;
  const Function* kernel_ = nullptr;
  std::mt19937 random_{20261129};
};

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

std::vector<std::string> CompilersOrNone() {
  std::vector<std::string> found = Compilers();
  if (found.empty()) found.push_back("none");
  return found;
}

INSTANTIATE_TEST_SUITE_P(Clang, Kernels, testing::ValuesIn(CompilersOrNone()),
                         [](const auto& compiler) { return "Compiler" + std::to_string(compiler.index); });

}  // namespace
}  // namespace mete::emulator::ptx
