#include "emulator/simulate/scenario.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <sstream>

namespace mete::emulator {
namespace {

using ledger::ComputeMode;

constexpr double kLongestSeconds = 3600;

// Reads one mapping: every key must be known, every value of its type and range. The first error is kept.
class Reader {
 public:
  Reader(const YAML::Node& node, std::string where, Status* status)
      : node_(node), where_(std::move(where)), status_(status) {
    if (!node_.IsMap()) Fail(fmt::format("{}: must be a mapping", where_));
  }

  void Keys(std::initializer_list<const char*> known) {
    if (!node_.IsMap()) return;
    for (const auto& item : node_) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "?";
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        Fail(fmt::format("{}: unknown key '{}'; known are {}", where_, key, fmt::join(known, ", ")));
      }
    }
  }

  bool Has(const char* key) const { return node_.IsMap() && node_[key].IsDefined(); }
  YAML::Node At(const char* key) const { return node_[key]; }

  double Number(const char* key, double fallback, double least, double most) {
    if (!Has(key)) return fallback;
    return Value(node_[key], key, least, most);
  }
  template <typename Integer>
  Integer Whole(const char* key, Integer fallback, double least, double most) {
    const double value = Number(key, static_cast<double>(fallback), least, most);
    if (value != std::floor(value)) Fail(fmt::format("{}: {} must be a whole number", where_, key));
    return static_cast<Integer>(value);
  }
  uint64_t Ms(const char* key, uint64_t fallback) {
    return static_cast<uint64_t>(Number(key, static_cast<double>(fallback) / 1e6, 0, kLongestSeconds * 1e3) * 1e6);
  }
  std::string Text(const char* key) {
    if (!Has(key)) return {};
    if (!node_[key].IsScalar()) Fail(fmt::format("{}: {} must be a text", where_, key));
    return node_[key].IsScalar() ? node_[key].Scalar() : std::string();
  }
  bool Flag(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    const std::string text = Text(key);
    if (text != "true" && text != "false") Fail(fmt::format("{}: {} must be true or false", where_, key));
    return text == "true";
  }
  Range Microseconds(const char* key, Range fallback) {
    if (!Has(key)) return fallback;
    const YAML::Node value = node_[key];
    if (!value.IsSequence() || value.size() != 2) {
      Fail(fmt::format("{}: {} must be [least, most]", where_, key));
      return fallback;
    }
    const Range range = {static_cast<uint64_t>(Value(value[0], key, 0, 1e6) * 1e3),
                         static_cast<uint64_t>(Value(value[1], key, 0, 1e6) * 1e3)};
    if (range.least > range.most) Fail(fmt::format("{}: {} must be [least, most]", where_, key));
    return range;
  }
  template <typename Number>
  std::vector<Number> List(const char* key, std::vector<Number> fallback, double least, double most) {
    if (!Has(key)) return fallback;
    if (!node_[key].IsSequence() || node_[key].size() == 0 || node_[key].size() > 64) {
      Fail(fmt::format("{}: {} must be a list of 1 to 64 numbers", where_, key));
      return fallback;
    }
    std::vector<Number> list;
    for (const auto& item : node_[key]) list.push_back(static_cast<Number>(Value(item, key, least, most)));
    return list;
  }

  void Fail(const std::string& message) {
    if (status_->ok()) *status_ = Usage("{}", message);
  }
  const std::string& where() const { return where_; }

 private:
  double Value(const YAML::Node& value, const char* key, double least, double most) {
    double number = least;
    if (!value.IsScalar() || !YAML::convert<double>::decode(value, number) || !(number >= least && number <= most)) {
      Fail(fmt::format("{}: {} must be a number from {} to {}", where_, key, least, most));
      return least;
    }
    return number;
  }

  YAML::Node node_;
  std::string where_;
  Status* status_;
};

uint32_t Percent(Reader& reader, uint32_t fallback) {
  return static_cast<uint32_t>(std::lround(reader.Number("percent", fallback / 100.0, 0.01, 100) * 100));
}

