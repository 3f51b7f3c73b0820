// What a client pays: posting a launch into its ring, and for comparison a question over the socket. On a node that is
// up:
//
//   eval "$(mete emulate env)"; build/release/bench/emulator_client_benchmark
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "emulator/engine/client.h"

namespace mete::emulator {
namespace {

constexpr int kBatch = 1000;  // the ring holds four times as many

std::unique_ptr<Client> Open(benchmark::State& state) {
  const char* root = std::getenv("METE_DRIVER_ROOT");
  Client* client = nullptr;
  std::string why = "METE_DRIVER_ROOT is not set; eval \"$(mete emulate env)\"";
  if (root == nullptr || !Client::Connect(root, &client, &why)) state.SkipWithError(why.c_str());
  return std::unique_ptr<Client>(client);
}

// Launches of a kernel of 5 us, a queue that is never full; the engine works beside it.
void PostLaunch(benchmark::State& state) {
  const std::unique_ptr<Client> client = Open(state);
  uint64_t context = 0;
  uint32_t stream = 0;
  if (client == nullptr || client->CreateContext(0, &context) != Result::kOk ||
      client->OpenStream(context, &stream) != Result::kOk) {
    return;
  }
  Work work;
  work.kind = WorkKind::kKernel;
  work.kernel.blocks = 100;
  work.kernel.threads_per_block = 128;
  work.kernel.warp_instructions[kFp32] = 5000;
  for ([[maybe_unused]] auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    uint64_t last = 0;
    for (int i = 0; i < kBatch; ++i) last = client->Submit(stream, work);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count() / kBatch);
    client->Wait(stream, last);
  }
}
BENCHMARK(PostLaunch)->UseManualTime()->Unit(benchmark::kNanosecond)->Iterations(200);

void SocketRoundTrip(benchmark::State& state) {
  const std::unique_ptr<Client> client = Open(state);
  if (client == nullptr) return;
  uint64_t free_bytes = 0, total = 0;
  for ([[maybe_unused]] auto _ : state) client->MemoryInfo(0, &free_bytes, &total);
}
BENCHMARK(SocketRoundTrip)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace mete::emulator

BENCHMARK_MAIN();
