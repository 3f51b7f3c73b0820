#include "cli/inventory.h"

#include <algorithm>
#include <map>

#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "gpu/mechanism.h"
#include "mechanism/gpu_view.h"
#include "mechanism/intercept/kernel_limits.h"
#include "mechanism/mig/mig.h"
#include "plan/mig/parted.h"

namespace mete::cli {
namespace {

using mechanism::Keeps;
using mechanism::Standing;
using mechanism::VariantHere;

InventoryGpu Look(const nvml::Device& device, const mechanism::Node& node, int driver_major,
                  const mechanism::KernelLimitFacts& limits) {
  mechanism::GpuLook look = mechanism::LookAt(device, node.roots.sys, driver_major, limits);
  InventoryGpu gpu;
  gpu.index = device.index();
  gpu.uuid = device.uuid();
  gpu.pci_bus_id = std::move(look.pci_bus_id);
  gpu.memory = look.memory;
  gpu.facts = std::move(look.facts);
  gpu.trouble = std::move(look.trouble);
  gpu.variants = mechanism::ProbeGpu(gpu.facts);
  return gpu;
}

std::string MigText(const nvml::MigState& mig) {
  const auto name = [](nvml::MigMode mode) {
    return mode == nvml::MigMode::kEnabled ? "on" : mode == nvml::MigMode::kDisabled ? "off" : "none";
  };
  if (mig.current == mig.pending) return name(mig.current);
  return fmt::format("{}, {} after a reset", name(mig.current), name(mig.pending));
}

std::string CudaText(uint32_t version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string BoardName(const mechanism::GpuFacts& facts) {
  return facts.board == nullptr ? facts.name : gpu::ShortName(*facts.board);
}

std::string_view StandingName(Standing standing) {
  switch (standing) {
    case Standing::kSupported: return "supported";
    case Standing::kNotBuilt: return "not-built";
    case Standing::kNotPossible: break;
  }
  return "not-possible";
}

std::string_view KeepsName(Keeps keeps) {
  switch (keeps) {
    case Keeps::kAlways: return "always";
    case Keeps::kWhileInForce: return "while-in-force";
    case Keeps::kWhileAllGranted: return "while-all-granted";
    case Keeps::kNot: break;
  }
  return "no";
}

std::string Here(const VariantHere& here) {
  switch (here.standing) {
    case Standing::kSupported: return here.why.empty() ? "supported" : "supported; " + here.why;
    case Standing::kNotBuilt: return here.why.empty() ? "not built yet" : "not built yet; " + here.why;
    case Standing::kNotPossible: break;
  }
  return "not, because " + here.why;
}

// "memory-privacy; compute-cap while in force (1); …": one clause for each way of keeping.
std::string KeepsText(const VariantHere& here) {
  if (here.standing == Standing::kNotPossible) return {};
  std::map<Keeps, std::vector<std::string>> by;
  for (const auto& promise : here.promises) by[promise.keeps].emplace_back(Name(promise.promise));
  std::vector<std::string> clauses;
  const std::vector<std::string>& always = by[Keeps::kAlways];
  if (by[Keeps::kNot].empty() && always.size() == gpu::kPromiseCount) {
    clauses.emplace_back("all");
  } else if (always.size() + by[Keeps::kNot].size() == gpu::kPromiseCount && by[Keeps::kNot].size() <= 3) {
    clauses.push_back("all but " + JoinNames(by[Keeps::kNot], "and"));
  } else if (!always.empty()) {
    clauses.push_back(JoinNames(always, "and"));
  }
  if (!by[Keeps::kWhileInForce].empty()) clauses.push_back(JoinNames(by[Keeps::kWhileInForce], "and") + " (a)");
  if (!by[Keeps::kWhileAllGranted].empty()) clauses.push_back(JoinNames(by[Keeps::kWhileAllGranted], "and") + " (b)");
  std::string text;
  for (const std::string& clause : clauses) text += (text.empty() ? "" : "; ") + clause;
  return text.empty() ? "none" : text;
}

// One row for each variant that is possible, one for a mechanism none of whose variants is.
std::string MechanismTable(const std::vector<VariantHere>& variants, size_t width) {
  Table table({{"mechanism"}, {"here", Align::kLeft, true}, {"keeps", Align::kLeft, true}});
  for (Standing standing : {Standing::kSupported, Standing::kNotBuilt, Standing::kNotPossible}) {
    std::vector<gpu::Mechanism> told;
    for (const VariantHere& here : variants) {
      if (here.standing != standing) continue;
      const gpu::Mechanism mechanism = here.variant->mechanism;
      const bool none_possible = std::all_of(variants.begin(), variants.end(), [mechanism](const VariantHere& other) {
        return other.variant->mechanism != mechanism || other.standing == Standing::kNotPossible;
      });
      if (none_possible && std::find(told.begin(), told.end(), mechanism) != told.end()) continue;
      told.push_back(mechanism);
      const std::string_view name = none_possible ? Name(mechanism) : std::string_view(here.variant->name);
      table.AddRow({std::string(name), Here(here), KeepsText(here)});
    }
  }
  return table.Render(width, 2);
}

constexpr std::string_view kNotes =
    "(a) while mete sees its limits in force in every process of the tenant\n"
    "(b) while every tenant of the GPU holds a grant of mete; a cap until then\n"
    "`mete explain NAME` tells why, with sources, for every mechanism, promise and board named here.\n";

}  // namespace

StatusOr<Inventory> TakeInventory(const mechanism::Node& node, const nvml::Library& library) {
  Inventory inventory;
  inventory.node = node;
  inventory.driver_version = library.driver_version();
  inventory.cuda_version = library.cuda_version();
  inventory.emulated = library.emulated();
  METE_ASSIGN_OR_RETURN(const auto devices, library.Devices());
  const int driver_major = mechanism::DriverMajor(inventory.driver_version);
  const mechanism::KernelLimitFacts limits = mechanism::LookForKernelLimits(library, node.roots.sys + "/fs/cgroup");
  for (const auto& device : devices) inventory.gpus.push_back(Look(*device, node, driver_major, limits));
  if (inventory.gpus.empty()) {
    return Lacks(
        "the driver {} in {} shows no GPU: check that one is plugged in and that this user may open its device file, "
        "or "
        "try an emulated node: `mete emulate up --gpus A100-SXM4-40GB`",
        inventory.driver_version, node.Description());
  }
  return inventory;
}

std::string InventoryText(const Inventory& inventory, size_t width) {
  std::string text =
      fmt::format("node    {}\ndriver  {}, CUDA {}{}\n\n", inventory.node.Description(), inventory.driver_version,
                  CudaText(inventory.cuda_version), inventory.emulated ? "; EMULATED: there is no GPU behind it" : "");
  Table gpus(
      {{"GPU", Align::kRight}, {"board"}, {"memory", Align::kRight}, {"free", Align::kRight}, {"MIG"}, {"UUID"}});
  for (const InventoryGpu& gpu : inventory.gpus) {
    gpus.AddRow({std::to_string(gpu.index), gpu.facts.name, gpu.memory ? ToString(gpu.memory->total) : "unknown",
                 gpu.memory ? ToString(gpu.memory->free) : "unknown", MigText(gpu.facts.mig), gpu.uuid});
  }
  text += gpus.Render(width);
  for (const InventoryGpu& gpu : inventory.gpus) {
    if (!gpu.trouble.empty()) text += gpu.trouble + "\n";
  }
  // GPUs of the same board in the same state can do the same: one table for all of them.
  std::vector<std::pair<std::string, std::vector<const InventoryGpu*>>> groups;
  for (const InventoryGpu& gpu : inventory.gpus) {
    const std::string table = MechanismTable(gpu.variants, width);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.first == table && group.second.front()->facts.name == gpu.facts.name;
    });
    if (same == groups.end()) {
      groups.push_back({table, {&gpu}});
    } else {
      same->second.push_back(&gpu);
    }
  }
  for (const auto& [table, members] : groups) {
    std::vector<std::string> indices;
    for (const InventoryGpu* gpu : members) indices.push_back(std::to_string(gpu->index));
    text += fmt::format("\n{} (GPU {})\n{}", BoardName(members.front()->facts), JoinNames(indices, "and"), table);
  }
  return text + "\n" + std::string(kNotes);
}

