#include "gpu/catalogue.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "gpu/embedded.h"
#include "gpu/yaml_reader.h"

namespace mete::gpu {
namespace {

std::string_view WithoutVendor(std::string_view name) {
  for (std::string_view word : {"NVIDIA ", "Tesla "}) {
    if (name.size() > word.size() && EqualsIgnoringCase(name.substr(0, word.size()), word))
      name.remove_prefix(word.size());
  }
  return name;
}

const std::vector<std::string_view> kArchitectures{"volta", "turing", "ampere", "ada", "hopper", "blackwell"};
// What `est:` and `src:` may name.
const std::vector<std::string_view> kFields{"nvml_name",
                                            "compute_capability",
                                            "sm_count",
                                            "memory_mib",
                                            "memory_bandwidth_gbs",
                                            "l2_mib",
                                            "pcie",
                                            "mps",
                                            "max_power_w",
                                            "vgpu",
                                            "context_memory_mib",
                                            "mig",
                                            "timeslice"};

bool Contains(const std::vector<std::string_view>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// "8.0" → 8 and 0.
void ReadComputeCapability(YamlMap& map, Board& board, YamlProblem& problem) {
  const std::string text = map.Text("compute_capability");
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, board.compute_major);
  const bool dot = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
  const auto minor = dot ? std::from_chars(major.ptr + 1, end, board.compute_minor) : major;
  if (!dot || minor.ec != std::errc() || minor.ptr != end || board.compute_major < 1 || board.compute_minor < 0) {
    problem.Add(map.node(), "\"compute_capability\" must look like \"8.0\"");
  }
}

void ReadPciId(YamlMap& map, Board& board, YamlProblem& problem) {
  const std::vector<std::string> ids = map.NamesOrNone("pci_device_ids");
  if (ids.empty()) return;
  const std::string& text = ids.front();
  const bool prefixed = text.size() == 10 && text[0] == '0' && text[1] == 'x';
  const char* end = text.data() + text.size();
  if (!prefixed || std::from_chars(text.data() + 2, end, board.pci_device_id, 16).ptr != end) {
    problem.Add(map.node(), "\"pci_device_ids\" must look like [\"0x1EB810DE\"]");
  }
}

void ReadSharing(YamlMap sharing, Board& board) {
  board.time_slicing = sharing.Flag("time_slicing");
  board.timeslice_policy = sharing.Flag("timeslice_policy_settable");
  YamlMap mps = sharing.Map("mps");
  board.mps = mps.Flag("supported");
  board.mps_clients = static_cast<int>(mps.Number("client_limit", 0, 1000));
  board.mps_clients_through_cuda_13_0 = static_cast<int>(mps.Number("client_limit_through_cuda_13_0", 0, 1000));
  board.mps_static_partitions = mps.Flag("static_sm_partitions");
  mps.Finish();
  board.mig = sharing.Flag("mig");
  board.vgpu_c_series = sharing.Flag("vgpu_c_series");
  board.vgpu_type_prefix = sharing.TextOrEmpty("vgpu_type_prefix");
  board.vgpu_fractional = sharing.Has("vgpu_fractional_time_sliced") && sharing.Flag("vgpu_fractional_time_sliced");
  sharing.Finish();
}

Board ReadBoard(const YAML::Node& node, const Sources& sources, YamlProblem& problem) {
  Board board;
  YamlMap map(node, problem);
  board.id = map.Text("id");
  board.nvml_name = map.Text("nvml_name");
  board.name_variants = map.NamesOrNone("name_variants");
  board.architecture = map.Text("architecture");
  if (problem.ok() && !Contains(kArchitectures, board.architecture)) {
    problem.Add(node, fmt::format("no architecture is called \"{}\"", board.architecture));
  }
  ReadComputeCapability(map, board, problem);
  ReadPciId(map, board, problem);
  board.sm_count = static_cast<int>(map.Number("sm_count", 1, 1'000));
  board.memory = Bytes{static_cast<uint64_t>(map.Number("memory_mib", 1, 1 << 24)) * kMiB};
  board.memory_bandwidth_gbs = static_cast<int>(map.Number("memory_bandwidth_gbs", 1, 100'000));
  board.l2_mib = static_cast<int>(map.Number("l2_mib", 1, 10'000));
  if (map.Has("pcie")) {  // boards on NVLink-C2C have none
    YamlMap pcie = map.Map("pcie");
    board.pcie_gen = static_cast<int>(pcie.Number("gen", 1, 9));
    board.pcie_lanes = static_cast<int>(pcie.Number("lanes", 1, 32));
    pcie.Finish();
  }
  board.max_power_w = static_cast<int>(map.Number("max_power_w", 1, 10'000));
  board.context_memory = Bytes{static_cast<uint64_t>(map.Number("context_memory_mib", 1, 1 << 16)) * kMiB};
  ReadSharing(map.Map("sharing"), board);
  board.estimated = map.NamesOrNone("est");
  for (const std::string& field : board.estimated) {
    if (!Contains(kFields, field)) problem.Add(node, fmt::format("\"est\" names no field: \"{}\"", field));
  }
  YamlMap src = map.Map("src");
  for (const std::string& field : src.Keys()) {
    if (!Contains(kFields, field)) problem.Add(node, fmt::format("\"src\" names no field: \"{}\"", field));
    board.sources[field] = src.Names(field);
    CheckSources(board.sources[field], sources, node, problem);
  }
  for (std::string_view field : kFields) {
    const bool has = field != "pcie" || board.pcie_gen > 0;
    if (has && !src.Has(field)) problem.Add(node, fmt::format("\"{}\" has no source", field));
  }
  map.Finish();
  return board;
}

}  // namespace

std::string ShortName(const Board& board) { return std::string(WithoutVendor(board.nvml_name)); }

StatusOr<Catalogue> Catalogue::Parse(std::string_view yaml) {
  METE_ASSIGN_OR_RETURN(const YAML::Node document, LoadYaml(yaml, "boards"));
  YamlProblem problem("boards");
  Catalogue catalogue;
  YamlMap root(document, problem);
  if (root.Text("schema") != "mete/boards/1") problem.Add(document, "\"schema\" must be mete/boards/1");
  root.Text("collected");
  YamlMap units = root.Map("units");
  for (const std::string& unit : units.Keys()) units.Text(unit);
  catalogue.sources_ = ReadSources(root, problem);
  for (const YAML::Node& node : root.List("boards")) {
    catalogue.boards_.push_back(ReadBoard(node, catalogue.sources_, problem));
    if (!problem.ok()) return problem.status();
    const Board& added = catalogue.boards_.back();
    for (size_t i = 0; i + 1 < catalogue.boards_.size(); ++i) {
      const Board& other = catalogue.boards_[i];
      if (other.id == added.id || EqualsIgnoringCase(other.nvml_name, added.nvml_name)) {
        problem.Add(node, fmt::format("board \"{}\" appears twice", added.id));
      }
    }
  }
  root.Finish();
  if (!problem.ok()) return problem.status();
  return catalogue;
}

const Catalogue& Catalogue::BuiltIn() {
  static const Catalogue catalogue = [] {
    StatusOr<Catalogue> parsed = Parse(embedded::kBoards);
    if (!parsed.ok()) {  // a test keeps this from shipping
      fmt::print(stderr, "mete: fault: embedded data: {}\n", Message(parsed.status()));
      std::abort();
    }
    return *std::move(parsed);
  }();
  return catalogue;
}

const Board* Catalogue::ByDeviceName(std::string_view nvml_name) const {
  for (const Board& board : boards_) {
    if (EqualsIgnoringCase(board.nvml_name, nvml_name)) return &board;
    for (const std::string& variant : board.name_variants) {
      if (EqualsIgnoringCase(variant, nvml_name)) return &board;
    }
  }
  return nullptr;
}

StatusOr<const Board*> Catalogue::Find(std::string_view name) const {
  if (const Board* board = ByDeviceName(name)) return board;
  const std::string_view bare = WithoutVendor(name);
  std::vector<std::string> names;
  for (const Board& board : boards_) {
    if (EqualsIgnoringCase(board.id, name) || EqualsIgnoringCase(WithoutVendor(board.nvml_name), bare)) return &board;
    for (const std::string& variant : board.name_variants) {
      if (EqualsIgnoringCase(WithoutVendor(variant), bare)) return &board;
    }
    names.push_back(ShortName(board));
  }
  const std::vector<std::string> near = NearestNames(bare, names, 5);
  if (!near.empty()) return NoSuch("no board is called \"{}\"; near it: {}", name, JoinNames(near, "and"));
  return NoSuch("no board is called \"{}\"; `mete explain` lists them", name);
}

std::string Catalogue::Source(std::string_view id) const {
  const auto found = sources_.find(id);
  return found == sources_.end() ? std::string() : found->second;
}

}  // namespace mete::gpu
