#include "emulator/simulate/simulation.h"

#include <algorithm>
#include <cmath>

#include "emulator/simulate/calibrate.h"
#include "emulator/simulate/instances.h"
#include "ledger/pages.h"

namespace mete::emulator {
namespace {

using ledger::Decision;
using ledger::Verdict;

constexpr uint64_t kStart = 1'000'000'000;     // instants of virtual time begin here: 0 has a meaning in the pages
constexpr uint64_t kHeartbeatNs = 25'000'000;  // the broker's period
// As the interceptor's: what a batch may hold, and how long it stands open.
constexpr uint64_t kBatchNs = 500'000, kOpenAtMostNs = 100'000;
constexpr uint64_t kBatchLaunches = 256;

uint64_t Middle(Range range) { return (range.least + range.most) / 2; }

}  // namespace

Simulation::Simulation(const GpuParameters& gpu, const Scenario& scenario, uint32_t compute_major)
    : parameters_(gpu),
      scenario_(scenario),
      compute_major_(compute_major),
      model_(gpu),
      random_(scenario.seed),
      now_(kStart) {}

uint64_t Simulation::Draw(Range range) { return range.least + random_() % (range.most - range.least + 1); }

void Simulation::Plan(uint64_t at, What what, uint64_t index, uint64_t token) {
  events_.push({std::max(at, now_), ++order_, what, index, token});
}

Status Simulation::Prepare() {
  model_.AdvanceTo(kStart, [](const Completion&) {});
  result_.shares.resize(scenario_.shares.size());
  for (uint32_t i = 0; i < scenario_.shares.size(); ++i) {
    const ShareSpec& spec = scenario_.shares[i];
    Share share;
    if (spec.workload.empty()) {
      METE_ASSIGN_OR_RETURN(const Calibrated kernel,
                            Calibrate(spec.part ? ParametersOf(parameters_, *spec.part) : parameters_,
                                      spec.kernel_ms * 1e6, spec.blocks));
      Step step;
      step.work.kind = WorkKind::kKernel;
      step.work.kernel = kernel.cost;
      share.steps = {step};
      result_.shares[i].kernel_ns = kernel.length_ns;
    } else {
      share.steps = spec.steps;
      share.requests = true;
    }
    share.limits = std::make_unique<ledger::LimitsPage>();
    share.ledger = std::make_unique<ledger::LedgerPage>();
    const uint8_t id[16] = {static_cast<uint8_t>(i)};
    ledger::InitLimits(*share.limits, id, 1, 1);
    ledger::InitLedger(*share.ledger, 1);
    share.limits->heartbeat_ns = now_;
    share.limits->gpu[0].flags = ledger::kTracked;
    share.limits->gpu[0].memory_quota = ledger::kNoQuota;
    ledger::PublishCompute(*share.limits, *share.ledger, 0, spec.mode, spec.share, spec.weight, now_);
    share.last_completion = kStart + spec.from_ns;
    shares_.push_back(std::move(share));
    for (uint32_t p = 0; p < spec.processes; ++p) AddProcess(i);
  }
  for (size_t i = 0; i < scenario_.events.size(); ++i) {
    const EventSpec& event = scenario_.events[i];
    uint64_t at = kStart + event.at_ns;
    if (event.kind == EventKind::kFault && event.fault.probability > 0 && event.fault.probability < 1) {
      const double uniform = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
      at += static_cast<uint64_t>(std::log(uniform) / std::log1p(-event.fault.probability) * 1e9);
    }
    if (at < kStart + scenario_.length_ns) Plan(at, What::kScripted, i);
  }
  Plan(now_, What::kHeartbeat, 0);
  Plan(now_, What::kSample, 0);
  WakeBroker(now_);
  return OkStatus();
}

void Simulation::AddProcess(uint32_t share) {
  const ShareSpec& spec = scenario_.shares[share];
  Process process;
  process.share = share;
  const auto pid = static_cast<uint32_t>(processes_.size() + 1);
  const int slot = ledger::TakeSlot(*shares_[share].ledger, pid, 1, pid);
  process.view = {shares_[share].limits.get(), shares_[share].ledger.get(), 0, static_cast<uint32_t>(slot)};
  process.context = model_.AddContext(now_, PartitionOf(spec));
  for (uint32_t i = 0; i < spec.streams; ++i) {
    process.streams.push_back({model_.AddStream(process.context), nullptr, 0, 0, 0});
    process_of_[process.streams.back().id] = {processes_.size(), i};
  }
  process.predicted_ns.assign(shares_[share].steps.size(), 0);
  if (spec.off_ns > 0) process.phase = random_() % (spec.on_ns + spec.off_ns);
  if (!spec.lock_step.empty()) {
    const auto named = [&spec](const Group& group) { return group.name == spec.lock_step; };
    auto group = std::find_if(groups_.begin(), groups_.end(), named);
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{spec.lock_step});
    ++group->members;
    process.group = static_cast<uint32_t>(group - groups_.begin());
  }
  processes_.push_back(std::move(process));
  const uint64_t begin = kStart + spec.from_ns + random_() % 1'000'000;
  if (!shares_[share].requests) return PlanTry(processes_.size() - 1, begin);
  processes_.back().try_at = UINT64_MAX;
  if (spec.arrival.kind == ArrivalKind::kClosed) {
    Plan(begin, What::kArrival, processes_.size() - 1);
  } else {
    PlanArrival(processes_.size() - 1, begin);
  }
}

