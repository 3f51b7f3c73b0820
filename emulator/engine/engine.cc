#include "emulator/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mete::emulator {

namespace {

// A client's work in the models; beyond it the rest stays in its ring, and Submit blocks when that is full.
constexpr uint64_t kMostOutstanding = 65536;
constexpr uint32_t kRemovalXid = 45;

}  // namespace

Engine::Engine(EngineSettings settings, uint64_t now_ns)
    : settings_(std::move(settings)), started_ns_(now_ns), cgroups_(settings_.gpus.size()) {
  for (const EngineSettings::Gpu& gpu : settings_.gpus) {
    gpus_.push_back(std::make_unique<Gpu>(gpu));
    gpus_.back()->model.AdvanceTo(now_ns, [](const Completion&) {});
    gpus_.back()->meter.Sample(now_ns, {}, gpu.info.max_power_mw);
    gpus_.back()->sm_clock = SmClockOf(gpu.info, gpus_.back()->settings, 1, 0);
  }
}

Engine::~Engine() = default;

Engine::Session* Engine::Find(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Engine::ContextRecord* Engine::FindContext(Session& session, uint64_t id) {
  ContextRecord& context = session.contexts[ContextSlot(id)];
  return id != 0 && context.id == id ? &context : nullptr;
}

Engine::StreamRecord* Engine::FindStream(Session& session, uint32_t id) {
  const uint32_t slot = StreamSlot(id);
  if (id == 0 || slot >= session.streams.size() || session.streams[slot].id != id) return nullptr;
  return &session.streams[slot];
}

Engine::SessionId Engine::AddSession(SessionPage* page, const Peer& peer) {
  auto session = std::make_unique<Session>();
  session->id = ++last_session_;
  session->peer = peer;
  session->page = page;
  session->contexts.resize(kMaxContexts);
  page->magic = kProtocolMagic;
  page->version = kProtocolVersion;
  sessions_.emplace(session->id, std::move(session));
  return last_session_;
}

void Engine::RemoveSession(SessionId id, uint64_t now_ns) {
  Session* session = Find(id);
  if (session == nullptr) return;
  AdvanceTo(now_ns);
  // Whose process went away with work under way had its channels taken down: one line for each GPU.
  for (uint32_t i = 0; i < gpus_.size() && !session->broken; ++i) {
    const bool busy =
        std::any_of(session->contexts.begin(), session->contexts.end(), [&](const ContextRecord& context) {
          return context.id != 0 && context.gpu == i && !context.dead && !gpus_[i]->model.ContextIdle(context.model);
        });
    if (busy) Publish(i, kEventXid, kRemovalXid, session->peer.pid, now_ns);
  }
  for (ContextRecord& context : session->contexts) {
    if (context.id != 0) FreeContext(*session, context, now_ns);
  }
  for (const PhysicalMemory::Change& change : physical_.DropAll(id)) Charge(change);
  std::erase_if(cross_waits_, [&](const CrossWait& wait) { return wait.session == id; });
  std::erase(broken_, id);
  backing_used_ -= session->backing;
  sessions_.erase(id);
}

// --- Rings ---------------------------------------------------------------------------------------------------------

bool Engine::RingsPending() const {
  for (const auto& [id, session] : sessions_) {
    if (!session->broken && session->outstanding < kMostOutstanding &&
        session->page->tail.load(std::memory_order_seq_cst) != session->head) {
      return true;
    }
  }
  return false;
}

void Engine::Drain(Session& session, uint64_t now_ns) {
  if (session.broken) return;
  SessionPage& page = *session.page;
  const uint64_t tail = page.tail.load(std::memory_order_acquire);
  if (tail - session.head > kRingEntries) {
    session.broken = true;
    broken_.push_back(session.id);
    return;
  }
  if (tail == session.head) return;
  uint64_t room = kMostOutstanding - std::min(kMostOutstanding, session.outstanding);
  for (; session.head != tail && room > 0; ++session.head, --room) {
    Arrival arrival = {0, &session, {}};
    std::memcpy(static_cast<void*>(&arrival.submission), &page.ring[session.head % kRingEntries], sizeof(Submission));
    // Its own clock only moves forward, and never into the future.
    session.last_submitted_ns = std::clamp(arrival.submission.submitted_ns, session.last_submitted_ns,
                                           std::max(now_ns, session.last_submitted_ns));
    arrival.at_ns = session.last_submitted_ns;
    arrivals_.push_back(arrival);
  }
  page.head.store(session.head, std::memory_order_seq_cst);
  if (page.head_waiters.load(std::memory_order_seq_cst) != 0) FutexWakeAll(page.head);
}

void Engine::Accept(const Arrival& arrival) {
  Session& session = *arrival.session;
  StreamRecord* stream = FindStream(session, arrival.submission.stream);
  if (stream == nullptr || stream->closed) return;
  const ContextRecord* context = FindContext(session, stream->context);
  if (context == nullptr || context->dead) return;
  Work work = Sanitized(arrival.submission.work);
  launches_.Add(work);
  Gpu& gpu = *gpus_[stream->gpu];
  const uint64_t sequence = stream->submitted + 1;

  if (work.kind == WorkKind::kWaitFor) {
    const StreamRecord* target = FindStream(session, work.wait_stream);
    if (target == nullptr || target == stream || target->done >= work.wait_sequence) {
      work.wait_stream = 0;  // nothing to wait for
    } else if (target->gpu == stream->gpu) {
      work.wait_stream = target->model;
    } else {
      const StreamId gate = gpu.model.AddStream(context->model);
      cross_waits_.push_back(
          {session.id, context->id, StreamSlot(target->id), target->id, work.wait_sequence, stream->gpu, gate});
      work.wait_stream = gate;
      work.wait_sequence = 1;
    }
  }
  if (work.kind == WorkKind::kMarker && arrival.submission.marker_slot < kMarkerSlots) {
    stream->markers.emplace_back(sequence, arrival.submission.marker_slot);
  }
  stream->submitted = sequence;
  ++session.outstanding;
  ++submissions_;
  gpu.model.Submit(arrival.at_ns, stream->model, work);
}

void Engine::AdvanceTo(uint64_t now_ns) {
  arrivals_.clear();
  for (const auto& [id, session] : sessions_) Drain(*session, now_ns);
  // Sessions are taken in turn; what counts is when each client submitted.
  std::stable_sort(arrivals_.begin(), arrivals_.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at_ns < b.at_ns; });
  for (const Arrival& arrival : arrivals_) {
    HappenDue(arrival.at_ns);
    AdvanceModels(arrival.at_ns);
    Accept(arrival);
  }
  HappenDue(now_ns);
  AdvanceModels(now_ns);
  if (!unwritten_.empty() && now_ns - cgroups_written_ns_ >= kCgroupFilesNs) {
    WriteCgroups();
    cgroups_written_ns_ = now_ns;
  }
  for (const auto& gpu : gpus_) {
    if (now_ns - gpu->meter.LastSampleNs() >= Meter::kSampleNs) {
      Meters(*gpu, now_ns);
    }
  }
}

