// NVML with types: what mete reads from libnvidia-ml.so.1, and the seam where tests put something else.
//
//   METE_ASSIGN_OR_RETURN(std::unique_ptr<nvml::Library> library, nvml::Library::Open("/"));
//   METE_ASSIGN_OR_RETURN(auto devices, library->Devices());
//   for (auto& device : devices) … device->Memory() …
//
// Ownership: a Library owns the opened driver library and ends NVML when it goes; a Device keeps its Library's state
// alive. Thread rule: any thread. Errors: Lacks when library, driver, GPU or permission is missing (the message says
// what to do); absl Unimplemented when this GPU or driver does not support the query (`Unsupported(status)`), so that
// callers can show "not supported" instead of failing; NoSuch for an unknown device; Fault for anything else NVML says.
// Units: bytes, percent 0..100, megahertz, milliwatts, degrees Celsius.
#ifndef METE_NVML_LIBRARY_H_
#define METE_NVML_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/status.h"

namespace mete::nvml {

struct MemoryUse {
  Bytes total;     // what nvidia-smi prints as total
  Bytes reserved;  // kept by the driver
  Bytes used;      // by processes, without reserved
  Bytes free;
};

struct ComputeCapability {
  int major = 0, minor = 0;
  friend auto operator<=>(ComputeCapability, ComputeCapability) = default;
};

enum class MigMode { kNotCapable, kDisabled, kEnabled };
enum class ComputeMode { kDefault, kExclusiveThread, kProhibited, kExclusiveProcess };

struct MigState {
  MigMode current = MigMode::kNotCapable;
  MigMode pending = MigMode::kNotCapable;  // differs from current: takes effect with the next reset or reboot
};

struct Process {
  uint32_t pid = 0;                                        // in the caller's pid namespace, as NVML reports it
  Bytes used;                                              // device memory; 0 when NVML cannot tell
  std::string name;                                        // as NVML knows it; may be empty
  std::optional<uint32_t> gpu_instance, compute_instance;  // ids, when it runs on a MIG device
};

// One compute instance: a MIG device.
struct ComputeInstance {
  uint32_t id = 0;
  int start = -1, size = 0;  // compute slices of its GPU instance; start -1: NVML does not tell
  std::string uuid;          // "MIG-…"; another one each time it is made
};

struct GpuInstance {
  uint32_t id = 0;
  std::optional<uint32_t> profile_id;  // as `nvidia-smi mig -lgip` prints it; nothing where NVML does not tell
  std::string profile;                 // "1g.5gb", as the name of a MIG device ends; empty: it has none
  int start = -1, size = 0;            // memory slices; start -1: NVML does not tell
  std::vector<ComputeInstance> compute;
};

// Device memory of the processes of one cgroup on one GPU.
struct CgroupMemory {
  Bytes hard;  // the most they may have; kNoMemoryLimit: no limit
  Bytes used;
};
inline constexpr Bytes kNoMemoryLimit{UINT64_MAX};

struct Utilization {
  uint32_t gpu = 0, memory = 0;  // percent of the driver's last sample period
};

struct ProcessUtilization {
  uint32_t pid = 0;
  uint32_t sm = 0, memory = 0;  // percent since the last sample seen
};

class Device {
 public:
  virtual ~Device() = default;

  virtual uint32_t index() const = 0;           // NVML's
  virtual const std::string& uuid() const = 0;  // "GPU-…"
  virtual const std::string& name() const = 0;  // "NVIDIA A100-SXM4-40GB"