PartitionId Simulation::PartitionOf(const ShareSpec& spec) {
  if (!spec.part) return kAllSms;
  const PartSpec& part = *spec.part;
  const auto [instance, fresh] = instances_.try_emplace(part.instance, 0);
  if (fresh) instance->second = model_.AddInstance({part.memory_part, part.copy_engines});
  const auto [partition, first] = partitions_.try_emplace({part.instance, part.compute}, 0);
  if (first) partition->second = model_.AddPartition(instance->second, part.sms);
  return partition->second;
}

StatusOr<RunResult> Simulation::Run() {
  METE_RETURN_IF_ERROR(Prepare());
  const uint64_t end = kStart + scenario_.length_ns;
  const auto completed = [this](const Completion& done) { Completed(done); };
  for (;;) {
    const uint64_t planned = events_.empty() ? UINT64_MAX : events_.top().at;
    const uint64_t next = std::min(planned, model_.NextEventNs().value_or(UINT64_MAX));
    if (next > end) break;
    now_ = next;
    model_.AdvanceTo(now_, completed);  // completions first: they plan notices at this instant or later
    SeeChange();
    if (planned != next) continue;
    const Event event = events_.top();
    events_.pop();
    Handle(event);
  }
  result_.counters = model_.Counters();
  for (size_t i = 0; i < shares_.size(); ++i) {
    ShareTimeline& timeline = result_.shares[i];
    timeline.longest_gap_ns = std::max(timeline.longest_gap_ns, end - std::min(end, shares_[i].last_completion));
    timeline.charged_ns = ledger::UsedNs(*shares_[i].ledger, 0, end);
    timeline.waits = shares_[i].ledger->gpu[0].waits.load();
    for (const Process& process : processes_) timeline.alive += process.share == i && process.alive;
  }
  return result_;
}

void Simulation::Handle(const Event& event) {
  switch (event.what) {
    case What::kTry:
      if (processes_[event.index].token == event.token) Try(event.index);
      break;
    case What::kNotice: Notice(event.index, static_cast<StreamId>(event.token)); break;
    case What::kBrokerWake:
      if (broker_alive_ && broker_token_ == event.token) BrokerStep();
      break;
    case What::kHeartbeat:
      if (broker_alive_) {
        for (Share& share : shares_) share.limits->heartbeat_ns = now_;
      }
      Plan(now_ + kHeartbeatNs, What::kHeartbeat, 0);
      break;
    case What::kClose: {
      Process& process = processes_[event.index];
      Stream& stream = process.streams[event.token];
      if (process.alive && stream.open != nullptr && now_ >= stream.open->began + kOpenAtMostNs) Shut(process, stream);
      break;
    }
    case What::kSample: Sample(); break;
    case What::kArrival: Arrived(event.index); break;
    case What::kScripted: Scripted(event.index); break;
    case What::kDeath: Death(static_cast<uint32_t>(event.index), static_cast<uint32_t>(event.index >> 32)); break;
  }
}

// The GPU changes from one context to another; between two of one share, that is the share's time as well.
void Simulation::SeeChange() {
  const ContextId active = model_.ActiveContext();
  if (active == 0) {
    if (holder_ != 0 && change_began_ == 0) change_began_ = now_;
    return;
  }
  if (change_began_ != 0) {
    const auto share_of = [this](ContextId context) {
      const auto of = std::find_if(processes_.begin(), processes_.end(),
                                   [context](const Process& process) { return process.context == context; });
      return of->share;
    };
    if (share_of(holder_) == share_of(active)) shares_[share_of(active)].other_gpu_ns += now_ - change_began_;
  }
  holder_ = active;
  change_began_ = 0;
}

