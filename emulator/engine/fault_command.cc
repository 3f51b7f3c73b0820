// `mete emulate fault`: breaks a GPU of the node on purpose, says what is broken, and heals it.
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/output.h"
#include "base/table.h"
#include "emulator/engine/commands.h"
#include "emulator/engine/fault_rules.h"
#include "emulator/engine/node.h"

namespace mete::emulator {

namespace {

struct KindName {
  const char* word;
  FaultKind kind;
  const char* what;
};
constexpr KindName kKinds[] = {
    {"xid", FaultKind::kXid, "an Xid by its number; whom it hurts is NVIDIA's catalogue's, data/xid.yaml"},
    {"ecc-correctable", FaultKind::kEccCorrectable, "single-bit memory errors, --count of them; nobody is hurt"},
    {"ecc-uncorrectable", FaultKind::kEccUncorrectable,
     "a double-bit memory error: confined to one process on compute capability 8.0 and newer unless --uncontained"},
    {"row-remap-pending", FaultKind::kRowRemapPending, "a row is to be remapped at the next reset (Xid 63)"},
    {"row-remap-failure", FaultKind::kRowRemapFailure, "a row could not be remapped (Xid 64)"},
    {"lost", FaultKind::kLost, "the driver cannot reach the GPU any more"},
    {"off-bus", FaultKind::kOffBus, "the GPU falls off the bus (Xid 79)"},
    {"throttle", FaultKind::kThrottle, "the SM clock falls to --factor: 'throttle thermal' or 'throttle power'"},
    {"slow-memory", FaultKind::kSlowMemory, "the DRAM bandwidth falls to --factor"},
    {"hang", FaultKind::kHang, "no kernel ends any more: of the process with --pid, else of the whole GPU"},
    {"driver-restart", FaultKind::kDriverRestart, "every context and connection of the node ends"},
};

const char* WordOf(FaultKind kind) {
  for (const KindName& name : kKinds) {
    if (name.kind == kind) return name.word;
  }
  return "unknown";
}

const char* NeedOf(Need need) {
  return need == Need::kNone ? "nothing" : need == Need::kReset ? "a reset (nvidia-smi -r)" : "a restart of the node";
}

StatusOr<uint64_t> ParseWait(const std::string& text) {
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(read.ptr, text.data() + text.size());
  double scale = 0;
  for (const auto& [name, ns] : {std::pair{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}) {
    if (unit == name) scale = ns;
  }
  if (read.ec != std::errc() || scale == 0 || !(number >= 0) || number * scale > 31'536'000e9) {
    return Usage("--after {}: write a time such as 500ms, 10s, 5m or 1h, at most a year", text);
  }
  return static_cast<uint64_t>(number * scale);
}

StatusOr<uint32_t> GpuByName(const Client& client, const std::string& name) {
  const std::vector<GpuInfo>& gpus = client.Gpus();
  uint32_t index = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
  if (read.ec == std::errc() && read.ptr == name.data() + name.size() && index < gpus.size()) return index;
  for (uint32_t i = 0; i < gpus.size(); ++i) {
    if (UuidText(gpus[i].uuid) == name || gpus[i].pci_bus_id == name) return i;
  }
  return NoSuch("--gpu {}: the node has the GPUs 0 to {}; a UUID or PCI id of one of them will do too", name,
                gpus.size() - 1);
}

// The GPU on which the process has a context.
StatusOr<uint32_t> GpuOfProcess(Client& client, uint32_t pid) {
  for (uint32_t i = 0; i < client.Gpus().size(); ++i) {
    std::vector<ProcessInfo> processes;
    if (client.Processes(i, &processes) != Result::kOk) continue;
    for (const ProcessInfo& process : processes) {
      if (process.pid == pid) return i;
    }
  }
  return NoSuch("--pid {}: no such process uses a GPU of this node; 'mete emulate status' lists those that do", pid);
}

StatusOr<uint32_t> ParseXid(const std::string& text, const GpuInfo& gpu, bool pid_given) {
  uint32_t xid = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), xid);
  const auto rule = BuiltInXidRules().find(xid);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || rule == BuiltInXidRules().end()) {
    std::string known;
    for (const auto& [number, unused] : BuiltInXidRules())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", number);
    return NoSuch("fault xid {}: write the number of an Xid that the emulator knows: {}",
                  text.empty() ? "(nothing)" : text, known);
  }
  if (gpu.compute_major < rule->second.from_major) {
    return Refused("Xid {} is reported by boards of compute capability {}.0 and newer; {} has {}.{}", xid,
                   rule->second.from_major, gpu.name, gpu.compute_major, gpu.compute_minor);
  }
  if (pid_given && rule->second.hurts != XidRule::Hurts::kProcess && rule->second.followed.empty()) {
    return Usage("Xid {} belongs to the GPU ({}), not to a process; leave out --pid", xid, rule->second.affected);
  }
  return xid;
}

