// Shares without the interceptor: who their processes are, and whether what the mechanism set up is still so. Their
// processes take no slot. They are known by descent from a `mete run` of the share, and, when they have outlived that,
// by the variable they were started with; from then on they are remembered.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "ledger/futex.h"
#include "mechanism/grant_directory.h"
#include "share/broker.h"

namespace mete::share {
namespace {

// Some mechanisms ask a tool of the driver, which takes its time.
constexpr uint64_t kVerifyEveryNs = 10'000'000'000;
constexpr int kMostAncestors = 256;
constexpr int kLooks = 3;

}  // namespace

Broker::Share* Broker::BareShareOf(const ProcessId& process, const GpuReading& gpu, const nvml::Process& seen) {
  const auto has_gpu = [this, &gpu, &seen](const Share& share) {
    const auto& parts = share.row.grant.gpus;
    return !share.intercepted() && std::any_of(parts.begin(), parts.end(),
                                               [this, &gpu, &seen](const auto& part) { return IsOn(part, gpu, seen); });
  };
  std::string named;  // read when nothing else tells
  bool asked = false;
  for (auto& entry : shares_) {
    Share& share = *entry.second;
    if (!has_gpu(share)) continue;
    const auto member = share.members.find(process.pid);
    if (member != share.members.end() && member->second == process) return &share;
    ProcessId above = process;
    for (int depth = 0; above.pid > 1 && depth < kMostAncestors; ++depth) {
      const bool run = std::any_of(share.run_holders.begin(), share.run_holders.end(),
                                   [&above](const RunHolder& holder) { return holder.process == above; });
      const auto known = share.members.find(above.pid);
      if (run || (known != share.members.end() && known->second == above)) return &share;
      const uint32_t parent = ParentOf(above.pid);
      above = {parent, StartTime(parent)};
    }
    if (!std::exchange(asked, true)) named = mechanism::ShareNamedBy(process.pid);
    if (named == share.row.grant.id) return &share;
  }
  return nullptr;
}

void Broker::NoteMember(Share& share, const ProcessId& process) {
  const auto [member, fresh] = share.members.insert_or_assign(process.pid, process);
  (void)member;
  if (fresh) {
    log::Info("share={} process pid={} program={}", share.row.grant.share, process.pid, ProgramOf(process.pid));
  }
}

std::vector<mechanism::Tenant> Broker::TenantsOf(const Share& share) const {
  std::vector<mechanism::Tenant> tenants;
  if (share.intercepted()) {
    for (const auto& entry : share.tenancy->holders()) {
      tenants.push_back({entry.second.process.pid, entry.second.process.start_time});
    }
    return tenants;
  }
  for (const auto& [pid, process] : share.members) {
    if (Alive(process)) tenants.push_back({pid, process.start_time});
  }
  return tenants;
}

uint64_t Broker::UsedByMembers(const Share& share, size_t position) const {
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  const auto gpu = gpus_.find(part.uuid);
  if (gpu == gpus_.end()) return 0;
  uint64_t used = 0;
  for (const nvml::Process& process : gpu->second.reading.processes) {
    if (share.members.count(process.pid) != 0) used += process.used.count;
  }
  return used;
}

// Does anything run in the share, or may something start in it at any moment?
std::string Broker::WhoRunsIn(const Share& share) const {
  std::string processes;
  const auto add = [&processes](uint32_t pid, const std::string& program) {
    processes += fmt::format("{}{} ({})", processes.empty() ? "" : ", ", pid, program);
  };
  if (share.intercepted()) {
    for (const auto& entry : share.tenancy->holders()) add(entry.second.process.pid, entry.second.program);
    return processes;
  }
  for (const auto& [pid, process] : share.members) {
    if (Alive(process)) add(pid, ProgramOf(pid));
  }
  if (!processes.empty()) return processes;
  for (const RunHolder& holder : share.run_holders) add(holder.process.pid, ProgramOf(holder.process.pid));
  return processes;
}

StatusOr<mechanism::Evidence> Broker::Verify(Share& share) {
  auto verified = share.mechanism->Verify(share.row.grant, TenantsOf(share), *journal_);
  if (share.intercepted()) return verified;
  // A process of the share that has just started is a stranger until it is looked at.
  for (int times = 0; times < kLooks && !(verified.ok() && verified->InForce()); ++times) {
    if (!Refresh().ok()) break;
    verified = share.mechanism->Verify(share.row.grant, TenantsOf(share), *journal_);
  }
  std::string failed = verified.ok() ? std::string() : Message(verified.status());
  if (verified.ok()) {
    for (const mechanism::Evidence::Item& item : verified->items) {
      if (!item.holds && failed.empty()) failed = fmt::format("{}: {}", item.what, item.because);
    }
  }
  share.verified_ns = ledger::MonotonicNs();
  if (failed.empty() != share.invalid.empty()) {
    Note(share.row.grant.share, {}, failed.empty() ? "valid" : "invalid",
         failed.empty() ? "what was set up for it is in force again" : failed);
  }
  share.invalid = failed;
  return verified;
}

void Broker::VerifyBareShares() {
  const uint64_t now = ledger::MonotonicNs();
  std::vector<std::string> ids;
  for (auto& entry : shares_) {
    Share& share = *entry.second;
    if (share.intercepted()) continue;
    std::erase_if(share.members, [](const auto& member) { return !Alive(member.second); });
    ids.push_back(entry.first);
    if (now - share.verified_ns < kVerifyEveryNs) continue;
    (void)Verify(share);  // what fails is noted there
  }
  for (const std::string& id : ids) EndIfDone(id);
}

// The device would not take back what was made for a share: something still used it, or it did not answer.
void Broker::RetryReleases() {
  const std::map<std::string, ShareRow> rows = unreleased_;
  for (const auto& [id, row] : rows) {
    if (ReleaseRow(row).ok()) log::Info("share={} id={} is released now", row.grant.share, id);
  }
}

// Takes back what a mechanism made for a share that is ending, and then its row. What fails is tried again with every
// audit, and by the next broker.
Status Broker::ReleaseRow(const ShareRow& row) {
  const mechanism::Mechanism* mechanism = MechanismOf(row.grant);
  Status released = mechanism == nullptr ? Fault("share {} was made by the mechanism {}, which this mete has not",
                                                 row.grant.share, row.grant.mechanism)
                                         : mechanism->Release(row.grant, *journal_);
  if (unreleased_.count(row.grant.id) == 0) RemoveKernelGroup(row.grant);
  options_.reached("end: released");
  if (!released.ok()) {
    if (unreleased_.emplace(row.grant.id, row).second) {
      log::Error("share={} cannot be released yet: {}", row.grant.share, Message(released));
      Note(row.grant.share, {}, "release-failed", Message(released));
    }
    return released;
  }
  unreleased_.erase(row.grant.id);
  if (const Status deleted = book_->Delete(row.grant.id); !deleted.ok()) {
    log::Error("{}", Message(deleted));
    undeleted_.insert(row.grant.id);  // tried again with every audit; a row that is ending heals on start
  }
  return OkStatus();
}

}  // namespace mete::share