// --- Processes -----------------------------------------------------------------------------------------------------

void Simulation::PlanTry(size_t process, uint64_t at) {
  processes_[process].try_at = at;
  Plan(at, What::kTry, process, ++processes_[process].token);
}

bool Simulation::OffUntil(const Process& process, uint64_t* on_at) const {
  const ShareSpec& spec = scenario_.shares[process.share];
  if (spec.off_ns == 0) return false;
  const uint64_t period = spec.on_ns + spec.off_ns;
  const uint64_t into = (now_ - kStart + process.phase) % period;
  *on_at = now_ + (period - into);
  return into >= spec.on_ns;
}

void Simulation::Try(size_t index) {
  Process& process = processes_[index];
  process.try_at = UINT64_MAX;
  if (!process.alive || process.in_flight >= scenario_.shares[process.share].depth) return;  // a notice goes on
  if (process.group != UINT32_MAX && process.in_step == scenario_.shares[process.share].depth) return;  // as the others
  uint64_t on_at = 0;
  if (!process.waiting && OffUntil(process, &on_at)) return PlanTry(index, on_at);
  if (shares_[process.share].requests && !NextStep(index)) return;
  const bool kernel = shares_[process.share].steps[process.step].work.kind == WorkKind::kKernel;
  if (!scenario_.gates || !kernel) return LaunchOn(index, nullptr);
  const size_t number = process.next_stream % process.streams.size();
  Stream& stream = process.streams[number];
  const uint64_t known = process.predicted_ns[process.step];
  if (stream.open != nullptr && known != 0 && stream.open->left > 0 && stream.open->cost_left >= known) {
    if (process.waiting) ledger::EndWait(process.view, process.began_wait, now_);
    process.waiting = false;
    return LaunchOn(index, stream.open);
  }
  if (stream.open != nullptr) Shut(process, stream);
  const uint64_t each = known == 0 ? ledger::kUnknownNs : known;
  const uint64_t fit = each >= kBatchNs ? 1 : std::min({kBatchNs / each, kBatchLaunches, 2 * stream.usual});
  Decision decision = ledger::TryStart(process.view, each * fit, now_);
  if (decision.verdict == Verdict::kWait && !process.waiting) {
    process.waiting = true;
    process.began_wait = now_;
    ledger::BeginWait(process.view, now_);
    decision = ledger::TryStart(process.view, each * fit, now_);
  }
  if (decision.verdict == Verdict::kWait) {
    if (decision.ring) Ring();
    return PlanTry(index, decision.until_ns + Draw(scenario_.waiter_wake));
  }
  if (process.waiting) {
    process.waiting = false;
    ledger::EndWait(process.view, process.began_wait, now_);
  }
  if (decision.verdict != Verdict::kGo) return;
  auto batch = std::make_shared<Batch>();
  batch->predicted_ns = decision.admitted_ns;
  batch->cost_left = each * fit;
  batch->began = now_;
  batch->left = static_cast<uint32_t>(fit);
  batch->step = process.step;
  batch->company = ledger::InFlight(*process.view.ledger, 0) != stream.pending + 1;
  batch->finished = process.view.ledger->gpu[0].finished.load();
  batch->stream_finished = stream.finished;
  stream.open = batch;
  ++stream.pending;
  if (fit > 1) Plan(now_ + kOpenAtMostNs, What::kClose, index, number);
  LaunchOn(index, batch);
}

void Simulation::LaunchOn(size_t index, const std::shared_ptr<Batch>& batch) {
  Process& process = processes_[index];
  Stream& stream = process.streams[process.next_stream++ % process.streams.size()];
  launches_[stream.id].push_back({batch, 0});
  model_.Submit(now_, stream.id, shares_[process.share].steps[process.step].work);
  ++process.in_flight;
  ++process.in_step;
  if (batch != nullptr) {
    const uint64_t known = process.predicted_ns[process.step];
    batch->mixed = batch->mixed || batch->step != process.step;
    ++batch->launches;
    batch->cost_left -= std::min(batch->cost_left, known == 0 ? batch->cost_left : known);
    if (--batch->left == 0) Shut(process, stream);
  }
  if (shares_[process.share].requests) ++process.step;
  PlanTry(index, now_ + scenario_.launch_ns);
}

