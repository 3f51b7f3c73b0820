// From words to a request.
#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "emulator/smi/command.h"
#include "emulator/smi/details.h"
#include "emulator/smi/monitor.h"
#include "emulator/smi/words.h"

namespace mete::emulator::smi {

namespace {

constexpr int kDefaultLoopMs = 5000;

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool ParseNumber(const std::string& text, uint32_t most, uint32_t* number) {
  return ParseWhole(text, number) && *number <= most;
}

// Seconds or milliseconds from 1 on; seconds may have a part for the monitors.
bool ParseMs(const std::string& text, int unit_ms, std::optional<int>* ms) {
  uint32_t value = 0;
  if (!ParseNumber(text, 1'000'000, &value) || value < 1) return false;
  *ms = static_cast<int>(value) * unit_ms;
  return true;
}

// "1200,600": two numbers.
bool ParsePair(const std::string& text, uint32_t* first, uint32_t* second) {
  const size_t comma = text.find(',');
  return comma != std::string::npos && ParseNumber(text.substr(0, comma), 1'000'000, first) &&
         ParseNumber(text.substr(comma + 1), 1'000'000, second);
}

// A word of `names`, in either case, or its place.
bool ParseWord(const std::string& text, const std::vector<const char*>& names, uint64_t* value) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (strcasecmp(text.c_str(), names[i]) == 0 || text == std::to_string(i)) {
      *value = i;
      return true;
    }
  }
  return false;
}

std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (comma != 0) words.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return words;
}

bool OnlyOf(const std::string& text, std::string_view letters) {
  return !text.empty() && text.size() <= 16 && text.find_first_not_of(letters) == std::string::npos;
}

enum class Takes { kNothing, kValue, kNumberPerhaps, kWordPerhaps };

// One option of a command: `apply` returns "" or what is wrong with the value.
struct Option {
  const char *name, *other;  // -i, --id; null where there is one spelling
  Takes takes;
  std::string (*apply)(const std::string& value, Request* request);
};

std::string Ids(const std::string& value, Request* request) {
  for (std::string& id : SplitList(value)) request->gpus.push_back(std::move(id));
  return request->gpus.empty() ? "names no GPU" : "";
}
std::string File(const std::string& value, Request* request) {
  request->file = value;
  return value.empty() ? "names no file" : "";
}

template <QueryTable kTable>
std::string Fields(const std::string& value, Request* request) {
  request->action = Action::kQuery;
  request->table = kTable;
  request->fields = value;
  return "";
}
template <QueryTable kTable>
std::string HelpFields(const std::string&, Request* request) {
  request->action = Action::kHelpFields;
  request->table = kTable;
  return "";
}
template <Action kAction>
std::string Do(const std::string&, Request* request) {
  request->action = kAction;
  return "";
}
template <SmiSetting kSetting>
std::string Set(const std::string&, Request* request) {
  request->action = Action::kSet;
  request->changes.push_back({kSetting, 0});
  return "";
}
template <SmiSetting kSetting>
std::string SetFlag(const std::string& value, Request* request) {
  Change change = {kSetting, 0};
  if (!ParseWord(value, {"DISABLED", "ENABLED"}, &change.value)) return "0 or 1 is wanted";
  request->action = Action::kSet;
  request->changes.push_back(change);
  return "";
}