StatusOr<FaultSpec> MakeSpec(const FaultOptions& options, Client& client) {
  FaultSpec spec;
  const KindName* kind = nullptr;
  std::string known;
  for (const KindName& name : kKinds) {
    if (options.kind == name.word) kind = &name;
    known += fmt::format("\n  {:<18} {}", name.word, name.what);
  }
  if (kind == nullptr) {
    return Usage("fault: {}; the kinds are:{}",
                 options.kind.empty() ? "name a kind, or --list or --clear" : "there is no kind '" + options.kind + "'",
                 known);
  }
  spec.kind = kind->kind;
  spec.pid = options.pid;
  if (!options.gpu.empty()) {
    METE_ASSIGN_OR_RETURN(spec.gpu, GpuByName(client, options.gpu));
  } else if (options.pid != 0) {
    METE_ASSIGN_OR_RETURN(spec.gpu, GpuOfProcess(client, options.pid));
  }
  const GpuInfo& gpu = client.Gpus()[spec.gpu];
  const bool of_process = spec.kind == FaultKind::kXid || spec.kind == FaultKind::kHang ||
                          (spec.kind == FaultKind::kEccUncorrectable && !options.uncontained);
  if (options.pid != 0 && !of_process) {
    return Usage("fault {} befalls a GPU, not a process; leave out --pid", options.kind);
  }
  if (spec.kind == FaultKind::kXid) {
    METE_ASSIGN_OR_RETURN(spec.xid, ParseXid(options.argument, gpu, options.pid != 0));
  } else if (spec.kind == FaultKind::kThrottle) {
    if (options.argument != "thermal" && options.argument != "power") {
      return Usage("fault throttle: say why: 'throttle thermal' or 'throttle power'");
    }
    spec.reason = options.argument == "thermal" ? kReasonThermal : kReasonPower;
  } else if (!options.argument.empty()) {
    return Usage("fault {} takes no '{}'", options.kind, options.argument);
  }
  const bool scaled = spec.kind == FaultKind::kThrottle || spec.kind == FaultKind::kSlowMemory;
  if (options.factor && (!scaled || !(*options.factor >= 0.01 && *options.factor <= 1))) {
    return Usage("--factor is for throttle and slow-memory: what is left, from 0.01 to 1");
  }
  spec.factor = scaled ? options.factor.value_or(0.5) : 1;
  if (options.uncontained) {
    if (spec.kind != FaultKind::kEccUncorrectable) return Usage("--uncontained is for ecc-uncorrectable");
    spec.reason = 1;
  }
  const bool needs_remap = spec.kind == FaultKind::kRowRemapPending || spec.kind == FaultKind::kRowRemapFailure;
  if ((needs_remap || options.uncontained) && gpu.compute_major < 8) {
    return Refused("{} of compute capability {}.{} has no row remapping and no containment; that came with 8.0",
                   gpu.name, gpu.compute_major, gpu.compute_minor);
  }
  if (options.count < 1) return Usage("--count: at least 1");
  spec.count = options.count;
  if (!options.after.empty()) {
    METE_ASSIGN_OR_RETURN(spec.after_ns, ParseWait(options.after));
  }
  if (options.probability && !(*options.probability > 0 && *options.probability <= 1)) {
    return Usage("--probability {}: of happening within a second, above 0 and at most 1", *options.probability);
  }
  spec.probability = options.probability.value_or(0);
  spec.seed = options.seed;
  return spec;
}

Status Explain(Result result, const FaultSpec& spec, const GpuInfo& gpu) {
  switch (result) {
    case Result::kOk: return OkStatus();
    case Result::kNotOwner: return Refused("only the user who brought the node up may break or heal its GPUs");
    case Result::kDeviceLost:
      return Refused("GPU {} is lost already; 'mete emulate fault --clear --gpu {}' brings it back", spec.gpu,
                     spec.gpu);
    case Result::kNoSuchObject:
      return NoSuch("--pid {}: the process has no live context on GPU {}; 'mete emulate status' lists those that have",
                    spec.pid, spec.gpu);
    case Result::kRefused:
      if (spec.kind == FaultKind::kXid) {
        return Refused(
            "Xid {} belongs to a process, and none uses GPU {} ({}); start one, or let it happen later with --after",
            spec.xid, spec.gpu, gpu.name);
      }
      return Refused(
          "GPU {} ({}) cannot have this fault, or the node has too many waiting; 'mete emulate fault "
          "--clear' takes them back",
          spec.gpu, gpu.name);
    default: return Lacks("the node's engine did not answer; 'mete emulate status' says whether it is up");
  }
}

