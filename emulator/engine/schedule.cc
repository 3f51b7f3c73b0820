// How time passes in the model: progress, turns of the time-slice groups, dispatch of blocks, rates, the next event.
#include <algorithm>
#include <cmath>

#include "emulator/engine/model_state.h"

namespace mete::emulator {

namespace {

constexpr double kNever = 9e18;  // about 285 years
// Work whose end is nearer than this has ended: rounding of instants to whole nanoseconds.
constexpr double kRoundingNs = 0.5;

}  // namespace

void GpuModel::State::Progress(uint64_t to) {
  const double dt = static_cast<double>(to - now);
  now = to;
  if (dt <= 0) return;
  double dram_bytes = 0;
  for (uint32_t direction = 0; direction < kCopyDirections; ++direction) {
    for (Copy& copy : copies[direction]) {
      if (copy.delay_ns > 0) {
        copy.delay_ns -= dt;
        continue;
      }
      const double moved = copy.rate * dt, traffic = moved * (direction == 2 ? 2 : 1);
      copy.bytes_left -= moved;
      copied_bytes[direction] += moved;
      dram_bytes += traffic;
      if (Context* context = FindContext(copy.context)) context->dram_bytes += traffic;
    }
  }
  bool busy = false;
  for (auto& [id, partition] : partitions) {
    if (partition.active != nullptr && !partition.active->kernels.empty()) {
      busy = ProgressKernels(partition, dt, &dram_bytes) || busy;
    }
  }
  if (busy) busy_ns += dt;
  bytes += dram_bytes;
  memory_busy_ns += dram_bytes / gpu.memory_bytes_per_s * 1e9;
}

bool GpuModel::State::ProgressKernels(Partition& partition, double dt, double* dram_bytes) {
  Context& active = *partition.active;
  active.busy_ns += dt;
  bool resident = false, front_end = false;
  for (Stream* stream : active.kernels) {
    Kernel& kernel = stream->kernel;
    if (!kernel.resident) {
      if (!front_end && !hung) kernel.launch_left_ns -= dt;
      front_end = true;  // one launch at a time
      continue;
    }
    resident = true;
    if (!active.hung) {
      for (Cohort& cohort : kernel.cohorts) cohort.waves_left -= kernel.rate * dt;
    }
    const double fetched = kernel.dram_rate * dt;
    if (kernel.cold_bytes > 0) {
      kernel.cold_bytes -= fetched;
      active.warm_bytes = std::min(partition.instance->gpu.l2_bytes, active.warm_bytes + fetched);
    }
    *dram_bytes += fetched;
    active.dram_bytes += fetched;
    sm_busy_ns += kernel.sm_use / gpu.sm_count * dt;
    CountActivity(kernel, partition.sms, dt);
  }
  return resident || hung;  // hung: the GPU says that it is busy
}

void GpuModel::State::CountActivity(const Kernel& kernel, double sms, double dt) {
  const double blocks = static_cast<double>(kernel.in_flight), all = gpu.sm_count;
  sm_active_ns += std::min(sms, blocks) / all * dt;
  const auto warps = static_cast<double>((kernel.cost.threads_per_block + 31) / 32);  // whole ones
  occupancy_ns += std::min(sms / all, blocks * warps * 32 / (all * gpu.threads_per_sm)) * dt;
  const double cycles = gpu.clock_hz * 1e-9 * dt * all;
  for (uint32_t i = 0; i < kInstructionClasses; ++i) {
    const double issued = kernel.rate * blocks * kernel.cost.warp_instructions[i] * dt;
    class_busy_ns[i] += std::min(1.0, issued / (gpu.warp_throughput[i] * cycles)) * dt;
  }
}

void GpuModel::State::Retire() {
  unscheduled = true;
  for (auto& [id, partition] : partitions) {
    if (partition.switching_to != 0 && now >= partition.switch_end) EndSwitch(partition);
    if (partition.active != nullptr) RetireKernels(*partition.active);
  }
  for (uint32_t direction = 0; direction < kCopyDirections; ++direction) {
    for (size_t i = 0; i < copies[direction].size();) {
      const Copy& copy = copies[direction][i];
      if (copy.delay_ns < kRoundingNs && copy.bytes_left <= std::max(copy.rate * kRoundingNs, 0.0)) {
        EndCopy(direction, i);
      } else {
        ++i;
      }
    }
  }
}

void GpuModel::State::RetireKernels(Context& active) {
  const double l2_bytes = active.partition->instance->gpu.l2_bytes;
  // CompleteHead leaves `kernels` alone; the finished are taken out afterwards.
  bool ended = false;
  for (Stream* stream : active.kernels) {
    Kernel& kernel = stream->kernel;
    if (!kernel.resident) {
      if (kernel.launch_left_ns < kRoundingNs) {
        kernel.resident = true;
        const double held = std::min(kernel.cost.working_set_bytes, l2_bytes);
        kernel.cold_bytes = kernel.cost.memory_bytes > 0 ? std::max(0.0, held - active.warm_bytes) : 0;
      }
      continue;
    }
    if (kernel.cost.unbounded != 0 || hung || active.hung) continue;
    std::erase_if(kernel.cohorts, [&](const Cohort& cohort) {
      if (cohort.waves_left > kernel.rate * kRoundingNs) return false;
      kernel.in_flight -= cohort.blocks;
      return true;
    });
    if (kernel.cohorts.empty() && kernel.unstarted == 0) {
      ended = true;
      kernel.resident = false;
      CompleteHead(*stream);
    }
  }
  if (!ended) return;
  std::erase_if(active.kernels, [](const Stream* stream) { return !stream->busy; });
  while (active.kernels.size() < kResidentGrids && !active.waiting.empty()) {
    active.kernels.push_back(active.waiting.front());
    active.waiting.pop_front();
  }
}

// --- Time slices ---------------------------------------------------------------------------------------------------

void GpuModel::State::Runnable(Context& context) {
  Partition& partition = *context.partition;
  if (&context == partition.active || context.id == partition.switching_to || context.listed) return;
  context.listed = true;
  partition.run_list.push_back(context.id);
}

void GpuModel::State::BeginSwitch(Partition& partition) {
  double state_bytes = 0;
  const auto count = [&](const Context& context) {
    for (const Stream* stream : context.kernels) {
      state_bytes += StateBytes(stream->kernel.cost) * static_cast<double>(stream->kernel.in_flight);
    }
  };
  Context& incoming = *FindContext(partition.run_list.front());
  partition.run_list.pop_front();
  incoming.listed = false;
  count(incoming);
  partition.switching_to = incoming.id;
  if (partition.active == nullptr) {  // nothing is loaded
    EndSwitch(partition);
    return;
  }
  Context& outgoing = *partition.active;
  count(outgoing);
  partition.active = nullptr;
  if (!outgoing.kernels.empty()) Runnable(outgoing);
  outgoing.warm_bytes = 0;
  ++switches;
  const double move_ns = state_bytes / partition.instance->gpu.memory_bytes_per_s * 1e9;
  partition.switch_end = now + gpu.switch_fixed_ns + static_cast<uint64_t>(std::ceil(move_ns));
}

void GpuModel::State::EndSwitch(Partition& partition) {
  Context* const active = partition.active = FindContext(partition.switching_to);
  partition.switching_to = 0;
  partition.idle = false;
  if (active == nullptr) return;
  partition.slice_end = now + active->slice_ns;
  active->warm_bytes = 0;
  for (Stream* stream : active->kernels) {
    Kernel& kernel = stream->kernel;
    if (kernel.resident && kernel.cost.memory_bytes > 0) {
      kernel.cold_bytes = std::min(kernel.cost.working_set_bytes, partition.instance->gpu.l2_bytes);
    }
  }
}

void GpuModel::State::TakeTurns(Partition& partition) {
  while (partition.switching_to == 0) {
    const Context* const active = partition.active;
    const bool work = active != nullptr && !active->kernels.empty();
    if (work && partition.idle) partition.slice_end = now + active->slice_ns;  // a slice begins with its work
    partition.idle = !work;
    if (partition.run_list.empty() || (work && (hung || gpu.without_slices))) return;
    if (work) {
      // Alone, it went on from slice to slice.
      uint64_t& end = partition.slice_end;
      const uint64_t slice = active->slice_ns;
      if (end < now) end += (now - end + slice - 1) / slice * slice;
      if (end > now) return;
    }
    BeginSwitch(partition);
  }
}

// --- Blocks and rates ----------------------------------------------------------------------------------------------

void GpuModel::State::Dispatch(Partition& partition) {
  const Context& active = *partition.active;
  double free = partition.sms;
  for (Stream* stream : active.kernels) {
    Kernel& kernel = stream->kernel;
    // Waves that have not begun go back: a slot that has become free may take their blocks earlier.
    for (Cohort& cohort : kernel.cohorts) {
      const double more = std::ceil(cohort.waves_left) - 1;
      if (more < 1) continue;
      kernel.unstarted += static_cast<uint64_t>(more) * cohort.blocks;
      cohort.waves_left -= more;
    }
    free -= static_cast<double>(kernel.in_flight) / kernel.per_sm;
  }
  for (Stream* stream : active.kernels) {
    Kernel& kernel = stream->kernel;
    if (!kernel.resident || kernel.unstarted == 0) continue;
    const double slots = std::floor(free * kernel.per_sm + 1e-6);
    if (slots < 1) continue;
    const uint64_t blocks = std::min(kernel.unstarted, static_cast<uint64_t>(slots));
    kernel.cohorts.push_back({blocks, 1.0});
    kernel.unstarted -= blocks;
    kernel.in_flight += blocks;
    free -= static_cast<double>(blocks) / kernel.per_sm;
  }
  // A slot that ends goes to the first kernel with blocks left. So that one's slots stay its own: its full waves are
  // one event, not thousands.
  for (Stream* stream : active.kernels) {
    Kernel& kernel = stream->kernel;
    if (kernel.unstarted == 0 || kernel.in_flight == 0) continue;
    if (kernel.cost.unbounded != 0 || active.hung) continue;
    const uint64_t waves = kernel.unstarted / kernel.in_flight;
    for (Cohort& cohort : kernel.cohorts) cohort.waves_left += static_cast<double>(waves);
    kernel.unstarted -= waves * kernel.in_flight;
    if (kernel.unstarted > 0) break;
  }
}

void GpuModel::State::SetRates() {
  for (const auto& [id, instance] : instances) SetRates(instance);
}

// The way to the host is everybody's; an instance's own engines may carry less than its part of it.
void GpuModel::State::SetCopyLoads(const ModelInstance& instance) {
  const auto moving = [&](uint32_t direction, bool own) {
    double count = 0;
    for (const Copy& copy : copies[direction]) {
      count += copy.delay_ns < kRoundingNs && (!own || copy.instance == &instance);
    }
    return count;
  };
  const double to_and_fro = instance.shape.copy_engines == 1 ? moving(0, true) + moving(1, true) : 0;
  for (uint32_t direction = 0; direction < kCopyDirections; ++direction) {
    const bool on_board = direction == 2;
    const double engine = (on_board ? instance.gpu.memory_bytes_per_s / 2 : gpu.pcie_bytes_per_s) * 1e-9;
    const double sharing = std::max(moving(direction, on_board), on_board ? 0 : to_and_fro);
    for (Copy& copy : copies[direction]) {
      if (copy.instance != &instance) continue;
      copy.rate = 0;
      if (copy.delay_ns < kRoundingNs) copy_loads.push_back({engine / sharing, on_board ? 2.0 : 1.0});
    }
  }
}

void GpuModel::State::SetRates(const ModelInstance& instance) {
  kernel_loads.clear();
  copy_loads.clear();
  for (const auto& [id, partition] : partitions) {
    if (partition.instance != &instance || partition.active == nullptr) continue;
    for (const Stream* stream : partition.active->kernels) {
      const Kernel& kernel = stream->kernel;
      if (kernel.in_flight == 0) continue;
      kernel_loads.push_back({&kernel.cost, kernel.issue_cycles, static_cast<double>(kernel.in_flight),
                              kernel.cold_bytes > 0, partition.sms, id});
    }
  }
  SetCopyLoads(instance);
  ShareOut(instance.gpu, kernel_loads, copy_loads);
  size_t at = 0;
  for (const auto& [id, partition] : partitions) {
    if (partition.instance != &instance || partition.active == nullptr) continue;
    for (Stream* stream : partition.active->kernels) {
      Kernel& kernel = stream->kernel;
      kernel.rate = kernel.dram_rate = kernel.sm_use = 0;
      if (kernel.in_flight == 0) continue;
      const KernelLoad& load = kernel_loads[at++];
      if (hung) continue;  // resident, and standing still
      kernel.rate = load.rate;
      kernel.dram_rate = load.dram_rate;
      kernel.sm_use = load.sm_use;
    }
  }
  at = 0;
  for (auto& direction : copies) {
    for (Copy& copy : direction) {
      if (copy.instance == &instance && copy.delay_ns < kRoundingNs) copy.rate = copy_loads[at++].rate;
    }
  }
}

void GpuModel::State::FindNext() {
  double soonest = kNever;  // ns from now
  const auto after = [&](double ns) { soonest = std::min(soonest, ns); };
  for (const auto& direction : copies) {
    for (const Copy& copy : direction) {
      if (copy.delay_ns >= kRoundingNs) {
        after(copy.delay_ns);
      } else if (copy.rate > 0) {
        after(copy.bytes_left / copy.rate);
      }
    }
  }
  for (const auto& [id, partition] : partitions) {
    if (partition.active == nullptr) continue;
    bool front_end = false;
    for (const Stream* stream : partition.active->kernels) {
      const Kernel& kernel = stream->kernel;
      if (!kernel.resident) {
        if (!front_end && !hung) after(kernel.launch_left_ns);
        front_end = true;
        continue;
      }
      if (kernel.rate > 0 && kernel.cost.unbounded == 0 && !partition.active->hung) {
        for (const Cohort& cohort : kernel.cohorts) after(cohort.waves_left / kernel.rate);
      }
      if (kernel.cold_bytes > 0 && kernel.dram_rate > 0) after(kernel.cold_bytes / kernel.dram_rate);
    }
  }
  next.reset();
  if (soonest < kNever) next = now + std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(soonest)));
  for (const auto& [id, partition] : partitions) {
    const bool work = partition.active != nullptr && !partition.active->kernels.empty();
    if (partition.switching_to != 0) {
      next = std::min(next.value_or(UINT64_MAX), std::max(partition.switch_end, now + 1));
    } else if (work && !partition.run_list.empty() && !hung && !gpu.without_slices) {
      next = std::min(next.value_or(UINT64_MAX), partition.slice_end);
    }
  }
}