std::string ComputeMode(const std::string& value, Request* request) {
  Change change = {SmiSetting::kComputeMode, 0};
  if (!ParseWord(value, {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"}, &change.value)) {
    return "DEFAULT, EXCLUSIVE_PROCESS or PROHIBITED is wanted, or 0, 3, 2";
  }
  request->action = Action::kSet;
  request->changes.push_back(change);
  return "";
}

std::string PowerLimit(const std::string& value, Request* request) {
  char* end = nullptr;
  const double watts = strtod(value.c_str(), &end);
  if (value.empty() || end != value.c_str() + value.size() || !(watts > 0) || watts > 100'000)
    return "watts are wanted";
  request->action = Action::kSet;
  request->changes.push_back({SmiSetting::kPowerLimit, static_cast<uint64_t>(std::lround(watts * 1000))});
  return "";
}

std::string ApplicationClocks(const std::string& value, Request* request) {
  uint32_t memory = 0, sm = 0;
  if (!ParsePair(value, &memory, &sm)) return "memory and graphics clock in MHz are wanted, such as 1215,1410";
  request->action = Action::kSet;
  request->changes.push_back({SmiSetting::kApplicationClocks, uint64_t{memory} << 32 | sm});
  return "";
}

std::string LockedClocks(const std::string& value, Request* request) {
  uint32_t least = 0, most = 0;
  if (!ParsePair(value, &least, &most)) {
    if (!ParseNumber(value, 1'000'000, &least)) return "one or two clocks in MHz are wanted, such as 600,1200";
    most = least;
  }
  request->action = Action::kSet;
  request->changes.push_back({SmiSetting::kLockedClocks, uint64_t{most} << 32 | least});
  return "";
}

std::string ClearEcc(const std::string& value, Request* request) {
  Change change = {SmiSetting::kClearEcc, 0};
  if (!ParseWord(value, {"VOLATILE", "AGGREGATE"}, &change.value)) return "0 (volatile) or 1 (aggregate) is wanted";
  request->action = Action::kSet;
  request->changes.push_back(change);
  return "";
}

std::string TimeSlice(const std::string& value, Request* request) {
  Change change = {SmiSetting::kTimeSlice, 0};
  if (!ParseWord(value, {"DEFAULT", "SHORT", "MEDIUM", "LONG"}, &change.value)) {
    return "0 (default), 1 (short), 2 (medium) or 3 (long) is wanted";
  }
  request->action = Action::kSet;
  request->changes.push_back(change);
  return "";
}

std::string MigMode(const std::string& value, Request* request) {
  uint64_t on = 0;
  if (!ParseWord(value, {"DISABLED", "ENABLED"}, &on)) return "0 or 1 is wanted";
  request->action = Action::kSet;
  request->mig_mode = on != 0;
  return "";
}

template <MigAction kAction>
std::string DoMig(const std::string& value, Request* request) {
  if (request->mig.action != MigAction::kNone) return "one thing at a time";
  request->mig.action = kAction;
  if (kAction != MigAction::kCreateGpuInstances && value.empty()) return "";
  return ParseMigSpecs(value, &request->mig.specs) ? ""
                                                   : "profiles are wanted, such as 9 or 3g.20gb or 19:4, with commas";
}
template <std::vector<uint32_t> MigRequest::*kList>
std::string MigIds(const std::string& value, Request* request) {
  for (const std::string& word : SplitList(value)) {
    if (!ParseNumber(word, UINT32_MAX, &(request->mig.*kList).emplace_back())) return "numbers are wanted, with commas";
  }
  return (request->mig.*kList).empty() ? "names no instance" : "";
}
std::string DefaultCompute(const std::string&, Request* request) {
  request->mig.default_compute = true;
  return "";
}

std::string Format(const std::string& value, Request* request) {
  CsvFormat format;
  if (!ParseFormat(value, &format)) return "csv is wanted, with noheader and nounits if you like";
  request->format = format;
  return "";
}

std::string Sections(const std::string& value, Request* request) {
  request->sections = SplitList(value);
  for (std::string& section : request->sections) {
    std::transform(section.begin(), section.end(), section.begin(), [](unsigned char c) { return toupper(c); });
    const auto& known = DetailSections();
    if (std::find(known.begin(), known.end(), section) == known.end()) return "there is no section " + section;
  }
  return request->sections.empty() ? "names no section" : "";
}

std::string Loop(const std::string& value, Request* request) {
  request->loop_ms = kDefaultLoopMs;
  return value.empty() || ParseMs(value, 1000, &request->loop_ms) ? "" : "whole seconds are wanted, from 1 on";
}
std::string LoopMs(const std::string& value, Request* request) {
  return ParseMs(value, 1, &request->loop_ms) ? "" : "whole milliseconds are wanted, from 1 on";
}
std::string Count(const std::string& value, Request* request) {
  uint32_t count = 0;
  if (!ParseNumber(value, 1'000'000'000, &count) || count == 0) return "a number of rounds is wanted, from 1 on";
  request->count = static_cast<int>(count);
  return "";
}
std::string When(const std::string& value, Request* request) {
  request->when = value;
  return OnlyOf(value, "DT") ? "" : "D (date) or T (time) is wanted";
}
std::string Metrics(const std::string& value, Request* request) {
  const bool devices = request->action == Action::kDeviceMonitor;
  request->metrics = value;
  return OnlyOf(value, devices ? kDeviceMetrics : kProcessMetrics)
             ? ""
             : "letters of " + std::string(devices ? kDeviceMetrics : kProcessMetrics) + " are wanted";
}
std::string PeerKind(const std::string& value, Request* request) {
  request->action = Action::kPeers;
  request->peer_kind = value.empty() ? 'r' : value[0];
  return value.size() == 1 && OnlyOf(value, "rwnap") ? "" : "one of r, w, n, a, p is wanted";
}
std::string Folder(const std::string& value, Request* request) {
  request->folder = value;
  return value.empty() ? "the path of a cgroup is wanted" : "";
}
// In MiB, or "max".
template <uint64_t SmiLimits::*kField>
std::string Limit(const std::string& value, Request* request) {
  uint32_t mib = 0;
  if (value != "max" && !ParseNumber(value, 1u << 30, &mib)) return "MiB, or max, is wanted";
  request->limits.*kField = value == "max" ? UINT64_MAX : uint64_t{mib} << 20;
  return "";
}
std::string Ignored(const std::string&, Request*) { return ""; }

constexpr Option kOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"--help-query-gpu", nullptr, Takes::kNothing, HelpFields<QueryTable::kGpus>},
    {"--help-query-compute-apps", nullptr, Takes::kNothing, HelpFields<QueryTable::kComputeApps>},
    {"--help-query-accounted-apps", nullptr, Takes::kNothing, HelpFields<QueryTable::kAccountedApps>},
    {"--help-query-remapped-rows", nullptr, Takes::kNothing, HelpFields<QueryTable::kRemappedRows>},
    {"--help-query-supported-clocks", nullptr, Takes::kNothing, HelpFields<QueryTable::kSupportedClocks>},
    {"-L", "--list-gpus", Takes::kNothing, Do<Action::kList>},
    {"-q", "--query", Takes::kNothing, Do<Action::kDetails>},
    {"-x", "--xml-format", Takes::kNothing,
     [](const std::string&, Request* request) {
       request->xml = true;
       return std::string();
     }},
    {"--dtd", nullptr, Takes::kNothing, Ignored},
    {"-d", "--display", Takes::kValue, Sections},
    {"--query-gpu", nullptr, Takes::kValue, Fields<QueryTable::kGpus>},
    {"--query-compute-apps", nullptr, Takes::kValue, Fields<QueryTable::kComputeApps>},
    {"--query-accounted-apps", nullptr, Takes::kValue, Fields<QueryTable::kAccountedApps>},
    {"--query-remapped-rows", nullptr, Takes::kValue, Fields<QueryTable::kRemappedRows>},
    {"--query-supported-clocks", nullptr, Takes::kValue, Fields<QueryTable::kSupportedClocks>},
    {"--format", nullptr, Takes::kValue, Format},
    {"-i", "--id", Takes::kValue, Ids},
    {"-f", "--filename", Takes::kValue, File},
    {"-l", "--loop", Takes::kNumberPerhaps, Loop},
    {"-lms", "--loop-ms", Takes::kValue, LoopMs},
    {"-c", "--compute-mode", Takes::kValue, ComputeMode},
    {"-pm", "--persistence-mode", Takes::kValue, SetFlag<SmiSetting::kPersistence>},
    {"-pl", "--power-limit", Takes::kValue, PowerLimit},
    {"-ac", "--applications-clocks", Takes::kValue, ApplicationClocks},
    {"-rac", "--reset-applications-clocks", Takes::kNothing, Set<SmiSetting::kResetApplicationClocks>},
    {"-lgc", "--lock-gpu-clocks", Takes::kValue, LockedClocks},
    {"-rgc", "--reset-gpu-clocks", Takes::kNothing, Set<SmiSetting::kResetLockedClocks>},
    {"-e", "--ecc-config", Takes::kValue, SetFlag<SmiSetting::kEcc>},
    {"-p", "--reset-ecc-errors", Takes::kValue, ClearEcc},
    {"-am", "--accounting-mode", Takes::kValue, SetFlag<SmiSetting::kAccounting>},
    {"-caa", "--clear-accounted-apps", Takes::kNothing, Set<SmiSetting::kClearAccounting>},
    {"-r", "--gpu-reset", Takes::kNothing, Set<SmiSetting::kReset>},
    {"-mig", "--multi-instance-gpu", Takes::kValue, MigMode},
};
constexpr Option kMigOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-i", "--id", Takes::kValue, Ids},
    {"-gi", "--gpu-instance-id", Takes::kValue, MigIds<&MigRequest::gpu_instances>},
    {"-ci", "--compute-instance-id", Takes::kValue, MigIds<&MigRequest::compute_instances>},
    {"-lgip", "--list-gpu-instance-profiles", Takes::kNothing, DoMig<MigAction::kGpuProfiles>},
    {"-lgipp", "--list-gpu-instance-possible-placements", Takes::kNothing, DoMig<MigAction::kGpuPlacements>},
    {"-lgi", "--list-gpu-instances", Takes::kNothing, DoMig<MigAction::kGpuInstances>},
    {"-cgi", "--create-gpu-instance", Takes::kValue, DoMig<MigAction::kCreateGpuInstances>},
    {"-C", "--default-compute-instance", Takes::kNothing, DefaultCompute},
    {"-dgi", "--destroy-gpu-instance", Takes::kNothing, DoMig<MigAction::kDestroyGpuInstances>},
    {"-lcip", "--list-compute-instance-profiles", Takes::kNothing, DoMig<MigAction::kComputeProfiles>},
    {"-lcipp", "--list-compute-instance-possible-placements", Takes::kNothing, DoMig<MigAction::kComputePlacements>},
    {"-lci", "--list-compute-instances", Takes::kNothing, DoMig<MigAction::kComputeInstances>},
    {"-cci", "--create-compute-instance", Takes::kWordPerhaps, DoMig<MigAction::kCreateComputeInstances>},
    {"-dci", "--destroy-compute-instance", Takes::kNothing, DoMig<MigAction::kDestroyComputeInstances>},
};
constexpr Option kMonitorOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-i", "--id", Takes::kValue, Ids},
    {"-d", "--delay", Takes::kValue, Loop},
    {"-c", "--count", Takes::kValue, Count},
    {"-s", "--select", Takes::kValue, Metrics},
    {"-o", "--options", Takes::kValue, When},
    {"-f", "--filename", Takes::kValue, File},
};
constexpr Option kTopologyOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-m", "--matrix", Takes::kNothing, Do<Action::kTopology>},
    {"-p2p", "--p2pstatus", Takes::kValue, PeerKind},
};
constexpr Option kPolicyOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-i", "--id", Takes::kValue, Ids},
    {"-l", "--list", Takes::kNothing, Do<Action::kComputePolicy>},
    {"--set-timeslice", nullptr, Takes::kValue, TimeSlice},
};
constexpr Option kLimitOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-i", "--id", Takes::kValue, Ids},
    {"-n", "--namespace", Takes::kValue, Folder},
    {"--get", nullptr, Takes::kNothing, Do<Action::kReadLimits>},
    {"--set", nullptr, Takes::kNothing, Do<Action::kSetLimits>},
    {"--soft-limit", nullptr, Takes::kValue, Limit<&SmiLimits::soft>},
    {"--hard-limit", nullptr, Takes::kValue, Limit<&SmiLimits::hard>},
};
constexpr Option kLinkOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-i", "--id", Takes::kValue, Ids},
    {"-s", "--status", Takes::kNothing, Do<Action::kLinkStatus>},
};
constexpr Option kDrainOptions[] = {
    {"-h", "--help", Takes::kNothing, Do<Action::kHelp>},
    {"-p", "--pciid", Takes::kValue, Ids},
    {"-q", "--query", Takes::kNothing, Do<Action::kDrainState>},
};