  virtual StatusOr<uint32_t> MinorNumber() const = 0;
  virtual StatusOr<std::string> PciBusId() const = 0;  // "00000000:07:00.0"
  virtual StatusOr<uint32_t> PciDeviceId() const;      // device << 16 | vendor: 0x20B010DE
  virtual StatusOr<ComputeCapability> Capability() const = 0;
  virtual StatusOr<MemoryUse> Memory() const = 0;
  virtual StatusOr<MigState> Mig() const = 0;  // not an error on a GPU without MIG
  virtual StatusOr<ComputeMode> Mode() const = 0;
  virtual Status SetMode(ComputeMode mode) const;  // needs rights; lost with a reset or reboot
  // With compute or graphics contexts; each once.
  virtual StatusOr<std::vector<Process>> Processes() const = 0;
  virtual StatusOr<Utilization> Use() const = 0;
  // Samples newer than `since_us` (NVML's time stamps, µs; 0: all it still has); none is an empty list.
  virtual StatusOr<std::vector<ProcessUtilization>> ProcessUse(uint64_t since_us) const = 0;
  // Limits that the driver and the kernel hold for a cgroup; `folder`: its full path. Unsupported before driver 615 and
  // on MIG devices; NoSuch: there is no such group, or it has no limit. Setting needs root.
  virtual StatusOr<CgroupMemory> MemoryOfCgroup(const std::string& folder) const;
  virtual Status LimitCgroup(const std::string& folder, Bytes hard) const;

  // MIG. Changes need rights (Lacks). Refused: something uses it, or it has no room. Unsupported without MIG.
  // The mode afterwards: where current and pending differ, it waits for a reset of the GPU.
  virtual StatusOr<MigState> SetMig(bool on) const;
  // Those that are there, by id. Who may not ask NVML for them (it needs rights too) gets those that have MIG devices,
  // without their places.
  virtual StatusOr<std::vector<GpuInstance>> GpuInstances() const;
  // `profile`: NVML_GPU_INSTANCE_PROFILE_*. Without a compute instance yet.
  virtual StatusOr<GpuInstance> CreateGpuInstance(uint32_t profile, int start, int size) const;
  virtual StatusOr<ComputeInstance> CreateComputeInstance(uint32_t gpu_instance, int compute_slices) const;
  virtual Status DestroyComputeInstance(uint32_t gpu_instance, uint32_t compute_instance) const;
  virtual Status DestroyGpuInstance(uint32_t gpu_instance) const;
  // The MIG devices of the GPU, each as a device of its own: with its own memory and processes, and the GPU's index.
  virtual StatusOr<std::vector<std::shared_ptr<const Device>>> MigDevices() const;
};

class Library {
 public:
  virtual ~Library() = default;

  // Opens libnvidia-ml.so.1 below a driver root (usr/lib/x86_64-linux-gnu, usr/lib64, usr/lib, lib/x86_64-linux-gnu,
  // lib64, lib, in this order); for "/" at last by its plain name, as the loader finds it. Starts NVML.
  static StatusOr<std::unique_ptr<Library>> Open(std::string_view driver_root);
  // The file that Open would take, without opening it; Lacks if there is none. For "/" the plain name is not tried.
  static StatusOr<std::string> Find(std::string_view driver_root);

  virtual StatusOr<std::vector<std::shared_ptr<const Device>>> Devices() const = 0;
  // By NVML index ("0"), UUID ("GPU-…") or PCI bus id; NoSuch lists what there is.
  StatusOr<std::shared_ptr<const Device>> FindDevice(std::string_view name) const;

  virtual const std::string& path() const = 0;            // of the opened file, or its plain name
  virtual const std::string& driver_version() const = 0;  // "580.65.06"
  virtual const std::string& nvml_version() const = 0;
  virtual uint32_t cuda_version() const = 0;  // 13000: newest CUDA this driver runs
  // It has the calls for limits by cgroup; whether they do anything depends on driver and kernel.
  virtual bool limits_cgroups() const { return false; }
  // This library says of itself that it is mete's emulated node: reports carry a watermark, nothing else depends on it.
  virtual bool emulated() const = 0;
};

// The query is not supported by this GPU or driver; not a failure of it.
bool Unsupported(const Status& status);

}  // namespace mete::nvml

#endif  // METE_NVML_LIBRARY_H_
