// What a fault does: whom it hurts, what NVML then says, what brings the GPU back. Whom an Xid hurts is data
// (data/xid.yaml); this file carries it out.
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "emulator/engine/engine.h"

namespace mete::emulator {

namespace {

constexpr size_t kMostEvents = 1024;
constexpr size_t kMostFaults = 256;
constexpr uint32_t kMostLines = 20;
constexpr uint32_t kEccXid = 48, kUncontainedXid = 95, kRemapXid = 63, kRemapFailureXid = 64, kOffBusXid = 79;
constexpr uint32_t kUnknownError = 999;  // CUDA_ERROR_UNKNOWN
constexpr uint32_t kFirstWithRemap = 8;  // compute capability
constexpr uint64_t kLongestNs = uint64_t{366} * 86'400'000'000'000;

uint64_t Next(uint64_t& state) {  // splitmix64
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

bool Valid(const FaultSpec& spec) {
  const auto kind = static_cast<uint32_t>(spec.kind);
  return kind >= static_cast<uint32_t>(FaultKind::kXid) && kind <= static_cast<uint32_t>(FaultKind::kDriverRestart) &&
         spec.after_ns <= kLongestNs && spec.probability >= 0 && spec.probability <= 1 && spec.factor > 0 &&
         spec.factor <= 1 && spec.count >= 1;
}

}  // namespace

// --- Who is there --------------------------------------------------------------------------------------------------

bool Engine::Uses(uint32_t pid, uint32_t gpu) const {
  for (const auto& [id, session] : sessions_) {
    if (session->peer.pid != pid) continue;
    for (const ContextRecord& context : session->contexts) {
      if (context.id != 0 && context.gpu == gpu && !context.dead) return true;
    }
  }
  return false;
}

uint32_t Engine::Culprit(uint32_t gpu) const {
  uint32_t somebody = 0, busy = 0;
  for (const auto& [id, session] : sessions_) {
    for (const ContextRecord& context : session->contexts) {
      if (context.id == 0 || context.gpu != gpu || context.dead) continue;
      if (gpus_[gpu]->model.ContextActive(context.model)) return session->peer.pid;
      if (somebody == 0) somebody = session->peer.pid;
      if (busy == 0 && !gpus_[gpu]->model.ContextIdle(context.model)) busy = session->peer.pid;
    }
  }
  return busy != 0 ? busy : somebody;
}

// --- What happens --------------------------------------------------------------------------------------------------

uint32_t Engine::PlaceOf(uint32_t pid, uint32_t gpu) const {
  for (const auto& [id, session] : sessions_) {
    if (session->peer.pid != pid) continue;
    for (const ContextRecord& context : session->contexts) {
      if (context.id != 0 && context.gpu == gpu) return context.place;
    }
  }
  return 0;
}

void Engine::Publish(uint32_t gpu, uint32_t type, uint32_t xid, uint32_t pid, uint64_t now_ns) {
  const auto [gpu_instance, compute_instance] = InstancesOf(gpu, pid == 0 ? 0 : PlaceOf(pid, gpu));
  events_.push_back({++event_count_, now_ns, gpu, type, xid, pid, gpu_instance, compute_instance, 0});
  if (events_.size() > kMostEvents) events_.pop_front();
  if (type != kEventXid) return;
  gpus_[gpu]->health.last_xid = xid;
  // The kernel driver's line, for people; so many a second, for a client may cause them.
  if (now_ns - logged_ns_ >= 1'000'000'000) {
    logged_ns_ = now_ns;
    logged_ = 0;
  }
  if (++logged_ > kMostLines) return;
  std::string bus = gpus_[gpu]->info.pci_bus_id;  // "00000000:0F:00.0" is written as 0000:0F:00 there
  if (bus.size() == 16) bus = bus.substr(4, 10);
  const auto rule = BuiltInXidRules().find(xid);
  log::Warn("NVRM: Xid (PCI:{}): {}, pid={}, {}", bus, xid, pid != 0 ? std::to_string(pid) : "'<unknown>'",
            rule == BuiltInXidRules().end() ? "" : rule->second.mnemonic);
}

std::vector<EventInfo> Engine::EventsAfter(uint64_t number) const {
  std::vector<EventInfo> list;
  for (const EventInfo& event : events_) {
    if (event.number > number) list.push_back(event);
  }
  return list;
}

void Engine::HurtGpu(uint32_t gpu, const XidRule& rule, uint32_t pid, uint64_t now_ns) {
  // With MIG an engine that faults is one instance's; what is the board's hurts all of them.
  MigGpu::Instance* within = nullptr;
  if (rule.hurts == XidRule::Hurts::kBusy) {
    gpus_[gpu]->mig.FindPlace(PlaceOf(pid != 0 ? pid : Culprit(gpu), gpu), &within);
  }
  const auto inside = [&](const ContextRecord& context) {
    MigGpu::Instance* instance = nullptr;
    gpus_[gpu]->mig.FindPlace(context.place, &instance);
    return within == nullptr || instance == within;
  };
  for (const auto& [id, session] : sessions_) {
    for (ContextRecord& context : session->contexts) {
      if (context.id == 0 || context.gpu != gpu || context.dead) continue;
      bool hurt = false;
      switch (rule.hurts) {
        case XidRule::Hurts::kNobody: break;
        case XidRule::Hurts::kProcess: hurt = session->peer.pid == pid; break;
        case XidRule::Hurts::kBusy: hurt = inside(context) && !gpus_[gpu]->model.ContextIdle(context.model); break;
        case XidRule::Hurts::kGpu: hurt = true; break;
      }
      if (settings_.without.fault_spread) hurt = hurt && session->peer.pid == pid;
      if (hurt) Kill(*session, context, rule.xid, rule.cuda, ContextWord::kDead, now_ns);
    }
  }
}

void Engine::LoseGpu(uint32_t gpu, uint32_t xid, uint32_t error, uint64_t now_ns) {
  Health& health = gpus_[gpu]->health;
  health.lost = 1;
  health.need = Need::kReboot;
  const uint32_t culprit = Culprit(gpu);
  for (const auto& [id, session] : sessions_) {
    for (ContextRecord& context : session->contexts) {
      if (context.id == 0 || context.gpu != gpu || context.dead) continue;
      if (settings_.without.fault_spread && session->peer.pid != culprit) continue;
      Kill(*session, context, xid, error, ContextWord::kDeviceLost, now_ns);
    }
  }
}

bool Engine::RaiseXid(uint32_t gpu, uint32_t xid, uint32_t pid, uint64_t now_ns) {
  const auto found = BuiltInXidRules().find(xid);
  if (found == BuiltInXidRules().end()) return false;
  const XidRule& rule = found->second;
  Health& health = gpus_[gpu]->health;
  if (health.lost != 0) return false;  // nobody hears of it any more
  if (pid == 0 && (rule.hurts == XidRule::Hurts::kProcess || settings_.without.fault_spread)) pid = Culprit(gpu);
  const bool of_process = rule.hurts == XidRule::Hurts::kProcess;
  Publish(gpu, kEventXid, xid, of_process ? pid : 0, now_ns);
  switch (rule.effect) {
    case XidRule::Effect::kNone: break;
    case XidRule::Effect::kEccUncorrectable:
      ++health.ecc_volatile.dram_uncorrected;
      ++health.ecc_aggregate.dram_uncorrected;
      Publish(gpu, kEventDoubleBitEcc, 0, 0, now_ns);
      break;
    case XidRule::Effect::kRowRemapPending:
      if (gpus_[gpu]->info.compute_major >= kFirstWithRemap) {
        health.remap_pending = 1;
        ++health.rows_remapped_uncorrectable;
      }
      break;
    case XidRule::Effect::kRowRemapFailure:
      if (gpus_[gpu]->info.compute_major >= kFirstWithRemap) health.remap_failed = 1;
      break;
    case XidRule::Effect::kLost: LoseGpu(gpu, xid, rule.cuda, now_ns); return true;
  }
  if (!rule.followed.empty() && gpus_[gpu]->info.compute_major >= kFirstWithRemap) {
    if (pid == 0) pid = Culprit(gpu);
    for (const uint32_t following : rule.followed) RaiseXid(gpu, following, pid, now_ns);
    return true;
  }
  HurtGpu(gpu, rule, pid, now_ns);
  health.need = std::max(health.need, rule.need);
  return true;
}

void Engine::RestartDriver(uint64_t now_ns, SessionId spared) {
  for (const auto& [id, session] : sessions_) {
    for (ContextRecord& context : session->contexts) {
      if (context.id != 0 && !context.dead) {
        Kill(*session, context, 0, kUnknownError, ContextWord::kDeviceLost, now_ns);
      }
    }
    if (id == spared || session->broken) continue;
    session->broken = true;
    broken_.push_back(id);
  }
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    ForgetMigMode(i);
    if (gpus_[i]->health.lost == 0) (void)ResetGpu(i, now_ns);
    const uint32_t ecc = gpus_[i]->settings.ecc_pending;  // the board keeps it
    gpus_[i]->settings = {};
    gpus_[i]->settings.ecc = gpus_[i]->settings.ecc_pending = ecc;
    gpus_[i]->accounting.Enable(false);
    gpus_[i]->compute_mode = 0;
    gpus_[i]->time_slice_class = 0;
    ApplyTimeSlice(i);
  }
}

void Engine::Happen(Fault& fault, uint64_t now_ns, SessionId spared) {
  const FaultSpec spec = fault.info.spec;  // a restart forgets the fault itself
  Gpu& gpu = *gpus_[spec.gpu];
  ++fault.info.happened;
  switch (spec.kind) {
    case FaultKind::kXid: RaiseXid(spec.gpu, spec.xid, spec.pid, now_ns); break;
    case FaultKind::kEccCorrectable:
      gpu.health.ecc_volatile.dram_corrected += spec.count;
      gpu.health.ecc_aggregate.dram_corrected += spec.count;
      Publish(spec.gpu, kEventSingleBitEcc, 0, 0, now_ns);
      break;
    case FaultKind::kEccUncorrectable:
      if (spec.reason == 1) {  // not confined: the memory error, then the code that says so
        ++gpu.health.ecc_volatile.dram_uncorrected;
        ++gpu.health.ecc_aggregate.dram_uncorrected;
        Publish(spec.gpu, kEventXid, kEccXid, 0, now_ns);
        Publish(spec.gpu, kEventDoubleBitEcc, 0, 0, now_ns);
        RaiseXid(spec.gpu, kUncontainedXid, 0, now_ns);
      } else {
        RaiseXid(spec.gpu, kEccXid, spec.pid, now_ns);
      }
      break;
    case FaultKind::kRowRemapPending: RaiseXid(spec.gpu, kRemapXid, 0, now_ns); break;
    case FaultKind::kRowRemapFailure: RaiseXid(spec.gpu, kRemapFailureXid, 0, now_ns); break;
    case FaultKind::kLost: LoseGpu(spec.gpu, 0, kUnknownError, now_ns); break;
    case FaultKind::kOffBus: RaiseXid(spec.gpu, kOffBusXid, 0, now_ns); break;
    case FaultKind::kThrottle:
      gpu.clock = spec.factor;
      gpu.health.throttle_reasons |= spec.reason;
      ApplySpeed(spec.gpu, now_ns);
      break;
    case FaultKind::kSlowMemory:
      gpu.memory = spec.factor;
      ApplySpeed(spec.gpu, now_ns);
      break;
    case FaultKind::kHang:
      if (spec.pid == 0) {
        gpu.hung = true;  // the driver does not know: new contexts are made, and hang as well
        gpu.model.SetHung(now_ns, 0, true);
        break;
      }
      for (const auto& [id, session] : sessions_) {
        if (session->peer.pid != spec.pid) continue;
        for (const ContextRecord& context : session->contexts) {
          if (context.id != 0 && context.gpu == spec.gpu && !context.dead) {
            gpu.model.SetHung(now_ns, context.model, true);
          }
        }
      }
      break;
    case FaultKind::kDriverRestart: RestartDriver(now_ns, spared); break;
  }
}

// --- When ----------------------------------------------------------------------------------------------------------

void Engine::Draw(Fault& fault, uint64_t from_ns) const {
  // Happening with probability p within a second, whenever: the time between two is exponential.
  if (fault.info.spec.probability >= 1) {
    fault.info.due_ns = from_ns + 1'000'000'000;
    return;
  }
  uint64_t state = fault.random;
  const double uniform = (static_cast<double>(Next(state) >> 11) + 0.5) * 0x1p-53;
  const double seconds = std::log(uniform) / std::log1p(-fault.info.spec.probability);
  fault.random = state;
  fault.info.due_ns = from_ns + static_cast<uint64_t>(std::min(seconds, kLongestNs * 1e-9) * 1e9) + 1;
}

uint64_t Engine::NextFaultNs() const {
  uint64_t next = UINT64_MAX;
  for (const auto& [id, fault] : faults_) {
    if (fault.info.due_ns != 0) next = std::min(next, fault.info.due_ns);
  }
  return next;
}

void Engine::HappenDue(uint64_t now_ns) {
  for (;;) {
    Fault* first = nullptr;
    for (auto& [id, fault] : faults_) {
      if (fault.info.due_ns == 0 || fault.info.due_ns > now_ns) continue;
      if (first == nullptr || fault.info.due_ns < first->info.due_ns) first = &fault;
    }
    if (first == nullptr) return;
    const uint64_t due = first->info.due_ns;
    first->info.due_ns = 0;
    AdvanceModels(due);
    if (first->info.spec.probability > 0) Draw(*first, due);
    Happen(*first, due, 0);
  }
}

// --- Requests ------------------------------------------------------------------------------------------------------

Result Engine::InjectFault(FaultSpec spec, uint64_t now_ns, uint64_t* id, SessionId by) {
  if (!Valid(spec)) return Result::kRefused;
  if (spec.gpu >= gpus_.size()) return Result::kNoSuchObject;
  const Gpu& gpu = *gpus_[spec.gpu];
  if (gpu.health.lost != 0) return Result::kDeviceLost;
  if (spec.pid != 0 && !Uses(spec.pid, spec.gpu)) return Result::kNoSuchObject;
  const bool at_once = spec.after_ns == 0 && spec.probability <= 0;
  if (spec.kind == FaultKind::kXid) {
    const auto rule = BuiltInXidRules().find(spec.xid);
    if (rule == BuiltInXidRules().end()) return Result::kNoSuchObject;
    if (gpu.info.compute_major < rule->second.from_major) return Result::kRefused;
    const bool of_process = rule->second.hurts == XidRule::Hurts::kProcess;
    if (of_process && at_once && spec.pid == 0 && Culprit(spec.gpu) == 0) return Result::kRefused;
  }
  const bool remap = spec.kind == FaultKind::kRowRemapPending || spec.kind == FaultKind::kRowRemapFailure;
  const bool uncontained = spec.kind == FaultKind::kEccUncorrectable && spec.reason == 1;
  if ((remap || uncontained) && gpu.info.compute_major < kFirstWithRemap) return Result::kRefused;

  if (faults_.size() >= kMostFaults) {  // those that are over make room
    std::erase_if(faults_, [](const auto& fault) { return fault.second.info.due_ns == 0; });
    if (faults_.size() >= kMostFaults) return Result::kRefused;
  }
  *id = ++last_fault_;
  Fault& fault = faults_[*id];
  fault.info = {*id, spec, 0, 0};
  fault.random = spec.seed;
  if (at_once) {
    Happen(fault, now_ns, by);
  } else if (spec.probability > 0) {
    Draw(fault, now_ns + spec.after_ns);
  } else {
    fault.info.due_ns = now_ns + spec.after_ns;
  }
  return Result::kOk;
}

Result Engine::ClearFaults(uint32_t gpu, uint64_t id, uint64_t now_ns) {
  if (gpu != kAllGpus && gpu >= gpus_.size()) return Result::kNoSuchObject;
  if (id != 0) {
    const auto found = faults_.find(id);
    if (found == faults_.end()) return Result::kNoSuchObject;
    gpu = found->second.info.spec.gpu;
    faults_.erase(found);
  } else {
    std::erase_if(faults_, [&](const auto& fault) { return gpu == kAllGpus || fault.second.info.spec.gpu == gpu; });
  }
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    if (gpu != kAllGpus && gpu != i) continue;
    Gpu& healed = *gpus_[i];
    const bool others = id != 0 && std::any_of(faults_.begin(), faults_.end(), [&](const auto& fault) {
                          return fault.second.info.spec.gpu == i && fault.second.info.happened > 0;
                        });
    if (others) continue;  // of several faults one was taken back: the GPU stays as the rest left it
    const EccCounts of_life = healed.health.ecc_aggregate;
    healed.health = {};
    healed.health.ecc_aggregate = of_life;
    healed.clock = healed.memory = 1;
    healed.hung = false;
    ApplySpeed(i, now_ns);
    healed.model.SetHung(now_ns, 0, false);
    for (const auto& [number, session] : sessions_) {
      for (const ContextRecord& context : session->contexts) {
        if (context.id != 0 && context.gpu == i && !context.dead) healed.model.SetHung(now_ns, context.model, false);
      }
    }
  }
  return Result::kOk;
}

