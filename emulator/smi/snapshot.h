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
  std::optional<uint32_t> sm_percent, memory_percent;  // where asked for
  std::optional<uint32_t> gpu_instance, compute_instance;
};

struct SmiAccounted {  // a process in the accounting
  uint32_t pid = 0;
  uint32_t gpu_percent = 0, memory_percent = 0;
  uint64_t most_memory_bytes = 0, milliseconds = 0;
  bool running = false;
};

struct SmiEcc {  // of one kind of counter
  std::optional<uint64_t> dram_corrected, dram_uncorrected, sram_corrected, sram_uncorrected;
};

struct SmiMigDevice {      // a compute instance with its GPU instance, as CUDA sees it
  uint32_t index = 0;      // among those of its GPU
  std::string name, uuid;  // "1g.5gb", "MIG-…"
  uint32_t gpu_instance = 0, compute_instance = 0;
  std::optional<uint32_t> sm_count, copy_engines, encoders, decoders, ofa, jpeg;
  std::optional<uint64_t> memory_total, memory_reserved, memory_used, memory_free;  // bytes, of the GPU instance
  std::optional<uint64_t> bar1_total, bar1_used, bar1_free;
  std::optional<uint64_t> sram_uncorrected;  // volatile
};

struct SmiGpu {
  uint32_t index = 0;
  bool lost = false;  // it does not answer; only its place is known
  std::string name, brand, architecture, uuid, serial, bus_id, vbios, part_number, inforom_image, inforom_oem,
      inforom_ecc, gsp_version, addressing;
  uint32_t domain = 0, bus = 0, device = 0, pci_device_id = 0, pci_subsystem_id = 0;
  std::optional<uint32_t> minor, board_id, module_id, cores;
  int compute_major = 0, compute_minor = 0;
  std::optional<uint64_t> memory_total, memory_reserved, memory_used, memory_free;  // bytes
  bool memory_denied = false;  // NVML keeps it from this user, as what all MIG instances hold together
  std::optional<uint64_t> bar1_total, bar1_used, bar1_free;
  std::optional<uint32_t> utilization_gpu, utilization_memory, encoder, decoder, jpeg, ofa;  // percent
  std::optional<uint32_t> temperature_c, memory_temperature_c, shutdown_c, slowdown_c, gpu_max_c, memory_max_c;
  std::optional<int> temperature_limit_c;  // how far to the slowdown
  std::optional<uint32_t> power_mw, power_average_mw, power_limit_mw, power_default_mw, power_min_mw, power_max_mw,
      enforced_limit_mw;
  std::optional<uint32_t> sm_mhz, memory_mhz, max_sm_mhz, max_memory_mhz, application_sm_mhz, application_memory_mhz,
      default_sm_mhz, default_memory_mhz;
  std::vector<uint32_t> memory_clocks_mhz, sm_clocks_mhz;  // that it can be set to, the highest first
  std::optional<uint32_t> link_gen, link_gen_max, link_width, link_width_max, replays, rx_kbps, tx_kbps, fan_percent;
  std::optional<uint64_t> energy_mj;
  std::optional<uint64_t> clock_reasons, power_capped_ns, throttled_ns;
  std::optional<int> pstate, compute_mode, persistence, display_mode, display_active, ecc, ecc_pending;
  std::optional<int> accounting;
  std::optional<uint32_t> accounting_buffer;
  std::optional<uint32_t> mig, mig_pending;  // absent: the board has no MIG
  std::vector<SmiMigDevice> mig_devices;
  SmiEcc ecc_volatile, ecc_aggregate;
  std::optional<uint32_t> retired_single, retired_double, retired_pending;
  std::optional<uint32_t> remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
  std::optional<uint32_t> banks_max, banks_high, banks_partial, banks_low, banks_none;
  std::optional<uint32_t> recovery_action, fabric_state;
  std::optional<uint32_t> time_slice_class;
  std::vector<std::optional<uint32_t>> nvlink_mbps;  // one a link: absent when it is down
  std::vector<SmiProcess> processes;
  std::vector<SmiAccounted> accounted;
};

struct SmiSnapshot {
  std::string driver_version;
  int cuda_version = 0;
  std::vector<SmiGpu> gpus;
};

struct SmiTopology {
  std::vector<std::vector<int>> levels;              // NVML's, between each two GPUs
  std::vector<std::vector<unsigned>> nvlinks;        // that are up, between each two GPUs
  std::vector<std::vector<std::vector<int>>> peers;  // NVML's status, by kind of access, between each two GPUs
  std::vector<std::string> processors, memory;       // near each GPU, "0-15"
};

// What nvidia-smi changes; the values are those of its options.
enum class SmiSetting {
  kComputeMode,
  kPersistence,
  kPowerLimit,         // mW
  kApplicationClocks,  // memory MHz << 32 | SM MHz
  kResetApplicationClocks,
  kLockedClocks,  // most MHz << 32 | least MHz
  kResetLockedClocks,
  kEcc,
  kClearEcc,  // 0 volatile, 1 aggregate
  kAccounting,
  kClearAccounting,
  kTimeSlice,
  kReset,
};

// Of a cgroup on one GPU, in bytes; UINT64_MAX: no limit.
struct SmiLimits {
  uint64_t soft = 0, hard = UINT64_MAX, used = 0;
};

class MigSource;  // mig.h

// NVML as nvidia-smi uses it; the seam for tests.
class SmiSource {
 public:
  virtual ~SmiSource() = default;
  // What costs time and is read only when it is wanted: what each process uses, the accounting.
  static constexpr unsigned kUsage = 1, kAccounting = 2;
  // kOk, or why not with `message` for the user.
  virtual Exit Read(unsigned wanted, SmiSnapshot* snapshot, std::string* message) = 0;
  virtual Exit Set(uint32_t gpu, SmiSetting setting, uint64_t value, std::string* message) = 0;
  // Limits of the cgroup whose folder that is.
  virtual Exit SetLimits(uint32_t /*gpu*/, const std::string& /*folder*/, const SmiLimits&, std::string* message) {
    *message = "not supported";
    return kNotAvailable;
  }
  virtual Exit ReadLimits(uint32_t /*gpu*/, const std::string& /*folder*/, SmiLimits*, std::string* message) {
    *message = "not supported";
    return kNotAvailable;
  }
  // GPU and compute instances; null: this source knows none.
  virtual MigSource* mig() { return nullptr; }
  virtual Exit ReadTopology(size_t gpus, SmiTopology* topology, std::string* message) = 0;
  virtual bool emulated() const = 0;
};

// Finds libnvidia-ml.so.1: the loader's (so that what stands in front of the driver gives its view), if it belongs to
// an emulated node, else the one of the node that this program is a part of.
Exit OpenNvml(std::unique_ptr<SmiSource>* source, std::string* message);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_SNAPSHOT_H_
