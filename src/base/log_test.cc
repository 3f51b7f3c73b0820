#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace mete {
namespace {

TEST(Log, WritesFactsAtOrAboveTheLevelToItsFile) {
  const std::string path = testing::TempDir() + "mete_log_test.log";
  std::remove(path.c_str());
  ASSERT_TRUE(log::SendToFile(path).ok());
  ASSERT_TRUE(log::SetLevel("INFO").ok());
  log::Debug("unseen={}", 1);
  log::Info("shares={} text={}", 3, "{}");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr("info pid="));
  EXPECT_THAT(text.str(), testing::HasSubstr("shares=3 text={}"));
  EXPECT_THAT(text.str(), testing::Not(testing::HasSubstr("unseen")));
  std::remove(path.c_str());
}

TEST(Log, RefusesUnknownLevelsAndPaths) {
  EXPECT_EQ(ExitCodeFor(log::SetLevel("loud")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(log::SendToFile("/proc/no/such/place")), ExitCode::kLacks);
}

}  // namespace
}  // namespace mete
