// Decisions a second on one core: choosing alone, on streams that come and go, and with the learning in between.
#include <benchmark/benchmark.h>

#include "plan/mig/experiment/compare.h"

namespace mete::plan::mig {
namespace {

const States& StatesOf(const char* board) {
  static std::map<std::string, States> known;
  if (known.count(board) == 0) known.emplace(board, *States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find(board))));
  return known.at(board);
}

// Layouts that a stream of requests runs into, and the requests: what the choice is timed on.
struct Moments {
  int gpus = 1;
  std::vector<uint32_t> states;  // gpus a moment
  std::vector<int> profiles;
};

Moments Record(const States& states, int gpus) {
  Moments moments{gpus, {}, {}};
  const Planner planner(states, Demand::Uniform(states.geometry()));
  Mix mix = MixesFor(states.geometry())[1];
  mix.gpus = gpus;
  mix.load = 0.8;
  Loss(states, MakeStream(states.geometry(), mix, 7, 4096), gpus, [&](std::span<const uint32_t> at, int profile) {
    moments.states.insert(moments.states.end(), at.begin(), at.end());
    moments.profiles.push_back(profile);
    const auto choice = planner.Choose(at, profile);
    return choice ? Place{choice->gpu, choice->placement} : Place{};
  });
  return moments;
}

template <typename Chooser>
void Time(benchmark::State& state, const Moments& moments, Chooser& planner) {
  const auto gpus = static_cast<size_t>(moments.gpus);
  size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(planner.Choose({moments.states.data() + next * gpus, gpus}, moments.profiles[next]));
    if (++next == moments.profiles.size()) next = 0;
  }
  state.counters["decisions"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void BM_Choose(benchmark::State& state, const char* board) {
  const States& states = StatesOf(board);
  const Planner planner(states, Demand::Uniform(states.geometry()));
  Time(state, Record(states, static_cast<int>(state.range(0))), planner);
}
BENCHMARK_CAPTURE(BM_Choose, a100, "a100-sxm4-40gb")->Arg(1)->Arg(8);
BENCHMARK_CAPTURE(BM_Choose, h100, "h100-sxm5-80gb")->Arg(1)->Arg(8);
BENCHMARK_CAPTURE(BM_Choose, a30, "a30")->Arg(1)->Arg(8);

void BM_ChooseAndLearn(benchmark::State& state, const char* board) {
  const States& states = StatesOf(board);
  LearningPlanner planner(states);
  Time(state, Record(states, static_cast<int>(state.range(0))), planner);
  state.counters["solutions"] = planner.solutions();
}
BENCHMARK_CAPTURE(BM_ChooseAndLearn, a100, "a100-sxm4-40gb")->Arg(1)->Arg(8);

void BM_Solve(benchmark::State& state, const char* board) {
  const States& states = StatesOf(board);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(Planner(states, Demand::Uniform(states.geometry())));
}
BENCHMARK_CAPTURE(BM_Solve, a100, "a100-sxm4-40gb")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mete::plan::mig

BENCHMARK_MAIN();
