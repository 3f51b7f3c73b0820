// The promise for compute over generated situations, with fixed seeds; prints the worst of each row. More of them, and
// the closing figures: mete-simulate --accuracy.
#include "emulator/simulate/accuracy.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace mete::emulator {
namespace {

class Accuracy : public ::testing::TestWithParam<const char*> {};

TEST_P(Accuracy, HoldsInEverySituation) {
  const uint64_t cases = std::getenv("METE_LONG_TESTS") != nullptr ? 10 : 2;
  const auto rows = MeasureAccuracy(GetParam(), cases, 1);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_FALSE(rows->empty());
  printf("%s", AccuracyTable(*rows, 1).c_str());
  for (const AccuracyRow& row : *rows) EXPECT_TRUE(row.Held()) << row.name;
}
INSTANTIATE_TEST_SUITE_P(Row, Accuracy,
                         ::testing::Values("alone-hard", "unlimited", "two", "three-four", "five-eight", "long-kernels",
                                           "step", "synchronous", "lock-step", "bursty", "killed"));

// Share of the GPU that a kernel of so many blocks gets under a cap: time is what counts, not blocks.
TEST(Fault38, ASmallGridGetsItsPercentAndNotMore) {
  const auto rows = MeasureAccuracy("small-grids", 4, 1);
  ASSERT_TRUE(rows.ok() && !rows->empty());
  EXPECT_TRUE((*rows)[0].Held()) << AccuracyTable(*rows, 1);
}
TEST(Fault39, TheLimitStaysWhenAloneAndDoesNotSwing) {
  const auto rows = MeasureAccuracy("alone-hard", 1, 7);
  ASSERT_TRUE(rows.ok() && !rows->empty());
  for (const AccuracyRow& row : *rows) EXPECT_TRUE(row.Held()) << AccuracyTable(*rows, 7);
}
TEST(Fault57, LimitsChangeWhileProgramsRun) {
  const auto rows = MeasureAccuracy("step", 2, 7);
  ASSERT_TRUE(rows.ok() && !rows->empty());
  EXPECT_TRUE((*rows)[0].Held()) << AccuracyTable(*rows, 7);
}

TEST(AccuracyTable, NamesTheCaseThatBrokeThePromise) {
  AccuracyRow row;
  row.name = "row";
  row.over_1_s = {3.5, 2.0, 1.75, "A in 30%h"};
  EXPECT_FALSE(row.Held());
  const std::string table = AccuracyTable({row}, 5);
  EXPECT_NE(table.find("simulated"), std::string::npos);
  EXPECT_NE(table.find("NO"), std::string::npos);
  EXPECT_NE(table.find("A in 30%h"), std::string::npos);
  EXPECT_EQ(AccuracyJson({row}, 5)["rows"][0]["held"], false);
}

}  // namespace
}  // namespace mete::emulator
