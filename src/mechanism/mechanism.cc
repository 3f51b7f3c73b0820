#include "mechanism/mechanism.h"

#include <algorithm>

#include "gpu/mechanism.h"

namespace mete::mechanism {
namespace {

// The position of the entry for `name`, or the end.
std::vector<std::string>::iterator Entry(std::vector<std::string>& environment, const std::string& name) {
  const std::string start = name + "=";
  return std::find_if(environment.begin(), environment.end(),
                      [&start](const std::string& entry) { return entry.rfind(start, 0) == 0; });
}

Json ToJson(const std::vector<Edits::Variable>& variables) {
  Json json = Json::array();
  for (const Edits::Variable& variable : variables) json.push_back(Json::array({variable.name, variable.value}));
  return json;
}

bool ReadVariables(const Json& json, const char* key, std::vector<Edits::Variable>& into) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& entry : *found) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_string()) return false;
    into.push_back({entry[0].get<std::string>(), entry[1].get<std::string>()});
  }
  return true;
}

}  // namespace

std::vector<std::string> Edits::Apply(const std::vector<std::string>& environment) const {
  std::vector<std::string> result = environment;
  for (const Variable& variable : set) {
    const std::string entry = variable.name + "=" + variable.value;
    if (const auto at = Entry(result, variable.name); at != result.end()) {
      *at = entry;
    } else {
      result.push_back(entry);
    }
  }
  // From the last to the first, so that the first ends up in front.
  for (auto edit = prepend.rbegin(); edit != prepend.rend(); ++edit) {
    const auto at = Entry(result, edit->name);
    if (at == result.end()) {
      result.push_back(edit->name + "=" + edit->value);
      continue;
    }
    const std::string old = at->substr(edit->name.size() + 1);
    // An empty element means the current directory to the loader and the shell: do not make one.
    *at = edit->name + "=" + edit->value + (old.empty() ? "" : ":" + old);
  }
  return result;
}

Json ToJson(const Edits& edits) {
  Json json;
  json["set"] = ToJson(edits.set);
  json["prepend"] = ToJson(edits.prepend);
  json["mounts"] = Json::array();
  for (const Edits::Mount& mount : edits.mounts) {
    json["mounts"].push_back(Json::array({mount.host_path, mount.path, mount.read_only}));
  }
  json["device_nodes"] = edits.device_nodes;
  return json;
}

StatusOr<Edits> EditsFromJson(const Json& json) {
  const Status wrong = Usage("edits: not as mete writes them");
  if (!json.is_object()) return wrong;
  Edits edits;
  if (!ReadVariables(json, "set", edits.set) || !ReadVariables(json, "prepend", edits.prepend)) return wrong;
  const auto mounts = json.find("mounts"), nodes = json.find("device_nodes");
  if (mounts == json.end() || !mounts->is_array() || nodes == json.end() || !nodes->is_array()) return wrong;
  for (const Json& mount : *mounts) {
    if (!mount.is_array() || mount.size() != 3 || !mount[0].is_string() || !mount[1].is_string() ||
        !mount[2].is_boolean()) {
      return wrong;
    }
    edits.mounts.push_back({mount[0].get<std::string>(), mount[1].get<std::string>(), mount[2].get<bool>()});
  }
  for (const Json& node : *nodes) {
    if (!node.is_string()) return wrong;
    edits.device_nodes.push_back(node.get<std::string>());
  }
  return edits;
}

StatusOr<plan::Room> Mechanism::Plan(const plan::Ask& ask, const plan::GpuView& gpu) const {
  METE_ASSIGN_OR_RETURN(const gpu::Mechanism mechanism, gpu::ParseMechanism(name()));
  return plan::RoomFor(mechanism, ask, gpu);
}

bool Evidence::InForce() const {
  return std::all_of(items.begin(), items.end(), [](const Item& item) { return item.holds; });
}

}  // namespace mete::mechanism
