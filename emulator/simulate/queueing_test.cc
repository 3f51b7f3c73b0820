// A server of requests by chance in virtual time, held against queueing theory. Half an hour of it: a test of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emulator/simulate/report.h"

namespace mete::emulator {
namespace {

CaseReport Outcome(const std::string& text) {
  const StatusOr<Scenario> scenario = ParseScenario(text, "test.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  if (!scenario.ok()) return {};
  StatusOr<CaseReport> report = RunCase({}, Cases(*scenario)[0]);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : CaseReport{};
}

// Requests by chance, one server, equal service: the mean time in the system is known (M/D/1).
TEST(Queueing, WaitingTimesAreThoseOfQueueingTheory) {
  const std::string head =
      "seconds: 1500\nmechanism: time-slicing\nshares: [{name: A, workload: saturating, arrival: {";
  const double service = MeanLatencyMs(Outcome(head + "every_ms: 20}}]").run.shares[0], 0, UINT64_MAX);
  ASSERT_GT(service, 0.5);
  for (const double load : {0.3, 0.6, 0.8}) {
    const double hz = load / (service / 1000);
    const double measured =
        MeanLatencyMs(Outcome(head + fmt::format("poisson_hz: {}}}}}]", hz)).run.shares[0], 0, UINT64_MAX);
    const double theory = service + load * service / (2 * (1 - load));
    EXPECT_NEAR(measured / theory, 1, 0.05) << "load " << load;
  }
}

}  // namespace
}  // namespace mete::emulator
