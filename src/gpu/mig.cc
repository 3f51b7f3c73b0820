#include "gpu/mig.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "gpu/embedded.h"
#include "gpu/yaml_reader.h"

namespace mete::gpu {
namespace {

// No board of NVIDIA's comes near; they bound what a broken table can ask for.
constexpr int kMostSlices = 32;

std::vector<int> ReadStarts(const std::vector<std::string>& names, int most, const YAML::Node& at,
                            YamlProblem& problem) {
  std::vector<int> starts;
  for (const std::string& name : names) {
    int start = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), start);
    if (error != std::errc() || end != name.data() + name.size() || start < 0 || start > most) {
      problem.Add(at, fmt::format("a start must be a number from 0 to {}", most));
      return {};
    }
    starts.push_back(start);
  }
  return starts;
}

MigComputeProfile ReadComputeProfile(const YAML::Node& node, int slices, YamlProblem& problem) {
  MigComputeProfile profile;
  YamlMap map(node, problem);
  profile.name = map.Text("name");
  profile.id = static_cast<uint32_t>(map.Number("profile_id", 0, 64));
  profile.nvml_enum_name = map.Text("nvml_enum");
  profile.compute_slices = static_cast<int>(map.Number("compute_slices", 1, slices));
  if (map.Has("sm_count")) profile.sm_count = static_cast<int>(map.Number("sm_count", 1, 1000));
  profile.max_instances = static_cast<int>(map.Number("max_instances", 1, slices));
  profile.starts = ReadStarts(map.Names("starts"), slices - profile.compute_slices, node, problem);
  map.Finish();
  return profile;
}

MigProfile ReadProfile(const YAML::Node& node, const MigBoard& board, YamlProblem& problem) {
  MigProfile profile;
  YamlMap map(node, problem);
  profile.name = map.Text("name");
  profile.also_seen_as = map.NamesOrNone("also_seen_as");
  profile.id = static_cast<uint32_t>(map.Number("nsmi_profile_id", 0, 255));
  profile.nvml_enum_name = map.Text("nvml_enum");
  profile.nvml_profile = static_cast<uint32_t>(map.Number("nvml_enum_value", 0, 64));
  profile.compute_slices = static_cast<int>(map.Number("compute_slices", 1, board.compute_slices));
  profile.memory_slices = static_cast<int>(map.Number("memory_slices", 1, board.memory_slices));
  profile.memory = Bytes{static_cast<uint64_t>(map.Number("memory_mib", 1, 1 << 24)) * kMiB};
  if (map.Has("sm_count")) profile.sm_count = static_cast<int>(map.Number("sm_count", 1, 1000));
  profile.copy_engines = static_cast<int>(map.Number("copy_engines", 0, 64));
  YamlMap engines = map.Map("engines");
  profile.engines = {static_cast<int>(engines.Number("decoder", 0, 64)),
                     static_cast<int>(engines.Number("encoder", 0, 64)),
                     static_cast<int>(engines.Number("jpeg", 0, 64)), static_cast<int>(engines.Number("ofa", 0, 64))};
  engines.Finish();
  profile.graphics = map.Has("graphics") && map.Flag("graphics");
  profile.max_instances = static_cast<int>(map.Number("max_instances", 1, board.max_gpu_instances));
  for (const YAML::Node& item : map.List("placements")) {
    YamlMap placement(item, problem);
    profile.starts.push_back(
        static_cast<int>(placement.Number("start", 0, board.memory_slices - profile.memory_slices)));
    if (placement.Number("size", 1, board.memory_slices) != profile.memory_slices) {
      problem.Add(item, "the size of a placement must be the profile's memory_slices");
    }
    placement.Finish();
  }
  for (const YAML::Node& item : map.List("compute_instances")) {
    profile.compute.push_back(ReadComputeProfile(item, profile.compute_slices, problem));
  }
  profile.estimated = map.NamesOrNone("est");
  map.Finish();
  return profile;
}

