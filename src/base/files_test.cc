#include "base/files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace mete {
namespace {

TEST(ReadFile, ReadsWholeFilesOnly) {
  const std::string path = testing::TempDir() + "mete_files_test";
  std::ofstream(path) << std::string(50'000, 'x');
  EXPECT_EQ(ReadFile(path).value().size(), 50'000U);
  EXPECT_EQ(ExitCodeFor(ReadFile(path, 49'999).status()), ExitCode::kUsage);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ExitCodeFor(ReadFile(testing::TempDir()).status()), ExitCode::kUsage);
  EXPECT_FALSE(ReadFile("/proc/self/stat").value().empty());
}

}  // namespace
}  // namespace mete