Json InventoryJson(const Inventory& inventory) {
  constexpr const char* kFoundBy[] = {"name", "variable", "host", "emulated-node"};
  Json json;
  json["node"] = {{"driver_root", inventory.node.roots.driver},
                  {"found_by", kFoundBy[static_cast<size_t>(inventory.node.found_by)]}};
  json["emulated"] = inventory.emulated;
  json["driver_version"] = inventory.driver_version;
  json["cuda_version"] = CudaText(inventory.cuda_version);
  json["gpus"] = Json::array();
  for (const InventoryGpu& gpu : inventory.gpus) {
    Json one;
    one["index"] = gpu.index;
    one["uuid"] = gpu.uuid;
    one["name"] = gpu.facts.name;
    one["board"] = gpu.facts.board == nullptr ? Json() : Json(gpu.facts.board->id);
    one["pci_bus_id"] = gpu.pci_bus_id.empty() ? Json() : Json(gpu.pci_bus_id);
    one["compute_capability"] = fmt::format("{}.{}", gpu.facts.capability.major, gpu.facts.capability.minor);
    if (gpu.memory) {
      one["memory"] = {{"total_bytes", gpu.memory->total.count},
                       {"reserved_bytes", gpu.memory->reserved.count},
                       {"used_bytes", gpu.memory->used.count},
                       {"free_bytes", gpu.memory->free.count}};
    } else {
      one["memory"] = Json();
    }
    one["mig"] = MigText(gpu.facts.mig);
    if (!gpu.trouble.empty()) one["trouble"] = gpu.trouble;
    one["mechanisms"] = Json::array();
    for (const VariantHere& here : gpu.variants) {
      Json variant;
      variant["mechanism"] = Name(here.variant->mechanism);
      variant["variant"] = here.variant->name;
      variant["standing"] = StandingName(here.standing);
      variant["why"] = here.why;
      for (const auto& promise : here.promises) {
        variant["promises"][std::string(Name(promise.promise))] = {{"keeps", KeepsName(promise.keeps)},
                                                                   {"why", promise.why}};
      }
      one["mechanisms"].push_back(std::move(variant));
    }
    json["gpus"].push_back(std::move(one));
  }
  return json;
}

