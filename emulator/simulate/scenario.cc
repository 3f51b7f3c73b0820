#include "emulator/simulate/scenario.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "emulator/engine/fault_rules.h"

namespace mete::emulator {
namespace {

using ledger::ComputeMode;

uint32_t Percent(Reader& reader, uint32_t fallback) {
  return static_cast<uint32_t>(std::lround(reader.Number("percent", fallback / 100.0, 0.01, 100) * 100));
}

StatusOr<std::string> ReadFile(const std::string& path, const char* what) {
  std::ifstream in(path);
  if (!in) return NoSuch("{} '{}' cannot be read; give the path of a YAML file", what, path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void ReadNames(Reader& reader, const char* key, std::vector<std::string>* names) {
  if (!reader.Has(key)) return;
  const YAML::Node list = reader.At(key);
  if (!list.IsSequence() || list.size() == 0 || list.size() > 64)
    reader.FailAt(list, fmt::format("{} must be a list of 1 to 64 names", key));
  for (const auto& item : list) {
    if (!item.IsScalar()) reader.FailAt(item, fmt::format("{} must be a list of names", key));
    names->push_back(item.IsScalar() ? item.Scalar() : "");
  }
}

ArrivalSpec ReadArrival(Reader reader) {
  reader.Keys({"closed_ms", "every_ms", "poisson_hz", "trace_ms"});
  ArrivalSpec arrival;
  const int given =
      reader.Has("closed_ms") + reader.Has("every_ms") + reader.Has("poisson_hz") + reader.Has("trace_ms");
  if (given != 1) reader.Fail("give one of closed_ms, every_ms, poisson_hz and trace_ms");
  arrival.think_ns = reader.Ms("closed_ms", 0);
  if (reader.Has("every_ms")) {
    arrival.kind = ArrivalKind::kEvery;
    arrival.period_ns = static_cast<uint64_t>(reader.Number("every_ms", 1, 0.001, kLongestSeconds * 1e3) * 1e6);
  } else if (reader.Has("poisson_hz")) {
    arrival.kind = ArrivalKind::kPoisson;
    arrival.period_ns = static_cast<uint64_t>(1e9 / reader.Number("poisson_hz", 1, 1e-4, 1e6));
  } else if (reader.Has("trace_ms")) {
    arrival.kind = ArrivalKind::kTrace;
    arrival.trace_ms = reader.List<double>("trace_ms", {}, 0, kLongestSeconds * 1e3, 1'000'000);
    if (!std::is_sorted(arrival.trace_ms.begin(), arrival.trace_ms.end())) {
      reader.Fail("trace_ms must not go backwards");
    }
  }
  return arrival;
}

ShareSpec ReadShare(Reader reader, const Workloads& workloads) {
  reader.Keys({"name", "mode", "percent", "weight", "processes", "depth", "streams", "kernel", "on_ms", "off_ms",
               "from_ms", "lock_step", "workload", "arrival", "gpu", "memory", "compute", "instance"});
  ShareSpec share;
  share.name = reader.Text("name");
  if (share.name.empty()) reader.Fail("a share needs a name");
  constexpr ComputeMode kModes[] = {ComputeMode::kWorkConserving, ComputeMode::kHard, ComputeMode::kSoft};
  share.mode = kModes[reader.OneOf("mode", {"work-conserving", "hard", "soft"})];
  share.share = Percent(reader, share.share);
  share.weight = reader.Whole<uint32_t>("weight", 1, 1, ledger::kFullShare);
  share.processes = reader.Whole<uint32_t>("processes", 1, 1, 256);
  share.depth = reader.Whole<uint32_t>("depth", share.depth, 1, 4096);
  share.streams = reader.Whole<uint32_t>("streams", 1, 1, 256);
  share.on_ns = reader.Ms("on_ms", 0);
  share.off_ns = reader.Ms("off_ms", 0);
  share.from_ns = reader.Ms("from_ms", 0);
  if (share.off_ns > 0 && share.on_ns == 0) reader.Fail("off_ms needs on_ms");
  if (reader.Has("kernel")) {
    Reader kernel = reader.In(reader.At("kernel"), "kernel");
    kernel.Keys({"ms", "blocks"});
    share.kernel_ms = kernel.Number("ms", 0, 0.005, 60'000);
    share.blocks = kernel.Whole<uint64_t>("blocks", 0, 1, 1e9);
  }
  share.lock_step = reader.Text("lock_step");
  share.workload = reader.Text("workload");
  if (!share.workload.empty()) {
    const auto found = workloads.find(share.workload);
    if (found == workloads.end()) {
      std::string known;
      for (const auto& [id, workload] : workloads) known += (known.empty() ? "" : ", ") + id;
      reader.FailAt(reader.At("workload"),
                    fmt::format("there is no workload '{}'; there are {}", share.workload, known));
    } else {
      share.steps = found->second.steps;
    }
    if (reader.Has("kernel") || reader.Has("off_ms") || reader.Has("streams") || reader.Has("lock_step")) {
      reader.Fail("a workload takes no kernel, streams, off_ms or lock_step");
    }
  }
  if (!share.lock_step.empty() && share.off_ns > 0) reader.Fail("lock_step takes no off_ms");
  if (reader.Has("arrival")) {
    if (share.workload.empty()) reader.FailAt(reader.At("arrival"), "arrival is of a workload's requests");
    share.arrival = ReadArrival(reader.In(reader.At("arrival"), "arrival"));
  }
  share.instance = reader.Text("instance");
  share.gpu = reader.Text("gpu");
  share.memory = reader.Text("memory");
  share.compute = reader.Text("compute");
  share.planned = !share.gpu.empty() || !share.memory.empty() || !share.compute.empty();
  if (share.planned && (reader.Has("mode") || reader.Has("percent") || reader.Has("weight"))) {
    reader.Fail("memory, compute and gpu are for the plan, which sets mode, percent and weight itself");
  }
  return share;
}

InstanceSpec ReadInstance(Reader reader) {
  reader.Keys({"name", "profile", "gpu", "start", "compute"});
  InstanceSpec instance;
  instance.name = reader.Text("name");
  instance.profile = reader.Text("profile");
  if (instance.name.empty() || instance.profile.empty()) reader.Fail("an instance needs a name and a profile");
  instance.gpu = reader.Whole<uint32_t>("gpu", 0, 0, 63);
  instance.start = reader.Whole<int>("start", -1, 0, 31);
  ReadNames(reader, "compute", &instance.compute);
  return instance;
}

std::optional<uint32_t> FindShare(const Scenario& scenario, const std::string& name) {
  for (uint32_t i = 0; i < scenario.shares.size(); ++i) {
    if (scenario.shares[i].name == name) return i;
  }
  return std::nullopt;
}

uint32_t ShareIndex(const Scenario& scenario, Reader& reader, const char* key) {
  const std::string name = reader.Text(key);
  const std::optional<uint32_t> index = FindShare(scenario, name);
  if (!index) reader.Fail(fmt::format("there is no share '{}'", name));
  return index.value_or(0);
}

void ReadFault(const Scenario& scenario, Reader& reader, EventSpec& event) {
  event.kind = EventKind::kFault;
  std::string word = reader.Text("fault");
  std::string number;
  if (const size_t space = word.find(' '); space != std::string::npos) {
    number = word.substr(space + 1);
    word.resize(space);
  }
  constexpr std::pair<const char*, FaultKind> kKinds[] = {{"xid", FaultKind::kXid},
                                                          {"lost", FaultKind::kLost},
                                                          {"off-bus", FaultKind::kOffBus},
                                                          {"hang", FaultKind::kHang},
                                                          {"slow-memory", FaultKind::kSlowMemory},
                                                          {"throttle", FaultKind::kThrottle}};
  event.clear = word == "clear";
  bool known = event.clear;
  for (const auto& [name, kind] : kKinds) {
    if (word != name) continue;
    known = true;
    event.fault.kind = kind;
  }
  if (!known) {
    reader.FailAt(reader.At("fault"), "fault must be xid N, lost, off-bus, hang, slow-memory, throttle or clear");
  }
  const auto read = std::from_chars(number.data(), number.data() + number.size(), event.fault.xid);
  const bool is_number = !number.empty() && read.ec == std::errc() && read.ptr == number.data() + number.size();
  if ((word == "xid") != is_number)
    reader.FailAt(reader.At("fault"), "an Xid is written as 'xid 79', others without number");
  if (is_number && !BuiltInXidRules().contains(event.fault.xid)) {
    reader.FailAt(reader.At("fault"), fmt::format("Xid {} is none that data/xid.yaml knows", event.fault.xid));
  }
  event.fault.factor = reader.Number("factor", 0.5, 0.01, 1);
  event.fault.gpu = reader.Whole<uint32_t>("gpu", 0, 0, 63);
  event.fault.probability = reader.Number("probability", 0, 0, 1);
  event.of_share = reader.Has("share");
  if (event.of_share) event.share = ShareIndex(scenario, reader, "share");
  if (event.fault.gpu >= std::max<size_t>(scenario.boards.size(), 1)) {
    reader.Fail(fmt::format("there is no GPU {}; boards names {}", event.fault.gpu, scenario.boards.size()));
  }
}

EventSpec ReadEvent(const Scenario& scenario, Reader reader) {
  reader.Keys({"at_ms", "set", "percent", "weight", "kill", "process", "broker", "fault", "share", "gpu", "factor",
               "probability"});
  EventSpec event;
  event.at_ns = reader.Ms("at_ms", 0);
  if (event.at_ns >= scenario.length_ns) {
    reader.FailAt(reader.At("at_ms"), fmt::format("at_ms lies after the end of the run, which lasts {:g} s",
                                                  static_cast<double>(scenario.length_ns) / 1e9));
  }
  if (reader.Has("set")) {
    event.kind = EventKind::kSet;
    event.share = ShareIndex(scenario, reader, "set");
    if (event.share < scenario.shares.size()) {
      event.percent = Percent(reader, scenario.shares[event.share].share);
      event.weight = reader.Whole("weight", scenario.shares[event.share].weight, 1, ledger::kFullShare);
    }
  } else if (reader.Has("kill")) {
    event.kind = EventKind::kKill;
    event.share = ShareIndex(scenario, reader, "kill");
    event.process = reader.Whole<uint32_t>("process", 0, 0, 255);
  } else if (reader.Has("broker")) {
    event.kind = reader.OneOf("broker", {"stop", "start"}) == 0 ? EventKind::kStopBroker : EventKind::kStartBroker;
  } else if (reader.Has("fault")) {
    ReadFault(scenario, reader, event);
  } else {
    reader.Fail("an event needs set, kill, broker or fault");
  }
  return event;
}

ExpectSpec ReadExpect(const Scenario& scenario, Reader reader) {
  reader.Keys({"share", "percent", "points", "at_least", "at_most", "from_ms", "to_ms", "gap_ms", "total", "latency_ms",
               "within", "requests_at_least", "requests_per_s", "turn_us", "alive", "refused"});
  ExpectSpec expect;
  expect.from_ns = reader.Ms("from_ms", 0);
  expect.to_ns = reader.Ms("to_ms", scenario.length_ns);
  if (expect.to_ns <= expect.from_ns || expect.to_ns > scenario.length_ns) {
    reader.Fail("from_ms and to_ms must lie in the run, in this order");
  }
  expect.within = reader.Number("within", 10, 0.01, 1000);
  if (reader.Has("total")) {
    expect.kind = ExpectKind::kTotal;
    expect.at_least = reader.Number("total", 97, 0, 200);
    return expect;
  }
  if (reader.Has("turn_us")) {
    expect.kind = ExpectKind::kTurn;
    expect.value = reader.Number("turn_us", 0, 1, 1e9);
    return expect;
  }
  expect.share = ShareIndex(scenario, reader, "share");
  if (reader.Has("latency_ms")) {
    expect.kind = ExpectKind::kLatency;
    expect.value = reader.Number("latency_ms", 0, 1e-3, 1e9);
  } else if (reader.Has("requests_at_least")) {
    expect.kind = ExpectKind::kRequests;
    expect.value = reader.Number("requests_at_least", 0, 0, 1e12);
  } else if (reader.Has("requests_per_s")) {
    expect.kind = ExpectKind::kRate;
    expect.value = reader.Number("requests_per_s", 0, 1e-3, 1e9);
  } else if (reader.Has("alive")) {
    expect.kind = ExpectKind::kAlive;
    expect.value = reader.Number("alive", 0, 0, 256);
  } else if (reader.Has("refused")) {
    expect.kind = ExpectKind::kRefused;
    expect.value = reader.Flag("refused", true) ? 1 : 0;
  } else if (reader.Has("gap_ms")) {
    expect.kind = ExpectKind::kGap;
    expect.gap_ns = reader.Ms("gap_ms", 0);
  } else if (reader.Has("percent")) {
    expect.percent = reader.Number("percent", 0, 0, 100);
    expect.points = reader.Number("points", 2, 0, 100);
  } else {
    expect.kind = ExpectKind::kBounds;
    expect.at_least = reader.Number("at_least", 0, 0, 100);
    expect.at_most = reader.Number("at_most", 100, 0, 100);
    if (!reader.Has("at_least") && !reader.Has("at_most")) {
      reader.Fail(
          "expects nothing: give percent, at_least, at_most, gap_ms, total, latency_ms, requests_at_least, "
          "requests_per_s, turn_us, alive or refused");
    }
  }
  return expect;
}

void ReadScenarioNode(const YAML::Node& root, const std::string& what, Scenario* scenario, Status* status) {
  Reader reader(root, what, "", status);
  reader.Keys({"name", "purpose", "seconds", "seed", "notice_us", "broker_wake_us", "waiter_wake_us", "launch_us",
               "gates", "mechanism", "boards", "more_boards", "time_slice_us", "workloads", "sweep", "instances",
               "shares", "events", "expect"});
  scenario->name = reader.Text("name");
  scenario->purpose = reader.Text("purpose");
  scenario->length_ns = static_cast<uint64_t>(reader.Number("seconds", 10, 0.01, kLongestSeconds) * 1e9);
  scenario->seed = reader.Whole<uint64_t>("seed", 1, 0, 1e15);
  scenario->notice = reader.Microseconds("notice_us", scenario->notice);
  scenario->broker_wake = reader.Microseconds("broker_wake_us", scenario->broker_wake);
  scenario->waiter_wake = reader.Microseconds("waiter_wake_us", scenario->waiter_wake);
  scenario->launch_ns = static_cast<uint64_t>(reader.Number("launch_us", 5, 0.1, 1e6) * 1e3);
  scenario->mechanism =
      static_cast<SharingMechanism>(reader.OneOf("mechanism", {"intercept", "time-slicing", "exclusive", "mig"}));
  scenario->gates = reader.Flag("gates", scenario->mechanism == SharingMechanism::kIntercept);
  scenario->time_slice_ns = static_cast<uint64_t>(reader.Number("time_slice_us", 0, 10, 1e6) * 1e3);
  ReadNames(reader, "boards", &scenario->boards);
  scenario->more_boards = reader.Text("more_boards");
  if (!scenario->more_boards.empty()) {
    scenario->more_boards = (std::filesystem::path(what).parent_path() / scenario->more_boards).string();
  }
  std::vector<std::string> files;
  ReadNames(reader, "workloads", &files);
  Workloads workloads = BuiltInWorkloads();
  for (const std::string& name : files) {
    const std::string path = (std::filesystem::path(what).parent_path() / name).string();
    const StatusOr<std::string> text = ReadFile(path, "workloads file");
    const Status read = text.ok() ? ReadWorkloads(*text, path, &workloads) : text.status();
    if (!read.ok() && status->ok()) *status = read;
  }
  if (reader.Has("sweep")) {
    Reader sweep = reader.In(reader.At("sweep"), "sweep");
    sweep.Keys({"kernel_ms", "blocks", "processes"});
    scenario->sweep_kernel_ms = sweep.List("kernel_ms", scenario->sweep_kernel_ms, 0.005, 60'000);
    scenario->sweep_blocks = sweep.List("blocks", scenario->sweep_blocks, 1, 1e9);
    scenario->sweep_processes = sweep.List("processes", scenario->sweep_processes, 1, 256);
  }
  const bool mig = scenario->mechanism == SharingMechanism::kMig;
  if (mig && (scenario->boards.empty() || scenario->gates)) reader.Fail("mechanism mig needs boards, and has no gates");
  if (!mig && reader.Has("instances")) reader.FailAt(reader.At("instances"), "instances need mechanism mig");
  reader.Each("instances", [&](Reader item) { scenario->instances.push_back(ReadInstance(item)); });
  if (scenario->instances.size() > 64) reader.Fail("has more than 64 instances");
  reader.Each("shares", [&](Reader item) {
    ShareSpec share = ReadShare(item, workloads);
    if (mig ? share.instance.empty() || share.planned : !share.instance.empty()) {
      item.Fail("with mechanism mig a share names its instance, and nothing that a plan decides; without it none");
    }
    if (share.planned && scenario->boards.empty()) item.Fail("memory, compute and gpu need boards");
    if (!share.lock_step.empty() && !scenario->boards.empty()) item.Fail("lock_step is on one GPU, without boards");
    if (FindShare(*scenario, share.name)) item.Fail(fmt::format("two shares are called '{}'", share.name));
    scenario->shares.push_back(std::move(share));
  });
  if (scenario->shares.empty() || scenario->shares.size() > 64) {
    reader.Fail("needs 1 to 64 shares");
    return;
  }
  reader.Each("events", [&](Reader item) { scenario->events.push_back(ReadEvent(*scenario, std::move(item))); });
  reader.Each("expect", [&](Reader item) { scenario->expect.push_back(ReadExpect(*scenario, std::move(item))); });
}

}  // namespace

StatusOr<Scenario> ParseScenario(const std::string& text, std::string_view what) {
  Scenario scenario;
  Status status = OkStatus();
  try {
    ReadScenarioNode(YAML::Load(text), std::string(what), &scenario, &status);
  } catch (const YAML::Exception& error) {  // the library's; not let out
    return Usage("{}:{}: not YAML: {}", what, error.mark.line + 1, error.msg);
  }
  if (!status.ok()) return status;
  return scenario;
}

StatusOr<Scenario> ReadScenario(const std::string& path) {
  METE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "scenario"));
  return ParseScenario(text, path);
}

std::vector<Case> Cases(const Scenario& scenario) {
  const auto unset = [&](auto&& has) { return std::any_of(scenario.shares.begin(), scenario.shares.end(), has); };
  std::vector<double> lengths = scenario.sweep_kernel_ms;
  std::vector<uint64_t> grids = scenario.sweep_blocks;
  if (!unset([](const ShareSpec& share) { return share.kernel_ms == 0 && share.workload.empty(); })) lengths = {0};
  if (!unset([](const ShareSpec& share) { return share.blocks == 0 && share.workload.empty(); })) grids = {0};
  std::vector<std::optional<uint32_t>> processes(scenario.sweep_processes.begin(), scenario.sweep_processes.end());
  if (processes.empty()) processes = {std::nullopt};
  std::vector<Case> cases;
  for (const double ms : lengths) {
    for (const uint64_t blocks : grids) {
      for (const std::optional<uint32_t> count : processes) {
        Case one = {ms, blocks, count, scenario};
        for (ShareSpec& share : one.scenario.shares) {
          if (share.kernel_ms == 0) share.kernel_ms = ms;
          if (share.blocks == 0) share.blocks = blocks;
        }
        if (count) one.scenario.shares[0].processes = *count;
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

}  // namespace mete::emulator
