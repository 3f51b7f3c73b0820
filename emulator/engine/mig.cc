#include "emulator/engine/mig.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mete::emulator {

namespace {

template <size_t N>
void CopyName(const std::string& text, char (&out)[N]) {
  std::memset(out, 0, N);
  text.copy(out, N - 1);
}

uint32_t CopyStarts(const std::vector<int>& from, uint8_t (&to)[kMostMigStarts]) {
  const size_t count = std::min(from.size(), kMostMigStarts);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(from[i]);
  return static_cast<uint32_t>(count);
}

bool Listed(const std::vector<int>& starts, uint32_t start) {
  return std::find(starts.begin(), starts.end(), static_cast<int>(start)) != starts.end();
}

// What a profile takes of the things that a board has only so many of.
std::array<int, 6> Takes(const gpu::MigProfile& profile) {
  return {profile.compute_slices, 1, profile.engines.decoder, profile.engines.encoder, profile.engines.jpeg,
          profile.engines.ofa};
}

bool Overlap(uint32_t a, int a_size, uint32_t b, int b_size) {
  return a < b + static_cast<uint32_t>(b_size) && b < a + static_cast<uint32_t>(a_size);
}

// Made from the GPU's with the ids in it, in the form of UUIDs made from names (version 5): drivers give an instance
// that is made again the same one.
void MakeMigUuid(const uint8_t (&gpu)[16], uint32_t gpu_instance, uint32_t compute_instance, uint8_t (&uuid)[16]) {
  uint64_t state = uint64_t{gpu_instance} << 32 | compute_instance;
  for (const uint8_t byte : gpu) state = (state ^ byte) * 0x100000001b3;
  for (uint8_t& byte : uuid) {
    state = state * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
    byte = static_cast<uint8_t>(state >> 56);
  }
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x50);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
}

}  // namespace

// --- What fits -----------------------------------------------------------------------------------------------------

bool MigGpu::Fits(const gpu::MigProfile& profile, uint32_t start) const {
  // No source counts a board's media engines: the profile with most of a kind has all of them.
  std::array<int, kSums> left = {board_->compute_slices, board_->max_gpu_instances};
  for (const gpu::MigProfile& other : board_->profiles) {
    for (size_t i = 2; i < kSums; ++i) left[i] = std::max(left[i], Takes(other)[i]);
  }
  int same = 0;
  for (const Instance& there : instances_) {
    if (Overlap(start, profile.memory_slices, there.info.start, there.profile->memory_slices)) return false;
    same += there.profile == &profile;
    for (size_t i = 0; i < kSums; ++i) left[i] -= Takes(*there.profile)[i];
  }
  for (size_t i = 0; i < kSums; ++i) {
    if (Takes(profile)[i] > 0 && Takes(profile)[i] > left[i]) return false;
  }
  return same < profile.max_instances;
}

std::vector<uint32_t> MigGpu::FreeStarts(const gpu::MigProfile& profile) const {
  std::vector<uint32_t> starts;
  for (const int start : profile.starts) {
    if (Fits(profile, static_cast<uint32_t>(start))) starts.push_back(static_cast<uint32_t>(start));
  }
  return starts;
}

// Drivers leave room: the placement that gets in the way of fewest others, the last of equal ones. So a 1g comes to lie
// at the end of an empty A100, a 3g in its second half.
uint32_t MigGpu::ChooseStart(const gpu::MigProfile& profile) const {
  uint32_t best = kAnyStart;
  size_t least = SIZE_MAX;
  for (const uint32_t start : FreeStarts(profile)) {
    size_t in_the_way = 0;
    for (const gpu::MigProfile& other : board_->profiles) {
      for (const int other_start : other.starts) {
        in_the_way += Overlap(start, profile.memory_slices, static_cast<uint32_t>(other_start), other.memory_slices) &&
                      Fits(other, static_cast<uint32_t>(other_start));
      }
    }
    if (in_the_way > least) continue;
    least = in_the_way;
    best = start;
  }
  return best;
}

// Where no source gives a number: whole pairs of SMs for each slice.
uint32_t MigGpu::SmsOf(const gpu::MigProfile& profile) const {
  if (profile.sm_count > 0) return static_cast<uint32_t>(profile.sm_count);
  const uint32_t each = gpu_.sm_count / static_cast<uint32_t>(board_->compute_slices) / 2 * 2;
  return std::max<uint32_t>(each, 1) * static_cast<uint32_t>(profile.compute_slices);
}

