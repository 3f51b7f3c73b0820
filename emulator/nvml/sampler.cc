#include "emulator/nvml/sampler.h"

#include <time.h>

#include <algorithm>

namespace mete::emulator {

namespace {

uint64_t WallClockUs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

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
  uint64_t busy_all = 0;
  std::vector<uint64_t> busy;
  for (const ProcessInfo& process : processes) {
    auto known = before.busy_ns.find(process.pid);
    uint64_t start = known == before.busy_ns.end() ? 0 : known->second;
    busy.push_back(process.busy_ns - std::min(start, process.busy_ns));
    busy_all += busy.back();
    reading->busy_ns[process.pid] = process.busy_ns;
  }
  uint64_t now = WallClockUs();
  for (size_t i = 0; i < processes.size(); ++i) {
    // DRAM time is known for the whole GPU only: a process gets its part by GPU time.
    uint32_t memory = busy_all == 0 ? 0 : static_cast<uint32_t>(state.utilization_memory * busy[i] / busy_all);
    reading->samples.push_back({processes[i].pid, now, Percent(busy[i], interval), memory});
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