Exit Bad(std::string* message, const std::string& why) {
  *message = why;
  return kInvalidArgument;
}

Exit ParseOptions(const Option* options, size_t count, const std::vector<std::string>& words, size_t first,
                  Request* request, std::string* message) {
  for (size_t i = first; i < words.size(); ++i) {
    const size_t equals = words[i].rfind("--", 0) == 0 ? words[i].find('=') : std::string::npos;
    const std::string name = words[i].substr(0, equals);
    const Option* option = std::find_if(options, options + count, [&](const Option& known) {
      return name == known.name || (known.other != nullptr && name == known.other);
    });
    if (option == options + count) {
      return Bad(message, "Option " + name + " is not recognized. Run 'nvidia-smi -h'");
    }
    std::string value;
    if (equals != std::string::npos) {
      if (option->takes == Takes::kNothing) return Bad(message, "Option " + name + " takes no value");
      value = words[i].substr(equals + 1);
    } else if (option->takes == Takes::kValue) {
      if (i + 1 == words.size()) return Bad(message, "Option " + name + " needs a value");
      value = words[++i];
    } else if (i + 1 < words.size()) {
      const bool word = option->takes == Takes::kWordPerhaps && words[i + 1].rfind('-', 0) != 0;
      if (word || (option->takes == Takes::kNumberPerhaps && IsNumber(words[i + 1]))) value = words[++i];
    }
    const std::string wrong = option->apply(value, request);
    if (!wrong.empty()) return Bad(message, std::string(name).append(" ").append(value).append(": ").append(wrong));
    if (request->action == Action::kHelp) return kOk;
  }
  return kOk;
}

