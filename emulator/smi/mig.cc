#include "emulator/smi/mig.h"

#include <strings.h>

#include <algorithm>

#include "emulator/smi/words.h"

namespace mete::emulator::smi {

namespace {

// A profile by its ID, its name, or its name after "MIG ".
const MigProfileRow* FindProfile(const std::vector<MigProfileRow>& profiles, std::string_view word) {
  uint32_t id = 0;
  const bool by_id = ParseWhole(word, &id);
  if (word.size() > 4 && strncasecmp(word.data(), "MIG ", 4) == 0) word.remove_prefix(4);
  const auto found = std::find_if(profiles.begin(), profiles.end(), [&](const MigProfileRow& profile) {
    return by_id
               ? profile.id == id
               : word.size() == profile.name.size() && strncasecmp(word.data(), profile.name.data(), word.size()) == 0;
  });
  return found == profiles.end() ? nullptr : &*found;
}

// What each action calls its objects and itself when it fails.
struct Wording {
  bool on_instances;   // works on GPU instances that are there
  bool on_compute;     // on their compute instances
  const char* failed;  // before NVML's word
};

Wording WordingOf(MigAction action) {
  switch (action) {
    case MigAction::kGpuProfiles: return {false, false, "Failed to display GPU instance profiles: "};
    case MigAction::kGpuPlacements: return {false, false, "Failed to display GPU instance placements: "};
    case MigAction::kGpuInstances: return {true, false, "Failed to display GPU instances: "};
    case MigAction::kCreateGpuInstances: return {false, false, "Failed to create GPU instances: "};
    case MigAction::kDestroyGpuInstances: return {true, false, "Failed to destroy GPU instances: "};
    case MigAction::kComputeProfiles: return {true, false, "Failed to display compute instance profiles: "};
    case MigAction::kComputePlacements: return {true, false, "Failed to display compute instance placements: "};
    case MigAction::kComputeInstances: return {true, true, "Failed to display compute instances: "};
    case MigAction::kCreateComputeInstances: return {true, false, "Failed to create compute instances: "};
    case MigAction::kDestroyComputeInstances: return {true, true, "Failed to destroy compute instances: "};
    case MigAction::kNone: break;
  }
  return {false, false, ""};
}

bool Named(const std::vector<uint32_t>& ids, uint32_t id) {
  return ids.empty() || std::find(ids.begin(), ids.end(), id) != ids.end();
}

// One run of `mig`: what it changes on which GPU, and what it says.
class MigRun {
 public:
  MigRun(const MigRequest& request, MigSource* source, std::string* text)
      : request_(request), source_(source), text_(text) {}

  Exit CreateGpuInstances(uint32_t gpu, const MigNode& node) {
    for (const MigSpec& spec : request_.specs) {
      const MigProfileRow* profile = FindProfile(node.profiles, spec.profile);
      uint32_t id = 0;
      why_ = "Invalid Argument";
      const Exit made =
          profile == nullptr ? kInvalidArgument : source_->CreateGpuInstance(gpu, profile->id, spec.start, &id, &why_);
      if (made != kOk) {
        *text_ += Printed("Unable to create a GPU instance on GPU %2u using profile %.64s: %s\n", gpu,
                          spec.profile.c_str(), why_.c_str());
        return made;
      }
      *text_ += Printed("Successfully created GPU instance ID %2u on GPU %2u using profile MIG %s (ID %2u)\n", id, gpu,
                        profile->name.c_str(), profile->id);
      if (!request_.default_compute) continue;
      MigNode now;
      if (const Exit code = source_->ReadMig(gpu, true, &now, &why_); code != kOk) return code;
      const auto instance = std::find_if(now.gpu_instances.begin(), now.gpu_instances.end(),
                                         [id](const MigGpuInstance& each) { return each.id == id; });
      if (instance == now.gpu_instances.end()) {
        why_ = "Not Found";
        return kNotFound;
      }
      if (const Exit code = CreateComputeInstance(gpu, *instance, MigSpec()); code != kOk) return code;
    }
    return kOk;
  }

