#include "emulator/cuda/mig_view.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace mete::emulator::cuda {
namespace {

// "1c.3g.20gb"
const char* NameOf(const std::vector<MigProfileInfo>& profiles, const MigGpuInstance& gpu_instance,
                   const MigComputeInstance& compute_instance) {
  for (const MigProfileInfo& profile : profiles) {
    if (profile.id != gpu_instance.profile_id) continue;
    for (uint32_t i = 0; i < std::min<size_t>(profile.compute_count, kMostMigComputeProfiles); ++i) {
      if (profile.compute[i].id == compute_instance.profile_id) return profile.compute[i].name;
    }
    return profile.name;
  }
  return "?";
}

// A part of the board in memory slices.
template <typename T>
T Part(T whole, uint32_t slices, uint32_t of) {
  return of == 0 ? whole : static_cast<T>(static_cast<uint64_t>(whole) * slices / of);
}

}  // namespace

MigView::MigView(Client* client) {
  const std::vector<GpuInfo>& gpus = client->Gpus();
  for (uint32_t gpu = 0; gpu < gpus.size(); ++gpu) {
    MigState state = {};
    std::vector<MigProfileInfo> profiles;
    const bool on = gpus[gpu].mig_capable != 0 && client->Mig(gpu, &state) == Result::kOk && state.mode != 0;
    mode_.push_back(on);
    if (on && client->MigProfiles(gpu, &profiles) == Result::kOk) AddSeats(gpus[gpu], gpu, state, profiles);
  }
}

void MigView::AddSeats(const GpuInfo& whole, uint32_t gpu, const MigState& state,
                       const std::vector<MigProfileInfo>& profiles) {
  const auto instances_end = state.gpu_instance + std::min<size_t>(state.gpu_instances, kMostMigInstances);
  for (uint32_t i = 0; i < std::min<size_t>(state.compute_instances, kMostMigInstances); ++i) {
    const MigComputeInstance& compute = state.compute_instance[i];
    const auto* parent = std::find_if(state.gpu_instance, instances_end,
                                      [&](const MigGpuInstance& each) { return each.id == compute.gpu_instance; });
    if (parent == instances_end) continue;
    MigSeat seat = {gpu, compute.gpu_instance, compute.id, {}};
    memcpy(seat.uuid, compute.uuid, sizeof seat.uuid);
    GpuInfo info = whole;
    snprintf(info.name, sizeof info.name, "%.59s MIG %.31s", whole.name, NameOf(profiles, *parent, compute));
    info.sm_count = compute.sm_count;
    info.memory_bytes = parent->memory_bytes;
    info.reserved_bytes = 0;
    info.l2_bytes = Part(whole.l2_bytes, parent->size, state.memory_slices);
    info.memory_bus_bits = Part(whole.memory_bus_bits, parent->size, state.memory_slices);
    info.memory_bytes_per_s = Part(whole.memory_bytes_per_s, parent->size, state.memory_slices);
    seats_.push_back(seat);
    infos_.push_back(info);
  }
}

size_t MigView::IndexOf(const MigSeat& seat) const {
  return static_cast<size_t>(std::find(seats_.begin(), seats_.end(), seat) - seats_.begin());
}

}  // namespace mete::emulator::cuda
