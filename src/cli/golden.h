// Compares text with a file in src/cli/testdata. METE_UPDATE_GOLDEN=1 writes the file instead, for review with git
// diff.
#ifndef METE_CLI_GOLDEN_H_
#define METE_CLI_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/files.h"

namespace mete::cli {

inline void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(METE_TESTDATA) + "/" + name;
  if (std::getenv("METE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  const auto expected = ReadFile(path);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(text, *expected) << "differs from " << path;
}

}  // namespace mete::cli

#endif  // METE_CLI_GOLDEN_H_