uint32_t MigGpu::SmsOf(const gpu::MigProfile& profile, const gpu::MigComputeProfile& compute) const {
  if (compute.sm_count > 0) return static_cast<uint32_t>(compute.sm_count);
  const uint32_t each = SmsOf(profile) / static_cast<uint32_t>(profile.compute_slices);
  return std::max<uint32_t>(each, 1) * static_cast<uint32_t>(compute.compute_slices);
}

// --- Making and destroying -----------------------------------------------------------------------------------------

MigGpu::Instance* MigGpu::Find(uint32_t gpu_instance) {
  const auto found = std::find_if(instances_.begin(), instances_.end(),
                                  [&](const Instance& one) { return one.info.id == gpu_instance; });
  return found == instances_.end() ? nullptr : &*found;
}

MigGpu::Compute* MigGpu::FindPlace(uint32_t serial, Instance** instance) {
  for (Instance& one : instances_) {
    for (Compute& compute : one.computes) {
      if (compute.info.serial != serial) continue;
      if (instance != nullptr) *instance = &one;
      return &compute;
    }
  }
  return nullptr;
}

Result MigGpu::CreateGpuInstance(uint32_t profile_id, uint32_t start, Instance** made) {
  if (!mode_) return Result::kNotSupported;
  const gpu::MigProfile* profile = board_->FindById(profile_id);
  if (profile == nullptr) return Result::kInvalid;
  if (start == kAnyStart) {
    start = ChooseStart(*profile);
    if (start == kAnyStart) return Result::kInsufficient;
  } else if (!Listed(profile->starts, start)) {
    return Result::kInvalid;
  } else if (!Fits(*profile, start)) {
    return Result::kInsufficient;
  }
  if (instances_.size() == kMostMigInstances) return Result::kInsufficient;
  Instance instance;
  instance.profile = profile;
  instance.info.serial = ++last_serial_;
  instance.info.id = board_->InstanceId(*profile, static_cast<int>(start));
  instance.info.profile_id = profile_id;
  instance.info.start = start;
  instance.info.size = static_cast<uint32_t>(profile->memory_slices);
  instance.info.memory_bytes = profile->memory.count;
  const auto at = std::find_if(instances_.begin(), instances_.end(),
                               [&](const Instance& other) { return other.info.id > instance.info.id; });
  *made = &*instances_.insert(at, std::move(instance));
  return Result::kOk;
}

Result MigGpu::CreateComputeInstance(uint32_t gpu_instance, uint32_t profile_id, uint32_t start, Compute** made) {
  Instance* instance = Find(gpu_instance);
  if (instance == nullptr) return Result::kNoSuchObject;
  const auto& profiles = instance->profile->compute;
  const auto profile = std::find_if(profiles.begin(), profiles.end(),
                                    [&](const gpu::MigComputeProfile& one) { return one.id == profile_id; });
  if (profile == profiles.end() || (start != kAnyStart && !Listed(profile->starts, start))) return Result::kInvalid;
  int same = 0;
  size_t all = 0;
  for (const Instance& one : instances_) all += one.computes.size();
  for (const Compute& there : instance->computes) same += there.profile == &*profile;
  const auto free = [&](uint32_t at) {
    return std::none_of(instance->computes.begin(), instance->computes.end(), [&](const Compute& there) {
      return Overlap(at, profile->compute_slices, there.info.start, there.profile->compute_slices);
    });
  };
  uint32_t chosen = kAnyStart;
  for (const int listed : profile->starts) {
    const auto at = static_cast<uint32_t>(listed);
    if ((start == kAnyStart || start == at) && free(at)) chosen = std::min(chosen, at);
  }
  if (chosen == kAnyStart || same >= profile->max_instances || all == kMostMigInstances) return Result::kInsufficient;
  Compute compute;
  compute.profile = &*profile;
  MigComputeInstance& info = compute.info;
  auto at = instance->computes.begin();
  for (; at != instance->computes.end() && at->info.id == info.id; ++at) ++info.id;  // the lowest that is free
  info.serial = ++last_serial_;
  info.gpu_instance = gpu_instance;
  info.profile_id = profile_id;
  info.start = chosen;
  info.size = static_cast<uint32_t>(profile->compute_slices);
  info.sm_count = SmsOf(*instance->profile, *profile);
  MakeMigUuid(gpu_.uuid, gpu_instance, info.id, info.uuid);
  *made = &*instance->computes.insert(at, compute);
  return Result::kOk;
}