std::optional<uint64_t> Engine::NextEventNs() const {
  const bool working = std::any_of(sessions_.begin(), sessions_.end(),
                                   [](const auto& session) { return session.second->outstanding > 0; });
  std::optional<uint64_t> next;
  if (const uint64_t fault = NextFaultNs(); fault != UINT64_MAX) next = fault;
  if (!unwritten_.empty()) next = std::min(next.value_or(UINT64_MAX), cgroups_written_ns_ + kCgroupFilesNs);
  for (const auto& gpu : gpus_) {
    const std::optional<uint64_t> event = gpu->model.NextEventNs();
    if (event) next = std::min(next.value_or(UINT64_MAX), *event);
    if (working || gpu->meter.Moving()) {
      next = std::min(next.value_or(UINT64_MAX), gpu->meter.LastSampleNs() + Meter::kSampleNs);
    }
  }
  return next;
}

std::vector<Engine::SessionId> Engine::TakeBroken() { return std::exchange(broken_, {}); }

// --- Models --------------------------------------------------------------------------------------------------------

void Engine::AdvanceModel(uint32_t gpu, uint64_t to_ns) {
  gpus_[gpu]->model.AdvanceTo(to_ns, [this, gpu](const Completion& done) { Completed(gpu, done); });
}

void Engine::AdvanceModels(uint64_t to_ns) {
  // While a stream waits for one of another GPU, the clocks of the two move together, event by event.
  while (!cross_waits_.empty()) {
    uint64_t next = UINT64_MAX;
    uint32_t first = 0;
    for (uint32_t i = 0; i < gpus_.size(); ++i) {
      const uint64_t event = gpus_[i]->model.NextEventNs().value_or(UINT64_MAX);
      if (event < next) {
        next = event;
        first = i;
      }
    }
    if (next > to_ns) break;
    AdvanceModel(first, next);
  }
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i]->model.NowNs() < to_ns || gpus_[i]->model.NextEventNs() == to_ns) AdvanceModel(i, to_ns);
  }
}