namespace {

// One entry for each GPU that has MIG, with what stands on it now.
StatusOr<plan::mig::PartedFile> LayoutOf(const nvml::Library& library) {
  METE_ASSIGN_OR_RETURN(const auto devices, library.Devices());
  std::vector<plan::mig::PartedEntry> entries;
  for (const auto& device : devices) {
    METE_ASSIGN_OR_RETURN(const nvml::MigState mig, device->Mig());
    if (mig.current == nvml::MigMode::kNotCapable) continue;
    plan::mig::PartedEntry entry;
    entry.devices = {static_cast<int>(device->index())};
    entry.mig_enabled = mig.current == nvml::MigMode::kEnabled;
    std::map<std::string, int> counts;
    if (entry.mig_enabled) {
      METE_ASSIGN_OR_RETURN(const gpu::MigBoard* board, mechanism::MigBoardOf(*device));
      METE_ASSIGN_OR_RETURN(const std::vector<nvml::GpuInstance> instances, device->GpuInstances());
      for (const nvml::GpuInstance& instance : instances) {
        const auto place = mechanism::PlaceOf(*board, instance);
        if (!place)
          return Refused("GPU {}: mete's table of the board does not know GPU instance {}", device->index(),
                         instance.id);
        ++counts[place->profile];
      }
    }
    entry.profiles.assign(counts.begin(), counts.end());
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) return Refused("no GPU of this node has MIG");
  return plan::mig::PartedFile{{{"current", std::move(entries)}}};
}

StatusOr<int> RunInventory(const std::vector<std::string>& words) {
  CLI::App app("What each GPU can do, and what it cannot and why.");
  Common common;
  AddCommon(app, common);
  bool parted = false;
  app.add_flag("--mig-parted", parted, "The MIG instances that are there, as a file for 'mete apply --mig-parted'");
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "inventory", words));
  if (!go) return 0;
  METE_ASSIGN_OR_RETURN(const mechanism::Node node, mechanism::FindNode(common.driver_root));
  METE_ASSIGN_OR_RETURN(const auto library, nvml::Library::Open(node.roots.driver));
  if (parted) {
    METE_ASSIGN_OR_RETURN(const plan::mig::PartedFile file, LayoutOf(*library));
    Print(plan::mig::WriteParted(file));
    return 0;
  }
  METE_ASSIGN_OR_RETURN(const Inventory inventory, TakeInventory(node, *library));
  if (common.json) {
    PrintJson(InventoryJson(inventory));
  } else {
    Print(InventoryText(inventory, TerminalWidth(STDOUT_FILENO)));
  }
  return 0;
}

}  // namespace

const Command kInventory{"inventory", "what each GPU can do, and what it cannot and why", Group::kLook, RunInventory};

}  // namespace mete::cli
