// What nvidia-smi shows, read from NVML once. Values that NVML does not give are absent. Plain data; one thread reads.
// libc and the C++ runtime only.
#ifndef METE_EMULATOR_SMI_SNAPSHOT_H_
#define METE_EMULATOR_SMI_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mete::emulator::smi {

// Exit statuses of nvidia-smi.
enum Exit : int {
  kOk = 0,
  kInvalidArgument = 2,
  kNotAvailable = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kDriverNotLoaded = 9,
  kNoLibrary = 12,
  kNotBuilt = 13,
  kGpuLost = 15,
  kOther = 255,
};

struct SmiProcess {
  uint32_t pid = 0;
  std::string name;
  std::optional<uint64_t> used_bytes;
};

struct SmiGpu {
  uint32_t index = 0;
  std::string name, uuid, serial, bus_id;
  uint32_t domain = 0, bus = 0, device = 0, pci_device_id = 0, pci_subsystem_id = 0;
  int compute_major = 0, compute_minor = 0;
  std::optional<uint64_t> memory_total, memory_reserved, memory_used, memory_free;  // bytes
  std::optional<uint32_t> utilization_gpu, utilization_memory;                      // percent
  std::optional<uint32_t> temperature_c, power_mw, power_limit_mw, power_default_mw, enforced_limit_mw;
  std::optional<uint32_t> sm_mhz, memory_mhz, max_sm_mhz, max_memory_mhz;
  std::optional<uint32_t> link_gen, link_gen_max, link_width, link_width_max;
  std::optional<int> pstate, compute_mode, persistence, display_mode, display_active, ecc, ecc_pending;
  std::optional<uint32_t> mig, mig_pending;
  std::optional<uint64_t> ecc_errors;
  std::vector<SmiProcess> processes;
};

struct SmiSnapshot {
  std::string driver_version;
  int cuda_version = 0;
  std::vector<SmiGpu> gpus;
};

// NVML as nvidia-smi uses it; the seam for tests.
class SmiSource {
 public:
  virtual ~SmiSource() = default;
  // kOk, or why not with `message` for the user.
  virtual Exit Read(SmiSnapshot* snapshot, std::string* message) = 0;
  virtual Exit SetComputeMode(uint32_t gpu, int mode, std::string* message) = 0;
  virtual bool emulated() const = 0;
};

// Finds libnvidia-ml.so.1: the loader's (so that what stands in front of the driver gives its view), if it belongs to
// an emulated node, else the one of the node that this program is a part of.
Exit OpenNvml(std::unique_ptr<SmiSource>* source, std::string* message);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_SNAPSHOT_H_