ShareSpec ReadShare(Reader reader, Status* status) {
  reader.Keys(
      {"name", "mode", "percent", "weight", "processes", "depth", "streams", "kernel", "on_ms", "off_ms", "from_ms"});
  ShareSpec share;
  share.name = reader.Text("name");
  if (share.name.empty()) reader.Fail(fmt::format("{}: a share needs a name", reader.where()));
  const std::string mode = reader.Text("mode");
  if (mode == "hard") {
    share.mode = ComputeMode::kHard;
  } else if (mode == "soft") {
    share.mode = ComputeMode::kSoft;
  } else if (!mode.empty() && mode != "work-conserving") {
    reader.Fail(fmt::format("{}: mode '{}' must be hard, soft or work-conserving", reader.where(), mode));
  }
  share.share = Percent(reader, share.share);
  share.weight = reader.Whole<uint32_t>("weight", 1, 1, ledger::kFullShare);
  share.processes = reader.Whole<uint32_t>("processes", 1, 1, 256);
  share.depth = reader.Whole<uint32_t>("depth", share.depth, 1, 4096);
  share.streams = reader.Whole<uint32_t>("streams", 1, 1, 256);
  share.on_ns = reader.Ms("on_ms", 0);
  share.off_ns = reader.Ms("off_ms", 0);
  share.from_ns = reader.Ms("from_ms", 0);
  if (share.off_ns > 0 && share.on_ns == 0) reader.Fail(fmt::format("{}: off_ms needs on_ms", reader.where()));
  if (reader.Has("kernel")) {
    Reader kernel(reader.At("kernel"), reader.where() + ".kernel", status);
    kernel.Keys({"ms", "blocks"});
    share.kernel_ms = kernel.Number("ms", 0, 0.005, 60'000);
    share.blocks = kernel.Whole<uint64_t>("blocks", 0, 1, 1e9);
  }
  return share;
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
  if (!index) reader.Fail(fmt::format("{}: there is no share '{}'", reader.where(), name));
  return index.value_or(0);
}

EventSpec ReadEvent(const Scenario& scenario, Reader reader) {
  reader.Keys({"at_ms", "set", "percent", "weight", "kill", "process", "broker"});
  EventSpec event;
  event.at_ns = reader.Ms("at_ms", 0);
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
    const std::string what = reader.Text("broker");
    if (what != "stop" && what != "start") reader.Fail(fmt::format("{}: broker: stop or start", reader.where()));
    event.kind = what == "stop" ? EventKind::kStopBroker : EventKind::kStartBroker;
  } else {
    reader.Fail(fmt::format("{}: an event needs set, kill or broker", reader.where()));
  }
  return event;
}

ExpectSpec ReadExpect(const Scenario& scenario, Reader reader) {
  reader.Keys({"share", "percent", "points", "at_least", "at_most", "from_ms", "to_ms", "gap_ms", "total"});
  ExpectSpec expect;
  expect.from_ns = reader.Ms("from_ms", 0);
  expect.to_ns = reader.Ms("to_ms", scenario.length_ns);
  if (expect.to_ns <= expect.from_ns || expect.to_ns > scenario.length_ns) {
    reader.Fail(fmt::format("{}: from_ms and to_ms must lie in the run, in this order", reader.where()));
  }
  if (reader.Has("total")) {
    expect.kind = ExpectKind::kTotal;
    expect.at_least = reader.Number("total", 97, 0, 200);
    return expect;
  }
  expect.share = ShareIndex(scenario, reader, "share");
  if (reader.Has("gap_ms")) {
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
      reader.Fail(fmt::format("{}: expects nothing: give percent, at_least, at_most, gap_ms or total", reader.where()));
    }
  }
  return expect;
}