// Nothing more joins the stream's batch.
void Simulation::Shut(Process& process, Stream& stream) {
  const std::shared_ptr<Batch> batch = std::move(stream.open);
  stream.open = nullptr;
  stream.usual = std::max<uint64_t>(1, batch->launches);
  batch->shut = true;
  batch->predicted_ns = ledger::Trim(process.view, batch->predicted_ns,
                                     batch->predicted_ns - std::min(batch->predicted_ns, batch->cost_left));
  FinishIfDone(process, stream, batch);
}

void Simulation::FinishIfDone(Process& process, Stream& stream, const std::shared_ptr<Batch>& batch) {
  if (!batch->shut || batch->done != batch->launches) return;
  Learn(process, stream, *batch);
  // Dated by the GPU's own time stamps, however late it is noticed.
  stream.last_done = std::max(stream.last_done, batch->last_done);
  --stream.pending;
  ++stream.finished;
  if (ledger::Finish(process.view, 1, batch->predicted_ns, batch->last_done)) Ring();
  WakeWaiters(process.share, ledger::Relieved(process.view, now_));
}

// What the interceptor learns from a batch: of launches of one kind, and longer times only when nothing else of the
// share ran meanwhile.
void Simulation::Learn(Process& process, const Stream& stream, const Batch& batch) {
  if (batch.mixed) return;
  const ledger::GpuLedger& gpu = process.view.ledger->gpu[0];
  const bool alone = !batch.company &&
                     gpu.finished.load() - batch.finished == stream.finished - batch.stream_finished &&
                     ledger::InFlight(*process.view.ledger, 0) == stream.pending;
  const uint64_t from = std::max(batch.began, stream.last_done);
  const uint64_t one = std::max<uint64_t>(1, (batch.last_done > from ? batch.last_done - from : 1) / batch.launches);
  uint64_t& old = process.predicted_ns[batch.step];
  if (old == 0) {
    old = one;
  } else if (one < old) {
    old -= (old - one) / 2;
  } else if (alone) {
    old += (one - old) / 8;
  }
}

void Simulation::Completed(const Completion& done) {
  const auto [index, number] = process_of_.at(done.stream);
  Process& process = processes_[index];
  for (Launch& launch : launches_[done.stream]) {
    if (launch.done_at != 0) continue;
    launch.done_at = done.at_ns;
    break;
  }
  process.last_notice = std::max(process.last_notice, done.at_ns + Draw(scenario_.notice));
  Plan(process.last_notice, What::kNotice, index, done.stream);
}

void Simulation::Notice(size_t index, StreamId stream) {
  Process& process = processes_[index];
  if (!process.alive) return;
  Share& share = shares_[process.share];
  ShareTimeline& timeline = result_.shares[process.share];
  const Launch launch = launches_[stream].front();
  launches_[stream].pop_front();
  --process.in_flight;
  ++share.completed;
  timeline.longest_gap_ns = std::max(timeline.longest_gap_ns, now_ - std::min(now_, share.last_completion));
  share.last_completion = now_;
  if (launch.batch != nullptr) {
    ++launch.batch->done;
    launch.batch->last_done = launch.done_at;
    FinishIfDone(process, process.streams[process_of_.at(stream).second], launch.batch);
  }
  if (process.in_flight == 0 && process.group != UINT32_MAX) EndStep(process);
  if (process.in_flight == 0 && process.in_request && process.step == share.steps.size()) EndRequest(index);
  if (process.try_at == UINT64_MAX) PlanTry(index, now_);
}

// Its launches of this step have ended, if these were all; after the last process's the next step begins.
void Simulation::EndStep(Process& process) {
  if (process.in_step != scenario_.shares[process.share].depth) return;
  for (Stream& stream : process.streams) {
    if (stream.open != nullptr) Shut(process, stream);  // it has waited for the stream
  }
  Group& group = groups_[process.group];
  if (++group.ended != group.members) return;
  group.ended = 0;
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& other = processes_[i];
    if (other.group != process.group) continue;
    other.in_step = 0;
    if (other.try_at == UINT64_MAX) PlanTry(i, now_);
  }
}

// --- Requests of a workload ----------------------------------------------------------------------------------------

