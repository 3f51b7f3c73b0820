#include "emulator/smi/nvml_mig.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mete::emulator::smi {

namespace {

using nvml::abi::NVML_SUCCESS;
using nvml::abi::nvmlComputeInstance_t;
using nvml::abi::nvmlDevice_t;
using nvml::abi::nvmlGpuInstance_t;
using nvml::abi::nvmlReturn_t;

constexpr unsigned kProfilesAsked = 64;  // more than NVML enumerates of either kind; the rest it does not know

template <size_t N>
std::string ShortName(const char (&name)[N]) {
  const std::string text(name, strnlen(name, N));
  return text.rfind("MIG ", 0) == 0 ? text.substr(4) : text;
}

// A profile that this board, or this GPU instance, does not have.
bool Unknown(nvmlReturn_t code) {
  return code == nvml::abi::NVML_ERROR_NOT_SUPPORTED || code == nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
}

// Small to large, as nvidia-smi lists them.
void SortProfiles(std::vector<MigProfileRow>* profiles) {
  std::sort(profiles->begin(), profiles->end(), [](const MigProfileRow& a, const MigProfileRow& b) {
    if (a.slices != b.slices) return a.slices < b.slices;
    return a.memory_mib != b.memory_mib ? a.memory_mib < b.memory_mib : a.id < b.id;
  });
}

// All of a list that NVML gives into room of ours: ask(items, &count).
template <typename Item, typename Ask>
nvmlReturn_t Collect(unsigned room, std::vector<Item>* items, Ask ask) {
  items->resize(room);
  unsigned count = room;
  const nvmlReturn_t code = ask(items->data(), &count);
  items->resize(code == NVML_SUCCESS ? std::min(count, room) : 0);
  return code;
}

template <typename Placement>
void TakePlacements(const std::vector<Placement>& placements, MigProfileRow* row) {
  for (const Placement& each : placements) {
    row->starts.push_back(each.start);
    row->size = each.size;
  }
}

}  // namespace

void ReadMigDevices(const Calls& calls, nvmlDevice_t device, SmiGpu* gpu) {
  unsigned most = 0;
  if (gpu->mig.value_or(0) == 0 || calls.nvmlDeviceGetMaxMigDeviceCount(device, &most) != NVML_SUCCESS) return;
  for (unsigned i = 0; i < most; ++i) {
    nvmlDevice_t handle = nullptr;
    if (calls.nvmlDeviceGetMigDeviceHandleByIndex(device, i, &handle) != NVML_SUCCESS) continue;
    SmiMigDevice mig;
    mig.index = i;
    std::array<char, 128> text = {};
    if (calls.nvmlDeviceGetName(handle, text.data(), text.size() - 1) == NVML_SUCCESS) mig.name = text.data();
    // "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    if (const size_t at = mig.name.rfind("MIG "); at != std::string::npos) mig.name.erase(0, at + 4);
    if (calls.nvmlDeviceGetUUID(handle, text.data(), text.size() - 1) == NVML_SUCCESS) mig.uuid = text.data();
    calls.nvmlDeviceGetGpuInstanceId(handle, &mig.gpu_instance);
    calls.nvmlDeviceGetComputeInstanceId(handle, &mig.compute_instance);
    nvml::abi::nvmlDeviceAttributes_t attributes = {};
    if (calls.nvmlDeviceGetAttributes_v2(handle, &attributes) == NVML_SUCCESS) {
      mig.sm_count = attributes.multiprocessorCount;
      mig.copy_engines = attributes.sharedCopyEngineCount;
      mig.encoders = attributes.sharedEncoderCount;
      mig.decoders = attributes.sharedDecoderCount;
      mig.ofa = attributes.sharedOfaCount;
      mig.jpeg = attributes.sharedJpegCount;
    }
    nvml::abi::nvmlMemory_v2_t memory = {};
    memory.version = nvml::abi::StructVersion<nvml::abi::nvmlMemory_v2_t>(2);
    if (calls.nvmlDeviceGetMemoryInfo_v2(handle, &memory) == NVML_SUCCESS) {
      mig.memory_total = memory.total;
      mig.memory_reserved = memory.reserved;
      mig.memory_used = memory.used;
      mig.memory_free = memory.free;
    }
    nvml::abi::nvmlBAR1Memory_t bar1 = {};
    if (calls.nvmlDeviceGetBAR1MemoryInfo(handle, &bar1) == NVML_SUCCESS) {
      mig.bar1_total = bar1.bar1Total;
      mig.bar1_used = bar1.bar1Used;
      mig.bar1_free = bar1.bar1Free;
    }
    unsigned long long errors = 0;
    if (calls.nvmlDeviceGetMemoryErrorCounter(handle, nvml::abi::NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                                              nvml::abi::NVML_VOLATILE_ECC, nvml::abi::NVML_MEMORY_LOCATION_SRAM,
                                              &errors) == NVML_SUCCESS) {
      mig.sram_uncorrected = errors;
    }
    gpu->mig_devices.push_back(std::move(mig));
  }
}

