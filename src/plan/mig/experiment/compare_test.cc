// The claims of the planner, held by the experiment that prints them (mig_experiment) at a smaller size.
#include "plan/mig/experiment/compare.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace mete::plan::mig {
namespace {

class ThePlanner : public testing::TestWithParam<const char*> {};

TEST_P(ThePlanner, LosesLessThanEverySingleOrderAndLittleAgainstTheBestOfEachMix) {
  const States states = *States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find(GetParam())));
  // Ten seeds where time is no matter; four show it as well, with a wider spread.
  const Comparison comparison = Compare(states, std::getenv("METE_LONG_TESTS") != nullptr ? 10 : 4, 4000);
  ASSERT_EQ(comparison.means.front().first, "mete");
  EXPECT_GE(comparison.means.size(), 6u);
  const double ours = comparison.means.front().second;
  EXPECT_GT(ours, 0.01);
  for (size_t i = 1; i < comparison.means.size(); ++i) {
    EXPECT_LT(ours, comparison.means[i].second) << comparison.means[i].first;
  }
  int adversarial = 0;
  for (const Row& row : comparison.rows) {
    adversarial += row.mix.adversarial ? 1 : 0;
    EXPECT_GT(row.best.mean, 0) << row.mix.name;
    EXPECT_LT(row.worst.high, 1) << row.mix.name;  // no policy broke a rule (2) or lost everything
    EXPECT_LE(row.worse_than_best, 0.08) << row.mix.name << ", " << row.mix.gpus << " GPUs, load " << row.mix.load;
  }
  EXPECT_GE(adversarial, 6);
}

INSTANTIATE_TEST_SUITE_P(Mig, ThePlanner, testing::Values("a100-sxm4-40gb", "h100-sxm5-80gb", "a30"));

TEST(Experiment, FindsAPolicyThatBreaksARule) {
  const States states = *States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find("a30")));
  const Stream stream = MakeStream(states.geometry(), MixesFor(states.geometry()).front(), 1, 50);
  EXPECT_EQ(Loss(states, stream, 1, [](std::span<const uint32_t>, int) { return Place{}; }), 2);
  EXPECT_EQ(Loss(states, stream, 1, [](std::span<const uint32_t>, int) { return Place{0, 0}; }), 2);
}

}  // namespace
}  // namespace mete::plan::mig
