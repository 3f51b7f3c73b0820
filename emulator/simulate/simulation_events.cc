// What happens to a simulation from outside: new limits, the broker's going and coming, deaths and faults.
#include <algorithm>

#include "emulator/engine/fault_rules.h"
#include "emulator/simulate/simulation.h"
#include "ledger/pages.h"

namespace mete::emulator {
namespace {

constexpr uint64_t kDeathNs = 1'000'000;  // until the broker has read a pidfd
constexpr uint64_t kKillPollNs = 50'000;

}  // namespace

void Simulation::Scripted(size_t index) {
  const EventSpec& event = scenario_.events[index];
  switch (event.kind) {
    case EventKind::kSet: {
      Share& share = shares_[event.share];
      ledger::PublishCompute(*share.limits, *share.ledger, 0, scenario_.shares[event.share].mode, event.percent,
                             event.weight, now_);
      WakeWaiters(event.share);
      if (broker_alive_) WakeBroker(now_);
      break;
    }
    case EventKind::kKill:
      if (!Kill(event)) Plan(now_ + kKillPollNs, What::kScripted, index);
      break;
    case EventKind::kFault: Fault(event); break;
    case EventKind::kStopBroker: broker_alive_ = false; break;
    case EventKind::kStartBroker: {
      broker_alive_ = true;
      arbiter_ = ledger::Arbiter();
      broker_at_ = UINT64_MAX;
      for (const uint64_t death : unseen_deaths_) Plan(now_, What::kDeath, death);
      unseen_deaths_.clear();
      WakeBroker(now_);
      break;
    }
  }
}

bool Simulation::Kill(const EventSpec& event) {
  uint32_t ordinal = 0;
  for (Process& process : processes_) {
    if (process.share != event.share || ordinal++ != event.process) continue;
    const bool open = process.view.limits->gpu[0].window_until_ns.load() > now_;
    if (process.alive && (!open || process.in_flight == 0)) return false;
    if (!process.alive) return true;
    ++result_.kills;
    KillProcess(process);
    return true;
  }
  return true;
}

void Simulation::KillProcess(Process& process) {
  shares_[process.share].other_gpu_ns += model_.ContextBusyNs(process.context);
  if (holder_ == process.context) holder_ = 0;  // what follows is no change
  model_.RemoveContext(now_, process.context);
  process.alive = false;
  process.waiting = false;
  ++process.token;
  Plan(now_ + kDeathNs, What::kDeath, (uint64_t{process.view.slot} << 32) | process.share);
}

// --- Faults --------------------------------------------------------------------------------------------------------

void Simulation::Fault(const EventSpec& event) {
  if (lost_ && !event.clear) return;
  ++result_.faults;
  if (event.clear) {
    lost_ = false;
    clock_ = memory_ = 1;
    model_.SetSpeed(now_, 1, 1);
    model_.SetHung(now_, 0, false);
    return;
  }
  switch (event.fault.kind) {
    case FaultKind::kThrottle: model_.SetSpeed(now_, clock_ = event.fault.factor, memory_); break;
    case FaultKind::kSlowMemory: model_.SetSpeed(now_, clock_, memory_ = event.fault.factor); break;
    case FaultKind::kHang: model_.SetHung(now_, 0, true); break;
    case FaultKind::kXid: HurtByXid(event, event.fault.xid); break;
    default:  // lost, off-bus
      lost_ = true;
      for (Process& process : processes_) {
        if (process.alive) KillProcess(process);
      }
  }
}

void Simulation::HurtByXid(const EventSpec& event, uint32_t xid) {
  const XidRule& rule = BuiltInXidRules().at(xid);
  if (rule.effect == XidRule::Effect::kLost) lost_ = true;
  if (!rule.followed.empty() && compute_major_ >= 8) {
    for (const uint32_t following : rule.followed) HurtByXid(event, following);
    return;
  }
  // Whoever executes, first of them with MIG; what hurts all that are busy on an engine stays in its instance.
  const auto culprit = std::find_if(processes_.begin(), processes_.end(), [&](const Process& process) {
    return process.alive && (event.of_share ? process.share == event.share : model_.ContextActive(process.context));
  });
  const auto instance_of = [&](const Process& process) {
    const std::optional<PartSpec>& part = scenario_.shares[process.share].part;
    return part ? part->instance : UINT32_MAX;
  };
  const ContextId executing = culprit == processes_.end() ? 0 : culprit->context;
  const uint32_t instance = culprit == processes_.end() ? UINT32_MAX : instance_of(*culprit);
  for (Process& process : processes_) {
    if (!process.alive) continue;
    bool hurt = false;
    switch (rule.hurts) {
      case XidRule::Hurts::kNobody: break;
      case XidRule::Hurts::kProcess:
        hurt = event.of_share ? process.share == event.share : process.context == executing;
        break;
      case XidRule::Hurts::kBusy:
        hurt = instance_of(process) == instance && !model_.ContextIdle(process.context);
        break;
      case XidRule::Hurts::kGpu: hurt = true; break;
    }
    if (hurt) KillProcess(process);
  }
}

void Simulation::Death(uint32_t share, uint32_t slot) {
  if (!broker_alive_) {
    unseen_deaths_.push_back((uint64_t{slot} << 32) | share);
    return;
  }
  ledger::ClearSlot(*shares_[share].ledger, *shares_[share].limits, slot, now_);
  WakeBroker(now_);
}

}  // namespace mete::emulator
