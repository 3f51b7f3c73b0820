#include "emulator/engine/fault_rules.h"

#include <algorithm>
#include <array>

#include "gpu/yaml_reader.h"

namespace mete::emulator {

namespace embedded {
extern const std::string_view kXid;
}  // namespace embedded

namespace {

// The value that stands for the word, or a problem that lists the words.
template <typename T, size_t N>
T OneOf(const std::string& word, const std::array<std::pair<const char*, T>, N>& words, const YAML::Node& at,
        gpu::YamlProblem& problem) {
  std::string known;
  for (const auto& [name, value] : words) {
    if (word == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  problem.Add(at, fmt::format("'{}' must be one of {}", word, known));
  return words[0].second;
}

using Hurts = XidRule::Hurts;
using Effect = XidRule::Effect;
constexpr std::array<std::pair<const char*, Hurts>, 4> kHurts = {
    {{"nobody", Hurts::kNobody}, {"process", Hurts::kProcess}, {"busy", Hurts::kBusy}, {"gpu", Hurts::kGpu}}};
constexpr std::array<std::pair<const char*, Need>, 4> kNeeds = {
    {{"none", Need::kNone}, {"restart", Need::kNone}, {"reset", Need::kReset}, {"reboot", Need::kReboot}}};
constexpr std::array<std::pair<const char*, Effect>, 5> kEffects = {{{"", Effect::kNone},
                                                                     {"ecc-uncorrectable", Effect::kEccUncorrectable},
                                                                     {"row-remap-pending", Effect::kRowRemapPending},
                                                                     {"row-remap-failure", Effect::kRowRemapFailure},
                                                                     {"lost", Effect::kLost}}};

XidRule ReadRule(const YAML::Node& node, const gpu::Sources& sources, gpu::YamlProblem& problem) {
  gpu::YamlMap map(node, problem);
  XidRule rule;
  rule.xid = static_cast<uint32_t>(map.Number("xid", 1, 1000));
  rule.mnemonic = map.Text("mnemonic");
  rule.meaning = map.Text("meaning");
  map.Text("cause");
  rule.affected = map.Text("affected");
  rule.action = map.Text("action");
  map.TextOrEmpty("note");
  rule.hurts = OneOf(map.Text("hurts"), kHurts, node, problem);
  if (map.Has("cuda")) rule.cuda = static_cast<uint32_t>(map.Number("cuda", 1, 999));
  if (map.Has("cuda_est")) map.Flag("cuda_est");
  if ((rule.cuda != 0) != (rule.hurts != Hurts::kNobody)) problem.Add(node, "'cuda' belongs to a rule that hurts");
  rule.need = OneOf(map.Text("needs"), kNeeds, node, problem);
  if (map.Has("from")) rule.from_major = static_cast<uint32_t>(map.Number("from", 1, 99));
  for (const std::string& word : map.NamesOrNone("followed")) {
    rule.followed.push_back(static_cast<uint32_t>(std::strtoul(word.c_str(), nullptr, 10)));
  }
  rule.effect = OneOf(map.TextOrEmpty("effect"), kEffects, node, problem);
  gpu::CheckSources(map.Names("src"), sources, node, problem);
  map.Finish();
  return rule;
}

}  // namespace

StatusOr<XidRules> ReadXidRules(std::string_view text, std::string_view document) {
  METE_ASSIGN_OR_RETURN(const YAML::Node root_node, gpu::LoadYaml(text, document));
  gpu::YamlProblem problem{std::string(document)};
  gpu::YamlMap root(root_node, problem);
  root.Text("schema");
  root.Text("collected");
  const gpu::Sources sources = gpu::ReadSources(root, problem);
  XidRules rules;
  for (const YAML::Node& node : root.List("xids")) {
    const XidRule rule = ReadRule(node, sources, problem);
    if (!rules.emplace(rule.xid, rule).second) problem.Add(node, fmt::format("Xid {} stands here twice", rule.xid));
  }
  root.NamesOrNone("notes");
  root.Finish();
  for (const auto& [xid, rule] : rules) {
    for (const uint32_t other : rule.followed) {
      const auto found = rules.find(other);
      if (found == rules.end() || !found->second.followed.empty()) {
        problem.Add(root_node,
                    fmt::format("Xid {} is followed by {}, which is not there or has followers", xid, other));
      }
    }
  }
  if (!problem.ok()) return problem.status();
  return rules;
}

const XidRules& BuiltInXidRules() {
  static const XidRules rules = ReadXidRules(embedded::kXid, "xid.yaml").value_or(XidRules{});
  return rules;
}

}  // namespace mete::emulator
