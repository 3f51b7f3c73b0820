// What goes past a share's quota, and what is done about it. Interception cannot keep a process that wants to get past
// it from doing so; the driver's count shows it, and the share says whether it is reported, stopped or killed.
#include <algorithm>
#include <csignal>
#include <string>

#include "base/log.h"
#include "ledger/account.h"
#include "share/broker.h"

namespace mete::share {
namespace {

// Contexts of some boards are larger than their estimate, and a program may fill its quota before that is known.
constexpr uint64_t kTolerance = 64 * kMiB, kTolerancePart = 50;  // and a fiftieth of the quota

}  // namespace

// The share whose `mete run` or whose tenant the process descends from.
const Broker::Share* Broker::ShareAbove(uint32_t pid) const {
  for (int depth = 0; pid > 1 && depth < 256; ++depth) {
    const ProcessId process{pid, StartTime(pid)};
    for (const auto& entry : shares_) {
      const auto& runs = entry.second->run_holders;
      const bool run = std::any_of(runs.begin(), runs.end(),
                                   [&process](const RunHolder& holder) { return holder.process == process; });
      if (run || (entry.second->tenancy && entry.second->tenancy->Find(process) != nullptr)) return entry.second.get();
    }
    pid = ParentOf(pid);
  }
  return nullptr;
}

// Processes of the share that use the GPU without the interceptor, or hold more than it knows of while the share as a
// whole is beyond its quota. What was within a quota that has since been lowered is no bypass.
std::vector<ProcessId> Broker::Bypassers(const Share& share, size_t position) const {
  std::vector<ProcessId> found;
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  for (const auto& [pid, foreigner] : gpus_.at(part.uuid).foreigners) {
    if (ShareAbove(pid) == &share) found.push_back({pid, StartTime(pid)});
  }
  const uint64_t quota = part.allotment.quota.count, tolerance = kTolerance + quota / kTolerancePart;
  uint64_t charged = 0, beyond = 0;
  for (const auto& holder : share.tenancy->holders()) {
    const ledger::GpuLedger& held = share.tenancy->ledger().gpu[position];
    charged += held.memory[holder.first].load();
    beyond += held.overhead[holder.first].load();
  }
  if (charged > quota || beyond <= tolerance || charged + beyond <= quota + tolerance) return found;
  for (const auto& [slot, holder] : share.tenancy->holders()) {
    if (share.tenancy->ledger().gpu[position].overhead[slot].load() > tolerance) found.push_back(holder.process);
  }
  return found;
}

void Broker::AnswerBypass(Share& share, size_t position, uint64_t now_ns) {
  Watch& watch = share.watches[position];
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  const std::vector<ProcessId> bypassers = Bypassers(share, position);
  if (bypassers.empty()) {
    watch.bypassed_since_ns = 0;
    watch.bypass_answered = false;
    return;
  }
  if (watch.bypassed_since_ns == 0) watch.bypassed_since_ns = now_ns;
  const auto grace = static_cast<uint64_t>(std::chrono::nanoseconds(options_.bypass_grace).count());
  if (watch.bypass_answered || now_ns - watch.bypassed_since_ns < grace) return;
  watch.bypass_answered = true;
  for (const ProcessId& process : bypassers) {
    const plan::OnBypass answer = share.row.grant.on_bypass;
    std::string done = "it is only reported, as asked";
    if (answer != plan::OnBypass::kReport) {
      const bool freeze = answer == plan::OnBypass::kFreeze;
      const Status sent = SendSignal(process, freeze ? SIGSTOP : SIGKILL);
      done = !sent.ok() ? Message(sent)
             : freeze
                 ? fmt::format("stopped; 'mete share set {} --on-bypass report' lets it go on", share.row.grant.share)
                 : "killed";
      if (sent.ok() && freeze) share.frozen.push_back(process);
    }
    Note(share.row.grant.share, part.uuid, "bypass",
         fmt::format("process {} ({}) holds memory of GPU {} past the library that keeps its quota: {}", process.pid,
                     ProgramOf(process.pid), gpus_.at(part.uuid).reading.index, done));
  }
}

// Lets those go on that were stopped: the share's answer is another now, or the share ends.
void Broker::Thaw(Share& share) {
  for (const ProcessId& process : share.frozen) {
    if (const Status sent = SendSignal(process, SIGCONT); !sent.ok()) log::Warn("{}", Message(sent));
  }
  share.frozen.clear();
}

}  // namespace mete::share
