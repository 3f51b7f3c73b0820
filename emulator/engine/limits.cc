// Limits of device memory by cgroup: who is counted where, and what a group may have.
#include <algorithm>

#include "emulator/engine/engine.h"

namespace mete::emulator {

// Where the process is now; a process with a context stays where it made that.
Cgroups::Id Engine::CgroupOf(const Session& session) {
  if (settings_.cgroups == nullptr) return 0;
  for (const ContextRecord& context : session.contexts) {
    if (context.id != 0) return context.cgroup;
  }
  ForgetRemovedCgroups();
  return cgroups_.IdOf(settings_.cgroups->GroupOf(session.peer.pid));
}

bool Engine::Charge(Cgroups::Id group, uint32_t gpu, uint64_t bytes) {
  if (!cgroups_.Charge(group, gpu, bytes)) return false;
  ShowCgroup(group, gpu);
  return true;
}

void Engine::Uncharge(Cgroups::Id group, uint32_t gpu, uint64_t bytes) {
  cgroups_.Uncharge(group, gpu, bytes);
  ShowCgroup(group, gpu);
}

void Engine::ShowCgroup(Cgroups::Id group, uint32_t gpu) {
  for (; group != 0; group = cgroups_.ParentOf(group)) unwritten_.emplace(group, gpu);
}

void Engine::WriteCgroups() {
  for (const auto& [group, gpu] : unwritten_) {
    settings_.cgroups->Show(cgroups_.PathOf(group), gpu, cgroups_.LimitsOf(group, gpu), cgroups_.Current(group, gpu));
  }
  unwritten_.clear();
}

// A group's limits go with its folder; a new one of the same name begins without.
void Engine::ForgetRemovedCgroups() {
  for (const Cgroups::Id group : cgroups_.Limited()) {
    if (!settings_.cgroups->Exists(cgroups_.PathOf(group))) cgroups_.ClearLimits(group);
  }
}

Result Engine::SetLimits(uint32_t gpu, const std::string& group, MemoryLimits limits) {
  if (settings_.cgroups == nullptr) return Result::kRefused;
  ForgetRemovedCgroups();
  if (!settings_.cgroups->HasController(group)) return Result::kNoSuchObject;
  const uint64_t capacity = gpus_[gpu]->info.memory_bytes;
  if (limits.hard != kNoMemoryLimit && (limits.hard > capacity || limits.soft > limits.hard)) return Result::kInvalid;
  if (limits.hard == kNoMemoryLimit && limits.soft > capacity) return Result::kInvalid;
  const Cgroups::Id id = cgroups_.IdOf(group);
  const uint64_t before = cgroups_.LimitsOf(id, gpu).soft;
  cgroups_.SetLimits(id, gpu, limits);
  // What a group is to keep is kept in those above it, too.
  for (Cgroups::Id above = cgroups_.ParentOf(id); above != 0; above = cgroups_.ParentOf(above)) {
    MemoryLimits sum = cgroups_.LimitsOf(above, gpu);
    sum.soft = sum.soft + limits.soft - std::min(sum.soft + limits.soft, before);
    cgroups_.SetLimits(above, gpu, sum);
  }
  ShowCgroup(id, gpu);
  WriteCgroups();
  return Result::kOk;
}

Result Engine::GetLimits(uint32_t gpu, const std::string& group, MemoryLimits* limits, uint64_t* current) {
  if (settings_.cgroups == nullptr) return Result::kRefused;
  ForgetRemovedCgroups();
  if (!settings_.cgroups->HasController(group)) return Result::kNoSuchObject;
  const Cgroups::Id id = cgroups_.IdOf(group);
  *limits = cgroups_.LimitsOf(id, gpu);
  *current = cgroups_.Current(id, gpu);
  return Result::kOk;
}

}  // namespace mete::emulator