void ReadScenarioNode(const YAML::Node& root, const std::string& what, Scenario* scenario, Status* status) {
  Reader reader(root, what, status);
  reader.Keys({"name", "purpose", "seconds", "seed", "notice_us", "broker_wake_us", "waiter_wake_us", "launch_us",
               "gates", "sweep", "shares", "events", "expect"});
  scenario->name = reader.Text("name");
  scenario->purpose = reader.Text("purpose");
  scenario->length_ns = static_cast<uint64_t>(reader.Number("seconds", 10, 0.01, kLongestSeconds) * 1e9);
  scenario->seed = reader.Whole<uint64_t>("seed", 1, 0, 1e15);
  scenario->notice = reader.Microseconds("notice_us", scenario->notice);
  scenario->broker_wake = reader.Microseconds("broker_wake_us", scenario->broker_wake);
  scenario->waiter_wake = reader.Microseconds("waiter_wake_us", scenario->waiter_wake);
  scenario->launch_ns = static_cast<uint64_t>(reader.Number("launch_us", 5, 0.1, 1e6) * 1e3);
  scenario->gates = reader.Flag("gates", true);
  if (reader.Has("sweep")) {
    Reader sweep(reader.At("sweep"), what + ": sweep", status);
    sweep.Keys({"kernel_ms", "blocks", "processes"});
    scenario->sweep_kernel_ms = sweep.List("kernel_ms", scenario->sweep_kernel_ms, 0.005, 60'000);
    scenario->sweep_blocks = sweep.List("blocks", scenario->sweep_blocks, 1, 1e9);
    scenario->sweep_processes = sweep.List("processes", scenario->sweep_processes, 1, 256);
  }
  const auto each = [&](const char* key, auto&& read) {
    if (!reader.Has(key)) return;
    const YAML::Node list = reader.At(key);
    if (!list.IsSequence()) return reader.Fail(fmt::format("{}: {} must be a list", what, key));
    for (size_t i = 0; i < list.size(); ++i) read(Reader(list[i], fmt::format("{}: {}[{}]", what, key, i), status));
  };
  each("shares", [&](Reader item) { scenario->shares.push_back(ReadShare(item, status)); });
  if (scenario->shares.empty() || scenario->shares.size() > 64) {
    reader.Fail(fmt::format("{}: needs 1 to 64 shares", what));
    return;
  }
  for (uint32_t i = 0; i < scenario->shares.size(); ++i) {
    const std::string& name = scenario->shares[i].name;
    if (FindShare(*scenario, name) != i) reader.Fail(fmt::format("{}: two shares are called '{}'", what, name));
  }
  each("events", [&](Reader item) { scenario->events.push_back(ReadEvent(*scenario, item)); });
  each("expect", [&](Reader item) { scenario->expect.push_back(ReadExpect(*scenario, item)); });
}

}  // namespace

StatusOr<Scenario> ParseScenario(const std::string& text, std::string_view what) {
  Scenario scenario;
  Status status = OkStatus();
  try {
    ReadScenarioNode(YAML::Load(text), std::string(what), &scenario, &status);
  } catch (const YAML::Exception& error) {  // the library's; not let out
    return Usage("{}: not YAML: {}", what, error.what());
  }
  if (!status.ok()) return status;
  return scenario;
}

StatusOr<Scenario> ReadScenario(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NoSuch("scenario '{}' cannot be read; give the path of a YAML file", path);
  std::stringstream text;
  text << in.rdbuf();
  return ParseScenario(text.str(), path);
}

std::vector<Case> Cases(const Scenario& scenario) {
  const auto unset = [&](auto&& has) { return std::any_of(scenario.shares.begin(), scenario.shares.end(), has); };
  std::vector<double> lengths = scenario.sweep_kernel_ms;
  std::vector<uint64_t> grids = scenario.sweep_blocks;
  if (!unset([](const ShareSpec& share) { return share.kernel_ms == 0; })) lengths = {0};
  if (!unset([](const ShareSpec& share) { return share.blocks == 0; })) grids = {0};
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
