#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulator/simulate/calibrate.h"
#include "emulator/simulate/report.h"

namespace mete::emulator {
namespace {

constexpr char kSmall[] = R"(
name: small
seconds: 1
seed: 3
shares:
  - {name: A, mode: hard, percent: 30, weight: 30, kernel: {ms: 1, blocks: 1000}}
  - {name: B, mode: soft, percent: 70, weight: 70, processes: 2}
sweep: {kernel_ms: [0.5, 2], blocks: [100]}
expect:
  - {share: A, percent: 30}
  - {total: 90}
)";

TEST(Scenario, ReadsWhatIsThereAndFillsInTheRest) {
  const StatusOr<Scenario> scenario = ParseScenario(kSmall, "small");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  EXPECT_EQ(scenario->shares[0].mode, ledger::ComputeMode::kHard);
  EXPECT_EQ(scenario->shares[0].share, 3000u);
  EXPECT_EQ(scenario->shares[1].depth, 8u);
  EXPECT_EQ(scenario->expect[0].to_ns, 1'000'000'000u);
  const std::vector<Case> cases = Cases(*scenario);
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[1].scenario.shares[0].kernel_ms, 1) << "its own stays";
  EXPECT_EQ(cases[1].scenario.shares[1].kernel_ms, 2);
}

TEST(Scenario, SaysWhatIsWrongAndWhere) {
  const auto error = [](const std::string& text) { return Message(ParseScenario(text, "f.yaml").status()); };
  EXPECT_THAT(error("[1, 2"), ::testing::HasSubstr("not YAML"));
  EXPECT_THAT(error("7"), ::testing::HasSubstr("must be a mapping"));
  EXPECT_THAT(error("shares: []"), ::testing::HasSubstr("1 to 64 shares"));
  EXPECT_THAT(error("shares: [{name: A, colour: red}]"), ::testing::HasSubstr("unknown key 'colour'"));
  EXPECT_THAT(error("shares: [{name: A, mode: strict}]"), ::testing::HasSubstr("must be work-conserving, hard, soft"));
  EXPECT_THAT(error("shares: [{name: A, percent: 130}]"), ::testing::HasSubstr("percent must be a number"));
  EXPECT_THAT(error("shares: [{name: A}, {name: A}]"), ::testing::HasSubstr("two shares are called 'A'"));
  EXPECT_THAT(error("shares: [{name: A, lock_step: x, on_ms: 1, off_ms: 1}]"),
              ::testing::HasSubstr("lock_step takes no off_ms"));
  EXPECT_THAT(error("shares: [{name: A, lock_step: x, workload: yolos-small}]"),
              ::testing::HasSubstr("takes no kernel, streams, off_ms or lock_step"));
  EXPECT_THAT(error("{boards: [a100-sxm4-40gb], shares: [{name: A, lock_step: x}]}"),
              ::testing::HasSubstr("lock_step is on one GPU"));
  EXPECT_THAT(error("{shares: [{name: A}], expect: [{share: Z, percent: 3}]}"),
              ::testing::HasSubstr("there is no share 'Z'"));
  EXPECT_THAT(error("{shares: [{name: A}], events: [{at_ms: 3}]}"),
              ::testing::HasSubstr("needs set, kill, broker or fault"));
  EXPECT_THAT(error("{shares: [{name: A}], expect: [{share: A, percent: 3, from_ms: 9, to_ms: 3}]}"),
              ::testing::HasSubstr("in this order"));
  EXPECT_THAT(error("seconds: 2\nshares: [{name: A}]\nevents:\n  - {at_ms: 1999, kill: A}\n  - {at_ms: 2000, kill: A}"),
              ::testing::AllOf(::testing::HasSubstr("f.yaml:5:"), ::testing::HasSubstr("after the end of the run")));
  EXPECT_EQ(ExitCodeFor(ReadScenario("/nonexistent").status()), ExitCode::kUsage);
}

TEST(Calibrate, FindsKernelsOfAnyLengthAndGrid) {
  const GpuParameters gpu;
  for (const double ms : {0.1, 1.0, 10.0}) {
    for (const uint64_t blocks : {1, 108, 1000, 100000}) {
      const StatusOr<Calibrated> kernel = Calibrate(gpu, ms * 1e6, blocks);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_NEAR(MeasureNs(gpu, kernel->cost), ms * 1e6, ms * 1e3) << blocks;
    }
  }
  EXPECT_FALSE(Calibrate(gpu, 10'000, 10'000'000).ok());
}

TEST(Simulation, IsTheSameForTheSameSeedOnly) {
  Scenario scenario = Cases(*ParseScenario(kSmall, "small"))[0].scenario;
  const RunResult one = *Simulation(GpuParameters{}, scenario).Run();
  const RunResult again = *Simulation(GpuParameters{}, scenario).Run();
  EXPECT_EQ(one.shares[0].gpu_ns, again.shares[0].gpu_ns);
  EXPECT_EQ(one.doorbells, again.doorbells);
  scenario.seed = 4;
  EXPECT_NE(one.shares[0].gpu_ns, Simulation(GpuParameters{}, scenario).Run()->shares[0].gpu_ns);
}

TEST(Simulation, RanksInLockStepAreNeverMoreThanAStepApart) {
  const Scenario scenario = *ParseScenario(R"(
seconds: 1
shares:
  - {name: A, mode: soft, weight: 20, depth: 4, lock_step: job, kernel: {ms: 0.1, blocks: 1000}}
  - {name: B, mode: soft, weight: 40, depth: 4, lock_step: job, kernel: {ms: 0.3, blocks: 1000}}
  - {name: C, mode: soft, weight: 40, kernel: {ms: 1, blocks: 1000}}
  - {name: D, mode: soft, weight: 1, depth: 4, lock_step: another, kernel: {ms: 0.1, blocks: 1000}}
)",
                                           "ranks");
  const RunResult run = *Simulation(GpuParameters{}, scenario).Run();
  const std::vector<uint64_t>&a = run.shares[0].completed, &b = run.shares[1].completed;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(std::max(a[i], b[i]), std::min(a[i], b[i]) / 4 * 4 + 4) << "at " << i;
  }
  EXPECT_GT(a.back(), 200u);
  EXPECT_NE(a.back(), run.shares[3].completed.back()) << "a group of its own";
}

TEST(Report, SaysThatItIsSimulatedAndWhatDidNotHold) {
  Scenario scenario = *ParseScenario(kSmall, "small");
  scenario.gates = false;
  const StatusOr<CaseReport> report = RunCase(GpuParameters{}, Cases(scenario)[0]);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->Held()) << "three processes without gates share by process";
  const std::string table = Table(scenario, {*report});
  EXPECT_THAT(table, ::testing::HasSubstr("simulated"));
  EXPECT_THAT(table, ::testing::HasSubstr("NO"));
  const Json json = ToJson(scenario, {*report});
  EXPECT_EQ(json["simulated"], true);
  EXPECT_EQ(json["held"], false);
}

TEST(Report, GivesTheFiguresOfAScenarioThatExpectsNothing) {
  Scenario scenario = *ParseScenario(kSmall, "small");
  scenario.expect.clear();
  const StatusOr<CaseReport> report = RunCase(GpuParameters{}, Cases(scenario)[0]);
  ASSERT_TRUE(report.ok());
  const std::string table = Table(scenario, {*report});
  EXPECT_THAT(table, ::testing::HasSubstr("GPU time"));
  const ShareTimeline& first = report->run.shares[0];
  EXPECT_THAT(table, ::testing::ContainsRegex(fmt::format(
                         "A .*{:.2f} %.* {} ", SharePercent(first, 0, scenario.length_ns), first.completed.back())));
  EXPECT_THAT(table, ::testing::ContainsRegex("B .* %"));
}

}  // namespace
}  // namespace mete::emulator
