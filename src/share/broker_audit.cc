// What the driver says about the GPUs, held against the book: processes without a slot, memory that nobody charged,
// usage beyond a limit, refusals.
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "share/broker.h"

namespace mete::share {
namespace {

constexpr uint64_t kMeasuredOverNs = 5'000'000'000;

}  // namespace

void Broker::Note(const std::string& share, const std::string& gpu, const std::string& kind, const std::string& text) {
  log::Info("event kind={} share={} gpu={} {}", kind, share, gpu, text);
  const Status noted = book_->AddEvent({std::time(nullptr), share, gpu, kind, text});
  if (!noted.ok()) log::Warn("{}", Message(noted));
}

void Broker::OnReading(const Audit::Reading& reading) {
  for (auto id = undeleted_.begin(); id != undeleted_.end();) {
    id = book_->Delete(*id).ok() ? undeleted_.erase(id) : std::next(id);
  }
  const std::string failure = reading.ok() ? std::string() : Message(reading.status());
  if (failure != audit_failure_) {
    Note({}, {}, failure.empty() ? "audit" : "audit-failed", failure.empty() ? "the driver answers again" : failure);
    audit_failure_ = failure;
  }
  if (reading.ok()) {
    for (const GpuReading& gpu : *reading) {
      gpus_[gpu.uuid].reading = gpu;
      FindForeigners(gpus_[gpu.uuid], gpu);
    }
    HoldAgainstLedgers();
    VerifyBareShares();
  }
  if (!unreleased_.empty()) RetryReleases();
  if (shares_.empty()) return;
  if (readings_left_ == 0) return RequestRound();  // it was taken before the charges were noted: of no round
  if (!reading.ok()) return EndRound(false);
  if (--readings_left_ == 0) return EndRound(true);
  NoteCharges(false);
  audit_->Again();
}

// An audit is a round of readings, since one alone may show what has already passed.
void Broker::BeginRound() {
  readings_left_ = Overhead::kReadings;
  ++audits_;  // odd while a round is under way
  PublishAudits();
}

void Broker::EndRound(bool seen) {
  readings_left_ = 0;
  ++rounds_;
  if (seen) ReturnDeferred();
  WatchShares();
  for (auto& entry : shares_) ClearLeavers(*entry.second);
  ++audits_;
  PublishAudits();
  if (std::exchange(round_wanted_, false)) RequestRound();
}

// One that begins now, or after the one that is under way: whoever asks wants to see what is true from now on.
void Broker::RequestRound() {
  if (!audit_) return;
  if (readings_left_ > 0) {
    round_wanted_ = true;
    return;
  }
  NoteCharges(true);
  BeginRound();
  audit_->Again();
}

void Broker::PublishAudits() {
  for (auto& entry : shares_) {
    if (!entry.second->tenancy) continue;
    ledger::LimitsPage& limits = entry.second->tenancy->limits();
    limits.audits.store(audits_);
    limits.leaving.store(static_cast<uint32_t>(entry.second->leavers.size()));
    ledger::FutexWake(limits.audits, INT_MAX);
  }
}

// What slots have charged just before the driver is asked.
void Broker::NoteCharges(bool first) {
  for (auto& entry : shares_) {
    Share& share = *entry.second;
    for (size_t i = 0; i < share.watches.size(); ++i) {
      for (const auto& holder : share.tenancy->holders()) {
        SlotWatch& watch = share.watches[i].slots[holder.first];
        watch.charged = ledger::BelievedBySlot(share.tenancy->ledger(), static_cast<uint32_t>(i), holder.first);
        if (first) watch.deferred = share.tenancy->ledger().gpu[i].deferred[holder.first].load();
      }
    }
  }
}

// What was given up before the round began and is still there has been found, and charged to whoever holds it.
void Broker::ReturnDeferred() {
  for (auto& entry : shares_) {
    Share& share = *entry.second;
    for (size_t i = 0; i < share.watches.size(); ++i) {
      for (auto& [slot, watch] : share.watches[i].slots) {
        const ledger::View view{&share.tenancy->limits(), &share.tenancy->ledger(), static_cast<uint32_t>(i), slot};
        if (watch.deferred != 0) ledger::ReturnDeferred(view, std::exchange(watch.deferred, 0));
      }
    }
  }
}

// The driver's count of each process against what it charged: the rest is charged by the broker.
void Broker::HoldAgainstLedgers() {
  for (auto& entry : shares_) {
    Share& share = *entry.second;
    if (share.tenancy->awaits_ledger() || !share.intercepted()) continue;
    for (size_t i = 0; i < share.watches.size(); ++i) {
      const GpuReading& reading = gpus_.at(share.row.grant.gpus[i].uuid).reading;
      for (const auto& [slot, holder] : share.tenancy->holders()) {
        uint64_t held = 0;
        for (const nvml::Process& process : reading.processes) {
          if (process.pid == holder.process.pid) held += process.used.count;
        }
        SlotWatch& watch = share.watches[i].slots[slot];
        const uint64_t charged = ledger::BelievedBySlot(share.tenancy->ledger(), static_cast<uint32_t>(i), slot);
        ledger::SetOverhead(share.tenancy->ledger(), static_cast<uint32_t>(i), slot,
                            watch.overhead.Next(held, std::max(charged, watch.charged)));
      }
    }
  }
}

// A process that NVML shows and that holds no slot of any share uses the GPU past the book. Tenants take their slot
// before they make a context, and give it up only by dying, so that a living process without one is never a tenant.
void Broker::FindForeigners(Gpu& gpu, const GpuReading& reading) {
  if (!healed_) return;
  std::map<uint32_t, plan::Foreigner> now;
  for (const nvml::Process& process : reading.processes) {
    const ProcessId id{process.pid, StartTime(process.pid)};
    const bool tenant = std::any_of(shares_.begin(), shares_.end(), [&id](const auto& entry) {
      return entry.second->tenancy && entry.second->tenancy->Find(id) != nullptr;
    });
    // Of another pid name space, or already dead: without a start time nobody can say; the dead are gone next time.
    if (tenant || id.start_time == 0) continue;
    if (Share* share = BareShareOf(id, reading, process); share != nullptr) {
      NoteMember(*share, id);
      continue;
    }
    const std::string program = ProgramOf(process.pid);
    now[process.pid] = {process.pid, program.empty() ? process.name : program, process.used};
  }
  // On a MIG device they are told of with the GPU.
  for (const auto& [pid, foreigner] : now) {
    if (gpu.foreigners.count(pid) != 0 || !reading.parent.empty()) continue;
    Note({}, reading.uuid, "foreign",
         fmt::format("process {} ({}) uses GPU {} without a share; quotas and reservations are not kept there until it "
                     "ends",
                     pid, foreigner.program, reading.index));
  }
  for (const auto& [pid, foreigner] : gpu.foreigners) {
    if (now.count(pid) != 0 || !reading.parent.empty()) continue;
    Note({}, reading.uuid, "foreign-ended",
         fmt::format("process {} ({}) uses GPU {} no more", pid, foreigner.program, reading.index));
  }
  gpu.foreigners = std::move(now);
}

void Broker::WatchShares() {
  const uint64_t now = ledger::MonotonicNs();
  for (auto& entry : shares_) {
    Share& share = *entry.second;
    if (!share.intercepted()) continue;
    const std::string& name = share.row.grant.share;
    for (size_t i = 0; i < share.watches.size(); ++i) {
      Watch& watch = share.watches[i];
      const plan::GpuGrant& part = share.row.grant.gpus[i];
      const auto index = static_cast<uint32_t>(i);
      const ledger::LedgerPage& page = share.tenancy->ledger();
      watch.samples.push_back({now, ledger::UsedNs(page, index, now)});
      while (watch.samples.size() > 2 && now - watch.samples[1].at_ns >= kMeasuredOverNs) watch.samples.pop_front();

      const uint64_t denials = page.gpu[i].denials.load();
      if (denials > watch.denials) {
        Note(name, part.uuid, "denied",
             fmt::format("{} allocations refused, the last of {}; the quota is {}", denials - watch.denials,
                         ToString(Bytes{page.gpu[i].last_denied_bytes.load()}), ToString(part.allotment.quota)));
      }
      watch.denials = denials;

      // The ledger is in the tenants' hands; what NVML says is not.
      uint64_t seen = 0;
      for (const nvml::Process& process : gpus_.at(part.uuid).reading.processes) {
        const auto& holders = share.tenancy->holders();
        const bool ours = std::any_of(holders.begin(), holders.end(), [&process](const auto& holder) {
          return holder.second.process.pid == process.pid;
        });
        if (ours) seen += process.used.count;
      }
      const ledger::View view{&share.tenancy->limits(), &share.tenancy->ledger(), index, 0};
      const uint64_t held = std::max(seen, ledger::Used(view));
      const bool over = held > part.allotment.quota.count;
      if (over != watch.over_quota) {
        Note(name, part.uuid, over ? "over-quota" : "within-quota",
             fmt::format("holds {} of a quota of {}", ToString(Bytes{held}), ToString(part.allotment.quota)));
      }
      watch.over_quota = over;
      AnswerBypass(share, i, now);
    }
  }
}

}  // namespace mete::share
