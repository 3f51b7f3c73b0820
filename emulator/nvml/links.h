// NVLink and PCIe of the node's GPUs, from their descriptions. Pure functions.
#ifndef METE_EMULATOR_NVML_LINKS_H_
#define METE_EMULATOR_NVML_LINKS_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "emulator/engine/client.h"

namespace mete::emulator {

inline bool SameKind(const GpuInfo& a, const GpuInfo& b) {
  return a.nvlinks > 0 && std::strncmp(a.board, b.board, sizeof(a.board)) == 0 &&
         std::strncmp(a.name, b.name, sizeof(a.name)) == 0;
}

// Links come up when there is something at their other end: a second GPU of the kind.
inline bool LinkedByNvlink(const std::vector<GpuInfo>& gpus, unsigned gpu) {
  return std::count_if(gpus.begin(), gpus.end(), [&](const GpuInfo& info) { return SameKind(gpus[gpu], info); }) > 1;
}

inline bool OnFabric(const std::vector<GpuInfo>& gpus, unsigned gpu) {
  return gpus[gpu].compute_major >= 9 && LinkedByNvlink(gpus, gpu);
}

// MB/s of one link, each way.
inline unsigned NvlinkMbps(const GpuInfo& info) {
  return info.nvlink_generation >= 5 ? 50'000 : info.nvlink_generation >= 2 ? 25'781 : 20'000;
}

// MB/s of one lane of a PCIe generation, as NVML counts them: 1 is 250, each further step doubles.
inline unsigned PcieLaneMbps(unsigned generation) {
  constexpr unsigned kMbps[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
  return kMbps[std::min<unsigned>(generation, 6)];
}

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_LINKS_H_
