// A fixture for kernels that clang compiles when the test runs: once per compiler and optimisation that were found.
#ifndef METE_TESTS_KERNELS_KERNEL_FIXTURE_H_
#define METE_TESTS_KERNELS_KERNEL_FIXTURE_H_

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

struct Compiler {
  std::string program, level;
};
inline std::ostream& operator<<(std::ostream& out, const Compiler& c) { return out << c.program << " " << c.level; }

// METE_CLANGS: the compilers CMake found, ':' between them; METE_KERNELS: the folder of the sources.
inline std::vector<Compiler> Compilers() {
  std::vector<Compiler> found;
  std::string rest = METE_CLANGS;
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    for (const char* level : {"-O0", "-O2"}) found.push_back({rest.substr(0, end), level});
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  if (found.empty()) found.push_back({"none", ""});
  return found;
}

class Kernels : public testing::TestWithParam<Compiler> {
 protected:
  void SetUp() override {
    if (GetParam().program == "none")
      GTEST_SKIP() << "no clang was found when this was configured: install clang-14 or clang-16";
  }
  static std::string ReadAll(const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  // Compiles tests/kernels/NAME.cl; its last entry becomes kernel_.
  void Load(const std::string& name) {
    const std::string stem = testing::TempDir() + "mete_kernel_" + name + "_" + std::to_string(getpid());
    const std::string command =
        GetParam().program +
        " -x cl --target=nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang sm_70 -Xclang -target-feature"
        " -Xclang +ptx70 " +
        GetParam().level + " -S -o " + stem + ".ptx " METE_KERNELS "/" + name + ".cl >" + stem + ".log 2>&1";
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
    const Outcome out = Try(*kernel_, parameters, grid, block, Budget());
    EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
    EXPECT_TRUE(out.effect);
    EXPECT_EQ(out.fidelity, Fidelity::kExact);
    return out;
  }
  Outcome Try(const Function& function, const Parameters& parameters, std::array<uint32_t, 2> grid,
              std::array<uint32_t, 2> block, const Budget& budget) {
    Launch launch;
    launch.grid[0] = grid[0];
    launch.grid[1] = grid[1];
    launch.block[0] = block[0];
    launch.block[1] = block[1];
    launch.parameters = parameters.data();
    return ptx::Run(module_, function, launch, memory_, budget, nullptr);
  }

  Module module_;
  TestMemory memory_;
  const Function* kernel_ = nullptr;
  std::mt19937 random_{20261129};
};

#define METE_EVERY_COMPILER(Suite)                                       \
  INSTANTIATE_TEST_SUITE_P(Clang, Suite, testing::ValuesIn(Compilers()), \
                           [](const auto& compiler) { return "Compiler" + std::to_string(compiler.index); })

}  // namespace mete::emulator::ptx

#endif  // METE_TESTS_KERNELS_KERNEL_FIXTURE_H_