template <size_t N>
Exit ParseOptions(const Option (&options)[N], const std::vector<std::string>& words, size_t first, Request* request,
                  std::string* message) {
  return ParseOptions(options, N, words, first, request, message);
}

Exit ParseMonitor(const std::vector<std::string>& words, Action action, Request* request, std::string* message) {
  request->action = action;
  request->loop_ms = 1000;
  request->metrics = action == Action::kDeviceMonitor ? "puc" : "u";
  return ParseOptions(kMonitorOptions, words, 1, request, message);
}

}  // namespace

Exit ParseRequest(const std::vector<std::string>& words, Request* request, std::string* message) {
  const std::string first = words.empty() ? "" : words[0];
  const auto unless = [&](Exit code, bool asked, const char* what) {
    return code == kOk && !asked && request->action != Action::kHelp ? Bad(message, what) : code;
  };
  if (first == "dmon") return ParseMonitor(words, Action::kDeviceMonitor, request, message);
  if (first == "pmon") return ParseMonitor(words, Action::kProcessMonitor, request, message);
  if (first == "topo") {
    const Exit code = ParseOptions(kTopologyOptions, words, 1, request, message);
    return unless(code, request->action != Action::kTable, "topo: -m or -p2p is wanted");
  }
  if (first == "compute-policy") {
    request->action = Action::kComputePolicy;
    return ParseOptions(kPolicyOptions, words, 1, request, message);
  }
  if (first == "memory-limits") {
    const Exit code = ParseOptions(kLimitOptions, words, 1, request, message);
    return unless(code, request->action != Action::kTable && !request->folder.empty(),
                  "memory-limits: --get or --set, and -n with the path of a cgroup, are wanted");
  }
  if (first == "nvlink") {
    const Exit code = ParseOptions(kLinkOptions, words, 1, request, message);
    return unless(code, request->action == Action::kLinkStatus, "nvlink: -s is wanted; nothing else of it is built");
  }
  if (first == "drain") {
    const Exit code = ParseOptions(kDrainOptions, words, 1, request, message);
    return unless(code, request->action == Action::kDrainState && !request->gpus.empty(),
                  "drain: -p with a PCI bus id and -q are wanted; nothing else of it is built");
  }
  if (first == "mig") {
    request->action = Action::kMig;
    const Exit code = ParseOptions(kMigOptions, words, 1, request, message);
    if (code != kOk || request->action == Action::kHelp) return code;
    const MigAction action = request->mig.action;
    if (action == MigAction::kNone) return Bad(message, "mig: one of -lgip, -lgi, -cgi … is wanted; see nvidia-smi -h");
    if (request->mig.default_compute && action != MigAction::kCreateGpuInstances) {
      return Bad(message, "mig: -C belongs to -cgi");
    }
    return kOk;
  }
  for (const char* later : {"vgpu", "daemon", "stats", "clocks", "encodersessions", "fbcsessions", "boost-slider",
                            "power-hint", "conf-compute", "power-smoothing", "gpm", "pci", "c2c", "power-profiles"}) {
    if (first == later) {
      *message = "'" + first + "' is a command of nvidia-smi that the emulated one has not built yet";
      return kNotBuilt;
    }
  }
  const Exit code = ParseOptions(kOptions, words, 0, request, message);
  if (code != kOk) return code;
  if (request->action == Action::kQuery && !request->format) return Bad(message, "a query needs --format=csv");
  if (request->action != Action::kDetails && (!request->sections.empty() || request->xml)) {
    return Bad(message, "-d and -x belong to -q");
  }
  if (request->mig_mode && !request->changes.empty()) return Bad(message, "-mig goes with no other change");
  const bool reset = std::any_of(request->changes.begin(), request->changes.end(),
                                 [](const Change& change) { return change.setting == SmiSetting::kReset; });
  if (reset && request->changes.size() > 1) return Bad(message, "--gpu-reset goes with no other change");
  return kOk;
}

}  // namespace mete::emulator::smi
