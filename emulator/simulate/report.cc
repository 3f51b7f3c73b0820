#include "emulator/simulate/report.h"

#include <algorithm>

#include "base/table.h"

namespace mete::emulator {
namespace {

constexpr uint64_t kAloneNs = 1'000'000'000;
constexpr uint64_t kAloneKernels = 20;

double At(const std::vector<uint64_t>& samples, uint64_t at_ns) {
  if (samples.empty()) return 0;
  return static_cast<double>(samples[std::min<size_t>(at_ns / kSampleNs, samples.size() - 1)]);
}

// Kernels per ns that the processes of one share complete when they have the GPU to themselves and no gate before it.
StatusOr<double> AloneRate(const GpuParameters& gpu, const Scenario& scenario, uint32_t share) {
  Scenario alone = scenario;
  alone.shares = {scenario.shares[share]};
  alone.shares[0].from_ns = alone.shares[0].off_ns = alone.shares[0].on_ns = 0;
  alone.events.clear();
  alone.gates = false;
  const double kernel_ns = scenario.shares[share].kernel_ms * 1e6;
  alone.length_ns = std::max(kAloneNs, static_cast<uint64_t>(kernel_ns) * kAloneKernels * alone.shares[0].processes);
  METE_ASSIGN_OR_RETURN(const RunResult run, Simulation(gpu, alone).Run());
  const uint64_t from = alone.length_ns / 10, to = alone.length_ns;
  const ShareTimeline& timeline = run.shares[0];
  return (At(timeline.completed, to) - At(timeline.completed, from)) / static_cast<double>(to - from);
}

StatusOr<double> TotalPercent(const GpuParameters& gpu, const Scenario& scenario, const RunResult& run, uint64_t from,
                              uint64_t to) {
  double total = 0;
  for (uint32_t i = 0; i < scenario.shares.size(); ++i) {
    METE_ASSIGN_OR_RETURN(const double rate, AloneRate(gpu, scenario, i));
    const std::vector<uint64_t>& completed = run.shares[i].completed;
    total += (At(completed, to) - At(completed, from)) / (rate * static_cast<double>(to - from));
  }
  return 100 * total;
}

}  // namespace

double SharePercent(const ShareTimeline& timeline, uint64_t from_ns, uint64_t to_ns) {
  return 100 * (At(timeline.gpu_ns, to_ns) - At(timeline.gpu_ns, from_ns)) / static_cast<double>(to_ns - from_ns);
}

bool CaseReport::Held() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.Held(); });
}

StatusOr<CaseReport> RunCase(const GpuParameters& gpu, const Case& asked) {
  CaseReport report = {asked, {}, {}};
  const Scenario& scenario = report.asked.scenario;
  METE_ASSIGN_OR_RETURN(report.run, Simulation(gpu, scenario).Run());
  double longest_ns = 0;
  for (const ShareSpec& share : scenario.shares) longest_ns = std::max(longest_ns, share.kernel_ms * 1e6);
  for (const ExpectSpec& expect : scenario.expect) {
    const uint64_t to = expect.to_ns;
    const double window = static_cast<double>(to - expect.from_ns);
    const std::string& name = scenario.shares[expect.share].name;
    const ShareTimeline& timeline = report.run.shares[expect.share];
    Check check;
    switch (expect.kind) {
      case ExpectKind::kShare: {
        const double floor = 100 * longest_ns * (1 - expect.percent / 100) / window;
        const double tolerance = expect.points + floor;
        check = {fmt::format("{} gets {:g} % ± {:.2f}", name, expect.percent, tolerance),
                 SharePercent(timeline, expect.from_ns, to), expect.percent - tolerance, expect.percent + tolerance};
        break;
      }
      case ExpectKind::kBounds:
        check = {fmt::format("{} gets {:g} to {:g} %", name, expect.at_least, expect.at_most),
                 SharePercent(timeline, expect.from_ns, to), expect.at_least, expect.at_most};
        break;
      case ExpectKind::kGap:
        check = {fmt::format("{}'s longest pause", name), static_cast<double>(timeline.longest_gap_ns) / 1e6, 0,
                 static_cast<double>(expect.gap_ns) / 1e6, "ms"};
        break;
      case ExpectKind::kTotal: {
        METE_ASSIGN_OR_RETURN(const double total, TotalPercent(gpu, scenario, report.run, expect.from_ns, to));
        check = {fmt::format("work done, of unshared, at least {:g} %", expect.at_least), total, expect.at_least, 1e9};
        break;
      }
    }
    report.checks.push_back(std::move(check));
  }
  return report;
}

