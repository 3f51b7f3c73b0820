#include <algorithm>

#include "emulator/smi/mig.h"
#include "emulator/smi/words.h"

namespace mete::emulator::smi {

namespace {

// A piece of a row: where it begins, or with `ends` where its last character is followed by the next column.
struct Cell {
  size_t column;
  std::string text;
  bool ends = false;
};

std::string CellRow(size_t width, const std::vector<Cell>& cells) {
  std::string row(width, ' ');
  row.front() = row.back() = '|';
  for (const Cell& cell : cells) {
    const size_t begin = !cell.ends ? cell.column : cell.column - std::min(cell.column, cell.text.size());
    for (size_t i = 0; i < cell.text.size() && begin + i + 1 < width; ++i) row[begin + i] = cell.text[i];
  }
  return row + "\n";
}

std::string TableRule(size_t width, char line) {
  const char edge = line == '=' ? '|' : '+';
  return edge + std::string(width - 2, line) + edge + "\n";
}

Cell Ends(size_t column, uint32_t number) { return {column, std::to_string(number), true}; }

constexpr size_t kProfilesWide = 81, kInstancesWide = 59, kComputeWide = 70, kComputeProfilesWide = 88;

std::string GpuProfileRows(uint32_t gpu, const MigProfileRow& p) {
  const std::string memory = Printed("%.2f", static_cast<double>(p.memory_mib) / 1024);
  return CellRow(kProfilesWide, {Ends(5, gpu),
                                 {7, "MIG " + p.name},
                                 Ends(29, p.id),
                                 {34, std::to_string(p.free) + "/" + std::to_string(p.total)},
                                 {45, memory},
                                 {56, p.peer_to_peer ? "Yes" : "No"},
                                 {63, std::to_string(p.sm_count)},
                                 Ends(71, p.engines.decoders),
                                 Ends(77, p.engines.encoders)}) +
         CellRow(kProfilesWide, {Ends(65, p.engines.copy), Ends(71, p.engines.jpeg), Ends(77, p.engines.ofa)}) +
         TableRule(kProfilesWide, '-');
}

std::string ComputeProfileRows(uint32_t gpu, const MigGpuInstance& instance, const MigProfileRow& p) {
  const bool whole = &p == DefaultComputeProfile(instance);
  return CellRow(kComputeProfilesWide, {Ends(5, gpu),
                                        Ends(12, instance.id),
                                        {19, "MIG " + p.name},
                                        Ends(41, p.id),
                                        {41, whole ? "*" : " "},
                                        {47, std::to_string(p.free) + "/" + std::to_string(p.total)},
                                        {61, std::to_string(p.sm_count)},
                                        Ends(72, p.engines.decoders),
                                        Ends(78, p.engines.encoders),
                                        Ends(84, p.engines.ofa)}) +
         CellRow(kComputeProfilesWide, {Ends(72, p.engines.copy), Ends(78, p.engines.jpeg)}) +
         TableRule(kComputeProfilesWide, '-');
}

std::string Placement(uint32_t start, uint32_t size) { return std::to_string(start) + ":" + std::to_string(size); }

std::string NameOf(const std::vector<MigProfileRow>& profiles, uint32_t id) {
  const auto found = std::find_if(profiles.begin(), profiles.end(), [id](const auto& p) { return p.id == id; });
  return "MIG " + (found == profiles.end() ? "?" : found->name);
}

std::string InstanceRow(uint32_t gpu, const MigNode& node, const MigGpuInstance& instance) {
  return CellRow(kInstancesWide, {Ends(5, gpu),
                                  {7, NameOf(node.profiles, instance.profile)},
                                  Ends(31, instance.profile),
                                  Ends(40, instance.id),
                                  {50, Placement(instance.start, instance.size)}}) +
         TableRule(kInstancesWide, '-');
}

std::string ComputeRow(uint32_t gpu, const MigGpuInstance& instance, const MigComputeInstance& compute) {
  return CellRow(kComputeWide, {Ends(5, gpu),
                                Ends(12, instance.id),
                                {19, NameOf(instance.compute_profiles, compute.profile)},
                                Ends(41, compute.profile),
                                Ends(51, compute.id),
                                {61, Placement(compute.start, compute.size)}}) +
         TableRule(kComputeWide, '-');
}

// "Placements: {0,4}:4", "Placement : {0}:8".
std::string PlacementsOf(const MigProfileRow& profile) {
  std::string starts;
  for (const uint32_t start : profile.starts) starts += (starts.empty() ? "" : ",") + std::to_string(start);
  return Printed("Profile ID %2u Placement%s: {", profile.id, profile.starts.size() == 1 ? " " : "s") + starts +
         "}:" + std::to_string(profile.size) + "\n";
}

std::string Numbered(const char* what, uint32_t number) { return Printed("%s %2u ", what, number); }

std::string Header(size_t width, const std::vector<std::vector<Cell>>& rows) {
  std::string text = TableRule(width, '-');
  for (const auto& row : rows) text += CellRow(width, row);
  return text + TableRule(width, '=');
}

std::string HeaderOf(MigAction action) {
  switch (action) {
    case MigAction::kGpuProfiles:
      return Header(kProfilesWide, {{{2, "GPU instance profiles:"}},
                                    {{2, "GPU"},
                                     {8, "Name"},
                                     {27, "ID"},
                                     {33, "Instances"},
                                     {45, "Memory"},
                                     {56, "P2P"},
                                     {63, "SM"},
                                     {69, "DEC"},
                                     {75, "ENC"}},
                                    {{33, "Free/Total"}, {46, "GiB"}, {63, "CE"}, {69, "JPEG"}, {75, "OFA"}}});
    case MigAction::kGpuInstances:
      return Header(kInstancesWide, {{{2, "GPU instances:"}},
                                     {{2, "GPU"}, {8, "Name"}, {27, "Profile"}, {36, "Instance"}, {47, "Placement"}},
                                     {{29, "ID"}, {38, "ID"}, {47, "Start:Size"}}});
    case MigAction::kComputeProfiles:
      return Header(
          kComputeProfilesWide,
          {{{2, "Compute instance profiles:"}},
           {{2, "GPU"},
            {10, "GPU"},
            {20, "Name"},
            {37, "Profile"},
            {46, "Instances"},
            {58, "Exclusive"},
            {74, "Shared"}},
           {{8, "Instance"}, {39, "ID"}, {46, "Free/Total"}, {61, "SM"}, {70, "DEC"}, {76, "ENC"}, {82, "OFA"}},
           {{10, "ID"}, {70, "CE"}, {76, "JPEG"}}});
    case MigAction::kComputeInstances:
      return Header(kComputeWide,
                    {{{2, "Compute instances:"}},
                     {{2, "GPU"}, {10, "GPU"}, {20, "Name"}, {37, "Profile"}, {47, "Instance"}, {58, "Placement"}},
                     {{8, "Instance"}, {39, "ID"}, {49, "ID"}, {58, "Start:Size"}},
                     {{10, "ID"}}});
    default: return "";
  }
}

}  // namespace

const MigProfileRow* DefaultComputeProfile(const MigGpuInstance& instance) {
  const auto& profiles = instance.compute_profiles;
  const auto whole = std::max_element(profiles.begin(), profiles.end(), [](const auto& a, const auto& b) {
    return a.slices != b.slices ? a.slices < b.slices : a.sm_count < b.sm_count;
  });
  return whole == profiles.end() ? nullptr : &*whole;
}

std::string MigTable(MigAction action, const std::vector<uint32_t>& gpus, const std::vector<MigNode>& nodes) {
  std::string text = HeaderOf(action);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const uint32_t gpu = gpus[i];
    const MigNode& node = nodes[i];
    for (const MigProfileRow& profile : node.profiles) {
      if (action == MigAction::kGpuProfiles) text += GpuProfileRows(gpu, profile);
      if (action == MigAction::kGpuPlacements) text += Numbered("GPU", gpu) + PlacementsOf(profile);
    }
    for (const MigGpuInstance& instance : node.gpu_instances) {
      if (action == MigAction::kGpuInstances) text += InstanceRow(gpu, node, instance);
      for (const MigProfileRow& profile : instance.compute_profiles) {
        if (action == MigAction::kComputeProfiles) text += ComputeProfileRows(gpu, instance, profile);
        if (action == MigAction::kComputePlacements) {
          text += Numbered("GPU", gpu) + Numbered("GI", instance.id) + PlacementsOf(profile);
        }
      }
      for (const MigComputeInstance& compute : instance.compute_instances) {
        if (action == MigAction::kComputeInstances) text += ComputeRow(gpu, instance, compute);
      }
    }
  }
  return text;
}

}  // namespace mete::emulator::smi
