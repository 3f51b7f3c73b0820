#include "emulator/engine/cgroups.h"

#include <algorithm>

namespace mete::emulator {

Cgroups::Id Cgroups::IdOf(const std::string& path) {
  if (path.empty()) return 0;
  const auto found = ids_.find(path);
  if (found != ids_.end()) return found->second;
  const size_t slash = path.rfind('/');
  const Id parent = slash == std::string::npos ? 0 : IdOf(path.substr(0, slash));
  const Id id = groups_.size();
  groups_.push_back({path, parent, std::vector<uint64_t>(gpus_), std::vector<MemoryLimits>(gpus_)});
  ids_.emplace(path, id);
  return id;
}

bool Cgroups::Charge(Id id, uint32_t gpu, uint64_t bytes) {
  if (bytes > RoomOf(id, gpu).left) return false;
  for (; id != 0; id = groups_[id].parent) groups_[id].current[gpu] += bytes;
  return true;
}

void Cgroups::Uncharge(Id id, uint32_t gpu, uint64_t bytes) {
  for (; id != 0; id = groups_[id].parent) groups_[id].current[gpu] -= bytes;
}

uint64_t Cgroups::Current(Id id, uint32_t gpu) const { return id == 0 ? 0 : groups_[id].current[gpu]; }

MemoryLimits Cgroups::LimitsOf(Id id, uint32_t gpu) const { return id == 0 ? MemoryLimits{} : groups_[id].limits[gpu]; }

void Cgroups::SetLimits(Id id, uint32_t gpu, MemoryLimits limits) {
  if (id != 0) groups_[id].limits[gpu] = limits;
}

void Cgroups::ClearLimits(Id id) {
  if (id != 0) groups_[id].limits.assign(gpus_, {});
}

Cgroups::Room Cgroups::RoomOf(Id id, uint32_t gpu) const {
  Room room;
  for (; id != 0; id = groups_[id].parent) {
    const uint64_t hard = groups_[id].limits[gpu].hard, current = groups_[id].current[gpu];
    if (hard == kNoMemoryLimit) continue;
    room.most = std::min(room.most, hard);
    room.left = std::min(room.left, hard - std::min(hard, current));
  }
  return room;
}

std::vector<Cgroups::Id> Cgroups::Limited() const {
  std::vector<Id> ids;
  for (Id id = 1; id < groups_.size(); ++id) {
    const auto& limits = groups_[id].limits;
    const auto has = [](const MemoryLimits& one) { return one.soft != 0 || one.hard != kNoMemoryLimit; };
    if (std::any_of(limits.begin(), limits.end(), has)) ids.push_back(id);
  }
  return ids;
}

}  // namespace mete::emulator
