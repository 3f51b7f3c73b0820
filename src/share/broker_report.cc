// What commands show of shares, as JSON. Numbers in base units (bytes, nanoseconds, percent); absent means not known.
#include <algorithm>
#include <cmath>

#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "plan/promises.h"
#include "plan/resolve.h"
#include "share/broker.h"

namespace mete::share {
namespace {

double InPercent(uint32_t hundredths) { return hundredths / 100.0; }
double OneDecimal(double value) { return std::round(value * 10) / 10; }

}  // namespace

Json Broker::GrantReply(const Share& share) const {
  Json json = Brief(share);
  json["edits"] = mechanism::ToJson(share.edits);
  return json;
}

Json Broker::Brief(const Share& share) const {
  const plan::Grant& grant = share.row.grant;
  Json json;
  json["name"] = grant.share;
  json["id"] = grant.id;
  json["made_by"] = share.row.kind == Kind::kRun ? "run" : "create";
  json["mechanism"] = grant.mechanism;
  json["preload"] = grant.preload;
  json["on_bypass"] = plan::ToString(grant.on_bypass);
  json["directory"] = mechanism_.Directory(grant);
  json["made_at"] = share.row.made_at;
  json["processes"] = share.tenancy->holders().size();
  json["kernel_limit"] = KernelJson(share);
  json["gpus"] = Json::array();
  for (size_t i = 0; i < grant.gpus.size(); ++i) json["gpus"].push_back(OnGpu(share, i));
  return json;
}

Json Broker::OnGpu(const Share& share, size_t position) const {
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  const Gpu& gpu = gpus_.at(part.uuid);
  const ledger::View view{&share.tenancy->limits(), &share.tenancy->ledger(), static_cast<uint32_t>(position), 0};
  const ledger::GpuLedger& held = share.tenancy->ledger().gpu[position];
  const uint64_t now = ledger::MonotonicNs();
  Json json;
  json["index"] = gpu.reading.index;
  json["uuid"] = part.uuid;
  json["name"] = gpu.reading.name;
  json["quota_bytes"] = part.allotment.quota.count;
  json["quota_asked"] = part.memory.has_value();
  json["used_bytes"] = ledger::Used(view);
  json["denials"] = held.denials.load();
  json["last_denied_bytes"] = held.last_denied_bytes.load();
  Json compute;
  compute["mode"] = plan::ToString(part.allotment.mode);
  if (part.compute) compute["percent"] = InPercent(part.allotment.share);
  compute["weight_percent"] = InPercent(part.allotment.weight);
  const bool tracked = (share.tenancy->limits().gpu[position].flags.load() & ledger::kTracked) != 0;
  const Watch& watch = share.watches[position];
  if (tracked && !watch.samples.empty() && now > watch.samples.front().at_ns) {
    const Sample& first = watch.samples.front();
    const uint64_t used = ledger::UsedNs(share.tenancy->ledger(), static_cast<uint32_t>(position), now);
    const auto over = static_cast<double>(now - first.at_ns);
    const double share_of_time = used > first.used_ns ? static_cast<double>(used - first.used_ns) / over : 0;
    compute["measured_percent"] = OneDecimal(100 * std::min(share_of_time, 1.0));
    compute["measured_over_seconds"] = OneDecimal(over / 1e9);
  }
  compute["gpu_time_ns"] = ledger::UsedNs(share.tenancy->ledger(), static_cast<uint32_t>(position), now);
  compute["waits"] = held.waits.load();
  compute["waited_ns"] = held.waited_ns.load();
  json["compute"] = compute;

  const plan::GpuOccupancy occupancy = OccupancyOf(part.uuid);
  plan::Enforcement enforcement;
  const uint64_t beat = share.tenancy->limits().heartbeat_ns.load();
  if (now > beat && now - beat > ledger::kHeartbeatStaleNs) {
    enforcement = {
        false, fmt::format("the arbiter is {} ms behind: windows have fallen back to caps", (now - beat) / 1'000'000)};
  }
  json["promises"] = Json::array();
  for (size_t i = 0; i < occupancy.holdings.size(); ++i) {
    if (occupancy.holdings[i].share != share.row.grant.share) continue;
    for (const plan::PromiseState& state : plan::PromisesNow(occupancy, i, enforcement)) {
      std::string because = state.because;
      if (share.kernel && state.promise == "memory-quota") {
        because += "; the kernel refuses what is beyond it too, but for managed memory";
      }
      json["promises"].push_back(
          {{"promise", state.promise}, {"asked", state.asked}, {"kept", state.kept}, {"because", because}});
    }
  }
  return json;
}

Json Broker::Foreigners() const {
  Json json = Json::array();
  for (const auto& entry : gpus_) {
    for (const auto& [pid, foreigner] : entry.second.foreigners) {
      json.push_back({{"gpu", entry.second.reading.index},
                      {"pid", pid},
                      {"program", foreigner.program},
                      {"used_bytes", foreigner.used.count}});
    }
  }
  return json;
}

StatusOr<Json> Broker::Full(const Share& share) const {
  Json json = Brief(share);
  json["emulated"] = nvml_->emulated();
  json["processes"] = Json::array();
  std::vector<mechanism::Tenant> tenants;
  for (const auto& entry : share.tenancy->holders()) {
    const Tenancy::Holder& holder = entry.second;
    tenants.push_back({holder.process.pid, holder.process.start_time});
    Json memory = Json::array();
    for (size_t i = 0; i < share.row.grant.gpus.size(); ++i) {
      memory.push_back(ledger::HeldBySlot(share.tenancy->ledger(), static_cast<uint32_t>(i), holder.slot));
    }
    json["processes"].push_back(
        {{"pid", holder.process.pid}, {"program", holder.program}, {"slot", holder.slot}, {"memory_bytes", memory}});
  }
  METE_ASSIGN_OR_RETURN(mechanism::Evidence evidence, mechanism_.Verify(share.row.grant, tenants));
  const uint64_t beat = share.tenancy->limits().heartbeat_ns.load(), now = ledger::MonotonicNs();
  const uint64_t age = now > beat ? now - beat : 0;
  evidence.items.push_back({"limits are published", age <= ledger::kHeartbeatStaleNs,
                            fmt::format("the limits page was renewed {} ms ago", age / 1'000'000)});
  if (share.tenancy->awaits_ledger()) {
    evidence.items.push_back(
        {"the ledger is known", false, "the broker restarted and waits for the share's processes"});
  }
  for (mechanism::Evidence::Item& item : KernelEvidence(share)) evidence.items.push_back(std::move(item));
  json["in_force"] = evidence.InForce();
  json["evidence"] = Json::array();
  for (const auto& item : evidence.items) {
    json["evidence"].push_back({{"what", item.what}, {"holds", item.holds}, {"because", item.because}});
  }
  json["foreign"] = Foreigners();
  METE_ASSIGN_OR_RETURN(const std::vector<EventRow> events, book_->Events(share.row.grant.share, 20));
  json["events"] = Json::array();
  for (const EventRow& event : events) {
    json["events"].push_back({{"at", event.at}, {"gpu", event.gpu}, {"kind", event.kind}, {"text", event.text}});
  }
  return json;
}

}  // namespace mete::share
