// Limits of device memory by cgroup. Setting is the node's owner's, as it is root's on a real node.
#include <stdlib.h>

#include <cstdlib>
#include <string>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::NvmlSession;
using emulator::Result;

constexpr int kDriver = 615;

// The group's name below the root of the node's tree.
nvmlReturn_t GroupOf(const NvmlSession& session, const char* folder, std::string* group) {
  if (std::atoi(session.client->DriverVersion().c_str()) < kDriver) return NVML_ERROR_NOT_SUPPORTED;
  if (folder == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::string root = emulator::NodeRootOf(reinterpret_cast<const void*>(&nvmlDeviceGetMemoryLimits_v1));
  char* real = realpath(folder, nullptr);
  if (real == nullptr) return NVML_ERROR_NOT_FOUND;
  const std::string path = real, tree = root + "/sys/fs/cgroup/";
  free(real);
  if (root.empty() || path.size() <= tree.size() || path.compare(0, tree.size(), tree) != 0)
    return NVML_ERROR_NOT_FOUND;
  *group = path.substr(tree.size());
  return NVML_SUCCESS;
}

nvmlReturn_t CodeOf(Result result) {
  return result == Result::kRefused ? NVML_ERROR_NOT_SUPPORTED : emulator::FromResult(result);
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t* limits) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (limits == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::string group;
    const nvmlReturn_t code = GroupOf(session, limits->nameSpace, &group);
    if (code != NVML_SUCCESS) return code;
    return CodeOf(session.client->SetLimits(gpu, group, limits->softLimit, limits->hardLimit));
  });
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t* limits) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (limits == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::string group;
    const nvmlReturn_t code = GroupOf(session, limits->nameSpace, &group);
    if (code != NVML_SUCCESS) return code;
    uint64_t soft = 0, hard = 0, current = 0;
    const Result result = session.client->GetLimits(gpu, group, &soft, &hard, &current);
    if (result != Result::kOk) return CodeOf(result);
    limits->softLimit = soft;
    limits->hardLimit = hard;
    limits->currentUsed = current;
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