std::string Table(const Scenario& scenario, const std::vector<CaseReport>& reports) {
  std::string text = fmt::format("simulated · {}: {}\nseed {}, {:g} s of virtual time{}\n", scenario.name,
                                 scenario.purpose, scenario.seed, static_cast<double>(scenario.length_ns) / 1e9,
                                 scenario.gates ? "" : ", without gates");
  mete::Table table({{"kernel", Align::kRight},
                     {"blocks", Align::kRight},
                     {"processes", Align::kRight},
                     {"expected"},
                     {"measured", Align::kRight},
                     {"held"}});
  for (const CaseReport& report : reports) {
    for (const Check& check : report.checks) {
      table.AddRow({report.asked.kernel_ms > 0 ? fmt::format("{:g} ms", report.asked.kernel_ms) : "",
                    report.asked.blocks > 0 ? fmt::format("{}", report.asked.blocks) : "",
                    report.asked.processes ? fmt::format("{}", *report.asked.processes) : "", check.what,
                    fmt::format("{:.2f} {}", check.measured, check.unit), check.Held() ? "yes" : "NO"});
    }
  }
  return text + table.Render(0, 2);
}

Json ToJson(const Scenario& scenario, const std::vector<CaseReport>& reports) {
  Json json = {{"simulated", true},
               {"scenario", scenario.name},
               {"purpose", scenario.purpose},
               {"seed", scenario.seed},
               {"seconds", static_cast<double>(scenario.length_ns) / 1e9},
               {"gates", scenario.gates}};
  bool held = true;
  Json& cases = json["cases"] = Json::array();
  for (const CaseReport& report : reports) {
    Json one;
    if (report.asked.kernel_ms > 0) one["kernel_ms"] = report.asked.kernel_ms;
    if (report.asked.blocks > 0) one["blocks"] = report.asked.blocks;
    if (report.asked.processes) one["processes"] = *report.asked.processes;
    const uint64_t length = scenario.length_ns;
    for (size_t i = 0; i < report.run.shares.size(); ++i) {
      const ShareTimeline& share = report.run.shares[i];
      one["shares"].push_back({{"name", report.asked.scenario.shares[i].name},
                               {"processes", report.asked.scenario.shares[i].processes},
                               {"kernel_ms", share.kernel_ns / 1e6},
                               {"gpu_percent", SharePercent(share, 0, length)},
                               {"charged_percent", 100.0 * static_cast<double>(share.charged_ns) / length},
                               {"completed", share.completed.empty() ? 0 : share.completed.back()},
                               {"waits", share.waits},
                               {"longest_pause_ms", static_cast<double>(share.longest_gap_ns) / 1e6}});
    }
    one["gpu_busy_percent"] = 100.0 * static_cast<double>(report.run.counters.busy_ns) / length;
    one["context_switches"] = report.run.counters.switches;
    one["broker_steps"] = report.run.broker_steps;
    one["doorbells"] = report.run.doorbells;
    one["checks"] = Json::array();
    for (const Check& check : report.checks) {
      one["checks"].push_back({{"expected", check.what},
                               {"measured", check.measured},
                               {"least", check.least},
                               {"most", check.most},
                               {"unit", check.unit},
                               {"held", check.Held()}});
    }
    held = held && report.Held();
    cases.push_back(std::move(one));
  }
  json["held"] = held;
  return json;
}

}  // namespace mete::emulator
