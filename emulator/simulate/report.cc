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

StatusOr<double> TotalPercent(const std::vector<EngineSettings::Gpu>& node, const std::vector<Placed>& placed,
                              const Scenario& scenario, const RunResult& run, uint64_t from, uint64_t to) {
  double total = 0;
  for (uint32_t i = 0; i < scenario.shares.size(); ++i) {
    if (!placed[i].refused.empty()) continue;
    METE_ASSIGN_OR_RETURN(const double rate, AloneRate(node[placed[i].gpu].model, scenario, i));
    const std::vector<uint64_t>& completed = run.shares[i].completed;
    total += (At(completed, to) - At(completed, from)) / (rate * static_cast<double>(to - from));
  }
  return 100 * total;
}

}  // namespace

double SharePercent(const ShareTimeline& timeline, uint64_t from_ns, uint64_t to_ns) {
  return 100 * (At(timeline.gpu_ns, to_ns) - At(timeline.gpu_ns, from_ns)) / static_cast<double>(to_ns - from_ns);
}

StatusOr<double> WorkPercent(const GpuParameters& gpu, const Scenario& scenario, const RunResult& run, uint64_t from_ns,
                             uint64_t to_ns) {
  EngineSettings::Gpu only;
  only.model = gpu;
  return TotalPercent({only}, std::vector<Placed>(scenario.shares.size()), scenario, run, from_ns, to_ns);
}

bool CaseReport::Held() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.Held(); });
}

namespace {

// What happens on one GPU: its shares and the events that concern it, with the shares numbered anew.
Scenario OnGpu(const Scenario& scenario, const std::vector<Placed>& placed, uint32_t gpu,
               std::vector<uint32_t>* which) {
  Scenario part = scenario;
  part.seed = scenario.seed + gpu;
  part.shares.clear();
  part.events.clear();
  std::vector<uint32_t> index(scenario.shares.size(), UINT32_MAX);
  for (uint32_t i = 0; i < scenario.shares.size(); ++i) {
    if (!placed[i].refused.empty() || placed[i].gpu != gpu) continue;
    index[i] = static_cast<uint32_t>(part.shares.size());
    which->push_back(i);
    part.shares.push_back(scenario.shares[i]);
  }
  for (EventSpec event : scenario.events) {
    const bool of_share = event.kind == EventKind::kSet || event.kind == EventKind::kKill || event.of_share;
    if (of_share && index[event.share] == UINT32_MAX) continue;
    if (event.kind == EventKind::kFault && !event.of_share && event.fault.gpu != gpu) continue;
    if (of_share) event.share = index[event.share];
    part.events.push_back(event);
  }
  return part;
}

void Add(GpuCounters& sum, const GpuCounters& one) {
  sum.busy_ns += one.busy_ns;
  sum.memory_busy_ns += one.memory_busy_ns;
  sum.sm_busy_ns += one.sm_busy_ns;
  sum.switches += one.switches;
  sum.bytes += one.bytes;
}

StatusOr<RunResult> RunNode(const std::vector<EngineSettings::Gpu>& node, const Scenario& scenario,
                            const std::vector<Placed>& placed) {
  RunResult all;
  all.shares.resize(scenario.shares.size());
  for (uint32_t gpu = 0; gpu < node.size(); ++gpu) {
    std::vector<uint32_t> which;
    const Scenario part = OnGpu(scenario, placed, gpu, &which);
    if (which.empty()) continue;
    METE_ASSIGN_OR_RETURN(RunResult run, Simulation(node[gpu].model, part, node[gpu].info.compute_major).Run());
    for (size_t i = 0; i < which.size(); ++i) all.shares[which[i]] = std::move(run.shares[i]);
    Add(all.counters, run.counters);
    all.broker_steps += run.broker_steps;
    all.doorbells += run.doorbells;
    all.kills += run.kills;
    all.faults += run.faults;
  }
  return all;
}

Check Around(std::string what, double measured, const ExpectSpec& expect, const char* unit) {
  const double least = expect.value * (1 - expect.within / 100), most = expect.value * (1 + expect.within / 100);
  return {fmt::format("{} {:g} {} ± {:g} %", what, expect.value, unit, expect.within), measured, least, most, unit};
}

}  // namespace

