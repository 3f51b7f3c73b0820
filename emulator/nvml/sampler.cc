#include "emulator/nvml/sampler.h"

#include <time.h>

#include <algorithm>

#include "emulator/nvml/give.h"

namespace mete::emulator {

namespace {

uint32_t Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<uint32_t>(std::min<uint64_t>(100, (part * 100 + whole / 2) / whole));
}

}  // namespace

Result ProcessSampler::Take(Client& client, uint32_t gpu, const Reading& before, Reading* reading) {
  GpuState state = {};
  std::vector<ProcessInfo> processes;
  if (Result result = client.State(gpu, &state); result != Result::kOk) return result;
  if (Result result = client.Processes(gpu, &processes); result != Result::kOk) return result;
  reading->engine_time_ns = state.engine_time_ns;
  uint64_t interval = state.engine_time_ns - std::min(before.engine_time_ns, state.engine_time_ns);
  const uint64_t now = WallClockUs();
  for (const ProcessInfo& process : processes) {
    const auto known = before.used.find(process.pid);
    const Used start = known == before.used.end() ? Used{} : known->second;
    const uint64_t busy = process.busy_ns - std::min(start.busy_ns, process.busy_ns);
    const uint64_t memory = process.memory_busy_ns - std::min(start.memory_busy_ns, process.memory_busy_ns);
    reading->used[process.pid] = {process.busy_ns, process.memory_busy_ns};
    reading->samples.push_back({process.pid, now, Percent(busy, interval), Percent(memory, interval)});
  }
  return Result::kOk;
}

Result ProcessSampler::Read(Client& client, uint32_t gpu, uint64_t since_us, std::vector<ProcessSample>* samples) {
  Reading before;
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = last_.find(gpu);
    first = known == last_.end();
    if (!first) before = known->second;
  }
  if (first) {
    if (Result result = Take(client, gpu, {}, &before); result != Result::kOk) return result;
    timespec pause = {0, kIntervalMs * 1'000'000L};
    nanosleep(&pause, nullptr);
    before.samples.clear();
  }
  Reading now;
  GpuState state = {};
  if (Result result = client.State(gpu, &state); result != Result::kOk) return result;
  if (!first && state.engine_time_ns - before.engine_time_ns < uint64_t{kIntervalMs} * 1'000'000) {
    now = before;
  } else {
    if (Result result = Take(client, gpu, before, &now); result != Result::kOk) return result;
    std::lock_guard<std::mutex> lock(mutex_);
    last_[gpu] = now;
  }
  for (const ProcessSample& sample : now.samples) {
    if (sample.time_us > since_us) samples->push_back(sample);
  }
  return Result::kOk;
}

}  // namespace mete::emulator
