// The discrete-event fluid model of one GPU: contexts, streams, time slices, SM and bandwidth shares. One virtual clock;
// no threads, no I/O. The engine process paces it by the wall clock; simulations run it as fast as it goes.
//
//   GpuModel gpu(parameters);
//   ContextId c = gpu.AddContext(now); StreamId s = gpu.AddStream(c);
//   gpu.Submit(now, s, work);
//   gpu.AdvanceTo(t, [](const Completion& done) { … });    // in time order, each at its own instant
//   std::optional<uint64_t> next = gpu.NextEventNs();
//
// Results emerge from the mechanism; there is no table of outcomes. Not thread-safe.
#ifndef METE_EMULATOR_ENGINE_MODEL_H_
#define METE_EMULATOR_ENGINE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "emulator/engine/work.h"

namespace mete::emulator {

struct GpuParameters {
  uint32_t sm_count = 108;
  uint32_t threads_per_sm = 2048, blocks_per_sm = 32, registers_per_sm = 65536, shared_bytes_per_sm = 167936;
  double clock_hz = 1.41e9;
  double memory_bytes_per_s = 1.555e12;
  double l2_bytes = 40.0 * (1 << 20);
  double pcie_bytes_per_s = 25e9;
  uint64_t time_slice_ns = 1'024'000;
  uint64_t switch_fixed_ns = 10'000;      // besides save and restore of the resident state
  uint64_t launch_overhead_ns = 2'000;    // front end, per kernel
};

using ContextId = uint32_t;
using StreamId = uint32_t;

struct Completion {
  StreamId stream;
  uint64_t sequence;   // per stream, from 1
  uint64_t at_ns;
};

// Integrals since the beginning, for NVML's numbers.
struct GpuCounters {
  uint64_t busy_ns = 0;          // at least one kernel resident
  uint64_t memory_busy_ns = 0;   // DRAM time at full bandwidth
  uint64_t switches = 0;
  double bytes = 0;
};

class GpuModel {
 public:
  explicit GpuModel(const GpuParameters& parameters);
  ~GpuModel();
  GpuModel(const GpuModel&) = delete;
  GpuModel& operator=(const GpuModel&) = delete;

  ContextId AddContext(uint64_t now_ns);
  // Drops the context's streams and whatever they had queued or resident; no completion is reported for it.
  void RemoveContext(uint64_t now_ns, ContextId context);
  StreamId AddStream(ContextId context);
  void RemoveStream(uint64_t now_ns, StreamId stream);

  // now_ns must not be before the last AdvanceTo; returns the sequence in its stream.
  uint64_t Submit(uint64_t now_ns, StreamId stream, const Work& work);

  // Runs every event up to and including `ns`, reporting completions in time order. The callback may Submit (at the
  // completion's own instant) but not AdvanceTo.
  void AdvanceTo(uint64_t ns, const std::function<void(const Completion&)>& completed);
  std::optional<uint64_t> NextEventNs() const;

  uint64_t NowNs() const;
  GpuCounters Counters() const;
  uint64_t ContextBusyNs(ContextId context) const;   // time in which this context held the GPU with work

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_MODEL_H_
