// Scenarios of a whole node: requests, arrivals, placement by the plan, faults, rules left out.
#include <gmock/gmock.h>

#include "emulator/simulate/report.h"

namespace mete::emulator {
namespace {

using ::testing::HasSubstr;

CaseReport Outcome(const std::string& text, const GpuParameters& gpu = {}) {
  const StatusOr<Scenario> scenario = ParseScenario(text, "test.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  if (!scenario.ok()) return {};
  StatusOr<CaseReport> report = RunCase(gpu, Cases(*scenario)[0]);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : CaseReport{};
}

std::string Error(const std::string& text) { return Message(ParseScenario(text, "f.yaml").status()); }

TEST(Workloads, TheBuiltInTableIsRead) {
  EXPECT_TRUE(BuiltInWorkloads().contains("yolos-small"));
  EXPECT_TRUE(BuiltInWorkloads().contains("xsched-task"));
  EXPECT_EQ(BuiltInWorkloads().at("saturating").steps.size(), 1u);
}

TEST(Workloads, SaysWhatIsWrongAndWhere) {
  const auto error = [](const std::string& steps) {
    Workloads all;
    const std::string head = "schema: mete/workloads/1\nworkloads:\n  - id: a\n    what: b\n    src: [c]\n    steps:\n";
    return Message(ReadWorkloads(head + steps, "w.yaml", &all));
  };
  EXPECT_THAT(error("      - {blocks: 1, threads: 2000}\n"), HasSubstr("w.yaml:7: workloads[0].steps[0]: threads"));
  EXPECT_THAT(error("      - {blocks: 1, threads: 32}\n      - {copy: sideways, mib: 1}\n"), HasSubstr("w.yaml:8:"));
  EXPECT_THAT(error("      - {blocks: 1, threads: 32, warp_instructions: {fp16: 3}}\n"),
              HasSubstr("unknown key 'fp16'"));
  EXPECT_THAT(error("      - {times: 3}\n"), HasSubstr("a step is a kernel"));
  EXPECT_THAT(error("      - {host_us: 1, times: 1000000}\n"), HasSubstr("more than"));
}

TEST(NodeScenario, ErrorsNameFileAndLine) {
  EXPECT_THAT(Error("name: x\nshares:\n  - {name: A}\n  - {name: B, colour: red}\n"),
              HasSubstr("f.yaml:4: shares[1]: unknown"));
  EXPECT_THAT(Error("shares:\n  - name: A\n    processes: 0\n"), HasSubstr("f.yaml:3:"));
  EXPECT_THAT(Error("shares: [{name: A, workload: nothing}]"), HasSubstr("there is no workload 'nothing'; there are"));
  EXPECT_THAT(Error("shares: [{name: A, memory: 3GiB}]"), HasSubstr("need boards"));
  EXPECT_THAT(Error("shares: [{name: A}]\nevents:\n  - {fault: explode}\n"),
              HasSubstr("f.yaml:3: events[0]: fault must be"));
  EXPECT_THAT(Error("shares: [{name: A}]\nevents: [{fault: xid 5000}]"), HasSubstr("none that data/xid.yaml knows"));
  EXPECT_THAT(Error("shares: [{name: A}]\nevents: [{fault: lost, gpu: 3}]"), HasSubstr("there is no GPU 3"));
  EXPECT_THAT(Error("shares:\n  - {name: A, workload: saturating, arrival: {closed_ms: 1, poisson_hz: 1}}\n"),
              HasSubstr("give one of"));
  EXPECT_THAT(Error("a: [\nb: }\n"), HasSubstr("f.yaml:2: not YAML"));
}

TEST(MigScenario, SaysWhatIsWrong) {
  const std::string head = "mechanism: mig\nboards: [a100-sxm4-40gb]\n";
  EXPECT_THAT(Error("mechanism: mig\nshares: [{name: A, instance: i}]"), HasSubstr("mechanism mig needs boards"));
  EXPECT_THAT(Error("instances: [{name: i, profile: 1g.5gb}]\nshares: [{name: A}]"), HasSubstr("need mechanism mig"));
  EXPECT_THAT(Error("shares: [{name: A, instance: i}]"), HasSubstr("without it none"));
  EXPECT_THAT(Error(head + "shares: [{name: A}]"), HasSubstr("names its instance"));
  const auto placing = [&](const std::string& rest) {
    const StatusOr<Scenario> scenario = ParseScenario(head + rest, "f.yaml");
    EXPECT_TRUE(scenario.ok()) << scenario.status();
    return Message(RunCase(GpuParameters{}, Cases(*scenario)[0]).status());
  };
  const std::string share = "shares: [{name: A, instance: i, workload: saturating}]\n";
  EXPECT_THAT(placing("instances: [{name: j, profile: 1g.5gb}]\n" + share), HasSubstr("there is no instance 'i'"));
  EXPECT_THAT(placing("instances: [{name: i, profile: 1g.6gb}]\n" + share), HasSubstr("there are 1g.5gb, 1g.5gb+me"));
  EXPECT_THAT(placing("instances: [{name: i, profile: 3g.20gb, start: 1}]\n" + share), HasSubstr("it can at 0, 4"));
  EXPECT_THAT(placing("instances: [{name: i, profile: 1g.5gb, gpu: 1}]\n" + share), HasSubstr("no GPU 1 with MIG"));
  EXPECT_THAT(placing("instances: [{name: i, profile: 3g.20gb, compute: [1c]}]\n" + share),
              HasSubstr("there are 1c.3g.20gb"));
  EXPECT_THAT(placing("instances: [{name: i, profile: 1g.5gb}]\nshares: [{name: A, instance: i/3}]\n"),
              HasSubstr("no compute instance 'i/3'"));
}

TEST(NodeScenario, EqualSeedsGiveEqualBytes) {
  const std::string text = R"(
seconds: 4
mechanism: time-slicing
shares:
  - {name: A, workload: saturating, arrival: {poisson_hz: 300}}
  - {name: B, workload: saturating, processes: 2}
events: [{fault: xid 31, share: B, probability: 0.3}]
seed: )";
  const auto bytes = [&](int seed) {
    const Scenario scenario = *ParseScenario(text + std::to_string(seed), "t");
    return ToText(ToJson(scenario, {*RunCase({}, Cases(scenario)[0])}));
  };
  EXPECT_EQ(bytes(1), bytes(1));
  EXPECT_NE(bytes(1), bytes(2));
}

TEST(NodeScenario, ATraceIsServedInItsOrder) {
  const CaseReport report = Outcome(
      "mechanism: time-slicing\nshares: [{name: A, workload: saturating, arrival: {trace_ms: [5, 5, 5, 900]}}]");
  const auto& requests = report.run.shares[0].requests;
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[2].arrived_ns, 5'000'000u);
  EXPECT_GT(requests[2].ended_ns - requests[2].arrived_ns, 2 * (requests[0].ended_ns - requests[0].arrived_ns));
  EXPECT_EQ(requests[3].arrived_ns, 900'000'000u);
}

TEST(NodeScenario, ThePlanPlacesAndRefuses) {
  const CaseReport report = Outcome(R"(
seconds: 1
boards: [t4, a100-sxm4-40gb]
shares:
  - {name: big, memory: 30GiB, kernel: {ms: 1, blocks: 100}}
  - {name: small, memory: 10GiB, compute: "40%", kernel: {ms: 1, blocks: 100}}
  - {name: late, memory: 20GiB, kernel: {ms: 1, blocks: 100}}
)");
  ASSERT_EQ(report.placed.size(), 3u);
  EXPECT_EQ(report.placed[0].gpu, 1u);
  EXPECT_EQ(report.placed[1].gpu, 0u);
  EXPECT_THAT(report.placed[2].refused, HasSubstr("big"));
  EXPECT_EQ(report.asked.scenario.shares[1].share, 4000u);
  EXPECT_TRUE(report.run.shares[2].completed.empty());
  const Json json = ToJson(report.asked.scenario, {report});
  EXPECT_THAT(json["cases"][0]["shares"][2]["refused"].get<std::string>(), HasSubstr("GiB"));
}

TEST(NodeScenario, TimeSlicingAcceptsNoPromiseItCannotKeep) {
  const CaseReport report = Outcome(
      "boards: [t4]\nmechanism: time-slicing\nseconds: 1\nshares: [{name: A, memory: 1GiB, kernel: {ms: 1, blocks: "
      "9}}]");
  EXPECT_THAT(report.placed[0].refused, HasSubstr("keeps neither"));
}

// --- A rule left out must be noticed by what is expected -----------------------------------------------------------

Scenario Read(const std::string& name) { return *ReadScenario(METE_SCENARIOS "/" + name); }

TEST(WithoutRule, SlicesAndBandwidth) {
  for (const auto& [name, slices] :
       {std::pair{"numbers/slice-of-cuda.yaml", true}, {"node/copies-and-kernels.yaml", false}}) {
    const Scenario scenario = Read(name);
    EXPECT_TRUE(RunCase({}, Cases(scenario)[0])->Held()) << name;
    GpuParameters without;
    (slices ? without.without_slices : without.without_bandwidth) = true;
    EXPECT_FALSE(RunCase(without, Cases(scenario)[0])->Held()) << name;
  }
}

}  // namespace
}  // namespace mete::emulator
