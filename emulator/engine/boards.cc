#include "emulator/engine/boards.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "gpu/catalogue.h"
#include "gpu/mig.h"
#include "gpu/yaml_reader.h"

namespace mete::emulator {

namespace embedded {
extern const std::string_view kEmulator;
}  // namespace embedded

namespace {

constexpr double kWarp = 32;
constexpr uint32_t kPciDeviceNumber = 0;
constexpr uint32_t kFirstBus = 7, kBusStep = 8;  // 07, 0F, 17, …

struct Architecture {
  uint32_t threads, blocks, registers, shared_bytes, optin_bytes;
  double throughput[kInstructionClasses];
};
struct Clocks {
  uint32_t sm_mhz, memory_mhz, bus_bits;
  // What NVML says besides; 0 and empty: by the rules in Describe.
  uint32_t idle_mhz = 0, min_power_w = 0, bar1_mib = 0, nvlinks = 0, nvlink_gen = 0, fans = 0, slowdown_c = 0;
  std::string vbios, part;
};
struct Facts {
  std::map<std::string, Architecture, std::less<>> architectures;  // by "8.0"
  std::map<std::string, Clocks, std::less<>> boards;
  uint64_t reserved_base_mib = 0, reserved_per_mille = 0;
  uint64_t time_slices_ns[4] = {}, switch_ns = 0;
  std::vector<DriverBranch> drivers;
};

void SkipOrigin(gpu::YamlMap& map, const gpu::Sources& sources, gpu::YamlProblem& problem) {
  if (map.Has("est")) map.Flag("est");
  gpu::CheckSources(map.Names("src"), sources, map.node(), problem);
  map.Finish();
}

// Adds to `facts`; `whole`: nothing may be missing.
StatusOr<Facts> ReadFacts(std::string_view text, const std::string& document, bool whole, Facts facts) {
  METE_ASSIGN_OR_RETURN(const YAML::Node root_node, gpu::LoadYaml(text, document));
  gpu::YamlProblem problem(document);
  gpu::YamlMap root(root_node, problem);
  if (root.Text("schema") != "mete/emulator/1") problem.Add(root_node, "\"schema\" must be mete/emulator/1");
  root.Text("collected");
  if (whole || root.Has("units")) root.Map("units");
  const gpu::Sources sources = gpu::ReadSources(root, problem);
  const auto rows = [&](const char* key) {
    return whole || root.Has(key) ? root.List(key) : std::vector<YAML::Node>();
  };
  for (const YAML::Node& node : rows("architectures")) {
    gpu::YamlMap map(node, problem);
    const auto number = [&](const char* key) { return static_cast<uint32_t>(map.Number(key, 1, 1 << 20)); };
    Architecture& a = facts.architectures[map.Text("compute")];
    a.threads = number("threads");
    a.blocks = number("blocks");
    a.registers = number("registers");
    a.shared_bytes = number("shared_kib") << 10;
    a.optin_bytes = number("optin_kib") << 10;
    const double integer = number("integer") / kWarp, load_store = number("load_store") / kWarp;
    a.throughput[kAlu] = integer;
    a.throughput[kFp32] = number("fp32") / kWarp;
    a.throughput[kFp64] = number("fp64") / kWarp;
    a.throughput[kSpecial] = number("special") / kWarp;
    a.throughput[kLoadStore] = load_store;
    a.throughput[kShared] = 1;               // one warp's word each per cycle
    a.throughput[kAtomic] = load_store / 2;  // a read and a write
    a.throughput[kControl] = integer;
    SkipOrigin(map, sources, problem);
  }
  for (const YAML::Node& node : rows("boards")) {
    gpu::YamlMap map(node, problem);
    Clocks& clocks = facts.boards[map.Text("id")];
    clocks.sm_mhz = static_cast<uint32_t>(map.Number("sm_mhz", 100, 10'000));
    clocks.memory_mhz = static_cast<uint32_t>(map.Number("memory_mhz", 100, 100'000));
    clocks.bus_bits = static_cast<uint32_t>(map.Number("bus_bits", 32, 65'536));
    const auto perhaps = [&](const char* key, int64_t most, uint32_t* number) {
      if (map.Has(key)) *number = static_cast<uint32_t>(map.Number(key, 1, most));
    };
    perhaps("idle_mhz", 10'000, &clocks.idle_mhz);
    perhaps("min_power_w", 10'000, &clocks.min_power_w);
    perhaps("bar1_mib", 1 << 20, &clocks.bar1_mib);
    perhaps("nvlinks", 36, &clocks.nvlinks);
    perhaps("nvlink_gen", 9, &clocks.nvlink_gen);
    perhaps("fans", 16, &clocks.fans);
    perhaps("slowdown_c", 150, &clocks.slowdown_c);
    if (map.Has("vbios")) clocks.vbios = map.Text("vbios");
    if (map.Has("part")) clocks.part = map.Text("part");
    SkipOrigin(map, sources, problem);
  }
  if (whole || root.Has("reserved")) {
    gpu::YamlMap reserved = root.Map("reserved");
    facts.reserved_base_mib = static_cast<uint64_t>(reserved.Number("base_mib", 0, 10'000));
    facts.reserved_per_mille = static_cast<uint64_t>(reserved.Number("per_mille", 0, 100));
    SkipOrigin(reserved, sources, problem);
  }
  if (whole || root.Has("time_slices")) {
    gpu::YamlMap slices = root.Map("time_slices");
    const char* const names[] = {"default_us", "short_us", "medium_us", "long_us"};
    for (size_t i = 0; i < std::size(names); ++i) {
      facts.time_slices_ns[i] = static_cast<uint64_t>(slices.Number(names[i], 10, 10'000'000)) * 1000;
    }
    SkipOrigin(slices, sources, problem);
  }
  if (whole || root.Has("context_switch")) {
    gpu::YamlMap context_switch = root.Map("context_switch");
    facts.switch_ns = static_cast<uint64_t>(context_switch.Number("fixed_us", 0, 100'000)) * 1000;
    SkipOrigin(context_switch, sources, problem);
  }
  for (const YAML::Node& node : rows("drivers")) {
    gpu::YamlMap map(node, problem);
    DriverBranch driver;
    driver.branch = static_cast<int>(map.Number("branch", 400, 9999));
    driver.version = map.Text("version");
    driver.cuda = static_cast<uint32_t>(map.Number("cuda", 11000, 99'000));
    facts.drivers.push_back(driver);
    SkipOrigin(map, sources, problem);
  }
  root.Finish();
  if (!problem.ok()) return problem.status();
  return facts;
}

const StatusOr<Facts>& BuiltInFacts() {
  static const StatusOr<Facts> facts = ReadFacts(embedded::kEmulator, "emulator.yaml", true, {});
  return facts;
}

uint64_t Mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

void MakeUuid(const std::string& node_root, const std::string& board, uint32_t index, uint8_t (&uuid)[16]) {
  uint64_t state = Mixed(index + 1);
  const std::string whole = node_root + "\n" + board;
  for (const char c : whole) state = Mixed(state ^ static_cast<uint8_t>(c));
  const uint64_t halves[2] = {Mixed(state), Mixed(state + 1)};
  std::memcpy(uuid, halves, sizeof(uuid));
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x40);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
}

void CopyText(std::string_view text, char* out, size_t size) {
  std::memset(out, 0, size);
  std::memcpy(out, text.data(), std::min(text.size(), size - 1));
}

// Between host and device, one direction.
double HostBytesPerSecond(int generation, int lanes) {
  // A superchip has no PCIe between the two: NVLink-C2C, 450 GB/s each way by NVIDIA's figures.
  if (lanes == 0) return 0.8 * 450e9;
  // What copies reach in practice of 1 GB/s per lane and generation-3 step: about 80 %.
  const double per_lane = 0.985e9 * std::max(1, 1 << std::max(0, generation - 3));
  return 0.8 * per_lane * lanes;
}

// What NVML says of a board besides its work. Where emulator.yaml has nothing, a rule: estimates.
void Describe(const Clocks& facts, GpuInfo* info) {
  constexpr uint32_t kStackedBits = 2048;  // no GDDR bus is that wide
  const auto or_rule = [](uint32_t number, uint32_t rule) { return number != 0 ? number : rule; };
  info->hbm = facts.bus_bits >= kStackedBits ? 1 : 0;
  info->idle_clock_khz = or_rule(facts.idle_mhz, std::min<uint32_t>(facts.sm_mhz, 210)) * 1000;
  info->idle_memory_clock_khz = std::min<uint32_t>(facts.memory_mhz, 405) * 1000;
  info->min_power_mw = or_rule(facts.min_power_w * 1000, info->max_power_mw / 4);
  info->fans = facts.fans;
  info->nvlinks = facts.nvlinks;
  info->nvlink_generation = facts.nvlink_gen;
  info->slowdown_c = or_rule(facts.slowdown_c, 92);
  info->shutdown_c = info->slowdown_c + 3;
  // Boards with MIG map all their memory, the others a window.
  const uint64_t window = info->mig_capable != 0 ? std::bit_ceil(info->memory_bytes) : 256 * kMiB;
  info->bar1_bytes = facts.bar1_mib != 0 ? uint64_t{facts.bar1_mib} * kMiB : window;
  CopyText(facts.vbios, info->vbios, sizeof(info->vbios));
  CopyText(facts.part, info->part_number, sizeof(info->part_number));
}

StatusOr<EngineSettings::Gpu> MakeGpu(const gpu::Board& board, const Facts& facts, const std::string& node_root,
                                      uint32_t index) {
  const std::string compute = fmt::format("{}.{}", board.compute_major, board.compute_minor);
  const auto architecture = facts.architectures.find(compute);
  const auto clocks = facts.boards.find(board.id);
  if (architecture == facts.architectures.end() || clocks == facts.boards.end()) {
    return Lacks("emulator.yaml lacks {}; the board cannot be emulated until it is there",
                 clocks == facts.boards.end() ? board.id : "compute capability " + compute);
  }
  const Architecture& a = architecture->second;
  EngineSettings::Gpu gpu = {};
  GpuInfo& info = gpu.info;
  CopyText(board.nvml_name, info.name, sizeof(info.name));
  CopyText(board.id, info.board, sizeof(info.board));
  CopyText(board.architecture, info.architecture, sizeof(info.architecture));
  MakeUuid(node_root, board.id, index, info.uuid);
  CopyText(fmt::format("00000000:{:02X}:{:02X}.0", kFirstBus + kBusStep * index, kPciDeviceNumber), info.pci_bus_id,
           sizeof(info.pci_bus_id));
  info.minor = index;
  info.pci_device_id = board.pci_device_id;
  info.compute_major = static_cast<uint32_t>(board.compute_major);
  info.compute_minor = static_cast<uint32_t>(board.compute_minor);
  info.sm_count = static_cast<uint32_t>(board.sm_count);
  info.threads_per_sm = a.threads;
  info.blocks_per_sm = a.blocks;
  info.registers_per_sm = a.registers;
  info.shared_bytes_per_sm = a.shared_bytes;
  info.shared_bytes_per_block_optin = a.optin_bytes;
  info.clock_khz = clocks->second.sm_mhz * 1000;
  info.memory_clock_khz = clocks->second.memory_mhz * 1000;
  info.memory_bus_bits = clocks->second.bus_bits;
  info.pcie_gen = static_cast<uint32_t>(board.pcie_gen);
  info.pcie_lanes = static_cast<uint32_t>(board.pcie_lanes);
  info.max_power_mw = static_cast<uint32_t>(board.max_power_w) * 1000;
  gpu.mig = board.mig ? gpu::MigTables::BuiltIn().Find(board.id) : nullptr;
  info.mig_capable = gpu.mig != nullptr ? 1 : 0;
  info.memory_bytes = board.memory.count;
  info.reserved_bytes = facts.reserved_base_mib * kMiB + board.memory.count / 1000 * facts.reserved_per_mille;
  info.reserved_bytes = info.reserved_bytes / kMiB * kMiB;
  info.l2_bytes = static_cast<uint64_t>(board.l2_mib) * kMiB;
  info.memory_bytes_per_s = static_cast<uint64_t>(board.memory_bandwidth_gbs) * 1'000'000'000;
  info.context_bytes = board.context_memory.count;
  Describe(clocks->second, &info);

  GpuParameters& model = gpu.model;
  model.sm_count = info.sm_count;
  model.threads_per_sm = a.threads;
  model.blocks_per_sm = a.blocks;
  model.registers_per_sm = a.registers;
  model.shared_bytes_per_sm = a.shared_bytes;
  model.clock_hz = info.clock_khz * 1e3;
  model.memory_bytes_per_s = static_cast<double>(info.memory_bytes_per_s);
  model.l2_bytes = static_cast<double>(info.l2_bytes);
  model.pcie_bytes_per_s = HostBytesPerSecond(board.pcie_gen, board.pcie_lanes);
  std::copy(std::begin(a.throughput), std::end(a.throughput), model.warp_throughput);
  std::copy(std::begin(facts.time_slices_ns), std::end(facts.time_slices_ns), gpu.time_slices_ns);
  model.time_slice_ns = facts.time_slices_ns[0];
  model.switch_fixed_ns = facts.switch_ns;
  return gpu;
}

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NoSuch("--boards: {} cannot be read; docs/emulated-node.md shows what it holds", path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Boards from a folder of the user's.
struct More {
  gpu::Catalogue catalogue;
  Facts facts;
};
StatusOr<More> ReadMore(const std::string& folder) {
  More more;
  METE_ASSIGN_OR_RETURN(const std::string boards, ReadFile(folder + "/boards.yaml"));
  StatusOr<gpu::Catalogue> catalogue = gpu::Catalogue::Parse(boards);
  if (!catalogue.ok()) return Usage("{}/boards.yaml: {}", folder, Message(catalogue.status()));
  more.catalogue = *std::move(catalogue);
  METE_ASSIGN_OR_RETURN(const std::string facts, ReadFile(folder + "/emulator.yaml"));
  METE_ASSIGN_OR_RETURN(more.facts, ReadFacts(facts, folder + "/emulator.yaml", false, *BuiltInFacts()));
  return more;
}

}  // namespace

StatusOr<std::vector<EngineSettings::Gpu>> GpusByName(std::string_view names, const std::string& node_root,
                                                      const std::string& folder) {
  METE_RETURN_IF_ERROR(BuiltInFacts().status());
  More more;
  more.facts = *BuiltInFacts();
  if (!folder.empty()) {
    METE_ASSIGN_OR_RETURN(more, ReadMore(folder));
  }
  std::vector<EngineSettings::Gpu> gpus;
  while (true) {
    const size_t comma = names.find(',');
    std::string_view name = names.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    uint32_t count = 1;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), count);
    const auto used = static_cast<size_t>(number.ptr - name.data());
    if (number.ec == std::errc() && used + 1 < name.size() && name[used] == 'x') {
      name.remove_prefix(used + 1);
    } else {
      count = 1;
    }
    if (name.empty())
      return Usage("--gpus: a name is empty; write boards separated by commas, such as A100-SXM4-40GB,T4");
    const StatusOr<const gpu::Board*> own = more.catalogue.Find(name);
    const gpu::Board* board = own.value_or(nullptr);
    if (board == nullptr) {
      METE_ASSIGN_OR_RETURN(board, gpu::Catalogue::BuiltIn().Find(name));
    }
    if (count == 0 || count > kMaxGpus - gpus.size()) {
      return Usage("--gpus: a node has 1 to {} GPUs; '{}' asks for another number", kMaxGpus, names);
    }
    for (; count > 0; --count) {
      METE_ASSIGN_OR_RETURN(EngineSettings::Gpu gpu,
                            MakeGpu(*board, more.facts, node_root, static_cast<uint32_t>(gpus.size())));
      gpus.push_back(gpu);
    }
    if (comma == std::string_view::npos) return gpus;
    names.remove_prefix(comma + 1);
  }
}

StatusOr<DriverBranch> FindDriver(std::string_view branch) {
  METE_RETURN_IF_ERROR(BuiltInFacts().status());
  std::string known;
  for (const DriverBranch& driver : BuiltInFacts()->drivers) {
    if (std::to_string(driver.branch) == branch || driver.version == branch) return driver;
    known += (known.empty() ? "" : ", ") + std::to_string(driver.branch);
  }
  return NoSuch("--driver {}: the emulator knows the branches {}", branch, known);
}

std::string UuidText(const uint8_t (&uuid)[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

}  // namespace mete::emulator
