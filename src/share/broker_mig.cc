// What the broker knows of MIG instances: which stand on a GPU and who has them, for the plan to choose from.
#include <algorithm>
#include <utility>

#include "mechanism/mig/mig.h"
#include "share/broker.h"

namespace mete::share {

const gpu::MigBoard* Broker::MigBoardOf(const Gpu& gpu) const {
  return gpu.facts.board == nullptr ? nullptr : gpu::MigTables::BuiltIn().Find(gpu.facts.board->id);
}

// Whose the instance is, for a sentence; empty: nobody's, it can be adopted.
std::string Broker::TenantOf(const Gpu& gpu, const nvml::GpuInstance& instance,
                             const std::optional<plan::Instance>& place, bool* movable) const {
  for (const auto& entry : shares_) {
    for (const plan::GpuGrant& part : entry.second->row.grant.gpus) {
      if (!place || part.uuid != gpu.reading.uuid || part.instance != place) continue;
      *movable = true;
      return "share " + entry.second->row.grant.share;
    }
  }
  for (const auto& entry : unreleased_) {
    for (const plan::GpuGrant& part : entry.second.grant.gpus) {
      if (place && part.uuid == gpu.reading.uuid && part.instance == place) {
        return fmt::format("share {}, which is being ended", entry.second.grant.share);
      }
    }
  }
  if (instance.compute.size() != 1 || instance.compute[0].uuid.empty()) {
    return fmt::format("somebody who cut it into {} compute instances", instance.compute.size());
  }
  if (const auto device = gpus_.find(instance.compute[0].uuid); device != gpus_.end()) {
    const plan::GpuOccupancy occupancy = OccupancyOf(device->first);
    if (!occupancy.holdings.empty()) return "share " + occupancy.holdings[0].share;
  }
  for (const nvml::Process& process : gpu.reading.processes) {
    if (process.gpu_instance == instance.id) return fmt::format("process {}, of no share", process.pid);
  }
  return {};
}

void Broker::AddInstances(const Gpu& gpu, plan::GpuView* view) const {
  const gpu::MigBoard* board = MigBoardOf(gpu);
  for (const nvml::GpuInstance& instance : gpu.reading.instances) {
    const auto place = board == nullptr ? std::nullopt : mechanism::PlaceOf(*board, instance);
    plan::InstanceView one;
    one.profile = place ? place->profile : fmt::format("GPU instance {}", instance.id);
    one.start = place ? place->start : instance.start;
    if (instance.compute.size() == 1) one.uuid = instance.compute[0].uuid;
    one.tenant = TenantOf(gpu, instance, place, &one.movable);
    view->instances.push_back(std::move(one));
  }
  if (board != nullptr && demand_) view->planner = demand_->PlannerOf(*board);
}

std::vector<plan::GpuView> Broker::MigDevicesOf(const Gpu& gpu, const plan::GpuView& parent) const {
  std::vector<plan::GpuView> views;
  const gpu::MigBoard* board = MigBoardOf(gpu);
  for (const nvml::GpuInstance& instance : gpu.reading.instances) {
    const auto place = board == nullptr ? std::nullopt : mechanism::PlaceOf(*board, instance);
    for (const nvml::ComputeInstance& compute : instance.compute) {
      const auto device = gpus_.find(compute.uuid);
      if (!place || device == gpus_.end()) continue;
      plan::GpuView view = mechanism::ViewOfMigDevice(parent, OccupancyOf(compute.uuid), *place);
      bool movable = false;
      const std::string tenant = TenantOf(gpu, instance, place, &movable);
      // One that interception shares has its shares among the holdings; what has it whole has it alone.
      if (view.occupancy.holdings.empty() && tenant.rfind("share ", 0) == 0) view.exclusive_tenant = tenant.substr(6);
      views.push_back(std::move(view));
    }
  }
  return views;
}

// Where a share's instance stands, as NVML shows it now; null: it is not there.
const nvml::GpuInstance* Broker::InstanceOf(const plan::GpuGrant& part) const {
  const auto gpu = gpus_.find(part.uuid);
  if (gpu == gpus_.end() || !part.instance) return nullptr;
  const gpu::MigBoard* board = MigBoardOf(gpu->second);
  for (const nvml::GpuInstance& instance : gpu->second.reading.instances) {
    if (board != nullptr && mechanism::PlaceOf(*board, instance) == part.instance) return &instance;
  }
  return nullptr;
}

// Is a process that NVML shows there on what the share has?
bool Broker::IsOn(const plan::GpuGrant& part, const GpuReading& gpu, const nvml::Process& seen) const {
  if (!part.instance) return part.uuid == gpu.uuid && !seen.gpu_instance;
  const nvml::GpuInstance* instance = InstanceOf(part);
  if (instance == nullptr) return false;
  if (part.uuid == gpu.uuid) return seen.gpu_instance == instance->id;
  return part.uuid == gpu.parent && !instance->compute.empty() && instance->compute[0].uuid == gpu.uuid;
}

}  // namespace mete::share