Result Engine::ResetGpu(uint32_t index, uint64_t now_ns) {
  Gpu& gpu = *gpus_[index];
  if (gpu.health.lost != 0 || gpu.health.need == Need::kReboot) return Result::kDeviceLost;
  for (const auto& [id, session] : sessions_) {
    for (const ContextRecord& context : session->contexts) {
      if (context.id != 0 && context.gpu == index && !context.dead) return Result::kInUse;
    }
  }
  // A reset ends what hardware forgets; a slow memory, a hot board and a remap that failed stay.
  gpu.health.need = Need::kNone;
  gpu.health.remap_pending = 0;
  gpu.health.ecc_volatile = {};
  gpu.health.last_xid = 0;
  gpu.settings = AfterReset(gpu.settings);
  SwitchMig(index);
  gpu.hung = false;
  gpu.model.SetHung(now_ns, 0, false);
  std::erase_if(faults_, [&](const auto& item) {
    const FaultInfo& fault = item.second.info;
    const bool stays = fault.spec.kind == FaultKind::kThrottle || fault.spec.kind == FaultKind::kSlowMemory;
    return fault.spec.gpu == index && fault.happened > 0 && fault.due_ns == 0 && !stays;
  });
  return Result::kOk;
}

}  // namespace mete::emulator
