#include "gpu/mechanism.h"

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "gpu/embedded.h"
#include "gpu/yaml_reader.h"

namespace mete::gpu {

std::string_view Name(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::kExclusive: return "exclusive";
    case Mechanism::kTimeSlicing: return "time-slicing";
    case Mechanism::kMps: return "mps";
    case Mechanism::kMig: return "mig";
    case Mechanism::kVgpu: return "vgpu";
    case Mechanism::kIntercept: break;
  }
  return "intercept";
}

StatusOr<Mechanism> ParseMechanism(std::string_view name) {
  std::vector<std::string> names;
  for (Mechanism mechanism : kMechanisms) {
    if (Name(mechanism) == name) return mechanism;
    names.emplace_back(Name(mechanism));
  }
  return NoSuch("no mechanism is called \"{}\"; there are {}", name, JoinNames(names, "and"));
}

StatusOr<MechanismNotes> MechanismNotes::Parse(std::string_view yaml) {
  METE_ASSIGN_OR_RETURN(const YAML::Node document, LoadYaml(yaml, "mechanisms"));
  YamlProblem problem("mechanisms");
  MechanismNotes result;
  YamlMap root(document, problem);
  if (root.Text("schema") != "mete/mechanisms/1") problem.Add(document, "\"schema\" must be mete/mechanisms/1");
  root.Text("collected");
  const Sources sources = ReadSources(root, problem);
  result.sources_.assign(sources.begin(), sources.end());
  YamlMap mechanisms = root.Map("mechanisms");
  for (Mechanism mechanism : kMechanisms) {
    MechanismNote& note = result.notes_[static_cast<size_t>(mechanism)];
    YamlMap map = mechanisms.Map(Name(mechanism));
    note.summary = map.Text("summary");
    note.how = map.Text("how");
    for (const YAML::Node& node : map.List("facts")) {
      YamlMap fact(node, problem);
      note.facts.push_back({fact.Text("text"), fact.Names("src")});
      CheckSources(note.facts.back().sources, sources, node, problem);
      fact.Finish();
    }
    map.Finish();
    if (!problem.ok()) return problem.status();
  }
  mechanisms.Finish();
  root.Finish();
  if (!problem.ok()) return problem.status();
  return result;
}

const MechanismNotes& MechanismNotes::BuiltIn() {
  static const MechanismNotes notes = [] {
    StatusOr<MechanismNotes> parsed = Parse(embedded::kMechanisms);
    if (!parsed.ok()) {  // a test keeps this from shipping
      fmt::print(stderr, "mete: fault: embedded data: {}\n", Message(parsed.status()));
      std::abort();
    }
    return *std::move(parsed);
  }();
  return notes;
}

std::string MechanismNotes::Source(std::string_view id) const {
  for (const auto& [name, text] : sources_) {
    if (name == id) return text;
  }
  return {};
}

}  // namespace mete::gpu
