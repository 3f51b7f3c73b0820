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
  if (grant.time_slice) json["time_slice"] = plan::ToString(*grant.time_slice);
  json["directory"] = Directory(grant);
  json["invalid"] = share.invalid;
  json["made_at"] = share.row.made_at;
  json["processes"] = TenantsOf(share).size();
  json["kernel_limit"] = KernelJson(share);
  json["gpus"] = Json::array();
  for (size_t i = 0; i < grant.gpus.size(); ++i) json["gpus"].push_back(OnGpu(share, i));
  return json;
}

// What is the same for every mechanism; the rest is the ledger's, or follows from the GPU alone.
Json Broker::OnGpu(const Share& share, size_t position) const {
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  const uint64_t now = ledger::MonotonicNs();
  Json json;
  json["uuid"] = part.uuid;
  json["index"] = part.index;
  if (const auto gpu = gpus_.find(part.uuid); gpu != gpus_.end()) {
    json["index"] = gpu->second.reading.index;
    json["name"] = gpu->second.reading.name;
  }
  json["used_bytes"] = UsedOn(share, position);
  if (share.intercepted()) {
    AddLedger(share, position, now, &json);
  } else {
    AddBare(share, position, &json);
  }
  json["promises"] = Promises(share, position, now);
  return json;
}

void Broker::AddLedger(const Share& share, size_t position, uint64_t now, Json* into) const {
  Json& json = *into;
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  const ledger::GpuLedger& held = share.tenancy->ledger().gpu[position];
  json["quota_bytes"] = part.allotment.quota.count;
  json["quota_asked"] = part.memory.has_value();
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
}

void Broker::AddBare(const Share& share, size_t position, Json* into) const {
  Json& json = *into;
  const plan::Grant& grant = share.row.grant;
  const auto gpu = gpus_.find(grant.gpus[position].uuid);
  nvml::MemoryUse memory = gpu == gpus_.end() ? nvml::MemoryUse{} : gpu->second.reading.memory;
  const plan::GpuGrant& part = grant.gpus[position];
  const gpu::MigBoard* board = gpu == gpus_.end() ? nullptr : MigBoardOf(gpu->second);
  const gpu::MigProfile* profile = board == nullptr || !part.instance ? nullptr : board->Find(part.instance->profile);
  if (profile != nullptr) memory = {profile->memory, {}, {}, {}};
  if (part.instance) {
    const nvml::GpuInstance* there = InstanceOf(part);
    json["instance"] = {{"profile", part.instance->profile},
                        {"start", part.instance->start},
                        {"size", part.instance->size},
                        {"uuid", there == nullptr || there->compute.empty() ? "" : there->compute[0].uuid}};
  }
  json["quota_bytes"] = memory.total.count - std::min(memory.total.count, memory.reserved.count);
  json["quota_asked"] = grant.mechanism != "time-slicing";  // set aside for it, or the GPU's as a whole
  json["denials"] = 0;
  json["last_denied_bytes"] = 0;
  std::string mode = "the whole GPU";
  if (grant.mechanism == "time-slicing") {
    mode = grant.time_slice ? fmt::format("turns, {} slices", plan::ToString(*grant.time_slice)) : "turns";
  }
  if (profile != nullptr) {
    mode = fmt::format("{} of {} compute slices", profile->compute_slices, board->compute_slices);
  }
  json["compute"] = {{"mode", mode}, {"waits", 0}, {"waited_ns", 0}};
}

