// Making, changing and ending shares. Each step that leaves a trace outside this process follows a row of the book that
// says so.
#include <sys/epoll.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "gpu/catalogue.h"
#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/pages.h"
#include "plan/resolve.h"
#include "share/broker.h"

namespace mete::share {
namespace {

ledger::ComputeMode ModeOf(plan::ComputeMode mode) {
  switch (mode) {
    case plan::ComputeMode::kHard: return ledger::ComputeMode::kHard;
    case plan::ComputeMode::kSoft: return ledger::ComputeMode::kSoft;
    case plan::ComputeMode::kWorkConserving: return ledger::ComputeMode::kWorkConserving;
  }
  return ledger::ComputeMode::kWorkConserving;
}

}  // namespace

uint64_t Broker::UsedOn(const Share& share, size_t position) const {
  if (!share.intercepted()) return UsedByMembers(share, position);
  if (!share.tenancy) return 0;
  const auto index = static_cast<uint32_t>(position);
  return ledger::Used(ledger::View{&share.tenancy->limits(), &share.tenancy->ledger(), index, 0});
}

Broker::Share* Broker::FindByName(const std::string& name) {
  for (auto& entry : shares_) {
    if (entry.second->row.grant.share == name) return entry.second.get();
  }
  return nullptr;
}

Broker::Share* Broker::FindById(const std::string& id) {
  const auto found = shares_.find(id);
  return found == shares_.end() ? nullptr : found->second.get();
}

Status Broker::Refresh() {
  METE_ASSIGN_OR_RETURN(const std::vector<GpuReading> readings, ReadGpus(*nvml_));
  for (const GpuReading& reading : readings) gpus_[reading.uuid].reading = reading;
  METE_ASSIGN_OR_RETURN(const auto devices, nvml_->Devices());
  for (const auto& device : devices) {
    const auto gpu = gpus_.find(device->uuid());
    if (gpu == gpus_.end()) continue;  // it did not answer
    gpu->second.facts =
        mechanism::LookAt(*device, options_.sys_root, mechanism::DriverMajor(nvml_->driver_version()), kernel_facts_)
            .facts;
  }
  for (auto gpu = gpus_.begin(); gpu != gpus_.end();) {
    const bool there = std::any_of(readings.begin(), readings.end(),
                                   [&gpu](const GpuReading& reading) { return reading.uuid == gpu->first; });
    gpu = there || gpu->second.windows ? std::next(gpu) : gpus_.erase(gpu);
  }
  for (auto& entry : gpus_) FindForeigners(entry.second, entry.second.reading);
  return OkStatus();
}

std::vector<uint64_t> Broker::ContextBytes(const plan::Grant& grant) const {
  // Of a board that nobody has described, the most that any takes: charged too much rather than too little.
  uint64_t most = 0;
  for (const gpu::Board& board : gpu::Catalogue::BuiltIn().boards()) most = std::max(most, board.context_memory.count);
  std::vector<uint64_t> bytes;
  for (const plan::GpuGrant& part : grant.gpus) {
    const auto board = gpu::Catalogue::BuiltIn().Find(gpus_.at(part.uuid).reading.name);
    bytes.push_back(board.ok() ? (*board)->context_memory.count : most);
  }
  return bytes;
}

StatusOr<std::string> Broker::NameFor(const Command& command) const {
  const auto taken = [this](const std::string& name) -> const Share* {
    for (const auto& entry : shares_) {
      if (entry.second->row.grant.share == name) return entry.second.get();
    }
    return nullptr;
  };
  if (!command.request.share.empty()) {
    METE_RETURN_IF_ERROR(plan::CheckShareName(command.request.share));
    for (const auto& entry : unreleased_) {
      if (entry.second.grant.share != command.request.share) continue;
      return Refused(
          "the name {} is that of a share that is still being ended: the device would not take back what it "
          "had; 'mete share list' says when it has",
          command.request.share);
    }
    if (const Share* other = taken(command.request.share); other != nullptr) {
      return Refused(
          "the name {} is taken by a share on GPU {} with {} processes; join it with 'mete run --share {}', or "
          "choose another",
          command.request.share, other->row.grant.gpus[0].index, TenantsOf(*other).size(), command.request.share);
    }
    return command.request.share;
  }
  std::string base;
  for (const unsigned char c : command.hint) {
    if (base.size() == 24) break;
    const auto lower = static_cast<char>(std::tolower(c));
    const bool plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (plain || (!base.empty() && (c == '-' || c == '_' || c == '.'))) base += lower;
  }
  if (base.empty()) base = "share";
  std::string name;
  do {
    name = base + "-" + RandomId().substr(0, 4);
  } while (taken(name) != nullptr);
  return name;
}

StatusOr<Broker::Share*> Broker::Make(const Command& command, const Peer& peer) {
  // The caller asks again when an earlier broker died before it could answer.
  if (Share* made = FindById(command.id); made != nullptr) return made;
  plan::Request request = command.request;
  METE_ASSIGN_OR_RETURN(request.share, NameFor(command));
  METE_RETURN_IF_ERROR(Refresh());
  auto share = std::make_unique<Share>();
  const std::vector<plan::GpuView> views = Views();
  const plan::Ask ask{request, command.need};
  const plan::Choice choice = plan::Choose(ask, views);
  // Who asked for more than there was room for asked all the same.
  const auto no_room = [](const plan::Reason& one) {
    return one.mechanism == gpu::Mechanism::kMig && one.verdict == plan::Reason::Verdict::kNoRoom;
  };
  const bool for_mig = choice.status.ok() ? choice.mechanism == gpu::Mechanism::kMig
                                          : std::any_of(choice.reasons.begin(), choice.reasons.end(), no_room);
  if (for_mig) {
    if (const Status learnt = demand_->Observe(ask, views); !learnt.ok()) log::Warn("{}", Message(learnt));
  }
  METE_RETURN_IF_ERROR(choice.status);
  share->row.grant = plan::GrantOf(ask, choice, views);
  share->row.grant.id = command.id;
  share->row.grant.preload = command.preload;
  share->row.grant.on_bypass = command.on_bypass.value_or(plan::OnBypass::kReport);
  share->row.kind = command.run ? Kind::kRun : Kind::kCreated;
  share->row.state = RowState::kMaking;
  share->row.made_at = std::time(nullptr);
  const std::optional<ProcessId> holder = command.run ? std::optional(peer.process) : std::nullopt;
  METE_RETURN_IF_ERROR(book_->Insert(share->row, holder));
  options_.reached("make: row written");

  Share& made = *share;
  shares_[command.id] = std::move(share);
  Status status = PutInForce(made, {});
  if (status.ok() && command.run) {
    StatusOr<Fd> pidfd = OpenPidFd(peer.process);
    status = pidfd.ok() ? Hold(made, peer.process, std::move(*pidfd)) : pidfd.status();
  }
  if (status.ok()) {
    options_.reached("make: prepared");
    status = book_->SetState(command.id, RowState::kInForce);
  }
  if (status.ok() && !made.intercepted()) {
    const auto evidence = Verify(made);
    status = !evidence.ok()         ? evidence.status()
             : made.invalid.empty() ? OkStatus()
                                    : Lacks("share {} was not put in force: {}", made.row.grant.share, made.invalid);
  }
  if (!status.ok()) {
    (void)book_->SetState(command.id, RowState::kEnding);
    Withdraw(made);
    shares_.erase(command.id);
    return status;
  }
  made.row.state = RowState::kInForce;
  options_.reached("make: in force");
  for (const plan::GpuGrant& gpu : made.row.grant.gpus) Allot(gpu.uuid);
  log::Info("share={} id={} made kind={} gpu={}", made.row.grant.share, made.row.grant.id,
            command.run ? "run" : "created", made.row.grant.gpus[0].uuid);
  return &made;
}

// Everything outside the book that a share needs. On an error the caller withdraws it.
Status Broker::PutInForce(Share& share, const std::vector<SlotRow>& slots) {
  share.key = next_key_++;
  share.watches.resize(share.row.grant.gpus.size());
  METE_ASSIGN_OR_RETURN(share.tenancy, Tenancy::Make(share.row.grant, ContextBytes(share.row.grant), slots));
  share.tenancy->limits().audits.store(audits_);
  share.mechanism = MechanismOf(share.row.grant);
  if (share.mechanism == nullptr) {
    return Lacks("share {} was made by the mechanism {}, which this mete has not", share.row.grant.share,
                 share.row.grant.mechanism);
  }
  METE_ASSIGN_OR_RETURN(share.edits, share.mechanism->Prepare(share.row.grant, *journal_));
  options_.reached("put in force: directory made");
  if (!share.intercepted()) return OkStatus();
  METE_RETURN_IF_ERROR(JoinWindows(share));
  MakeKernelGroup(share);
  return ListenFor(share);
}

// Takes back what PutInForce and the book's row made, as far as they got.
void Broker::Withdraw(Share& share) {
  Thaw(share);
  if (share.tenancy) {
    for (const auto& entry : share.tenancy->holders()) loop_->Remove(entry.second.pidfd.get());
    share.tenancy->End();
  }
  LeaveWindows(share);
  for (const RunHolder& holder : share.run_holders) loop_->Remove(holder.pidfd.get());
  for (const auto& entry : share.connections) loop_->Remove(entry.first);
  if (share.listener.valid()) loop_->Remove(share.listener.get());
  share.connections.clear();
  share.listener.Reset();
  (void)ReleaseRow(share.row);  // what fails is noted and tried again
}

Status Broker::End(Share& share) {
  METE_RETURN_IF_ERROR(book_->SetState(share.row.grant.id, RowState::kEnding));
  share.row.state = RowState::kEnding;
  options_.reached("end: row written");
  Withdraw(share);
  const plan::Grant grant = share.row.grant;
  shares_.erase(grant.id);
  for (const plan::GpuGrant& gpu : grant.gpus) Allot(gpu.uuid);
  log::Info("share={} id={} ended", grant.share, grant.id);
  return OkStatus();
}

// A share that `run` made ends when neither a `mete run` nor a process of it is left.
void Broker::EndIfDone(const std::string& id) {
  Share* share = FindById(id);
  if (share == nullptr || share->row.kind != Kind::kRun || share->row.state != RowState::kInForce) return;
  if (!share->run_holders.empty() || !share->tenancy->holders().empty()) return;
  // What outlived its `mete run` may have opened the GPU since the last audit.
  if (!share->intercepted() && (!Refresh().ok() || !WhoRunsIn(*share).empty())) return;
  if (const Status ended = End(*share); !ended.ok())
    log::Error("cannot end share {}: {}", share->row.grant.share, Message(ended));
}

Status Broker::Hold(Share& share, const ProcessId& process, Fd pidfd) {
  for (const RunHolder& holder : share.run_holders) {
    if (holder.process == process) return OkStatus();
  }
  METE_RETURN_IF_ERROR(book_->PutHolder({share.row.grant.id, process}));
  const std::string id = share.row.grant.id;
  METE_RETURN_IF_ERROR(loop_->Add(pidfd.get(), EPOLLIN, [this, id, process](uint32_t) { DropRunHolder(id, process); }));
  EnterKernelGroup(share, process.pid);  // what it starts is born in it
  share.run_holders.push_back({process, std::move(pidfd)});
  return OkStatus();
}

void Broker::DropRunHolder(const std::string& id, const ProcessId& process) {
  Share* share = FindById(id);
  if (share == nullptr) return;
  const auto holder = std::find_if(share->run_holders.begin(), share->run_holders.end(),
                                   [&process](const RunHolder& one) { return one.process == process; });
  if (holder == share->run_holders.end()) return;
  loop_->Remove(holder->pidfd.get());
  share->run_holders.erase(holder);
  if (const Status dropped = book_->DropHolder({id, process}); !dropped.ok()) log::Warn("{}", Message(dropped));
  EndIfDone(id);
}

Status Broker::Set(Share& share, const Command& command) {
  plan::Grant grant = share.row.grant;
  if (!share.intercepted() && (command.memory.given || command.compute.given)) {
    return Refused("share {} has its GPU by {}: nothing of it can be set, only released", grant.share, grant.mechanism);
  }
  METE_RETURN_IF_ERROR(Refresh());
  for (plan::GpuGrant& gpu : grant.gpus) {
    if (command.memory.given) gpu.memory = command.memory.value;
    if (command.compute.given) gpu.compute = command.compute.value;
    if (!share.intercepted()) continue;
    METE_RETURN_IF_ERROR(plan::Fits(OccupancyOf(gpu.uuid), grant.share, gpu.memory, gpu.compute));
  }
  if (command.on_bypass) grant.on_bypass = *command.on_bypass;
  METE_RETURN_IF_ERROR(book_->SetAsked(grant));
  options_.reached("set: written");
  share.row.grant = grant;
  if (grant.on_bypass != plan::OnBypass::kFreeze) Thaw(share);
  if (command.on_bypass) {
    for (Watch& watch : share.watches) watch.bypass_answered = false;  // what goes on is answered anew
  }
  for (const plan::GpuGrant& gpu : grant.gpus) Allot(gpu.uuid);
  return OkStatus();
}

Status Broker::JoinWindows(Share& share) {
  for (size_t i = 0; i < share.row.grant.gpus.size(); ++i) {
    Gpu& gpu = gpus_.at(share.row.grant.gpus[i].uuid);
    if (!gpu.windows) {
      METE_ASSIGN_OR_RETURN(gpu.windows, Windows::Start());
    }
    METE_RETURN_IF_ERROR(gpu.windows->Add({share.key, &share.tenancy->limits(), &share.tenancy->ledger(),
                                           static_cast<uint32_t>(i), share.tenancy->doorbell()}));
  }
  return OkStatus();
}

void Broker::LeaveWindows(Share& share) {
  for (const plan::GpuGrant& part : share.row.grant.gpus) {
    const auto gpu = gpus_.find(part.uuid);
    if (gpu != gpus_.end() && gpu->second.windows) gpu->second.windows->Remove(share.key);
  }
}

// Writes what every share of a GPU gets now into its limits page. Who tracks launches: a share with a promise of
// compute, and everybody where two or more share the GPU; a share alone without one runs at no cost.
void Broker::Allot(const std::string& uuid) {
  const auto gpu = gpus_.find(uuid);
  if (gpu == gpus_.end()) return;
  const plan::GpuOccupancy occupancy = OccupancyOf(uuid);
  const std::vector<plan::Allotment> allotments = plan::Allot(occupancy);
  size_t next = 0;
  for (auto& entry : shares_) {  // in the order of OccupancyOf
    Share& share = *entry.second;
    for (size_t i = 0; i < share.row.grant.gpus.size(); ++i) {
      if (share.row.grant.gpus[i].uuid != uuid || share.row.grant.gpus[i].instance) continue;
      const plan::Allotment& allotment = allotments[next++];
      share.row.grant.gpus[i].allotment = allotment;
      LimitInKernel(share, i);
      if (!share.tenancy) continue;
      const auto index = static_cast<uint32_t>(i);
      ledger::GpuLimits& limits = share.tenancy->limits().gpu[i];
      limits.memory_quota.store(allotment.quota.count);
      ledger::PublishCompute(share.tenancy->limits(), share.tenancy->ledger(), index, ModeOf(allotment.mode),
                             allotment.share, allotment.weight, ledger::MonotonicNs());
      const bool tracked = allotment.mode != plan::ComputeMode::kWorkConserving || allotments.size() > 1;
      limits.flags.store(tracked ? ledger::kTracked : 0);
      ledger::FutexWake(limits.window_sequence, INT_MAX);
    }
  }
  if (gpu->second.windows) gpu->second.windows->Kick();
}

}  // namespace mete::share
