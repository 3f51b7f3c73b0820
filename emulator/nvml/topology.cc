// NVML's calls about how GPUs, processors and links hang together. The node's GPUs are equals below one processor, each
// behind a host bridge of its own; boards with NVLink are joined by a switch when there are several of a kind.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "emulator/nvml/give.h"
#include "emulator/nvml/links.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithNode;

constexpr int kBetweenGpus = NVML_TOPOLOGY_NODE;
constexpr unsigned kMostWords = 1024;  // of a processor set that a caller may bring

bool KnownLevel(int level) {
  return level >= NVML_TOPOLOGY_INTERNAL && level <= NVML_TOPOLOGY_SYSTEM && level % 10 == 0;
}

bool PeerAccess(const GpuInfo& first, const GpuInfo& second) {
  return emulator::HasEcc(first) && emulator::HasEcc(second);  // the driver offers it on all but the GeForce boards
}

int P2pStatus(const NvmlSession& session, unsigned first, unsigned second, int index) {
  const GpuInfo& a = session.gpus()[first];
  const GpuInfo& b = session.gpus()[second];
  const bool linked = emulator::LinkedByNvlink(session.gpus(), first) && emulator::SameKind(a, b);
  bool works = first != second && PeerAccess(a, b);
  if (index == NVML_P2P_CAPS_INDEX_NVLINK || index == NVML_P2P_CAPS_INDEX_ATOMICS) works = works && linked;
  return works ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
}

// All processors are as near as the others.
nvmlReturn_t GiveProcessors(nvmlDevice_t device, unsigned words, unsigned long* set, long count) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (words == 0 || set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    constexpr unsigned kBits = 8 * sizeof(unsigned long);
    std::memset(set, 0, std::min(words, kMostWords) * sizeof(unsigned long));
    for (long i = 0; i < count && i < static_cast<long>(std::min(words, kMostWords)) * kBits; ++i) {
      set[i / kBits] |= 1ul << (i % kBits);
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t RunOnAllProcessors(nvmlDevice_t device) {
  return WithGpu(device, [](NvmlSession&, unsigned) {
    cpu_set_t all;
    CPU_ZERO(&all);
    const long count = sysconf(_SC_NPROCESSORS_CONF);
    for (long i = 0; i < count && i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
    return sched_setaffinity(0, sizeof(all), &all) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
  });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t* pathInfo) {
  return WithGpu(device1, [&](NvmlSession& session, unsigned first) {
    unsigned second = 0;
    if (pathInfo == nullptr || !emulator::NvmlGpuOf(session, device2, &second)) return NVML_ERROR_INVALID_ARGUMENT;
    *pathInfo = first == second ? NVML_TOPOLOGY_INTERNAL : kBetweenGpus;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int* count,
                                              nvmlDevice_t* deviceArray) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (count == nullptr || !KnownLevel(level)) return NVML_ERROR_INVALID_ARGUMENT;
    std::vector<nvmlDevice_t> near;
    for (unsigned other = 0; level == kBetweenGpus && other < session.gpus().size(); ++other) {
      if (other != gpu) near.push_back(emulator::NvmlHandle(other));
    }
    return emulator::GiveList(near, count, deviceArray);
  });
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int* count, nvmlDevice_t* deviceArray) {
  return WithNode([&](NvmlSession& session) {
    if (count == nullptr || static_cast<long>(cpuNumber) >= sysconf(_SC_NPROCESSORS_CONF)) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    std::vector<nvmlDevice_t> all;
    for (unsigned gpu = 0; gpu < session.gpus().size(); ++gpu) all.push_back(emulator::NvmlHandle(gpu));
    return emulator::GiveList(all, count, deviceArray);
  });
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2pIndex,
                                    nvmlGpuP2PStatus_t* p2pStatus) {
  return WithGpu(device1, [&](NvmlSession& session, unsigned first) {
    unsigned second = 0;
    if (p2pStatus == nullptr || !emulator::NvmlGpuOf(session, device2, &second)) return NVML_ERROR_INVALID_ARGUMENT;
    if (p2pIndex < NVML_P2P_CAPS_INDEX_READ || p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    *p2pStatus = P2pStatus(session, first, second, p2pIndex);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long* cpuSet) {
  return GiveProcessors(device, cpuSetSize, cpuSet, sysconf(_SC_NPROCESSORS_CONF));
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long* cpuSet,
                                                 nvmlAffinityScope_t scope) {
  if (scope > 1) return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_INVALID_ARGUMENT; });
  return GiveProcessors(device, cpuSetSize, cpuSet, sysconf(_SC_NPROCESSORS_CONF));
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize, unsigned long* nodeSet,
                                         nvmlAffinityScope_t scope) {
  if (scope > 1) return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_INVALID_ARGUMENT; });
  return GiveProcessors(device, nodeSetSize, nodeSet, 1);  // one memory node
}

nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device) { return RunOnAllProcessors(device); }
nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device) { return RunOnAllProcessors(device); }

// The memory of superchips is a node of the system's own.
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int* node) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (node == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!emulator::Superchip(session.gpus()[gpu])) return NVML_ERROR_NOT_SUPPORTED;
    *node = gpu + 1;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t* c2cModeInfo) {
  return emulator::GiveIf(device, c2cModeInfo, emulator::HopperOrNewer, [](const GpuInfo& info, const GpuState&) {
    return nvmlC2cModeInfo_v1_t{emulator::Superchip(info) ? 1u : 0u};
  });
}

// The fabric of switches that Hopper and newer boards with NVLink register with; the node has one domain, and it has no
// number of its own.
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* gpuFabricInfo) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (gpuFabricInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *gpuFabricInfo = {};
    gpuFabricInfo->state =
        emulator::OnFabric(session.gpus(), gpu) ? NVML_GPU_FABRIC_STATE_COMPLETED : NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* gpuFabricInfo) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (gpuFabricInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned version = gpuFabricInfo->version;
    const bool newest = version == StructVersion<nvmlGpuFabricInfo_v3_t>(3);
    if (!newest && version != StructVersion<nvmlGpuFabricInfo_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlGpuFabricInfo_v3_t info = {};
    info.version = version;
    const bool on = emulator::OnFabric(session.gpus(), gpu);
    info.state = on ? NVML_GPU_FABRIC_STATE_COMPLETED : NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
    info.healthSummary = on ? 1 : 0;
    // The older structure is a beginning of the newer one.
    std::memcpy(static_cast<void*>(gpuFabricInfo), &info,
                newest ? sizeof(nvmlGpuFabricInfo_v3_t) : sizeof(nvmlGpuFabricInfo_v2_t));
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