Json FaultJson(const FaultInfo& fault, uint64_t now_ns) {
  const FaultSpec& spec = fault.spec;
  Json json = {{"id", fault.id}, {"kind", WordOf(spec.kind)}, {"gpu", spec.gpu}, {"happened", fault.happened}};
  if (spec.kind == FaultKind::kXid) json["xid"] = spec.xid;
  if (spec.pid != 0) json["pid"] = spec.pid;
  if (spec.factor < 1) json["factor"] = spec.factor;
  if (spec.probability > 0) json["probability"] = spec.probability;
  if (spec.probability > 0) json["seed"] = spec.seed;
  json["due_in_s"] =
      fault.due_ns == 0 ? Json() : Json((static_cast<double>(fault.due_ns) - static_cast<double>(now_ns)) / 1e9);
  return json;
}

Json HealthJson(Client& client, uint32_t gpu) {
  GpuState state = {};
  const Result result = client.State(gpu, &state);
  if (result == Result::kDeviceLost) return {{"gpu", gpu}, {"lost", true}, {"needs", NeedOf(Need::kReboot)}};
  const Health& health = state.health;
  return {
      {"gpu", gpu},
      {"lost", false},
      {"needs", NeedOf(health.need)},
      {"ecc_volatile",
       {{"corrected", health.ecc_volatile.dram_corrected}, {"uncorrected", health.ecc_volatile.dram_uncorrected}}},
      {"ecc_aggregate",
       {{"corrected", health.ecc_aggregate.dram_corrected}, {"uncorrected", health.ecc_aggregate.dram_uncorrected}}},
      {"rows_remapped", health.rows_remapped_correctable + health.rows_remapped_uncorrectable},
      {"remap_pending", health.remap_pending != 0},
      {"remap_failed", health.remap_failed != 0},
      {"throttle_reasons", health.throttle_reasons}};
}

Status List(Client& client, bool as_json) {
  std::vector<FaultInfo> faults;
  std::vector<EventInfo> events;
  if (client.Faults(&faults) != Result::kOk || client.Events(0, &events) != Result::kOk) {
    return Lacks("the node's engine did not answer; 'mete emulate status' says whether it is up");
  }
  const uint64_t now = MonotonicNs();
  Json json = {{"faults", Json::array()}, {"gpus", Json::array()}, {"events", Json::array()}};
  for (const FaultInfo& fault : faults) json["faults"].push_back(FaultJson(fault, now));
  for (uint32_t i = 0; i < client.Gpus().size(); ++i) json["gpus"].push_back(HealthJson(client, i));
  for (const EventInfo& event : events) {
    Json one = {{"number", event.number}, {"gpu", event.gpu}, {"age_s", static_cast<double>(now - event.at_ns) / 1e9}};
    if (event.type == kEventXid) one["xid"] = event.xid;
    if (event.type != kEventXid) one["ecc"] = event.type == kEventSingleBitEcc ? "corrected" : "uncorrected";
    if (event.pid != 0) one["pid"] = event.pid;
    json["events"].push_back(std::move(one));
  }
  if (as_json) {
    Print(ToText(json));
    return OkStatus();
  }
  Table gpus(
      {{"GPU"}, {"lost"}, {"needs"}, {"ECC corrected", Align::kRight}, {"uncorrected", Align::kRight}, {"remap"}});
  for (const Json& gpu : json["gpus"]) {
    if (gpu["lost"].get<bool>()) {
      gpus.AddRow({gpu["gpu"].dump(), "yes", gpu["needs"].get<std::string>()});
      continue;
    }
    gpus.AddRow({gpu["gpu"].dump(), "no", gpu["needs"].get<std::string>(), gpu["ecc_volatile"]["corrected"].dump(),
                 gpu["ecc_volatile"]["uncorrected"].dump(),
                 gpu["remap_failed"].get<bool>()    ? "failed"
                 : gpu["remap_pending"].get<bool>() ? "pending"
                                                    : "none"});
  }
  Print(gpus.Render(TerminalWidth(1)));
  Table table({{"fault", Align::kRight}, {"kind"}, {"GPU"}, {"process"}, {"happened", Align::kRight}, {"due"}});
  for (const Json& fault : json["faults"]) {
    const std::string kind =
        fault["kind"].get<std::string>() + (fault.contains("xid") ? " " + fault["xid"].dump() : "");
    table.AddRow({fault["id"].dump(), kind, fault["gpu"].dump(), fault.contains("pid") ? fault["pid"].dump() : "",
                  fault["happened"].dump(),
                  fault["due_in_s"].is_null() ? "" : fmt::format("in {:.1f} s", fault["due_in_s"].get<double>())});
  }
  if (!table.empty()) Print("\n{}", table.Render(TerminalWidth(1)));
  Table happened({{"event", Align::kRight}, {"what"}, {"GPU"}, {"process"}, {"ago", Align::kRight}});
  for (const Json& event : json["events"]) {
    const std::string what =
        event.contains("xid") ? "Xid " + event["xid"].dump() : "ECC " + event["ecc"].get<std::string>();
    happened.AddRow({event["number"].dump(), what, event["gpu"].dump(),
                     event.contains("pid") ? event["pid"].dump() : "",
                     fmt::format("{:.1f} s", event["age_s"].get<double>())});
  }
  if (!happened.empty()) Print("\n{}", happened.Render(TerminalWidth(1)));
  return OkStatus();
}