double MeanLatencyMs(const ShareTimeline& timeline, uint64_t from_ns, uint64_t to_ns) {
  double sum = 0;
  uint64_t count = 0;
  for (const ShareTimeline::Request& request : timeline.requests) {
    if (request.ended_ns < from_ns || request.ended_ns >= to_ns) continue;
    sum += static_cast<double>(request.ended_ns - request.arrived_ns);
    ++count;
  }
  constexpr uint64_t kLeast = 3;
  return count < kLeast ? 0 : sum / static_cast<double>(count) / 1e6;
}

StatusOr<CaseReport> RunCase(const GpuParameters& gpu, const Case& asked) {
  CaseReport report = {asked, {}, {}, {}};
  METE_ASSIGN_OR_RETURN(const std::vector<EngineSettings::Gpu> node, NodeOf(asked.scenario, gpu));
  METE_ASSIGN_OR_RETURN(report.placed, Place(node, &report.asked.scenario));
  const Scenario& scenario = report.asked.scenario;
  METE_ASSIGN_OR_RETURN(report.run, RunNode(node, scenario, report.placed));
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
        METE_ASSIGN_OR_RETURN(const double total,
                              TotalPercent(node, report.placed, scenario, report.run, expect.from_ns, to));
        check = {fmt::format("work done, of unshared, at least {:g} %", expect.at_least), total, expect.at_least, 1e9};
        break;
      }
      case ExpectKind::kLatency:
        check = Around(name + "'s requests take", MeanLatencyMs(timeline, expect.from_ns, to), expect, "ms");
        break;
      case ExpectKind::kTurn: {
        const auto turns = static_cast<double>(std::max<uint64_t>(report.run.counters.switches, 1));
        check = Around("a turn lasts", static_cast<double>(report.run.counters.busy_ns) / turns / 1e3, expect, "us");
        break;
      }
      case ExpectKind::kRequests:
        check = {fmt::format("{} ends at least {:g} requests", name, expect.value),
                 static_cast<double>(timeline.requests.size()), expect.value, 1e18, ""};
        break;
      case ExpectKind::kRate: {
        const auto ended = std::count_if(timeline.requests.begin(), timeline.requests.end(), [&](const auto& request) {
          return request.ended_ns >= expect.from_ns && request.ended_ns < to;
        });
        check = Around(name + " ends", static_cast<double>(ended) / (window / 1e9), expect, "requests/s");
        break;
      }
      case ExpectKind::kAlive:
        check = {fmt::format("{} has {:g} processes at the end", name, expect.value),
                 static_cast<double>(timeline.alive), expect.value, expect.value, ""};
        break;
      case ExpectKind::kRefused:
        check = {fmt::format("{} is {}", name, expect.value != 0 ? "refused" : "granted"),
                 report.placed[expect.share].refused.empty() ? 0.0 : 1.0, expect.value, expect.value, ""};
        break;
    }
    report.checks.push_back(std::move(check));
  }
  return report;
}