void Simulation::PlanArrival(size_t index, uint64_t from_ns) {
  const ArrivalSpec& arrival = scenario_.shares[processes_[index].share].arrival;
  uint64_t wait = arrival.period_ns;
  switch (arrival.kind) {
    case ArrivalKind::kClosed: wait = arrival.think_ns; break;
    case ArrivalKind::kEvery: break;
    case ArrivalKind::kPoisson: {
      const double uniform = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
      wait = static_cast<uint64_t>(-std::log(uniform) * static_cast<double>(arrival.period_ns));
      break;
    }
    case ArrivalKind::kTrace: {
      uint64_t& next = processes_[index].traced;
      if (next == arrival.trace_ms.size()) return;
      const uint64_t at = kStart + scenario_.shares[processes_[index].share].from_ns +
                          static_cast<uint64_t>(arrival.trace_ms[next++] * 1e6);
      return Plan(at, What::kArrival, index);
    }
  }
  Plan(from_ns + wait, What::kArrival, index);
}

void Simulation::Arrived(size_t index) {
  Process& process = processes_[index];
  if (!process.alive) return;
  process.arrivals.push_back(now_);
  if (scenario_.shares[process.share].arrival.kind != ArrivalKind::kClosed) PlanArrival(index, now_);
  if (process.try_at == UINT64_MAX) PlanTry(index, now_);
}

bool Simulation::NextStep(size_t index) {
  Process& process = processes_[index];
  const std::vector<Step>& steps = shares_[process.share].steps;
  if (!process.in_request) {
    if (process.arrivals.empty()) return false;
    process.in_request = true;
    process.arrived = process.arrivals.front();
    process.arrivals.pop_front();
    process.step = 0;
  }
  if (process.step == steps.size()) {
    if (process.in_flight > 0) return false;  // its last notice ends the request
    EndRequest(index);
    if (process.try_at == UINT64_MAX) PlanTry(index, now_);
    return false;
  }
  const Step& step = steps[process.step];
  if (step.host_ns == 0) return true;
  if (process.in_flight > 0) return false;  // the host waits first
  ++process.step;
  PlanTry(index, now_ + step.host_ns);
  return false;
}

void Simulation::EndRequest(size_t index) {
  Process& process = processes_[index];
  process.in_request = false;
  result_.shares[process.share].requests.push_back({process.arrived - kStart, now_ - kStart});
  if (scenario_.shares[process.share].arrival.kind == ArrivalKind::kClosed) PlanArrival(index, now_);
}

void Simulation::Sample() {
  for (size_t i = 0; i < shares_.size(); ++i) {
    uint64_t busy = shares_[i].other_gpu_ns;
    for (const Process& process : processes_) {
      if (process.share == i && process.alive) busy += model_.ContextBusyNs(process.context);
    }
    result_.shares[i].gpu_ns.push_back(busy);
    result_.shares[i].completed.push_back(shares_[i].completed);
  }
  Plan(now_ + kSampleNs, What::kSample, 0);
}

// --- Broker --------------------------------------------------------------------------------------------------------

void Simulation::Ring() {
  ++result_.doorbells;
  if (broker_alive_) WakeBroker(now_ + Draw(scenario_.broker_wake));
}

void Simulation::WakeBroker(uint64_t at) {
  if (at >= broker_at_) return;
  broker_at_ = at;
  Plan(at, What::kBrokerWake, 0, ++broker_token_);
}

void Simulation::BrokerStep() {
  ++result_.broker_steps;
  broker_at_ = UINT64_MAX;
  ++broker_token_;
  std::vector<ledger::ShareState> states;
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].limits->heartbeat_ns = now_;
    states.push_back(ledger::Observe(i + 1, *shares_[i].limits, *shares_[i].ledger, 0, now_));
  }
  const uint64_t hand_over = Middle(scenario_.broker_wake) + Middle(scenario_.waiter_wake);
  const ledger::Turn turn = arbiter_.Step(now_, states, hand_over);
  for (const ledger::Window& window : turn.windows) {
    const auto share = static_cast<uint32_t>(window.key - 1);
    if (ledger::PublishWindow(*shares_[share].limits, 0, window.until_ns)) WakeWaiters(share);
  }
  if (turn.wake_at_ns != UINT64_MAX) WakeBroker(turn.wake_at_ns + Draw(scenario_.broker_wake));
}

void Simulation::WakeWaiters(uint32_t share, size_t most) {
  for (size_t i = 0; i < processes_.size() && most > 0; ++i) {
    const Process& process = processes_[i];
    if (process.share != share || !process.waiting) continue;
    const uint64_t at = now_ + Draw(scenario_.waiter_wake);
    if (at < process.try_at) PlanTry(i, at);
    --most;
  }
}

}  // namespace mete::emulator