  // An empty profile: the default one.
  Exit CreateComputeInstance(uint32_t gpu, const MigGpuInstance& instance, const MigSpec& spec) {
    const MigProfileRow* profile =
        spec.profile.empty() ? DefaultComputeProfile(instance) : FindProfile(instance.compute_profiles, spec.profile);
    uint32_t id = 0;
    why_ = "Invalid Argument";
    const Exit made = profile == nullptr
                          ? kInvalidArgument
                          : source_->CreateComputeInstance(gpu, instance.id, profile->id, spec.start, &id, &why_);
    if (made != kOk) {
      const std::string asked =
          !spec.profile.empty() || profile == nullptr ? spec.profile : std::to_string(profile->id);
      *text_ += Printed("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %.64s: %s\n",
                        gpu, instance.id, asked.c_str(), why_.c_str());
      return made;
    }
    *text_ += Printed(
        "Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile MIG %s (ID %2u)\n",
        id, gpu, instance.id, profile->name.c_str(), profile->id);
    return kOk;
  }

  Exit CreateComputeInstances(uint32_t gpu, const MigGpuInstance& instance) {
    if (request_.specs.empty()) return CreateComputeInstance(gpu, instance, MigSpec());
    for (const MigSpec& spec : request_.specs) {
      if (const Exit code = CreateComputeInstance(gpu, instance, spec); code != kOk) return code;
    }
    return kOk;
  }

  Exit DestroyGpuInstance(uint32_t gpu, const MigGpuInstance& instance) {
    if (const Exit code = source_->DestroyGpuInstance(gpu, instance.id, &why_); code != kOk) {
      *text_ += Printed("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", instance.id, gpu, why_.c_str());
      return code;
    }
    *text_ += Printed("Successfully destroyed GPU instance ID %2u from GPU %2u\n", instance.id, gpu);
    return kOk;
  }

  Exit DestroyComputeInstances(uint32_t gpu, const MigGpuInstance& instance) {
    for (const MigComputeInstance& compute : instance.compute_instances) {
      if (const Exit code = source_->DestroyComputeInstance(gpu, instance.id, compute.id, &why_); code != kOk) {
        *text_ += Printed("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n",
                          compute.id, gpu, instance.id, why_.c_str());
        return code;
      }
      *text_ += Printed("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", compute.id,
                        gpu, instance.id);
    }
    return kOk;
  }

  // The changes of one GPU; a listing changes nothing.
  Exit Change(uint32_t gpu, const MigNode& node) {
    if (request_.action == MigAction::kCreateGpuInstances) return CreateGpuInstances(gpu, node);
    for (const MigGpuInstance& instance : node.gpu_instances) {
      Exit code = kOk;
      if (request_.action == MigAction::kCreateComputeInstances) code = CreateComputeInstances(gpu, instance);
      if (request_.action == MigAction::kDestroyGpuInstances) code = DestroyGpuInstance(gpu, instance);
      if (request_.action == MigAction::kDestroyComputeInstances) code = DestroyComputeInstances(gpu, instance);
      if (code != kOk) return code;
    }
    return kOk;
  }

  const std::string& why() const { return why_; }

