#include "gpu/promises.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/text.h"
#include "gpu/embedded.h"
#include "gpu/yaml_reader.h"

namespace mete::gpu {
namespace {

constexpr std::array<std::string_view, kPromiseCount> kPromiseNames{
    "memory-quota", "memory-privacy",    "compute-cap", "compute-reservation", "bandwidth-isolation", "cache-isolation",
    "concurrency",  "fault-containment", "recovery",    "separate-users",      "enforced-outside"};

constexpr std::array<std::string_view, 4> kValueNames{"yes", "no", "conditional", "cap-only"};

// Named in the table; kNone and kUnchecked have no name there.
constexpr std::array<std::pair<Condition, std::string_view>, 7> kConditions{
    {{Condition::kVoltaOrNewer, "volta-or-newer"},
     {Condition::kResetsAlone, "resets-alone"},
     {Condition::kInForce, "in-force"},
     {Condition::kAgent, "agent"},
     {Condition::kMultiUserServer, "multi-user-server"},
     {Condition::kServerLimits, "server-limits"},
     {Condition::kOwnPartition, "own-partition"}}};

std::optional<Condition> FindCondition(std::string_view name) {
  for (const auto& [condition, text] : kConditions) {
    if (text == name) return condition;
  }
  return std::nullopt;
}

Verdict ReadVerdict(YamlMap cell, const Sources& sources, YamlProblem& problem) {
  Verdict verdict;
  const std::string value = cell.Text("value");
  const auto* known = std::find(kValueNames.begin(), kValueNames.end(), value);
  if (known == kValueNames.end()) {
    problem.Add(cell.node(), "\"value\" must be yes, no, conditional or cap-only");
  } else {
    verdict.value = static_cast<Value>(known - kValueNames.begin());
  }
  verdict.why = cell.Text("why");
  const std::string when = cell.TextOrEmpty("when");
  if (verdict.value == Value::kConditional) {
    verdict.condition = Condition::kUnchecked;
    if (!when.empty()) {
      const auto condition = FindCondition(when);
      if (!condition) problem.Add(cell.node(), fmt::format("no condition is called \"{}\"", when));
      verdict.condition = condition.value_or(Condition::kUnchecked);
    }
  } else if (!when.empty()) {
    problem.Add(cell.node(), "\"when\" belongs to a conditional value only");
  }
  verdict.sources = cell.Names("src");
  CheckSources(verdict.sources, sources, cell.node(), problem);
  cell.Finish();
  return verdict;
}

Variant ReadVariant(const std::string& name, YamlMap map, const std::vector<std::string>& property_names,
                    const Sources& sources, YamlProblem& problem) {
  Variant variant;
  variant.name = name;
  const auto mechanism = ParseMechanism(map.Text("mechanism"));
  if (mechanism.ok()) {
    variant.mechanism = *mechanism;
  } else {
    problem.Add(map.node(), Message(mechanism.status()));
  }
  variant.summary = map.Text("summary");
  YamlMap promises = map.Map("promises");
  for (Promise promise : Promises()) {
    variant.promises[static_cast<size_t>(promise)] = ReadVerdict(promises.Map(Name(promise)), sources, problem);
  }
  promises.Finish();
  YamlMap properties = map.Map("properties");
  for (const std::string& property : property_names) {
    YamlMap cell = properties.Map(property);
    variant.properties.emplace_back(property, Property{cell.Text("value"), cell.Text("why"), cell.Names("src")});
    CheckSources(variant.properties.back().second.sources, sources, cell.node(), problem);
    cell.Finish();
  }
  properties.Finish();
  map.Finish();
  return variant;
}

// A mapping of names to text, in the order of the document.
std::vector<std::pair<std::string, std::string>> ReadTexts(const YAML::Node& node, YamlProblem& problem) {
  std::vector<std::pair<std::string, std::string>> texts;
  YamlMap map(node, problem);
  if (!problem.ok()) return texts;
  for (const auto& entry : node) texts.emplace_back(entry.first.Scalar(), map.Text(entry.first.Scalar()));
  return texts;
}

}  // namespace

const std::array<Promise, kPromiseCount>& Promises() {
  static const std::array<Promise, kPromiseCount> promises = [] {
    std::array<Promise, kPromiseCount> all{};
    for (size_t i = 0; i < kPromiseCount; ++i) all[i] = static_cast<Promise>(i);
    return all;
  }();
  return promises;
}

std::string_view Name(Promise promise) { return kPromiseNames[static_cast<size_t>(promise)]; }
std::string_view Name(Value value) { return kValueNames[static_cast<size_t>(value)]; }

StatusOr<Promise> ParsePromise(std::string_view name) {
  std::vector<std::string> names;
  for (Promise promise : Promises()) {
    if (Name(promise) == name) return promise;
    names.emplace_back(Name(promise));
  }
  const auto near = NearestNames(name, names);
  if (!near.empty()) return NoSuch("no promise is called \"{}\"; near it: {}", name, JoinNames(near, "and"));
  return NoSuch("no promise is called \"{}\"; there are {}", name, JoinNames(names, "and"));
}

StatusOr<PromiseTable> PromiseTable::Parse(std::string_view yaml) {
  METE_ASSIGN_OR_RETURN(const YAML::Node document, LoadYaml(yaml, "promises"));
  YamlProblem problem("promises");
  PromiseTable table;
  YamlMap root(document, problem);
  if (root.Text("schema") != "mete/promises/1") problem.Add(document, "\"schema\" must be mete/promises/1");
  root.Text("collected");
  table.sources_ = ReadSources(root, problem);
  YamlMap values = root.Map("values");
  for (std::string_view value : kValueNames) table.values_[std::string(value)] = values.Text(value);
  values.Finish();
  YamlMap conditions = root.Map("conditions");
  for (const auto& [condition, name] : kConditions) table.conditions_[std::string(name)] = conditions.Text(name);
  conditions.Finish();
  YamlMap promises = root.Map("promises");
  for (Promise promise : Promises()) {
    YamlMap note = promises.Map(Name(promise));
    table.notes_[static_cast<size_t>(promise)] = {note.Text("meaning"), note.TextOrEmpty("asked_with")};
    note.Finish();
  }
  promises.Finish();
  std::vector<std::string> property_names;
  for (const auto& [name, text] : ReadTexts(root.Take("properties"), problem)) property_names.push_back(name);
  const YAML::Node variants = root.Take("variants");
  YamlMap rows(variants, problem);
  if (!problem.ok()) return problem.status();
  for (const auto& entry : variants) {  // keeps the document's order
    const std::string& name = entry.first.Scalar();
    table.variants_.push_back(ReadVariant(name, rows.Map(name), property_names, table.sources_, problem));
    if (!problem.ok()) return problem.status();
  }
  for (Mechanism mechanism : kMechanisms) {
    if (table.Of(mechanism).empty()) problem.Add(variants, fmt::format("no variant is of {}", Name(mechanism)));
  }
  root.Finish();
  if (!problem.ok()) return problem.status();
  return table;
}

const PromiseTable& PromiseTable::BuiltIn() {
  static const PromiseTable table = [] {
    StatusOr<PromiseTable> parsed = Parse(embedded::kPromises);
    if (!parsed.ok()) {  // a test keeps this from shipping
      fmt::print(stderr, "mete: fault: embedded data: {}\n", Message(parsed.status()));
      std::abort();
    }
    return *std::move(parsed);
  }();
  return table;
}

std::vector<const Variant*> PromiseTable::Of(Mechanism mechanism) const {
  std::vector<const Variant*> found;
  for (const Variant& variant : variants_) {
    if (variant.mechanism == mechanism) found.push_back(&variant);
  }
  return found;
}

StatusOr<const Variant*> PromiseTable::Find(std::string_view name) const {
  std::vector<std::string> names;
  for (const Variant& variant : variants_) {
    if (variant.name == name) return &variant;
    names.push_back(variant.name);
  }
  return NoSuch("no variant is called \"{}\"; there are {}", name, JoinNames(names, "and"));
}

std::string PromiseTable::Meaning(Condition condition) const {
  if (condition == Condition::kUnchecked) return "cannot be checked beforehand";
  for (const auto& [known, name] : kConditions) {
    if (known == condition) return conditions_.find(name)->second;
  }
  return {};
}

std::string PromiseTable::Meaning(Value value) const { return values_.find(Name(value))->second; }

std::string PromiseTable::Source(std::string_view id) const {
  const auto found = sources_.find(id);
  return found == sources_.end() ? std::string() : found->second;
}

}  // namespace mete::gpu
