// mete-simulate FILE…: runs scenarios in virtual time with the real ledger and prints what each share got.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "emulator/simulate/report.h"

namespace mete::emulator {
namespace {

struct Options {
  std::vector<std::string> files;
  bool json = false, check = false, no_gates = false;
  std::optional<uint64_t> seed;
};

StatusOr<bool> RunFile(const Options& options, const std::string& file, Json* json) {
  METE_ASSIGN_OR_RETURN(Scenario scenario, ReadScenario(file));
  if (options.seed) scenario.seed = *options.seed;
  if (options.no_gates) scenario.gates = false;
  std::vector<CaseReport> reports;
  for (const Case& one : Cases(scenario)) {
    METE_ASSIGN_OR_RETURN(CaseReport report, RunCase(GpuParameters{}, one));
    reports.push_back(std::move(report));
  }
  if (options.json) {
    json->push_back(ToJson(scenario, reports));
  } else {
    fmt::print("{}\n", Table(scenario, reports));
    std::fflush(stdout);
  }
  return std::all_of(reports.begin(), reports.end(), [](const CaseReport& report) { return report.Held(); });
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Shares of a GPU in virtual time, with the ledger, gate and arbiter that mete itself uses.\n"
      "Nothing here touches a GPU: every figure is simulated.");
  app.add_option("FILE", options.files, "Scenario files (YAML)")->required();
  app.add_flag("--json", options.json, "Print JSON");
  app.add_flag("--check", options.check, "End with status 1 when an expectation did not hold");
  app.add_flag("--no-gates", options.no_gates, "The control: let every launch through");
  app.add_option("--seed", options.seed, "Instead of the files' own");
  CLI11_PARSE(app, argc, argv);
  Json json = Json::array();
  bool held = true;
  for (const std::string& file : options.files) {
    const StatusOr<bool> result = RunFile(options, file, &json);
    if (!result.ok()) {
      const ExitCode code = ExitCodeFor(result.status());
      fmt::print(stderr, "mete-simulate: {}: {}\n", ExitWord(code), Message(result.status()));
      return static_cast<int>(code);
    }
    held = held && *result;
  }
  if (options.json) fmt::print("{}", ToText(json));
  return options.check && !held ? 1 : 0;
}

}  // namespace
}  // namespace mete::emulator

int main(int argc, char** argv) { return mete::emulator::Main(argc, argv); }
