#include "plan/mig/parted.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/text.h"
#include "gpu/yaml_reader.h"

namespace mete::plan::mig {
namespace {

constexpr int kMostGpus = 1024;
constexpr int kMostInstances = 64;

// Configuration names end up as label values, so they have no other characters.
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '+';
  });
}

// [Nc.]Ng.Ngb[+attribute|-attribute]
bool IsProfile(std::string_view text) {
  const auto number = [&text](std::string_view unit) {
    size_t digits = 0;
    while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
    if (digits == 0 || digits > 4 || text.substr(digits, unit.size()) != unit) return false;
    text.remove_prefix(digits + unit.size());
    return true;
  };
  if (!IsName(text)) return false;
  number("c.");
  if (!number("g.") || !number("gb")) return false;
  return text.empty() || ((text[0] == '+' || text[0] == '-') && text.size() > 1);
}

bool ReadWhole(std::string_view text, int base, uint64_t most, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size() && *value <= most;
}

std::vector<std::string> ScalarOrList(const YAML::Node& node, std::string_view what, gpu::YamlProblem& problem) {
  std::vector<std::string> texts;
  if (node.IsScalar()) return {node.Scalar()};
  if (!node.IsSequence()) {
    problem.Add(node, fmt::format("\"{}\" must be one value or a list", what));
    return texts;
  }
  for (const auto& item : node) {
    if (!item.IsScalar()) {
      problem.Add(item, fmt::format("\"{}\" must be one value or a list", what));
      return {};
    }
    texts.push_back(item.Scalar());
  }
  return texts;
}

PartedEntry ReadEntry(const YAML::Node& node, gpu::YamlProblem& problem) {
  PartedEntry entry;
  gpu::YamlMap map(node, problem);
  if (map.Has("device-filter")) {
    for (const std::string& text : ScalarOrList(map.Take("device-filter"), "device-filter", problem)) {
      if (text.empty()) continue;
      uint64_t id = 0;
      const bool prefixed = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
      if (!prefixed || !ReadWhole(std::string_view(text).substr(2), 16, UINT32_MAX, &id)) {
        problem.Add(node, "\"device-filter\" must hold PCI ids like \"0x20B010DE\"");
      }
      entry.device_filter.push_back(static_cast<uint32_t>(id));
    }
  }
  const YAML::Node devices = map.Take("devices");
  if (devices.IsDefined() && !(devices.IsScalar() && devices.Scalar() == "all")) {
    entry.devices.emplace();
    if (!devices.IsSequence()) problem.Add(node, "\"devices\" must be \"all\" or a list of GPU indices");
    for (const std::string& text : ScalarOrList(devices, "devices", problem)) {
      uint64_t index = 0;
      if (!ReadWhole(text, 10, kMostGpus, &index)) {
        problem.Add(node, "\"devices\" must be \"all\" or a list of GPU indices");
      }
      entry.devices->push_back(static_cast<int>(index));
    }
  }
  entry.mig_enabled = map.Flag("mig-enabled");
  if (map.Has("mig-devices")) {
    const YAML::Node counts = map.Take("mig-devices");
    if (!counts.IsNull()) {
      gpu::YamlMap profiles(counts, problem);
      for (const std::string& name : profiles.Keys()) {
        if (!IsProfile(name)) problem.Add(node, "\"mig-devices\" must map profiles like \"1g.5gb\" to counts");
        entry.profiles.emplace_back(name, static_cast<int>(profiles.Number(name, 0, kMostInstances)));
      }
    }
  } else if (entry.mig_enabled) {
    problem.Add(node, "\"mig-devices\" is missing although \"mig-enabled\" is true");
  }
  if (!entry.mig_enabled && !entry.profiles.empty()) {
    problem.Add(node, "\"mig-devices\" is given although \"mig-enabled\" is false");
  }
  map.Finish();
  return entry;
}

}  // namespace

bool PartedEntry::Matches(int index, uint32_t pci_device_id) const {
  if (devices && std::find(devices->begin(), devices->end(), index) == devices->end()) return false;
  return device_filter.empty() ||
         std::find(device_filter.begin(), device_filter.end(), pci_device_id) != device_filter.end();
}

StatusOr<const std::vector<PartedEntry>*> PartedFile::Find(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [known, entries] : configs) {
    if (known == name) return &entries;
    names.push_back(known);
  }
  return NoSuch("there is no configuration {} in the file; there are {}", name, JoinNames(names, "and"));
}

StatusOr<PartedFile> ParseParted(std::string_view text, std::string_view file) {
  METE_ASSIGN_OR_RETURN(const YAML::Node document, gpu::LoadYaml(text, file));
  gpu::YamlProblem problem{std::string(file)};
  gpu::YamlMap root(document, problem);
  if (root.Text("version") != "v1") problem.Add(root.node(), "\"version\" must be v1");
  PartedFile parted;
  gpu::YamlMap configs = root.Map("mig-configs");
  for (const std::string& name : configs.Keys()) {
    if (!IsName(name)) problem.Add(configs.node(), "a configuration's name may have letters, digits and . _ - +");
    std::vector<PartedEntry> entries;
    for (const YAML::Node& node : configs.List(name)) entries.push_back(ReadEntry(node, problem));
    parted.configs.emplace_back(name, std::move(entries));
  }
  if (problem.ok() && parted.configs.empty()) problem.Add(root.node(), "\"mig-configs\" has no configuration");
  root.Finish();
  if (!problem.ok()) return problem.status();
  return parted;
}

std::string WriteParted(const PartedFile& file) {
  std::string text = "version: v1\nmig-configs:\n";
  for (const auto& [name, entries] : file.configs) {
    text += fmt::format("  \"{}\":\n", name);
    for (const PartedEntry& entry : entries) {
      std::string sign = "-";
      const auto line = [&](const std::string& words) {
        text += fmt::format("    {} {}\n", sign, words);
        sign = " ";
      };
      if (!entry.device_filter.empty()) {
        std::string ids;
        for (const uint32_t id : entry.device_filter) ids += fmt::format("{}\"0x{:08X}\"", ids.empty() ? "" : ", ", id);
        line(fmt::format("device-filter: [{}]", ids));
      }
      std::string indices;
      for (const int index : entry.devices.value_or(std::vector<int>())) {
        indices += fmt::format("{}{}", indices.empty() ? "" : ", ", index);
      }
      line(entry.devices ? fmt::format("devices: [{}]", indices) : "devices: all");
      line(fmt::format("mig-enabled: {}", entry.mig_enabled));
      if (!entry.mig_enabled) continue;
      line(entry.profiles.empty() ? "mig-devices: {}" : "mig-devices:");
      for (const auto& [profile, count] : entry.profiles) text += fmt::format("        \"{}\": {}\n", profile, count);
    }
  }
  return text;
}

}  // namespace mete::plan::mig