Json Broker::Promises(const Share& share, size_t position, uint64_t now) const {
  const plan::Grant& grant = share.row.grant;
  const plan::GpuGrant& part = grant.gpus[position];
  Json json = Json::array();
  const auto gpu = gpus_.find(part.uuid);
  if (gpu == gpus_.end()) return json;
  const auto add = [&json](const plan::PromiseState& state, const std::string& besides = {}) {
    json.push_back({{"promise", state.promise},
                    {"asked", state.asked},
                    {"kept", state.kept},
                    {"because", state.because + besides}});
  };
  plan::Ask ask;
  ask.need = grant.need;
  ask.request.memory = part.memory;
  ask.request.compute = part.compute;
  const std::vector<gpu::Promise> asked = plan::NeedsOf(ask);
  plan::Enforcement enforcement{share.invalid.empty(), share.invalid};
  std::set<std::string> told;
  if (share.intercepted()) {
    const uint64_t beat = share.tenancy->limits().heartbeat_ns.load();
    if (now > beat && now - beat > ledger::kHeartbeatStaleNs) {
      enforcement = {false, fmt::format("the arbiter is {} ms behind: windows have fallen back to caps",
                                        (now - beat) / 1'000'000)};
    }
    const plan::GpuOccupancy occupancy = OccupancyOf(part.uuid);
    for (size_t i = 0; i < occupancy.holdings.size(); ++i) {
      if (occupancy.holdings[i].share != grant.share) continue;
      for (const plan::PromiseState& state : plan::PromisesNow(occupancy, i, enforcement)) {
        const bool by_kernel = share.kernel && state.promise == "memory-quota";
        add(state, by_kernel ? "; the kernel refuses what is beyond it too, but for managed memory" : "");
        told.insert(state.promise);
      }
    }
  }
  // The rest as the table says: for interception what was asked, for the others all.
  const plan::GpuView view = ViewOfGpu(gpu->second);
  for (const plan::WayView& way : view.ways) {
    if (gpu::Name(way.variant->mechanism) != grant.mechanism) continue;
    for (const plan::PromiseState& state : plan::PromisesByTable(view.occupancy, way, asked, enforcement)) {
      if (told.count(state.promise) != 0 || (share.intercepted() && !state.asked)) continue;
      add(state);
    }
    break;
  }
  return json;
}

Json Broker::Foreigners() const {
  Json json = Json::array();
  for (const auto& entry : gpus_) {
    if (!entry.second.reading.parent.empty()) continue;  // shown on the GPU
    for (const auto& [pid, foreigner] : entry.second.foreigners) {
      json.push_back({{"gpu", entry.second.reading.index},
                      {"pid", pid},
                      {"program", foreigner.program},
                      {"used_bytes", foreigner.used.count}});
    }
  }
  return json;
}

StatusOr<Json> Broker::Full(Share& share) {
  if (!share.intercepted()) METE_RETURN_IF_ERROR(Refresh());  // who its processes are
  METE_ASSIGN_OR_RETURN(mechanism::Evidence evidence, Verify(share));
  Json json = Brief(share);
  json["emulated"] = nvml_->emulated();
  json["processes"] = ProcessesOf(share);
  if (share.intercepted()) AddEvidence(share, &evidence);
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

Json Broker::ProcessesOf(const Share& share) const {
  Json json = Json::array();
  if (!share.intercepted()) {
    for (const mechanism::Tenant& tenant : TenantsOf(share)) {
      Json memory = Json::array();
      for (const plan::GpuGrant& part : share.row.grant.gpus) {
        uint64_t used = 0;
        const auto gpu = gpus_.find(part.uuid);
        if (gpu == gpus_.end()) continue;
        for (const nvml::Process& process : gpu->second.reading.processes) {
          if (process.pid == tenant.pid) used += process.used.count;
        }
        memory.push_back(used);
      }
      json.push_back({{"pid", tenant.pid}, {"program", ProgramOf(tenant.pid)}, {"memory_bytes", memory}});
    }
    return json;
  }
  for (const auto& entry : share.tenancy->holders()) {
    const Tenancy::Holder& holder = entry.second;
    Json memory = Json::array();
    for (size_t i = 0; i < share.row.grant.gpus.size(); ++i) {
      memory.push_back(ledger::HeldBySlot(share.tenancy->ledger(), static_cast<uint32_t>(i), holder.slot));
    }
    json.push_back(
        {{"pid", holder.process.pid}, {"program", holder.program}, {"slot", holder.slot}, {"memory_bytes", memory}});
  }
  return json;
}

// What interception needs beside its libraries.
void Broker::AddEvidence(const Share& share, mechanism::Evidence* evidence) const {
  const uint64_t beat = share.tenancy->limits().heartbeat_ns.load(), now = ledger::MonotonicNs();
  const uint64_t age = now > beat ? now - beat : 0;
  evidence->items.push_back({"limits are published", age <= ledger::kHeartbeatStaleNs,
                             fmt::format("the limits page was renewed {} ms ago", age / 1'000'000)});
  if (share.tenancy->awaits_ledger()) {
    evidence->items.push_back(
        {"the ledger is known", false, "the broker restarted and waits for the share's processes"});
  }
  for (mechanism::Evidence::Item& item : KernelEvidence(share)) evidence->items.push_back(std::move(item));
}

}  // namespace mete::share
