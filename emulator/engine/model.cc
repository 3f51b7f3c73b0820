#include "emulator/engine/model.h"

#include <algorithm>
#include <cmath>

#include "emulator/engine/model_state.h"

namespace mete::emulator {

// --- Streams -------------------------------------------------------------------------------------------------------

Context* GpuModel::State::FindContext(ContextId id) {
  const auto found = contexts.find(id);
  return found == contexts.end() ? nullptr : &found->second;
}

Stream* GpuModel::State::FindStream(StreamId id) {
  const auto found = streams.find(id);
  return found == streams.end() ? nullptr : &found->second;
}

void GpuModel::State::MarkReady(Stream& stream) {
  unscheduled = true;
  if (stream.listed) return;
  stream.listed = true;
  ready.push_back(stream.id);
}

void GpuModel::State::Enqueue(Stream& stream, const Work& work) {
  stream.queue.push_back(work);
  if (!stream.busy) MarkReady(stream);
}

void GpuModel::State::CompleteHead(Stream& stream) {
  stream.queue.pop_front();
  stream.busy = false;
  ++stream.done;
  if (Context* context = FindContext(stream.context)) --context->outstanding;
  completions.push_back({stream.id, stream.done, now});
  WakeWaiters(stream, stream.done);
  MarkReady(stream);
}

void GpuModel::State::WakeWaiters(Stream& stream, uint64_t done) {
  if (stream.waiters.empty()) return;
  auto waiters = std::move(stream.waiters);
  stream.waiters.clear();
  for (const auto& [sequence, id] : waiters) {
    if (sequence > done) {
      stream.waiters.emplace_back(sequence, id);
      continue;
    }
    // The head that waited may have gone with its context.
    Stream* waiter = FindStream(id);
    if (waiter == nullptr || !waiter->busy || waiter->queue.front().kind != WorkKind::kWaitFor) continue;
    waiter->busy = false;  // looked at again when it is its turn; its target is done then
    MarkReady(*waiter);
  }
}

void GpuModel::State::StartKernel(Stream& stream) {
  Context& context = *FindContext(stream.context);
  Kernel& kernel = stream.kernel;
  kernel.cost = stream.queue.front().kernel;
  kernel.unstarted = kernel.cost.blocks;
  kernel.in_flight = 0;
  kernel.cohorts.clear();
  kernel.resident = false;
  kernel.launch_left_ns = static_cast<double>(gpu.launch_overhead_ns);
  kernel.per_sm = ResidentBlocksPerSm(gpu, kernel.cost);
  kernel.issue_cycles = IssueCycles(gpu, kernel.cost);
  kernel.rate = kernel.dram_rate = kernel.sm_use = kernel.cold_bytes = 0;
  stream.busy = true;
  if (context.kernels.size() < kResidentGrids) {
    context.kernels.push_back(&stream);
  } else {
    context.waiting.push_back(&stream);
  }
  Runnable(context);
}

void GpuModel::State::StartHeads(Stream& stream) {
  while (!stream.busy && !stream.queue.empty()) {
    const Work& head = stream.queue.front();
    switch (head.kind) {
      case WorkKind::kMarker: CompleteHead(stream); break;
      case WorkKind::kWaitFor: {
        Stream* target = FindStream(head.wait_stream);
        // A stream that is gone has nothing left to wait for; one that waits for itself would wait for ever.
        if (target == nullptr || target == &stream || target->done >= head.wait_sequence) {
          CompleteHead(stream);
        } else {
          stream.busy = true;
          target->waiters.emplace_back(head.wait_sequence, stream.id);
        }
        break;
      }
      case WorkKind::kKernel: StartKernel(stream); break;
      case WorkKind::kCopyHostToDevice:
      case WorkKind::kCopyDeviceToHost:
      case WorkKind::kCopyDeviceToDevice: {
        stream.busy = true;
        const uint32_t direction =
            static_cast<uint32_t>(head.kind) - static_cast<uint32_t>(WorkKind::kCopyHostToDevice);
        StartCopy(*FindContext(stream.context), direction, stream.id);
        break;
      }
    }
  }
}

void GpuModel::State::Erase(Stream& stream) {
  if (Context* context = FindContext(stream.context)) std::erase(context->streams, stream.id);
  WakeWaiters(stream, UINT64_MAX);
  streams.erase(stream.id);
}

void GpuModel::State::DropContext(ContextId id) {
  Context* context = FindContext(id);
  if (context == nullptr) return;
  unscheduled = true;
  Partition& partition = *context->partition;
  std::erase(partition.run_list, id);
  if (partition.active == context) partition.active = nullptr;
  if (partition.switching_to == id) partition.switching_to = 0;
  for (auto& direction : copies) std::erase_if(direction, [&](const Copy& copy) { return copy.context == id; });
  const std::vector<StreamId> mine = std::move(context->streams);
  context->streams.clear();
  // A completion that nobody has been told of goes with the rest.
  std::erase_if(completions, [&](const Completion& done) {
    const Stream* stream = FindStream(done.stream);
    return stream != nullptr && stream->context == id;
  });
  contexts.erase(id);
  for (const StreamId stream : mine) {
    if (Stream* found = FindStream(stream)) Erase(*found);
  }
  --partition.contexts;
  CloseIfEmpty(partition.id);
}

void GpuModel::State::CloseIfEmpty(PartitionId id) {
  const auto partition = partitions.find(id);
  if (!partition->second.closed || partition->second.contexts > 0) return;
  ModelInstance& instance = *partition->second.instance;
  partitions.erase(partition);
  if (--instance.partitions == 0 && instance.closed) instances.erase(instance.id);
}

void GpuModel::State::FitInstances() {
  for (auto& [id, instance] : instances) {
    instance.gpu = gpu;
    instance.gpu.memory_bytes_per_s *= instance.shape.memory_part;
    instance.gpu.l2_bytes *= instance.shape.memory_part;
  }
}

void GpuModel::State::RunDue() {
  while (!later.empty() && later.begin()->first <= now) {
    const Later call = later.begin()->second;
    later.erase(later.begin());
    unscheduled = true;
    switch (call.what) {
      case What::kSubmit:
        if (Stream* stream = FindStream(call.id)) Enqueue(*stream, call.work);
        break;
      case What::kRemoveContext: DropContext(call.id); break;
      case What::kRemoveStream:
        if (Stream* stream = FindStream(call.id)) {
          stream->closed = true;
          MarkReady(*stream);
        }
        break;
      case What::kSpeed:
        gpu.clock_hz = rated.clock_hz * call.clock;
        gpu.memory_bytes_per_s = rated.memory_bytes_per_s * call.memory;
        FitInstances();
        break;
      case What::kHang:
      case What::kGoOn: Hang(call.id, call.what == What::kHang); break;
    }
  }
}

void GpuModel::State::Hang(ContextId id, bool on) {
  if (id == 0) {
    hung = on;
  } else if (Context* context = FindContext(id)) {
    context->hung = on;
  }
}

void GpuModel::State::Settle() {
  RunDue();
  while (!ready.empty()) {
    Stream* stream = FindStream(ready.front());
    ready.pop_front();
    if (stream == nullptr) continue;
    stream->listed = false;
    StartHeads(*stream);
    if (stream->closed && stream->queue.empty()) Erase(*stream);
  }
}

// --- The face ------------------------------------------------------------------------------------------------------

GpuModel::GpuModel(const GpuParameters& parameters) : state_(std::make_unique<State>(parameters)) {}
GpuModel::~GpuModel() = default;

InstanceId GpuModel::AddInstance(const InstanceShape& shape) {
  const InstanceId id = ++state_->last_instance;
  ModelInstance& instance = state_->instances[id];
  instance.id = id;
  instance.shape = shape;
  state_->FitInstances();
  return id;
}

PartitionId GpuModel::AddPartition(InstanceId instance, uint32_t sm_count) {
  const auto found = state_->instances.find(instance);
  if (found == state_->instances.end() || found->second.closed) return 0;
  const PartitionId id = ++state_->last_partition;
  Partition& partition = state_->partitions[id];
  partition.id = id;
  partition.instance = &found->second;
  partition.sms = std::max<uint32_t>(sm_count, 1);
  ++found->second.partitions;
  return id;
}

void GpuModel::RemovePartition(PartitionId partition) {
  const auto found = state_->partitions.find(partition);
  if (found == state_->partitions.end() || partition == kAllSms) return;
  found->second.closed = true;
  state_->CloseIfEmpty(partition);
}

void GpuModel::RemoveInstance(InstanceId instance) {
  const auto found = state_->instances.find(instance);
  if (found == state_->instances.end() || instance == kWholeBoard) return;
  found->second.closed = true;
  if (found->second.partitions == 0) {
    state_->instances.erase(found);
    return;
  }
  std::vector<PartitionId> mine;
  for (const auto& [id, partition] : state_->partitions) {
    if (partition.instance == &found->second) mine.push_back(id);
  }
  for (const PartitionId id : mine) RemovePartition(id);  // the last one takes the instance with it
}

ContextId GpuModel::AddContext(uint64_t, PartitionId partition) {
  const auto found = state_->partitions.find(partition);
  if (found == state_->partitions.end() || found->second.closed) return 0;
  const ContextId id = ++state_->last_context;
  Context& context = state_->contexts[id];
  context.id = id;
  context.partition = &found->second;
  ++found->second.contexts;
  context.slice_ns = state_->gpu.time_slice_ns;
  return id;
}

void GpuModel::RemoveContext(uint64_t now_ns, ContextId context) {
  if (now_ns <= state_->now && state_->later.empty()) return state_->DropContext(context);
  state_->later.emplace(std::max(now_ns, state_->now), State::Later{State::What::kRemoveContext, context, {}});
}

StreamId GpuModel::AddStream(ContextId context) {
  Context* owner = state_->FindContext(context);
  if (owner == nullptr) return 0;
  const StreamId id = ++state_->last_stream;
  Stream& stream = state_->streams[id];
  stream.id = id;
  stream.context = context;
  owner->streams.push_back(id);
  return id;
}

void GpuModel::RemoveStream(uint64_t now_ns, StreamId stream) {
  state_->later.emplace(std::max(now_ns, state_->now), State::Later{State::What::kRemoveStream, stream, {}});
}

uint64_t GpuModel::Submit(uint64_t now_ns, StreamId id, const Work& work) {
  Stream* stream = state_->FindStream(id);
  if (stream == nullptr || stream->closed) return 0;
  ++state_->FindContext(stream->context)->outstanding;
  if (now_ns <= state_->now && state_->later.empty()) {
    state_->Enqueue(*stream, Sanitized(work));
  } else {
    state_->later.emplace(std::max(now_ns, state_->now), State::Later{State::What::kSubmit, id, Sanitized(work)});
  }
  return ++stream->submitted;
}

void GpuModel::AdvanceTo(uint64_t ns, const std::function<void(const Completion&)>& completed) {
  State& state = *state_;
  std::vector<Completion> batch;
  for (;;) {
    state.Settle();
    if (!state.completions.empty()) {
      batch.swap(state.completions);
      for (const Completion& done : batch) completed(done);
      batch.clear();
      continue;
    }
    if (state.unscheduled) state.Schedule();
    std::optional<uint64_t> next = state.next;
    if (!state.later.empty()) next = std::min(next.value_or(UINT64_MAX), state.later.begin()->first);
    if (!next || *next > ns) break;
    state.Progress(*next);
    state.Retire();
  }
  if (ns > state.now) state.Progress(ns);
}

void GpuModel::SetSpeed(uint64_t now_ns, double clock, double memory) {
  const auto factor = [](double asked) { return std::isfinite(asked) ? std::clamp(asked, 1e-3, 10.0) : 1; };
  state_->later.emplace(std::max(now_ns, state_->now),
                        State::Later{State::What::kSpeed, 0, {}, factor(clock), factor(memory)});
}

void GpuModel::SetHung(uint64_t now_ns, ContextId context, bool hung) {
  state_->later.emplace(std::max(now_ns, state_->now),
                        State::Later{hung ? State::What::kHang : State::What::kGoOn, context, {}});
}

void GpuModel::SetTimeSlice(uint64_t slice_ns) { state_->gpu.time_slice_ns = std::max<uint64_t>(slice_ns, 1); }

std::optional<uint64_t> GpuModel::NextEventNs() const {
  const State& state = *state_;
  if (state.unscheduled || !state.completions.empty() || !state.ready.empty()) return state.now;
  std::optional<uint64_t> next = state.next;
  if (!state.later.empty()) next = std::min(next.value_or(UINT64_MAX), state.later.begin()->first);
  return next;
}

uint64_t GpuModel::NowNs() const { return state_->now; }

GpuCounters GpuModel::Counters() const {
  const State& state = *state_;
  GpuCounters counters = {static_cast<uint64_t>(state.busy_ns), static_cast<uint64_t>(state.memory_busy_ns),
                          static_cast<uint64_t>(state.sm_busy_ns), state.switches, state.bytes};
  counters.host_to_device_bytes = static_cast<uint64_t>(state.copied_bytes[0]);
  counters.device_to_host_bytes = static_cast<uint64_t>(state.copied_bytes[1]);
  counters.sm_active_ns = static_cast<uint64_t>(state.sm_active_ns);
  counters.occupancy_ns = static_cast<uint64_t>(state.occupancy_ns);
  for (uint32_t i = 0; i < kInstructionClasses; ++i) {
    counters.class_busy_ns[i] = static_cast<uint64_t>(state.class_busy_ns[i]);
  }
  return counters;
}

uint64_t GpuModel::ContextMemoryBusyNs(ContextId context) const {
  const Context* found = state_->FindContext(context);
  return found == nullptr ? 0 : static_cast<uint64_t>(found->dram_bytes / state_->gpu.memory_bytes_per_s * 1e9);
}

ContextId GpuModel::ActiveContext(PartitionId partition) const {
  const auto found = state_->partitions.find(partition);
  return found == state_->partitions.end() || found->second.active == nullptr ? 0 : found->second.active->id;
}

bool GpuModel::ContextActive(ContextId context) const {
  const Context* found = state_->FindContext(context);
  return found != nullptr && found->partition->active == found;
}

uint64_t GpuModel::ContextBusyNs(ContextId context) const {
  const Context* found = state_->FindContext(context);
  return found == nullptr ? 0 : static_cast<uint64_t>(found->busy_ns);
}

bool GpuModel::ContextIdle(ContextId context) const {
  const Context* found = state_->FindContext(context);
  return found == nullptr || found->outstanding == 0;
}

}  // namespace mete::emulator
