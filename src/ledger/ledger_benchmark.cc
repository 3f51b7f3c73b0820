// What a tenant pays for each allocation and launch: ns of thread CPU, by the number of slots in use.
#include <benchmark/benchmark.h>

#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/testing_pages.h"

namespace mete::ledger {
namespace {

View JoinMany(testing::Pages& pages, int64_t slots) {
  pages.limits->gpu[0].memory_quota = uint64_t{1} << 40;
  View view;
  for (int64_t i = 0; i < slots; ++i) view = pages.Join();
  return view;
}

void BM_ReserveAndReturn(benchmark::State& state) {
  testing::Pages pages;
  const View view = JoinMany(pages, state.range(0));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(Reserve(view, 4096));
    Return(view, 4096);
  }
}
BENCHMARK(BM_ReserveAndReturn)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(1024);

void BM_HopelessReserve(benchmark::State& state) {
  testing::Pages pages;
  const View view = JoinMany(pages, state.range(0));
  Charge(view, uint64_t{1} << 40);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(Reserve(view, 4096));
}
BENCHMARK(BM_HopelessReserve)->Arg(1)->Arg(16);

void BM_TryStartAndFinish(benchmark::State& state) {
  testing::Pages pages;
  const View view = JoinMany(pages, state.range(0));
  pages.SetCompute(state.range(1) != 0 ? ComputeMode::kHard : ComputeMode::kWorkConserving, kFullShare);
  uint64_t now = 1'000'000'000'000;
  for ([[maybe_unused]] auto _ : state) {
    now += 1000;
    pages.limits->heartbeat_ns.store(now, std::memory_order_relaxed);
    benchmark::DoNotOptimize(TryStart(view, 500, now));
    Finish(view, 1, 500, now + 500);
  }
}
BENCHMARK(BM_TryStartAndFinish)->ArgsProduct({{1, 4, 16, 64, 1024}, {0, 1}})->ArgNames({"slots", "hard"});

void BM_Clock(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(MonotonicNs());
}
BENCHMARK(BM_Clock);

}  // namespace
}  // namespace mete::ledger

BENCHMARK_MAIN();
