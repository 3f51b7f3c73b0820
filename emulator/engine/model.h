// The discrete-event fluid model of one GPU: contexts, streams, time slices, SM and bandwidth shares. One virtual
// clock; no threads, no I/O. The engine process paces it by the wall clock; simulations run it as fast as it goes.
//
//   GpuModel gpu(parameters);
//   ContextId c = gpu.AddContext(now); StreamId s = gpu.AddStream(c);
//   gpu.Submit(now, s, work);
//   gpu.AdvanceTo(t, [](const Completion& done) { … });    // in time order, each at its own instant
//   std::optional<uint64_t> next = gpu.NextEventNs();
//
// A context owns one time-slice group; groups with work take turns (round robin), one without work yields at once.
// With MIG a GPU has instances with memory, L2 and copy engines of their own, and in each partitions of SMs where turns
// are taken apart from each other; they share nothing but the way to the host.
// Inside the active context kernels of several streams share the SMs in the order of arrival, each later one taking
// what the earlier ones leave; rates follow from issue slots and DRAM bandwidth by max-min sharing. Copies have engines
// of their own and go on whatever context is active. All times are nanoseconds of the model's clock.
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
  // Warp instructions of each class that one SM retires per cycle; the defaults are compute capability 8.0.
  double warp_throughput[kInstructionClasses] = {2, 2, 1, 0.5, 1, 1, 0.5, 2};
  double issue_per_cycle = 4;           // warp instructions of any class per SM
  double l2_bytes_per_cycle = 64;       // between one SM and the L2
  uint64_t time_slice_ns = 2'048'000;   // what CUDA asks the kernel driver for
  uint64_t switch_fixed_ns = 10'000;    // besides save and restore of the resident state
  uint64_t launch_overhead_ns = 2'000;  // front end, per kernel and per copy
  uint64_t block_floor_ns = 1'000;      // no block is faster: it is set up and drained
  // Rules that tests leave out, to show that a measurement notices. Nothing of the product sets them.
  bool without_slices = false;     // whoever has the GPU keeps it until it has nothing to do
  bool without_bandwidth = false;  // everybody gets the whole DRAM bandwidth
};

using ContextId = uint32_t;    // from 1; never used twice
using StreamId = uint32_t;     // from 1; never used twice
using InstanceId = uint32_t;   // never used twice
using PartitionId = uint32_t;  // never used twice

// The instance and the partition that are the whole GPU; always there.
inline constexpr InstanceId kWholeBoard = 0;
inline constexpr PartitionId kAllSms = 0;

// A part of the board, as a MIG GPU instance is.
struct InstanceShape {
  double memory_part = 1;     // of the DRAM's bandwidth and of the L2
  uint32_t copy_engines = 3;  // 1: copies to the host and from it share one
};

struct Completion {
  StreamId stream;
  uint64_t sequence;  // per stream, from 1
  uint64_t at_ns;
};

// Integrals since the beginning, for NVML's numbers.
struct GpuCounters {
  uint64_t busy_ns = 0;         // at least one kernel resident
  uint64_t memory_busy_ns = 0;  // DRAM time at full bandwidth
  uint64_t sm_busy_ns = 0;      // SM time at full issue rate, of all SMs
  uint64_t switches = 0;
  double bytes = 0;  // DRAM traffic
  uint64_t host_to_device_bytes = 0, device_to_host_bytes = 0;
  uint64_t sm_active_ns = 0;                         // SM time with a block on it, of all SMs
  uint64_t occupancy_ns = 0;                         // resident warps of all that fit
  uint64_t class_busy_ns[kInstructionClasses] = {};  // issue slots of each class in use
};

class GpuModel {
 public:
  explicit GpuModel(const GpuParameters& parameters);
  ~GpuModel();
  GpuModel(const GpuModel&) = delete;
  GpuModel& operator=(const GpuModel&) = delete;

  // Every now_ns below: not before NowNs() (an earlier one counts as NowNs()). A later one takes effect when AdvanceTo
  // reaches it, after the events before it.
  ContextId AddContext(uint64_t now_ns, PartitionId partition = kAllSms);  // 0: no such partition
  // Drops the context's streams and whatever they had queued or resident; no completion is reported for it. Work of
  // other contexts that waits for one of the streams goes on.
  void RemoveContext(uint64_t now_ns, ContextId context);
  StreamId AddStream(ContextId context);  // 0: no such context
  // SMs of an instance on which one time-slice group at a time executes, as a MIG compute instance is. What is removed
  // takes no new contexts, and is gone with the last it has.
  InstanceId AddInstance(const InstanceShape& shape);
  PartitionId AddPartition(InstanceId instance, uint32_t sm_count);  // 0: no such instance
  void RemovePartition(PartitionId partition);
  void RemoveInstance(InstanceId instance);  // and its partitions
  // The stream takes no further work; what is queued still runs and is reported, then the stream is gone.
  void RemoveStream(uint64_t now_ns, StreamId stream);

  // Returns the sequence in its stream; 0: no such stream. Numbers out of range are clamped (see Sanitized).
  uint64_t Submit(uint64_t now_ns, StreamId stream, const Work& work);

  // Runs every event up to and including `ns`, reporting completions in time order. The callback may Submit, add and
  // remove (at the completion's own instant) but not AdvanceTo.
  void AdvanceTo(uint64_t ns, const std::function<void(const Completion&)>& completed);
  // The earliest instant at which anything changes; NowNs() if something is due already. None: nothing will happen
  // without new work.
  std::optional<uint64_t> NextEventNs() const;

  uint64_t NowNs() const;
  GpuCounters Counters() const;
  bool ContextActive(ContextId context) const;                     // its partition executes it
  ContextId ActiveContext(PartitionId partition = kAllSms) const;  // whose group the SMs execute; 0: nobody's
  uint64_t ContextBusyNs(ContextId context) const;  // time in which this context held the GPU with work; 0 when gone
  uint64_t ContextMemoryBusyNs(ContextId context) const;  // its DRAM time at full bandwidth
  // Faults and policies, from their instant on. Factors of what the parameters say; 1: as they say.
  void SetSpeed(uint64_t now_ns, double clock, double memory);
  // No kernel of the context ends while this is on; context 0: the whole engine stands still, and no turn ends either.
  void SetHung(uint64_t now_ns, ContextId context, bool hung);
  void SetTimeSlice(uint64_t slice_ns);  // of contexts added later

  // Kernels and copies begun or queued in this context and not done.
  bool ContextIdle(ContextId context) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_MODEL_H_
