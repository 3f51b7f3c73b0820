#include "emulator/simulate/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "base/table.h"
#include "emulator/simulate/report.h"
#include "emulator/simulate/simulation.h"

namespace mete::emulator {
namespace {

using ledger::ComputeMode;

constexpr uint64_t kSecond = 1'000'000'000, kMs = 1'000'000;
constexpr uint64_t kStepNs = 200 * kMs;   // within which a change is to be answered
constexpr uint64_t kSlideNs = 100 * kMs;  // between two stretches of a second
constexpr double kLongPoints = 1, kShortPoints = 2;
constexpr double kTotal = 97, kAloneTotal = 99.5;

// One case of a row: what runs, and what each share is to get.
struct Situation {
  Scenario scenario;
  std::vector<double> percent;        // by share; negative: not judged
  std::vector<double> percent_after;  // after the event, if there is one
  uint64_t event_ns = 0;
  double total = 0;        // work done, of what the shares do alone, at least; 0: not judged
  double alone_total = 0;  // the same for one share, of what it does without gates in the same time
  double pause_ms = 0;     // at most, and two kernels, of every share that is always busy; 0: not judged
  std::string where;
};
using Random = std::mt19937_64;
using Make = std::function<Situation(Random&)>;

uint64_t Below(Random& random, uint64_t n) { return random() % n; }
template <typename Value>
Value Pick(Random& random, const std::vector<Value>& values) {
  return values[Below(random, values.size())];
}

ShareSpec ShareOf(ComputeMode mode, double percent, double kernel_ms, uint64_t blocks) {
  ShareSpec share;
  share.name = "?";
  share.mode = mode;
  share.share = static_cast<uint32_t>(std::lround(percent * 100));
  share.weight = share.share;
  share.kernel_ms = kernel_ms;
  share.blocks = blocks;
  // Busy means that work is always there: a millisecond of it at least, as programs that do not wait have it.
  constexpr double kQueuedMs = 1;
  share.depth = std::max(share.depth, static_cast<uint32_t>(std::ceil(kQueuedMs / kernel_ms)));
  return share;
}

// The least blocks that a kernel of this length can have fewer of.
uint64_t BlocksFor(Random& random, double kernel_ms) {
  if (kernel_ms < 0.1) return Pick<uint64_t>(random, {1, 108});
  if (kernel_ms < 1) return Pick<uint64_t>(random, {1, 108, 1000});
  return Pick<uint64_t>(random, {1, 108, 1000, 20'000});
}

std::string SituationName(const Situation& situation) {
  std::string text;
  for (const ShareSpec& share : situation.scenario.shares) {
    text += fmt::format("{}{:g}%{}:{:g}ms×{}p×{}", text.empty() ? "" : " ", share.share / 100.0,
                        share.mode == ComputeMode::kHard   ? "h"
                        : share.mode == ComputeMode::kSoft ? "s"
                                                           : "w",
                        share.kernel_ms, share.processes, share.blocks);
    if (share.depth == 1 || !share.lock_step.empty()) text += fmt::format("d{}", share.depth);
    if (!share.lock_step.empty()) text += " in lock step";
  }
  return text;
}

Situation Of(std::vector<ShareSpec> shares, Random& random) {
  Situation situation;
  situation.scenario.seed = random();
  situation.scenario.length_ns = 10 * kSecond;
  for (size_t i = 0; i < shares.size(); ++i) shares[i].name = std::string(1, static_cast<char>('A' + i));
  for (const ShareSpec& share : shares) situation.percent.push_back(share.share / 100.0);
  situation.scenario.shares = std::move(shares);
  return situation;
}

// Parts of 100 in whole percents, each at least `least`.
std::vector<double> Split(Random& random, size_t parts, uint64_t least) {
  std::vector<uint64_t> cuts = {0, 100 - least * parts};
  for (size_t i = 1; i < parts; ++i) cuts.push_back(Below(random, 100 - least * parts + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<double> split;
  for (size_t i = 0; i < parts; ++i) split.push_back(static_cast<double>(cuts[i + 1] - cuts[i] + least));
  return split;
}

const std::vector<double> kKernelLengths = {0.01, 0.03, 0.1, 0.3, 1, 3, 10};

Situation AloneHard(Random& random, const std::vector<double>& kernels) {
  const double kernel = Pick(random, kernels);
  ShareSpec share = ShareOf(ComputeMode::kHard, Pick<double>(random, {3, 5, 10, 25, 30, 50, 70, 80, 90, 97}), kernel,
                            BlocksFor(random, kernel));
  // Of several processes the GPU changes between their contexts, which is their share's own time.
  if (kernel >= 0.3) share.processes = Pick<uint32_t>(random, {1, 1, 3, 10});
  share.streams = Pick<uint32_t>(random, {1, 4});
  return Of({share}, random);
}
Situation SmallGrids(Random& random) {
  return Of({ShareOf(ComputeMode::kHard, 30, 1, Pick<uint64_t>(random, {1, 10, 100, 1000, 20'000}))}, random);
}
Situation Unlimited(Random& random) {
  const double kernel = Pick<double>(random, {0.01, 0.03, 0.1, 1, 10, 100, 1000});
  ShareSpec share = ShareOf(Pick<ComputeMode>(random, {ComputeMode::kWorkConserving, ComputeMode::kSoft}), 100, kernel,
                            BlocksFor(random, kernel));
  share.processes = Pick<uint32_t>(random, {1, 4});
  Situation situation = Of({share}, random);
  situation.percent = {-1};
  situation.alone_total = kAloneTotal;
  constexpr uint64_t kLeastKernels = 400;  // so that one more or less is a quarter of a percent
  situation.scenario.length_ns =
      std::max(situation.scenario.length_ns, static_cast<uint64_t>(kernel * 1e6) * kLeastKernels);
  return situation;
}
Situation Tenants(Random& random, size_t count, bool alike) {
  const std::vector<double> split = Split(random, count, 3);
  const double one_kernel = Pick(random, kKernelLengths);
  std::vector<ShareSpec> shares;
  for (const double percent : split) {
    const double kernel = alike ? one_kernel : Pick(random, kKernelLengths);
    shares.push_back(ShareOf(Pick<ComputeMode>(random, {ComputeMode::kHard, ComputeMode::kSoft, ComputeMode::kSoft,
                                                        ComputeMode::kWorkConserving}),
                             percent, kernel, BlocksFor(random, kernel)));
    shares.back().processes = Pick<uint32_t>(random, {1, 1, 2, 10});
  }
  Situation situation = Of(std::move(shares), random);
  situation.total = kTotal;
  return situation;
}
Situation LongKernels(Random& random) {
  const std::vector<double> split = Split(random, 2 + Below(random, 2), 10);
  std::vector<ShareSpec> shares;
  for (const double percent : split) {
    shares.push_back(ShareOf(Pick<ComputeMode>(random, {ComputeMode::kHard, ComputeMode::kSoft}), percent,
                             Pick<double>(random, {1, 30, 100, 300, 1000}), 10'000));
  }
  return Of(std::move(shares), random);
}
Situation LiveChange(Random& random) {
  const double before = static_cast<double>(10 + Below(random, 81)),
               after = static_cast<double>(10 + Below(random, 81));
  const double kernel = Pick(random, kKernelLengths);
  const bool pair = Below(random, 2) == 0;
  std::vector<ShareSpec> shares = {ShareOf(ComputeMode::kHard, before, kernel, BlocksFor(random, kernel))};
  if (pair) shares.push_back(ShareOf(ComputeMode::kHard, 100 - before, kernel, BlocksFor(random, kernel)));
  Situation situation = Of(std::move(shares), random);
  situation.event_ns = 5 * kSecond;
  for (uint32_t i = 0; i < situation.scenario.shares.size(); ++i) {
    const double percent = i == 0 ? after : 100 - after;
    EventSpec event;
    event.kind = EventKind::kSet;
    event.at_ns = situation.event_ns;
    event.share = i;
    event.percent = event.weight = static_cast<uint32_t>(percent * 100);
    situation.scenario.events.push_back(event);
    situation.percent_after.push_back(percent);
  }
  return situation;
}
// Programs that wait for each kernel before they launch the next, beside one that does not.
Situation Synchronous(Random& random) {
  const std::vector<double> split = Split(random, 2, 20);
  const double kernel = Pick<double>(random, {0.3, 1, 3, 10});
  std::vector<ShareSpec> shares = {ShareOf(ComputeMode::kHard, split[0], kernel, 1000),
                                   ShareOf(ComputeMode::kSoft, split[1], Pick<double>(random, {0.1, 1, 10}), 1000)};
  shares[0].depth = 1;
  Situation situation = Of(std::move(shares), random);
  return situation;
}
// Ranks that wait for one another after each step, as collective communication makes them, beside a share that does not
// wait: all in one share, or two shares with one each.
Situation LockStep(Random& random) {
  const bool apart = Below(random, 2) == 0;
  const auto percent = static_cast<double>(apart ? 10 + Below(random, 31) : 20 + Below(random, 61));
  ShareSpec ranks = ShareOf(ComputeMode::kSoft, percent, Pick<double>(random, {0.03, 0.1, 0.3, 1, 3, 10}), 1000);
  ranks.lock_step = "ranks";
  ranks.depth = Pick<uint32_t>(random, {1, 4});
  ranks.processes = apart ? 1 : Pick<uint32_t>(random, {2, 4});
  std::vector<ShareSpec> shares = {ranks};
  if (apart) shares.push_back(ranks);
  shares.push_back(ShareOf(Pick<ComputeMode>(random, {ComputeMode::kHard, ComputeMode::kSoft}),
                           apart ? 100 - 2 * percent : 100 - percent, Pick<double>(random, {0.1, 1, 10}), 1000));
  Situation situation = Of(std::move(shares), random);
  situation.pause_ms = 45;
  for (const ShareSpec& share : situation.scenario.shares) {  // what it used beyond its window it waits for
    situation.pause_ms = std::max(situation.pause_ms, 45 + share.kernel_ms * ledger::kFullShare / share.share);
  }
  return situation;
}
// Shares that come and go; whoever stays has the rest.
Situation Bursty(Random& random) {
  ShareSpec guest = ShareOf(ComputeMode::kSoft, 50, Pick<double>(random, {0.1, 1, 3}), 1000);
  guest.on_ns = Pick<uint64_t>(random, {20, 50, 100, 200}) * kMs;
  guest.off_ns = Pick<uint64_t>(random, {50, 100, 300}) * kMs;
  ShareSpec host = ShareOf(ComputeMode::kSoft, 50, Pick<double>(random, {0.1, 1, 3}), 1000);
  Situation situation = Of({guest, host}, random);
  situation.percent = {-1, -1};
  situation.pause_ms = 45;
  return situation;
}
Situation Killed(Random& random) {
  std::vector<ShareSpec> shares = {ShareOf(ComputeMode::kSoft, 50, Pick<double>(random, {0.1, 1, 10}), 1000),
                                   ShareOf(ComputeMode::kSoft, 50, 1, 1000)};
  shares[0].processes = 4;
  Situation situation = Of(std::move(shares), random);
  for (uint32_t i = 0; i < 3; ++i) {
    EventSpec event;
    event.kind = EventKind::kKill;
    event.at_ns = (2 + 2 * i) * kSecond + Below(random, kSecond);
    event.process = i;
    situation.scenario.events.push_back(event);
  }
  situation.pause_ms = 45;
  return situation;
}

void Note(Worst* worst, double value, double bound, double used, const std::string& where) {
  if (!worst->where.empty() && used <= worst->used) return;
  *worst = {value, bound, used, where};
}

// What no controller that turns whole kernels on and off can keep to, in ns of GPU time. A kernel of length L at share
// p puts its own share ahead by L(1 - p), and together its neighbours behind by that; so the greatest of all of them
// counts for each, in a stretch from the beginning on.
double Unsteerable(const std::vector<double>& kernel_ns, const std::vector<double>& percent) {
  double greatest = 0;
  for (size_t i = 0; i < kernel_ns.size(); ++i) {
    greatest = std::max(greatest, kernel_ns[i] * (1 - std::max(percent[i], 0.0) / 100));
  }
  return greatest;
}

// The same for a stretch that begins anywhere. Of two shares, each kernel of the one takes it a = L(1 - p) further
// ahead, each of the other b = its own length · p back. Whoever is always to choose one of the two needs room for both:
// within less than a + b (but for a common divisor) there is a place from which either step leads out, and the steps
// come to every place. Of a second: kernels of 1 s at 52 % and of 0.1 s at 48 % need 9.2 of these between two of those
// on average, so at times ten, and that is a second with nothing for the first.
double UnsteerableAnywhere(const std::vector<double>& kernel_ns, const std::vector<double>& percent, size_t share) {
  double longest = 0;
  for (size_t i = 0; i < kernel_ns.size(); ++i) longest = std::max(longest, i == share ? 0 : kernel_ns[i]);
  const double part = std::max(percent[share], 0.0) / 100;
  return std::max(Unsteerable(kernel_ns, percent), kernel_ns[share] * (1 - part) + longest * part);
}

bool Waits(const ShareSpec& share) { return share.depth == 1 || !share.lock_step.empty(); }

// Ranks of one job in more shares than one: the GPU goes from one share to the other in every step.
bool Apart(const Scenario& scenario) {
  return std::count_if(scenario.shares.begin(), scenario.shares.end(),
                       [](const ShareSpec& share) { return !share.lock_step.empty(); }) > 1;
}

// A program that waits leaves gaps that nobody can use, and they are its own: it is to get its part of what it does
// alone, and the others are to lose nothing by its waiting. Ranks in several shares pay for a hand-over in each turn:
// its end is noticed, the broker wakes, the next one wakes. They are to get at least what that leaves of their shares.
StatusOr<std::vector<double>> Expected(const GpuParameters& gpu, const Situation& situation) {
  const auto middle = [](Range range) { return static_cast<double>(range.least + range.most) / 2; };
  std::vector<double> expected = situation.percent;
  for (size_t i = 0; i < expected.size(); ++i) {
    const ShareSpec& share = situation.scenario.shares[i];
    if (!Waits(share) || expected[i] < 0) continue;
    Scenario alone = situation.scenario;
    if (Apart(alone)) {
      const double turn_ns = share.depth * share.kernel_ms * 1e6;
      expected[i] *= turn_ns / (turn_ns + middle(alone.notice) + middle(alone.broker_wake) + middle(alone.waiter_wake));
      continue;
    }
    alone.shares = {share};
    alone.gates = false;
    METE_ASSIGN_OR_RETURN(const RunResult run, Simulation(gpu, alone).Run());
    expected[i] *= SharePercent(run.shares[0], 0, alone.length_ns) / 100;
  }
  return expected;
}

// Points that a share was off in a stretch, as a part of what was promised.
void Judge(const ShareTimeline& timeline, double percent, bool at_least, double unsteerable_ns, uint64_t from,
           uint64_t to, double points, const std::string& where, Worst* worst) {
  const double floor = 100 * unsteerable_ns / static_cast<double>(to - from);
  const double more = SharePercent(timeline, from, to) - percent;
  const double off = at_least ? std::max(0.0, -more) : std::abs(more);
  Note(worst, off, points + floor, off / (points + floor), where);
}

Status RunSituation(const Situation& situation, AccuracyRow* row) {
  const GpuParameters gpu;
  const Scenario& scenario = situation.scenario;
  METE_ASSIGN_OR_RETURN(const RunResult run, Simulation(gpu, scenario).Run());
  double longest = 0;
  for (const ShareTimeline& timeline : run.shares) longest = std::max(longest, timeline.kernel_ns);
  const uint64_t end = scenario.length_ns;
  std::vector<double> kernel_ns;  // a kernel lasts until its end is noticed
  for (size_t i = 0; i < run.shares.size(); ++i) {
    kernel_ns.push_back(std::max(run.shares[i].kernel_ns, scenario.shares[i].kernel_ms * 1e6) +
                        static_cast<double>(scenario.notice.most));
  }
  METE_ASSIGN_OR_RETURN(const std::vector<double> expected, Expected(gpu, situation));
  const std::string where = SituationName(situation);
  ++row->cases;
  for (size_t i = 0; i < run.shares.size(); ++i) {
    const ShareTimeline& timeline = run.shares[i];
    if (situation.pause_ms > 0) {
      const double ms = static_cast<double>(timeline.longest_gap_ns) / 1e6;
      const double most = situation.pause_ms + 2 * longest / 1e6;
      // A guest's pauses are its own.
      if (scenario.shares[i].off_ns == 0) Note(&row->pause, ms, most, ms / most, where);
    }
    if (expected[i] < 0) continue;
    const bool at_least = Apart(scenario) && Waits(scenario.shares[i]);
    const uint64_t before = situation.event_ns == 0 ? end : situation.event_ns;
    const auto at = [&](uint64_t from) {
      return fmt::format("{} in {} at {:.1f} s", scenario.shares[i].name, where, static_cast<double>(from) / 1e9);
    };
    if (situation.event_ns == 0) {
      Judge(timeline, expected[i], at_least, Unsteerable(kernel_ns, situation.percent), 0, end, kLongPoints, at(0),
            &row->over_10_s);
    }
    for (uint64_t from = 0; from + kSecond <= before; from += kSlideNs) {
      Judge(timeline, expected[i], at_least, UnsteerableAnywhere(kernel_ns, situation.percent, i), from, from + kSecond,
            kShortPoints, at(from), &row->over_1_s);
    }
    if (situation.event_ns == 0) continue;
    const uint64_t answered = situation.event_ns + kStepNs + static_cast<uint64_t>(longest);
    for (uint64_t from = answered; from + kSecond <= end; from += kSlideNs) {
      Judge(timeline, situation.percent_after[i], at_least, UnsteerableAnywhere(kernel_ns, situation.percent_after, i),
            from, from + kSecond, kShortPoints, at(from), &row->over_1_s);
    }
  }
  if (situation.alone_total > 0) {
    Scenario without = scenario;
    without.gates = false;
    METE_ASSIGN_OR_RETURN(const RunResult free, Simulation(gpu, without).Run());
    const double total = 100 * static_cast<double>(run.shares[0].completed.back()) /
                         static_cast<double>(std::max<uint64_t>(1, free.shares[0].completed.back()));
    const double lost = std::max(0.0, 100 - total);
    Note(&row->total, total, situation.alone_total, lost / (100 - situation.alone_total), where);
  }
  if (situation.total > 0) {
    METE_ASSIGN_OR_RETURN(const double total, WorkPercent(gpu, scenario, run, 0, end));
    Note(&row->total, total, situation.total, (100 - total) / (100 - situation.total), where);
  }
  return OkStatus();
}

struct RowSpec {
  const char* name;
  const char* what;
  Make make;
};
const std::vector<RowSpec>& Rows() {
  static const std::vector<RowSpec> rows = {
      {"alone-hard", "one hard share alone, kernels of 10 us to 10 ms, any grid",
       [](Random& random) { return AloneHard(random, kKernelLengths); }},
      {"small-grids", "one hard share of 30 % alone, kernels of 1 to 20 000 blocks and one length", SmallGrids},
      {"alone-hard-long", "one hard share alone, kernels of 30 ms to 1 s",
       [](Random& random) {
         return AloneHard(random, {30, 100, 300, 1000});
       }},
      {"unlimited", "one share without limits alone", Unlimited},
      {"two", "two busy shares, any split", [](Random& random) { return Tenants(random, 2, Below(random, 2) == 0); }},
      {"three-four", "three or four busy shares, any split",
       [](Random& random) { return Tenants(random, 3 + Below(random, 2), Below(random, 2) == 0); }},
      {"five-eight", "five to eight busy shares, any split",
       [](Random& random) { return Tenants(random, 5 + Below(random, 4), Below(random, 2) == 0); }},
      {"long-kernels", "two or three busy shares, kernels up to 1 s", LongKernels},
      {"step", "limits change while shares run", LiveChange},
      {"synchronous", "a share that waits for each kernel, beside one that does not", Synchronous},
      {"lock-step", "programs that wait for one another after each step, beside a share that does not", LockStep},
      {"bursty", "a share that comes and goes", Bursty},
      {"killed", "processes are killed while they hold a window", Killed}};
  return rows;
}

}  // namespace

bool AccuracyRow::Held() const {
  return over_10_s.used <= 1 && over_1_s.used <= 1 && total.used <= 1 && pause.used <= 1;
}

StatusOr<std::vector<AccuracyRow>> MeasureAccuracy(std::string_view rows, uint64_t cases, uint64_t seed) {
  std::vector<AccuracyRow> found;
  uint64_t number = 0;
  for (const RowSpec& spec : Rows()) {
    Random random(seed * 1000 + ++number);
    if (std::string_view(spec.name).find(rows) == std::string_view::npos) continue;
    AccuracyRow row;
    row.name = spec.name;
    row.what = spec.what;
    for (uint64_t i = 0; i < cases; ++i) METE_RETURN_IF_ERROR(RunSituation(spec.make(random), &row));
    found.push_back(std::move(row));
  }
  return found;
}

std::string AccuracyTable(const std::vector<AccuracyRow>& rows, uint64_t seed) {
  mete::Table table({{"row"},
                     {"cases", Align::kRight},
                     {"10 s", Align::kRight},
                     {"of", Align::kRight},
                     {"any 1 s", Align::kRight},
                     {"of", Align::kRight},
                     {"work", Align::kRight},
                     {"least", Align::kRight},
                     {"pause", Align::kRight},
                     {"most", Align::kRight},
                     {"held"}});
  std::string worst;
  for (const AccuracyRow& row : rows) {
    const auto pair = [](const Worst& one, const char* unit) {
      if (one.where.empty()) return std::pair<std::string, std::string>("", "");
      return std::pair(fmt::format("{:.2f}{}", one.value, unit), fmt::format("{:.2f}{}", one.bound, unit));
    };
    const auto [long_off, long_bound] = pair(row.over_10_s, "");
    const auto [short_off, short_bound] = pair(row.over_1_s, "");
    const auto [total, least] = pair(row.total, " %");
    const auto [pause, most] = pair(row.pause, " ms");
    table.AddRow({row.name, fmt::format("{}", row.cases), long_off, long_bound, short_off, short_bound, total, least,
                  pause, most, row.Held() ? "yes" : "NO"});
    worst += fmt::format("{}: {}\n", row.name, row.what);
    for (const auto& [what, one] : {std::pair("10 s", &row.over_10_s), std::pair("1 s", &row.over_1_s),
                                    std::pair("work", &row.total), std::pair("pause", &row.pause)}) {
      if (!one->where.empty()) worst += fmt::format("  worst {}: {}\n", what, one->where);
    }
  }
  return fmt::format(
             "simulated · the worst of each row, in points off the share beside what was promised there; seed {}\n",
             seed) +
         table.Render(0, 2) + "\n" + worst;
}

Json AccuracyJson(const std::vector<AccuracyRow>& rows, uint64_t seed) {
  Json json = {{"simulated", true}, {"seed", seed}};
  for (const AccuracyRow& row : rows) {
    Json one = {{"row", row.name}, {"what", row.what}, {"cases", row.cases}, {"held", row.Held()}};
    for (const auto& [name, worst] : {std::pair("points_10_s", &row.over_10_s), std::pair("points_1_s", &row.over_1_s),
                                      std::pair("work_percent", &row.total), std::pair("pause_ms", &row.pause)}) {
      if (worst->where.empty()) continue;
      one[name] = {{"worst", worst->value}, {"promised", worst->bound}, {"case", worst->where}};
    }
    json["rows"].push_back(one);
  }
  return json;
}

}  // namespace mete::emulator