 private:
  const MigRequest& request_;
  MigSource* source_;
  std::string* text_;
  std::string why_;
};

// Leaves of the node what -gi and -ci name.
void Narrow(const MigRequest& request, MigNode* node) {
  auto& instances = node->gpu_instances;
  instances.erase(std::remove_if(instances.begin(), instances.end(),
                                 [&](const MigGpuInstance& each) { return !Named(request.gpu_instances, each.id); }),
                  instances.end());
  for (MigGpuInstance& instance : instances) {
    auto& compute = instance.compute_instances;
    compute.erase(
        std::remove_if(compute.begin(), compute.end(),
                       [&](const MigComputeInstance& each) { return !Named(request.compute_instances, each.id); }),
        compute.end());
  }
}

}  // namespace

bool ParseMigSpecs(const std::string& list, std::vector<MigSpec>* specs) {
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    MigSpec spec;
    spec.profile = list.substr(at, comma - at);
    if (const size_t colon = spec.profile.rfind(':'); colon != std::string::npos) {
      uint32_t start = 0;
      if (!ParseWhole(std::string_view(spec.profile).substr(colon + 1), &start)) return false;
      spec.start = start;
      spec.profile.resize(colon);
    }
    if (spec.profile.empty()) return false;
    specs->push_back(std::move(spec));
    at = comma + 1;
  }
  return true;
}

Exit AnswerMig(const MigRequest& request, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen,
               MigSource* source, std::string* text, std::string* message) {
  const Wording wording = WordingOf(request.action);
  const bool profiles_only = request.action == MigAction::kGpuProfiles || request.action == MigAction::kGpuPlacements;
  std::vector<uint32_t> gpus;
  bool supported = false;
  for (const size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    supported = supported || gpu.mig.has_value();
    if (gpu.mig && (profiles_only || *gpu.mig != 0)) gpus.push_back(gpu.index);
  }
  if (gpus.empty()) {
    *message = supported ? "No MIG-enabled devices found." : "No MIG-supported devices found.";
    return kNotFound;
  }
  std::vector<MigNode> nodes;
  size_t instances = 0, compute_instances = 0;
  std::string why;
  for (const uint32_t gpu : gpus) {
    if (const Exit code = source->ReadMig(gpu, wording.on_instances, &nodes.emplace_back(), &why); code != kOk) {
      *message = wording.failed + why;
      return code;
    }
    Narrow(request, &nodes.back());
    instances += nodes.back().gpu_instances.size();
    for (const MigGpuInstance& each : nodes.back().gpu_instances) compute_instances += each.compute_instances.size();
  }
  if (wording.on_instances && instances == 0) {
    *message = "No GPU instances found: Not Found";
    return kNotFound;
  }
  if (wording.on_compute && compute_instances == 0) {
    *message = "No compute instances found: Not Found";
    return kNotFound;
  }
  MigRun run(request, source, text);
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (const Exit code = run.Change(gpus[i], nodes[i]); code != kOk) {
      *message = wording.failed + run.why();
      return code;
    }
  }
  *text += MigTable(request.action, gpus, nodes);
  return kOk;
}

Exit SwitchMig(bool enable, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, MigSource* source,
               std::string* text, std::string* message) {
  const char* verb = enable ? "enable" : "disable";
  for (const size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    const char* bus = gpu.bus_id.c_str();
    std::string pending, why;
    const Exit code = source->SetMigMode(gpu.index, enable, &pending, &why);
    if (code == kNotAvailable) {
      *text +=
          Printed("Unable to %s MIG Mode for GPU %s: %s\nTreating as warning and moving on.\n", verb, bus, why.c_str());
    } else if (code != kOk) {
      *text += Printed("Unable to %s MIG Mode for GPU %s: %s\n", verb, bus, why.c_str());
      *message = "Terminating early due to previous errors.";
      return code;
    } else if (pending.empty()) {
      *text += Printed("%sd MIG Mode for GPU %s\n", enable ? "Enable" : "Disable", bus);
    } else {
      *text += Printed("Warning: MIG mode is in pending %s state for GPU %s:%s\n", verb, bus, pending.c_str());
      // What is in the way decides what helps.
      *text +=
          pending.rfind("In use", 0) == 0
              ? Printed(
                    "Processes use GPU %s, such as CUDA applications or monitoring. End them and retry the "
                    "command, or reboot the system, to make MIG mode effective.\n",
                    bus)
              : Printed("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU %s\n", bus);
    }
  }
  *text += "All done.\n";
  return kOk;
}

}  // namespace mete::emulator::smi
