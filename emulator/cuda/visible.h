// Which devices a process sees, in which order: pure, over what the node has and the environment says.
//
// Source: NVIDIA's MIG User Guide, "CUDA Device Enumeration", for drivers from R570 on, and the CUDA Programming Guide,
// "CUDA Environment Variables".
// - A GPU in MIG mode is no device itself; its compute instances are, at most one of each GPU instance: the first, or
//   the first that CUDA_VISIBLE_DEVICES names. At most 64 of them. Whole GPUs are seen beside them.
// - CUDA_VISIBLE_DEVICES names GPUs by index or by "GPU-" and the beginning of their UUID, compute instances by "MIG-"
//   and the beginning of theirs, or by "MIG-GPU-UUID/GPU instance/compute instance", as drivers before R470 did. What
//   follows an entry that names nothing, or more than one, is not seen. A GPU in MIG mode stands for its instances.
// - CUDA_DEVICE_ORDER: FASTEST_FIRST, the default, by a simple guess at speed; PCI_BUS_ID.
#ifndef METE_EMULATOR_CUDA_VISIBLE_H_
#define METE_EMULATOR_CUDA_VISIBLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "emulator/engine/client.h"

namespace mete::emulator::cuda {

inline constexpr size_t kMostMigDevices = 64;
inline constexpr size_t kMostDevices = 64;  // this driver's own: it keeps sets of devices in a word

// A compute instance.
struct MigSeat {
  uint32_t gpu = 0, gpu_instance = 0, compute_instance = 0;
  uint8_t uuid[16] = {};
  bool operator==(const MigSeat&) const = default;
};

struct VisibleDevice {
  uint32_t gpu = 0;
  std::optional<MigSeat> mig;  // none: the whole GPU
  bool operator==(const VisibleDevice&) const = default;
};

// mig_mode: for each GPU whether it is on. seats: by GPU, then as NVML numbers them. The variables may be null.
std::vector<VisibleDevice> VisibleDevices(const std::vector<GpuInfo>& gpus, const std::vector<bool>& mig_mode,
                                          const std::vector<MigSeat>& seats, const char* visible, const char* order);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_VISIBLE_H_