namespace {

// A percentile only where there are requests enough beyond it.
void AddRequests(const ShareTimeline& share, Json& json) {
  std::vector<double> ms;
  for (const ShareTimeline::Request& request : share.requests) {
    ms.push_back(static_cast<double>(request.ended_ns - request.arrived_ns) / 1e6);
  }
  std::sort(ms.begin(), ms.end());
  json["requests"] = ms.size();
  if (ms.empty()) return;
  double sum = 0;
  for (const double one : ms) sum += one;
  json["latency_ms"] = {{"mean", sum / static_cast<double>(ms.size())}, {"least", ms.front()}, {"most", ms.back()}};
  if (ms.size() >= 3) json["latency_ms"]["median"] = ms[ms.size() / 2];
  if (ms.size() >= 100) json["latency_ms"]["p90"] = ms[ms.size() * 9 / 10];
  if (ms.size() >= 1000) json["latency_ms"]["p99"] = ms[ms.size() * 99 / 100];
}

// What each share got, for a scenario that expects nothing.
mete::Table Figures(const Scenario& scenario, const std::vector<CaseReport>& reports) {
  mete::Table table({{"kernel", Align::kRight},
                     {"blocks", Align::kRight},
                     {"share"},
                     {"GPU", Align::kRight},
                     {"processes", Align::kRight},
                     {"GPU time", Align::kRight},
                     {"kernels", Align::kRight},
                     {"longest pause", Align::kRight}});
  for (const CaseReport& report : reports) {
    const std::string kernel = report.asked.kernel_ms > 0 ? fmt::format("{:g} ms", report.asked.kernel_ms) : "";
    const std::string blocks = report.asked.blocks > 0 ? fmt::format("{}", report.asked.blocks) : "";
    for (size_t i = 0; i < report.run.shares.size(); ++i) {
      const ShareTimeline& share = report.run.shares[i];
      const ShareSpec& spec = report.asked.scenario.shares[i];
      if (!report.placed[i].refused.empty()) {
        table.AddRow({kernel, blocks, spec.name, "-", "-", "refused", "-", "-"});
        continue;
      }
      table.AddRow({kernel, blocks, spec.name, fmt::format("{}", report.placed[i].gpu),
                    fmt::format("{}", spec.processes),
                    fmt::format("{:.2f} %", SharePercent(share, 0, scenario.length_ns)),
                    fmt::format("{}", share.completed.empty() ? 0 : share.completed.back()),
                    fmt::format("{:.2f} ms", static_cast<double>(share.longest_gap_ns) / 1e6)});
    }
  }
  return table;
}

}  // namespace

std::string Table(const Scenario& scenario, const std::vector<CaseReport>& reports) {
  std::string text = fmt::format("simulated · {}: {}\nseed {}, {:g} s of virtual time{}\n", scenario.name,
                                 scenario.purpose, scenario.seed, static_cast<double>(scenario.length_ns) / 1e9,
                                 scenario.gates ? "" : ", without gates");
  if (scenario.expect.empty()) return text + Figures(scenario, reports).Render(0, 2);
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
               {"mechanism", scenario.mechanism == SharingMechanism::kIntercept     ? "intercept"
                             : scenario.mechanism == SharingMechanism::kTimeSlicing ? "time-slicing"
                             : scenario.mechanism == SharingMechanism::kMig         ? "mig"
                                                                                    : "exclusive"},
               {"gates", scenario.gates}};
  if (!scenario.boards.empty()) json["boards"] = scenario.boards;
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
      const Placed& placed = report.placed[i];
      if (!placed.refused.empty()) {
        one["shares"].push_back({{"name", report.asked.scenario.shares[i].name}, {"refused", placed.refused}});
        continue;
      }
      one["shares"].push_back({{"name", report.asked.scenario.shares[i].name},
                               {"gpu", placed.gpu},
                               {"processes", report.asked.scenario.shares[i].processes},
                               {"kernel_ms", share.kernel_ns / 1e6},
                               {"gpu_percent", SharePercent(share, 0, length)},
                               {"charged_percent", 100.0 * static_cast<double>(share.charged_ns) / length},
                               {"completed", share.completed.empty() ? 0 : share.completed.back()},
                               {"waits", share.waits},
                               {"longest_pause_ms", static_cast<double>(share.longest_gap_ns) / 1e6},
                               {"alive", share.alive}});
      if (!report.asked.scenario.shares[i].workload.empty()) AddRequests(share, one["shares"].back());
    }
    one["gpu_busy_percent"] = 100.0 * static_cast<double>(report.run.counters.busy_ns) / length;
    one["context_switches"] = report.run.counters.switches;
    one["faults"] = report.run.faults;
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