Exit NvmlMig::Judge(nvmlReturn_t code, std::string* why) const {
  if (code == NVML_SUCCESS) return kOk;
  *why = nvml_.nvmlErrorString(code);
  return ExitOf(code);
}

nvmlReturn_t NvmlMig::ReadProfiles(nvmlDevice_t device, MigNode* node) const {
  for (unsigned profile = 0; profile < kProfilesAsked; ++profile) {
    nvml::abi::nvmlGpuInstanceProfileInfo_v2_t info = {};
    info.version = nvml::abi::StructVersion<nvml::abi::nvmlGpuInstanceProfileInfo_v2_t>(2);
    const nvmlReturn_t code = nvml_.nvmlDeviceGetGpuInstanceProfileInfoV(device, profile, &info);
    if (Unknown(code)) continue;
    if (code != NVML_SUCCESS) return code;
    MigProfileRow row;
    row.id = info.id;
    row.name = ShortName(info.name);
    row.slices = info.sliceCount;
    row.sm_count = info.multiprocessorCount;
    row.memory_mib = info.memorySizeMB;
    row.peer_to_peer = info.isP2pSupported != 0;
    row.engines = {info.copyEngineCount, info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount};
    row.total = info.instanceCount;
    // None where the mode is off; those who may not change instances are not told.
    const nvmlReturn_t left = nvml_.nvmlDeviceGetGpuInstanceRemainingCapacity(device, info.id, &row.free);
    if (left == nvml::abi::NVML_ERROR_NO_PERMISSION) return left;
    unsigned count = 0;
    nvml_.nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, info.id, nullptr, &count);
    std::vector<nvml::abi::nvmlGpuInstancePlacement_t> placements;
    Collect(count, &placements, [&](auto* items, unsigned* room) {
      return nvml_.nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, info.id, items, room);
    });
    TakePlacements(placements, &row);
    node->profiles.push_back(std::move(row));
  }
  SortProfiles(&node->profiles);
  return node->profiles.empty() ? nvml::abi::NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t NvmlMig::ReadComputeProfiles(nvmlGpuInstance_t instance, MigGpuInstance* out) const {
  for (unsigned profile = 0; profile < kProfilesAsked; ++profile) {
    nvml::abi::nvmlComputeInstanceProfileInfo_v2_t info = {};
    info.version = nvml::abi::StructVersion<nvml::abi::nvmlComputeInstanceProfileInfo_v2_t>(2);
    const nvmlReturn_t code = nvml_.nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        instance, profile, nvml::abi::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &info);
    if (Unknown(code)) continue;
    if (code != NVML_SUCCESS) return code;
    MigProfileRow row;
    row.id = info.id;
    row.name = ShortName(info.name);
    row.slices = info.sliceCount;
    row.sm_count = info.multiprocessorCount;
    row.engines = {info.sharedCopyEngineCount, info.sharedDecoderCount, info.sharedEncoderCount, info.sharedJpegCount,
                   info.sharedOfaCount};
    row.total = info.instanceCount;
    nvml_.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, info.id, &row.free);
    unsigned count = 0;
    nvml_.nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance, info.id, nullptr, &count);
    std::vector<nvml::abi::nvmlComputeInstancePlacement_t> placements;
    Collect(count, &placements, [&](auto* items, unsigned* room) {
      return nvml_.nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance, info.id, items, room);
    });
    TakePlacements(placements, &row);
    out->compute_profiles.push_back(std::move(row));
  }
  SortProfiles(&out->compute_profiles);
  return NVML_SUCCESS;
}