Result MigGpu::Room(uint32_t gpu_instance, uint32_t profile_id, uint32_t* count) const {
  MigGpu trial = *this;  // placements of one profile do not overlap: in whatever order, as many find room
  Result result = Result::kOk;
  for (*count = 0;; ++*count) {
    if (gpu_instance == kNoInstance) {
      Instance* made = nullptr;
      result = trial.CreateGpuInstance(profile_id, kAnyStart, &made);
    } else {
      Compute* made = nullptr;
      result = trial.CreateComputeInstance(gpu_instance, profile_id, kAnyStart, &made);
    }
    if (result != Result::kOk) break;
  }
  return result == Result::kInsufficient ? Result::kOk : result;
}

Result MigGpu::MayDestroy(uint32_t gpu_instance) const {
  for (const Instance& instance : instances_) {
    if (instance.info.id != gpu_instance) continue;
    return instance.computes.empty() && instance.info.used_bytes == 0 ? Result::kOk : Result::kInUse;
  }
  return Result::kNoSuchObject;
}

Result MigGpu::MayDestroy(uint32_t gpu_instance, uint32_t compute_instance) const {
  for (const Instance& instance : instances_) {
    if (instance.info.id != gpu_instance) continue;
    for (const Compute& compute : instance.computes) {
      if (compute.info.id != compute_instance) continue;
      return compute.info.contexts == 0 && compute.used == 0 ? Result::kOk : Result::kInUse;
    }
  }
  return Result::kNoSuchObject;
}

void MigGpu::Erase(uint32_t gpu_instance) {
  std::erase_if(instances_, [&](const Instance& one) { return one.info.id == gpu_instance; });
}

void MigGpu::Erase(uint32_t gpu_instance, uint32_t compute_instance) {
  Instance* instance = Find(gpu_instance);
  if (instance == nullptr) return;
  std::erase_if(instance->computes, [&](const Compute& one) { return one.info.id == compute_instance; });
}

// --- What clients read ---------------------------------------------------------------------------------------------

std::vector<MigProfileInfo> MigGpu::Profiles() const {
  std::vector<MigProfileInfo> list;
  if (board_ == nullptr) return list;
  for (const gpu::MigProfile& profile : board_->profiles) {
    MigProfileInfo& info = list.emplace_back();
    CopyName(profile.name, info.name);
    info.id = profile.id;
    info.nvml_profile = profile.nvml_profile;
    info.compute_slices = static_cast<uint32_t>(profile.compute_slices);
    info.memory_slices = static_cast<uint32_t>(profile.memory_slices);
    info.memory_bytes = profile.memory.count;
    info.sm_count = SmsOf(profile);
    info.max_instances = static_cast<uint32_t>(profile.max_instances);
    info.copy_engines = static_cast<uint32_t>(profile.copy_engines);
    info.decoders = static_cast<uint32_t>(profile.engines.decoder);
    info.encoders = static_cast<uint32_t>(profile.engines.encoder);
    info.jpegs = static_cast<uint32_t>(profile.engines.jpeg);
    info.ofas = static_cast<uint32_t>(profile.engines.ofa);
    info.graphics = profile.graphics ? 1 : 0;
    info.start_count = CopyStarts(profile.starts, info.starts);
    for (const gpu::MigComputeProfile& compute : profile.compute) {
      if (info.compute_count == kMostMigComputeProfiles) break;
      MigComputeProfileInfo& one = info.compute[info.compute_count++];
      CopyName(compute.name, one.name);
      one.id = compute.id;
      one.slices = static_cast<uint32_t>(compute.compute_slices);
      one.sm_count = SmsOf(profile, compute);
      one.max_instances = static_cast<uint32_t>(compute.max_instances);
      one.start_count = CopyStarts(compute.starts, one.starts);
    }
  }
  return list;
}

MigState MigGpu::State() const {
  MigState state = {};
  if (board_ == nullptr) return state;
  state.capable = 1;
  state.mode = mode_ ? 1 : 0;
  state.pending = pending_ ? 1 : 0;
  state.max_gpu_instances = static_cast<uint32_t>(board_->max_gpu_instances);
  state.memory_slices = static_cast<uint32_t>(board_->memory_slices);
  state.compute_slices = static_cast<uint32_t>(board_->compute_slices);
  for (const Instance& instance : instances_) {
    state.gpu_instance[state.gpu_instances++] = instance.info;
    for (const Compute& compute : instance.computes) state.compute_instance[state.compute_instances++] = compute.info;
  }
  return state;
}

}  // namespace mete::emulator