void GpuModel::State::Schedule() {
  for (auto& [id, partition] : partitions) {
    TakeTurns(partition);
    if (partition.active != nullptr) Dispatch(partition);
  }
  SetRates();
  FindNext();
  unscheduled = false;
}

// --- Copy engines --------------------------------------------------------------------------------------------------

void GpuModel::State::StartCopy(Context& context, uint32_t direction, StreamId stream) {
  if (context.copying[direction]) {
    context.copies[direction].push_back(stream);
    return;
  }
  context.copying[direction] = true;
  const double size = static_cast<double>(FindStream(stream)->queue.front().bytes);
  copies[direction].push_back(
      {stream, context.id, context.partition->instance, static_cast<double>(gpu.launch_overhead_ns), size});
}

void GpuModel::State::EndCopy(uint32_t direction, size_t index) {
  const Copy ended = copies[direction][index];
  copies[direction].erase(copies[direction].begin() + static_cast<std::ptrdiff_t>(index));
  Context& context = *FindContext(ended.context);
  context.copying[direction] = false;
  CompleteHead(*FindStream(ended.stream));
  auto& waiting = context.copies[direction];
  if (waiting.empty()) return;
  const StreamId following = waiting.front();
  waiting.pop_front();
  StartCopy(context, direction, following);
}

}  // namespace mete::emulator