MigBoard ReadBoard(const std::string& id, const YAML::Node& node, const Sources& sources, YamlProblem& problem) {
  MigBoard board;
  board.id = id;
  YamlMap map(node, problem);
  board.memory_slices = static_cast<int>(map.Number("memory_slices", 1, kMostSlices));
  board.compute_slices = static_cast<int>(map.Number("compute_slices", 1, kMostSlices));
  board.max_gpu_instances = static_cast<int>(map.Number("max_gpu_instances", 1, kMostSlices));
  YamlMap ids = map.Map("gi_id_base");
  for (const std::string& size : ids.Keys()) {
    const std::vector<int> slices = ReadStarts({size}, kMostSlices, ids.node(), problem);
    const auto first = static_cast<uint32_t>(ids.Number(size, 0, 255));
    if (!slices.empty() && slices[0] > 0) board.first_instance_id[slices[0]] = first;
  }
  YamlMap src = map.Map("src");
  for (const std::string& field : src.Keys()) CheckSources(src.Names(field), sources, src.node(), problem);
  for (const YAML::Node& item : map.List("gpu_instance_profiles")) {
    board.profiles.push_back(ReadProfile(item, board, problem));
    const MigProfile& last = board.profiles.back();
    if (problem.ok() && board.first_instance_id.count(last.memory_slices) == 0) {
      problem.Add(item, fmt::format("\"gi_id_base\" has no entry for {} memory slices", last.memory_slices));
    }
    for (size_t i = 0; i + 1 < board.profiles.size() && problem.ok(); ++i) {
      const MigProfile& other = board.profiles[i];
      if (other.name == last.name || other.id == last.id) problem.Add(item, "a name or id appears twice");
    }
  }
  map.Finish();
  return board;
}

}  // namespace

const MigProfile* MigBoard::Find(std::string_view name) const {
  for (const MigProfile& profile : profiles) {
    if (EqualsIgnoringCase(profile.name, name)) return &profile;
  }
  for (const MigProfile& profile : profiles) {
    for (const std::string& other : profile.also_seen_as) {
      if (EqualsIgnoringCase(other, name)) return &profile;
    }
  }
  return nullptr;
}

const MigProfile* MigBoard::FindById(uint32_t profile_id) const {
  for (const MigProfile& profile : profiles) {
    if (profile.id == profile_id) return &profile;
  }
  return nullptr;
}

uint32_t MigBoard::InstanceId(const MigProfile& profile, int start) const {
  const auto first = first_instance_id.find(profile.memory_slices);
  const uint32_t base = first == first_instance_id.end() ? 0 : first->second;
  return base + static_cast<uint32_t>(start / profile.memory_slices);
}

StatusOr<MigTables> MigTables::Parse(std::string_view yaml) {
  METE_ASSIGN_OR_RETURN(const YAML::Node document, LoadYaml(yaml, "MIG tables"));
  YamlProblem problem("MIG tables");
  YamlMap root(document, problem);
  if (root.Text("schema") != "mete/mig/1") problem.Add(root.node(), "\"schema\" must be mete/mig/1");
  root.Text("collected");
  for (const char* words : {"units", "conventions", "nvml_enums", "mig_rules"}) {
    if (root.Has(words)) root.Take(words);
  }
  const Sources sources = ReadSources(root, problem);
  MigTables tables;
  YamlMap boards = root.Map("boards");
  for (const std::string& id : boards.Keys()) {
    tables.boards_.push_back(ReadBoard(id, boards.Take(id), sources, problem));
  }
  boards.Finish();
  root.Finish();
  if (!problem.ok()) return problem.status();
  return tables;
}

const MigTables& MigTables::BuiltIn() {
  static const MigTables* const tables = [] {
    StatusOr<MigTables> parsed = Parse(embedded::kMig);
    if (!parsed.ok()) {
      fmt::print(stderr, "mete: fault: the MIG tables compiled in are wrong: {}\n", Message(parsed.status()));
      std::abort();
    }
    return new MigTables(*std::move(parsed));
  }();
  return *tables;
}

const MigBoard* MigTables::Find(std::string_view board_id) const {
  for (const MigBoard& board : boards_) {
    if (board.id == board_id) return &board;
  }
  return nullptr;
}

}  // namespace mete::gpu