void Engine::Completed(uint32_t gpu, const Completion& done) {
  const auto owner = gpus_[gpu]->owners.find(done.stream);
  if (owner == gpus_[gpu]->owners.end()) return;  // a gate
  Session& session = *owner->second.first;
  const uint32_t slot = owner->second.second;
  StreamRecord& stream = session.streams[slot];
  StreamEntry& entry = session.page->streams[slot];
  stream.done = done.sequence;
  --session.outstanding;
  while (!stream.markers.empty() && stream.markers.front().first <= done.sequence) {
    session.page->marker_time[stream.markers.front().second].store(done.at_ns, std::memory_order_relaxed);
    stream.markers.pop_front();
  }
  entry.done.store(done.sequence, std::memory_order_seq_cst);
  if (entry.waiters.load(std::memory_order_seq_cst) != 0) FutexWakeAll(entry.done);
  if (!cross_waits_.empty()) OpenGates(session, stream, slot, done.at_ns);
  if (stream.closed && stream.done == stream.submitted) FreeStream(session, slot);
}

void Engine::OpenGates(Session& session, const StreamRecord& stream, uint32_t slot, uint64_t at_ns) {
  std::erase_if(cross_waits_, [&](const CrossWait& wait) {
    if (wait.session != session.id || wait.slot != slot || wait.id != stream.id || wait.sequence > stream.done) {
      return false;
    }
    gpus_[wait.gpu]->model.Submit(at_ns, wait.gate, Work{});
    gpus_[wait.gpu]->model.RemoveStream(at_ns, wait.gate);
    return true;
  });
}

// --- Ends ----------------------------------------------------------------------------------------------------------

void Engine::FreeStream(Session& session, uint32_t slot) {
  StreamRecord& stream = session.streams[slot];
  gpus_[stream.gpu]->owners.erase(stream.model);
  if (ContextRecord* context = FindContext(session, stream.context)) --context->streams;
  session.outstanding -= stream.submitted - stream.done;
  stream.done = UINT64_MAX;
  if (!cross_waits_.empty()) OpenGates(session, stream, slot, gpus_[stream.gpu]->model.NowNs());
  const uint32_t generation = stream.generation;
  stream = {};
  stream.generation = generation;
  session.free_streams.push_back(slot);
}

void Engine::DropModelContext(Session& session, ContextRecord& context, uint64_t now_ns) {
  Gpu& gpu = *gpus_[context.gpu];
  const uint64_t busy = gpu.model.ContextBusyNs(context.model);
  const uint64_t memory_busy = gpu.model.ContextMemoryBusyNs(context.model);
  Held& held = session.held[{context.gpu, context.place}];
  held.past_busy_ns += busy;
  held.past_memory_busy_ns += memory_busy;
  gpu.accounting.Used(session.peer.pid, busy, memory_busy);
  gpu.model.RemoveContext(now_ns, context.model);
  std::erase_if(cross_waits_, [&](const CrossWait& wait) { return wait.context == context.id; });
}

void Engine::FreeContext(Session& session, ContextRecord& context, uint64_t now_ns) {
  Gpu& gpu = *gpus_[context.gpu];
  if (!context.dead) DropModelContext(session, context, now_ns);
  for (uint32_t slot = 0; slot < session.streams.size(); ++slot) {
    if (session.streams[slot].id == 0 || session.streams[slot].context != context.id) continue;
    // Whoever waits for it goes on; where the connection is ended against the client's will it finds out by that.
    StreamEntry& entry = session.page->streams[slot];
    if (!session.broken) entry.id.store(0, std::memory_order_seq_cst);
    FutexWakeAll(entry.done);
    FreeStream(session, slot);
  }
  Use(context.gpu, context.place, -static_cast<int64_t>(context.memory));
  if (MigGpu::Compute* place = context.place == 0 ? nullptr : gpu.mig.FindPlace(context.place)) --place->info.contexts;
  Uncharge(context.cgroup, context.gpu, context.memory - context.managed);
  gpu.accounting.MemoryChanged(session.peer.pid, -static_cast<int64_t>(context.memory));
  gpu.accounting.ContextEnded(session.peer.pid, now_ns);
  --gpu.contexts;
  if (!session.broken) {
    ContextEntry& entry = session.page->contexts[ContextSlot(context.id)];
    entry.id.store(0, std::memory_order_seq_cst);
    entry.state.store(static_cast<uint32_t>(ContextWord::kAlive), std::memory_order_seq_cst);
  }
  context = {};
}

}  // namespace mete::emulator