Status Clear(const FaultOptions& options, Client& client) {
  uint32_t gpu = kAllGpus;
  uint64_t id = 0;
  if (!options.gpu.empty()) {
    METE_ASSIGN_OR_RETURN(gpu, GpuByName(client, options.gpu));
  }
  if (options.clear_id != "all") {
    const auto read = std::from_chars(options.clear_id.data(), options.clear_id.data() + options.clear_id.size(), id);
    if (read.ec != std::errc() || read.ptr != options.clear_id.data() + options.clear_id.size() || id == 0) {
      return Usage("--clear {}: write the number of a fault, which --list shows, or nothing for all", options.clear_id);
    }
  }
  const Result result = client.ClearFaults(gpu, id);
  if (result == Result::kNoSuchObject) return NoSuch("--clear {}: there is no such fault; --list shows them", id);
  METE_RETURN_IF_ERROR(Explain(result, {}, client.Gpus()[0]));
  if (options.json) {
    Print(ToText(Json{{"cleared", id == 0 ? Json("all") : Json(id)}}));
  } else {
    Print("{}; contexts that died stay dead, their programs must start anew\n",
          id != 0           ? fmt::format("fault {} is taken back", id)
          : gpu == kAllGpus ? "every GPU of the node is sound again"
                            : fmt::format("GPU {} is sound again", gpu));
  }
  return OkStatus();
}

}  // namespace

Status BreakNode(const FaultOptions& options) {
  METE_ASSIGN_OR_RETURN(const NodeState node, ResolveNode(options.dir));
  if (!node.running) return NotUp(node);
  Client* opened = nullptr;
  std::string why;
  if (!Client::Connect(node.root.c_str(), &opened, &why)) return Lacks("{}", why);
  const std::unique_ptr<Client> client(opened);
  if (options.list) return List(*client, options.json);
  if (!options.clear_id.empty()) {
    if (!options.kind.empty()) return Usage("--clear takes no kind; name a fault by its number, or a GPU by --gpu");
    return Clear(options, *client);
  }
  METE_ASSIGN_OR_RETURN(const FaultSpec spec, MakeSpec(options, *client));
  const GpuInfo gpu = client->Gpus()[spec.gpu];
  uint64_t id = 0;
  METE_RETURN_IF_ERROR(Explain(client->InjectFault(spec, &id), spec, gpu));
  if (options.json) {
    FaultInfo info = {id, spec, 0, 0};
    std::vector<FaultInfo> all;
    if (client->Faults(&all) == Result::kOk) {
      for (const FaultInfo& fault : all) {
        if (fault.id == id) info = fault;
      }
    }
    Print(ToText(FaultJson(info, MonotonicNs())));
    return OkStatus();
  }
  const auto rule = BuiltInXidRules().find(spec.xid);
  Print("fault {}: {}{} on GPU {} ({}){}{}\n", id, options.kind, spec.xid != 0 ? fmt::format(" {}", spec.xid) : "",
        spec.gpu, gpu.name,
        spec.probability > 0 ? fmt::format(", with probability {:g} a second", spec.probability) : "",
        spec.after_ns > 0 ? fmt::format(", in {:g} s", static_cast<double>(spec.after_ns) / 1e9) : "");
  if (rule != BuiltInXidRules().end()) {
    const bool still_to_come = spec.after_ns > 0 || spec.probability > 0;
    Print("{}{}; affected: {}; what to do: {}\n", still_to_come ? "then: " : "", rule->second.meaning,
          rule->second.affected, rule->second.action);
  }
  return OkStatus();
}

}  // namespace mete::emulator
