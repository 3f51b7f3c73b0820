#include "emulator/simulate/instances.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "emulator/engine/mig.h"

namespace mete::emulator {
namespace {

struct Made {
  std::string refused;          // why there is none
  std::vector<PartSpec> parts;  // its compute instances, as the scenario lists them
};

StatusOr<const gpu::MigComputeProfile*> FindCompute(const gpu::MigProfile& profile, const std::string& name) {
  std::vector<std::string> known;
  for (const gpu::MigComputeProfile& one : profile.compute) {
    if (EqualsIgnoringCase(one.name, name)) return &one;
    known.push_back(one.name);
  }
  return NoSuch("there is no compute instance '{}' in {}; there are {}", name, profile.name, fmt::join(known, ", "));
}

StatusOr<Made> MakeInstance(MigGpu& mig, const gpu::MigBoard& board, const InstanceSpec& spec, uint32_t number) {
  const gpu::MigProfile* profile = board.Find(spec.profile);
  if (profile == nullptr) {
    std::vector<std::string> known;
    for (const gpu::MigProfile& one : board.profiles) known.push_back(one.name);
    return NoSuch("instance {}: {} has no profile '{}'; there are {}", spec.name, board.id, spec.profile,
                  fmt::join(known, ", "));
  }
  Made made;
  MigGpu::Instance* instance = nullptr;
  const uint32_t start = spec.start < 0 ? kAnyStart : static_cast<uint32_t>(spec.start);
  switch (mig.CreateGpuInstance(profile->id, start, &instance)) {
    case Result::kOk: break;
    case Result::kInvalid:
      return Usage("instance {}: {} cannot start at memory slice {}; it can at {}", spec.name, profile->name,
                   spec.start, fmt::join(profile->starts, ", "));
    default: made.refused = fmt::format("there is no room for {} on GPU {}", profile->name, spec.gpu); return made;
  }
  const uint32_t id = instance->info.id;
  const double memory_part = static_cast<double>(instance->info.size) / board.memory_slices;
  std::vector<std::string> names = spec.compute;
  if (names.empty()) names = {profile->name};
  for (const std::string& name : names) {
    METE_ASSIGN_OR_RETURN(const gpu::MigComputeProfile* const compute, FindCompute(*profile, name));
    MigGpu::Compute* one = nullptr;
    if (mig.CreateComputeInstance(id, compute->id, kAnyStart, &one) != Result::kOk) {
      return Usage("instance {}: {} does not fit beside the others in {}", spec.name, name, profile->name);
    }
    made.parts.push_back({number, static_cast<uint32_t>(made.parts.size()), memory_part,
                          static_cast<uint32_t>(profile->copy_engines), one->info.sm_count});
  }
  return made;
}

}  // namespace

StatusOr<std::vector<Placed>> PlaceInInstances(const std::vector<EngineSettings::Gpu>& node, Scenario* scenario) {
  std::vector<MigGpu> gpus;
  for (const EngineSettings::Gpu& gpu : node) {
    gpus.emplace_back(gpu.mig, gpu.info);
    gpus.back().Ask(gpu.mig != nullptr);
    gpus.back().Switch();
  }
  std::vector<Made> all;
  for (const InstanceSpec& spec : scenario->instances) {
    if (spec.gpu >= node.size() || node[spec.gpu].mig == nullptr) {
      return NoSuch("instance {}: there is no GPU {} with MIG", spec.name, spec.gpu);
    }
    METE_ASSIGN_OR_RETURN(Made made,
                          MakeInstance(gpus[spec.gpu], *node[spec.gpu].mig, spec, static_cast<uint32_t>(all.size())));
    all.push_back(std::move(made));
  }
  std::vector<Placed> placed;
  for (ShareSpec& share : scenario->shares) {
    const size_t slash = share.instance.find('/');
    const std::string name = share.instance.substr(0, slash);
    const auto found = std::find_if(scenario->instances.begin(), scenario->instances.end(),
                                    [&](const InstanceSpec& one) { return one.name == name; });
    if (found == scenario->instances.end()) return NoSuch("share {}: there is no instance '{}'", share.name, name);
    const Made& made = all[static_cast<size_t>(found - scenario->instances.begin())];
    placed.push_back({found->gpu, made.refused});
    if (!made.refused.empty()) continue;
    size_t compute = 0;
    if (slash != std::string::npos) {
      const char* const end = share.instance.data() + share.instance.size();
      const auto read = std::from_chars(share.instance.data() + slash + 1, end, compute);
      if (read.ec != std::errc() || read.ptr != end) compute = made.parts.size();
    }
    if (compute >= made.parts.size()) {
      return NoSuch("share {}: there is no compute instance '{}'; {} has 0 to {}", share.name, share.instance, name,
                    made.parts.size() - 1);
    }
    share.part = made.parts[compute];
  }
  return placed;
}

GpuParameters ParametersOf(const GpuParameters& gpu, const PartSpec& part) {
  GpuParameters own = gpu;
  own.sm_count = part.sms;
  own.memory_bytes_per_s *= part.memory_part;
  own.l2_bytes *= part.memory_part;
  return own;
}

}  // namespace mete::emulator
