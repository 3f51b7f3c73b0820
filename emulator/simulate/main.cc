// mete-simulate FILE…: runs scenarios in virtual time with the real ledger and prints what each share got.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/output.h"
#include "emulator/simulate/accuracy.h"
#include "emulator/simulate/report.h"
#include "emulator/simulate/wall.h"

namespace mete::emulator {
namespace {

struct Options {
  std::vector<std::string> files;
  std::optional<std::string> accuracy;  // rows
  uint64_t cases = 20;
  bool json = false, check = false, no_gates = false;
  std::vector<std::string> without;  // rules, for tests
  std::string wall;                  // a node's folder; empty: virtual time
  double wall_seconds = 10;
  std::optional<uint64_t> seed;
};

// The latencies that the scenario expects, held against what real processes saw.
StatusOr<bool> RunWall(const Options& options, Scenario scenario, const GpuParameters& gpu, Json* json) {
  METE_ASSIGN_OR_RETURN(const std::vector<EngineSettings::Gpu> boards, NodeOf(scenario, gpu));
  METE_ASSIGN_OR_RETURN(const std::vector<Placed> placed, Place(boards, &scenario));
  METE_ASSIGN_OR_RETURN(const WallReport report,
                        RunOnNode(scenario, placed, boards, options.wall, options.wall_seconds));
  Json one = {{"emulated", true},
              {"clock", "wall"},
              {"scenario", scenario.name},
              {"seconds", options.wall_seconds},
              {"timer_late_p99_ms", report.timer_late_p99_ms},
              {"void", report.Void()}};
  bool held = true;
  for (const ExpectSpec& expect : scenario.expect) {
    if (expect.kind != ExpectKind::kLatency) continue;
    const double ms = MeanLatencyMs(report.shares[expect.share], 0, UINT64_MAX);
    const bool this_held = std::abs(ms - expect.value) <= expect.value * expect.within / 100;
    held = held && this_held;
    one["shares"].push_back({{"name", scenario.shares[expect.share].name},
                             {"requests", report.shares[expect.share].requests.size()},
                             {"latency_ms", ms},
                             {"expected_ms", expect.value},
                             {"within_percent", expect.within},
                             {"held", this_held}});
  }
  one["held"] = held;
  if (options.json) {
    json->push_back(one);
  } else {
    Print("emulated node, wall clock · {}: {}\n", scenario.name, scenario.purpose);
    for (const Json& share : one["shares"]) {
      Print("  {}: {:.1f} ms over {} requests, expected {:g} ± {:g} %: {}\n", share["name"].get<std::string>(),
            share["latency_ms"].get<double>(), share["requests"].get<uint64_t>(), share["expected_ms"].get<double>(),
            share["within_percent"].get<double>(),
            report.Void()               ? "VOID, the machine's timer was late"
            : share["held"].get<bool>() ? "held"
                                        : "NOT HELD");
    }
  }
  return held || report.Void();
}

StatusOr<bool> RunFile(const Options& options, const std::string& file, Json* json) {
  METE_ASSIGN_OR_RETURN(Scenario scenario, ReadScenario(file));
  if (options.seed) scenario.seed = *options.seed;
  if (options.no_gates) scenario.gates = false;
  GpuParameters gpu;
  for (const std::string& rule : options.without) {
    if (rule == "slices") {
      gpu.without_slices = true;
    } else if (rule == "bandwidth") {
      gpu.without_bandwidth = true;
    } else {
      return Usage("--test-without {}: the rules that can be left out here are slices and bandwidth", rule);
    }
  }
  if (!options.wall.empty()) return RunWall(options, scenario, gpu, json);
  std::vector<CaseReport> reports;
  for (const Case& one : Cases(scenario)) {
    METE_ASSIGN_OR_RETURN(CaseReport report, RunCase(gpu, one));
    reports.push_back(std::move(report));
  }
  if (options.json) {
    json->push_back(ToJson(scenario, reports));
  } else {
    Print("{}\n", Table(scenario, reports));
    METE_RETURN_IF_ERROR(FinishOutput());  // one scenario after the other may take long
  }
  return std::all_of(reports.begin(), reports.end(), [](const CaseReport& report) { return report.Held(); });
}

StatusOr<bool> RunAccuracy(const Options& options) {
  const uint64_t seed = options.seed.value_or(1);
  METE_ASSIGN_OR_RETURN(const std::vector<AccuracyRow> rows, MeasureAccuracy(*options.accuracy, options.cases, seed));
  if (rows.empty()) return Usage("--accuracy {}: there is no such row", *options.accuracy);
  if (options.json) {
    Print(ToText(AccuracyJson(rows, seed)));
  } else {
    Print(AccuracyTable(rows, seed));
  }
  return std::all_of(rows.begin(), rows.end(), [](const AccuracyRow& row) { return row.Held(); });
}

int Fail(const Status& status) {
  const ExitCode code = ExitCodeFor(status);
  fmt::print(stderr, "mete-simulate: {}: {}\n", ExitWord(code), Message(status));
  return static_cast<int>(code);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Shares of a GPU in virtual time, with the ledger, gate and arbiter that mete itself uses.\n"
      "Nothing here touches a GPU: every figure is simulated.",
      "mete-simulate");
  auto* files = app.add_option("FILE", options.files, "Scenario files (YAML)");
  app.add_option("--accuracy", options.accuracy,
                 "Instead of files: generated cases, and the worst of each row; all rows, or those that ROW names")
      ->expected(0, 1)
      ->type_name("[ROW]")
      ->excludes(files);
  app.add_option("--cases", options.cases, "Of each row")->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON");
  app.add_flag("--check", options.check, "End with status 1 when an expectation did not hold");
  app.add_flag("--no-gates", options.no_gates, "The control: let every launch through");
  app.add_option("--seed", options.seed, "Instead of the files' own");
  app.add_option("--wall", options.wall, "By the wall clock on the emulated node in this folder, with real processes");
  app.add_option("--wall-seconds", options.wall_seconds)->check(CLI::Range(0.5, 600.0))->capture_default_str();
  app.add_option("--test-without", options.without, "Leave a rule of the model out, to see that a measurement notices")
      ->allow_extra_args(false)  // the file after it is no rule
      ->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    Print(app.help());
    const Status written = FinishOutput();
    return written.ok() ? 0 : Fail(written);
  } catch (const CLI::ParseError& error) {
    return Fail(Usage("{}; 'mete-simulate --help' shows the ways to write it", error.what()));
  }
  if (options.files.empty() && !options.accuracy) return Fail(Usage("no scenario file and no --accuracy was given"));
  Json json = Json::array();
  bool held = true;
  if (options.accuracy) {
    const StatusOr<bool> result = RunAccuracy(options);
    if (!result.ok()) return Fail(result.status());
    held = *result;
  }
  for (const std::string& file : options.files) {
    const StatusOr<bool> result = RunFile(options, file, &json);
    if (!result.ok()) return Fail(result.status());
    held = held && *result;
  }
  if (options.json && !options.accuracy) Print(ToText(json));
  if (const Status written = FinishOutput(); !written.ok()) return Fail(written);
  return options.check && !held ? 1 : 0;
}

}  // namespace
}  // namespace mete::emulator

int main(int argc, char** argv) { return mete::emulator::Main(argc, argv); }