nvmlReturn_t NvmlMig::ReadComputeInstances(nvmlGpuInstance_t instance, MigGpuInstance* out) const {
  for (const MigProfileRow& profile : out->compute_profiles) {
    std::vector<nvmlComputeInstance_t> handles;
    const nvmlReturn_t code = Collect(profile.total, &handles, [&](nvmlComputeInstance_t* items, unsigned* count) {
      return nvml_.nvmlGpuInstanceGetComputeInstances(instance, profile.id, items, count);
    });
    if (code != NVML_SUCCESS) return code;
    for (nvmlComputeInstance_t handle : handles) {
      nvml::abi::nvmlComputeInstanceInfo_t info = {};
      if (nvml_.nvmlComputeInstanceGetInfo_v2(handle, &info) != NVML_SUCCESS) continue;  // it has just ended
      out->compute_instances.push_back({info.id, info.profileId, info.placement.start, info.placement.size});
    }
  }
  std::sort(out->compute_instances.begin(), out->compute_instances.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return NVML_SUCCESS;
}

nvmlReturn_t NvmlMig::ReadInstances(nvmlDevice_t device, MigNode* node) const {
  for (const MigProfileRow& profile : node->profiles) {
    std::vector<nvmlGpuInstance_t> handles;
    nvmlReturn_t code = Collect(profile.total, &handles, [&](nvmlGpuInstance_t* items, unsigned* count) {
      return nvml_.nvmlDeviceGetGpuInstances(device, profile.id, items, count);
    });
    if (code != NVML_SUCCESS) return code;
    std::vector<MigGpuInstance> found;
    for (nvmlGpuInstance_t handle : handles) {
      nvml::abi::nvmlGpuInstanceInfo_t info = {};
      if (nvml_.nvmlGpuInstanceGetInfo(handle, &info) != NVML_SUCCESS) continue;
      MigGpuInstance instance;
      instance.id = info.id;
      instance.profile = info.profileId;
      instance.start = info.placement.start;
      instance.size = info.placement.size;
      if (code = ReadComputeProfiles(handle, &instance); code != NVML_SUCCESS) return code;
      if (code = ReadComputeInstances(handle, &instance); code != NVML_SUCCESS) return code;
      found.push_back(std::move(instance));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    node->gpu_instances.insert(node->gpu_instances.end(), found.begin(), found.end());
  }
  return NVML_SUCCESS;
}

Exit NvmlMig::ReadMig(uint32_t gpu, bool instances, MigNode* node, std::string* why) {
  nvmlDevice_t device = nullptr;
  nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
  if (code == NVML_SUCCESS) code = ReadProfiles(device, node);
  if (code == NVML_SUCCESS && instances) code = ReadInstances(device, node);
  return Judge(code, why);
}

nvmlReturn_t NvmlMig::Find(uint32_t gpu, uint32_t gpu_instance, nvmlGpuInstance_t* instance) const {
  nvmlDevice_t device = nullptr;
  const nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
  return code != NVML_SUCCESS ? code : nvml_.nvmlDeviceGetGpuInstanceById(device, gpu_instance, instance);
}

namespace {

// In slices; 0: there is no such profile, and NVML says so.
uint32_t SizeOf(const std::vector<MigProfileRow>& profiles, uint32_t id) {
  const auto found = std::find_if(profiles.begin(), profiles.end(), [id](const auto& row) { return row.id == id; });
  return found == profiles.end() ? 0 : found->size;
}

}  // namespace

Exit NvmlMig::CreateGpuInstance(uint32_t gpu, uint32_t profile, std::optional<uint32_t> start, uint32_t* id,
                                std::string* why) {
  nvmlDevice_t device = nullptr;
  nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
  nvmlGpuInstance_t instance = nullptr;
  if (code == NVML_SUCCESS && !start) code = nvml_.nvmlDeviceCreateGpuInstance(device, profile, &instance);
  if (code == NVML_SUCCESS && start) {
    MigNode node;
    code = ReadProfiles(device, &node);
    nvml::abi::nvmlGpuInstancePlacement_t placement = {*start, SizeOf(node.profiles, profile)};
    if (code == NVML_SUCCESS) {
      code = nvml_.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, &placement, &instance);
    }
  }
  nvml::abi::nvmlGpuInstanceInfo_t info = {};
  if (code == NVML_SUCCESS) code = nvml_.nvmlGpuInstanceGetInfo(instance, &info);
  *id = info.id;
  return Judge(code, why);
}

Exit NvmlMig::DestroyGpuInstance(uint32_t gpu, uint32_t id, std::string* why) {
  nvmlGpuInstance_t instance = nullptr;
  nvmlReturn_t code = Find(gpu, id, &instance);
  if (code == NVML_SUCCESS) code = nvml_.nvmlGpuInstanceDestroy(instance);
  return Judge(code, why);
}

Exit NvmlMig::CreateComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t profile,
                                    std::optional<uint32_t> start, uint32_t* id, std::string* why) {
  nvmlGpuInstance_t parent = nullptr;
  nvmlReturn_t code = Find(gpu, gpu_instance, &parent);
  nvmlComputeInstance_t instance = nullptr;
  if (code == NVML_SUCCESS && !start) code = nvml_.nvmlGpuInstanceCreateComputeInstance(parent, profile, &instance);
  if (code == NVML_SUCCESS && start) {
    MigGpuInstance there;
    code = ReadComputeProfiles(parent, &there);
    nvml::abi::nvmlComputeInstancePlacement_t placement = {*start, SizeOf(there.compute_profiles, profile)};
    if (code == NVML_SUCCESS) {
      code = nvml_.nvmlGpuInstanceCreateComputeInstanceWithPlacement(parent, profile, &placement, &instance);
    }
  }
  nvml::abi::nvmlComputeInstanceInfo_t info = {};
  if (code == NVML_SUCCESS) code = nvml_.nvmlComputeInstanceGetInfo_v2(instance, &info);
  *id = info.id;
  return Judge(code, why);
}

Exit NvmlMig::DestroyComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t id, std::string* why) {
  nvmlGpuInstance_t parent = nullptr;
  nvmlComputeInstance_t instance = nullptr;
  nvmlReturn_t code = Find(gpu, gpu_instance, &parent);
  if (code == NVML_SUCCESS) code = nvml_.nvmlGpuInstanceGetComputeInstanceById(parent, id, &instance);
  if (code == NVML_SUCCESS) code = nvml_.nvmlComputeInstanceDestroy(instance);
  return Judge(code, why);
}

Exit NvmlMig::SetMigMode(uint32_t gpu, bool enable, std::string* pending, std::string* why) {
  nvmlDevice_t device = nullptr;
  nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device), activation = NVML_SUCCESS;
  const unsigned mode = enable ? nvml::abi::NVML_DEVICE_MIG_ENABLE : nvml::abi::NVML_DEVICE_MIG_DISABLE;
  if (code == NVML_SUCCESS) code = nvml_.nvmlDeviceSetMigMode(device, mode, &activation);
  if (code == NVML_SUCCESS && activation != NVML_SUCCESS) *pending = nvml_.nvmlErrorString(activation);
  return Judge(code, why);
}

}  // namespace mete::emulator::smi
