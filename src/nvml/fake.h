// A driver made of plain data, for tests of the layers above. Change the data between calls; while another thread uses
// the device, change it by SetProcesses and by the calls of Device only.
#ifndef METE_NVML_FAKE_H_
#define METE_NVML_FAKE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "nvml/library.h"

namespace mete::nvml {

class FakeDevice : public Device {
 public:
  uint32_t index_value = 0;
  std::string uuid_value = "GPU-00000000-0000-0000-0000-000000000000";
  std::string name_value = "NVIDIA A100-SXM4-40GB";
  uint32_t minor = 0;
  std::string pci_bus_id = "00000000:07:00.0";
  ComputeCapability capability{8, 0};
  MemoryUse memory{{40960 * kMiB}, {512 * kMiB}, {0}, {40448 * kMiB}};
  mutable MigState mig{MigMode::kDisabled, MigMode::kDisabled};
  mutable ComputeMode mode = ComputeMode::kDefault;
  std::vector<Process> processes;
  Utilization utilization;
  std::vector<ProcessUtilization> process_utilization;
  Status failure;          // when not OK, every query answers with it
  Status memory_failure;   // the same for Memory() alone
  bool may_change = true;  // false: whoever asks may look only

  uint32_t index() const override { return index_value; }
  const std::string& uuid() const override { return uuid_value; }
  const std::string& name() const override { return name_value; }
  StatusOr<uint32_t> MinorNumber() const override { return Or(minor); }
  StatusOr<std::string> PciBusId() const override { return Or(pci_bus_id); }
  StatusOr<ComputeCapability> Capability() const override { return Or(capability); }
  StatusOr<MemoryUse> Memory() const override {
    if (!memory_failure.ok()) return memory_failure;
    return Or(memory);
  }
  StatusOr<MigState> Mig() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return Or(mig);
  }
  StatusOr<ComputeMode> Mode() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return Or(mode);
  }
  Status SetMode(ComputeMode wanted) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    METE_RETURN_IF_ERROR(MayChange());
    mode = wanted;
    return OkStatus();
  }
  // MIG as far as tests of the layers above need it: instances that do not overlap, and compute instances in them.
  mutable std::vector<GpuInstance> instances;
  bool resets_alone = true;             // false: a change of MIG mode waits for a reset
  Status compute_failure;               // when not OK, a compute instance is not made
  mutable uint32_t made_instances = 0;  // ever, for UUIDs
  // Uses a profile's NVML_GPU_INSTANCE_PROFILE_* as its id; tests of other boards say which id it has.
  std::function<uint32_t(uint32_t)> id_of_profile = [](uint32_t profile) { return profile; };

  StatusOr<MigState> SetMig(bool on) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    METE_RETURN_IF_ERROR(MayChange());
    if (!processes.empty() || !instances.empty()) return Refused("GPU {}: in use", index_value);
    mig.pending = on ? MigMode::kEnabled : MigMode::kDisabled;
    if (resets_alone) mig.current = mig.pending;
    return mig;
  }
  StatusOr<std::vector<GpuInstance>> GpuInstances() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return Or(instances);
  }
  StatusOr<GpuInstance> CreateGpuInstance(uint32_t profile, int start, int size) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    METE_RETURN_IF_ERROR(MayChange());
    for (const GpuInstance& other : instances) {
      if (start < other.start + other.size && other.start < start + size) return Refused("there is no room");
    }
    GpuInstance made;
    made.id = ++made_instances;
    made.profile_id = id_of_profile(profile);
    made.start = start;
    made.size = size;
    instances.push_back(made);
    return made;
  }
  StatusOr<ComputeInstance> CreateComputeInstance(uint32_t id, int compute_slices) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    METE_RETURN_IF_ERROR(MayChange());
    if (!compute_failure.ok()) return compute_failure;
    for (GpuInstance& one : instances) {
      if (one.id != id) continue;
      const auto slot = static_cast<uint32_t>(one.compute.size());
      one.compute.push_back(
          {slot, 0, compute_slices, fmt::format("MIG-{:08x}-0000-0000-0000-00000000000{}", id, slot)});
      return one.compute.back();
    }
    return NoSuch("there is no GPU instance {}", id);
  }
  Status DestroyComputeInstance(uint32_t id, uint32_t compute) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    METE_RETURN_IF_ERROR(MayChange());
    for (const Process& process : processes) {
      if (process.gpu_instance == id) return Refused("GPU instance {}: in use", id);
    }
    for (GpuInstance& one : instances) {
      if (one.id == id) std::erase_if(one.compute, [compute](const auto& other) { return other.id == compute; });
    }
    return OkStatus();
  }
  Status DestroyGpuInstance(uint32_t id) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    METE_RETURN_IF_ERROR(MayChange());
    for (const GpuInstance& one : instances) {
      if (one.id == id && !one.compute.empty()) return Refused("GPU instance {}: in use", id);
    }
    std::erase_if(instances, [id](const GpuInstance& one) { return one.id == id; });
    return OkStatus();
  }
  StatusOr<std::vector<std::shared_ptr<const Device>>> MigDevices() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<const Device>> devices;
    for (const GpuInstance& one : instances) {
      for (const ComputeInstance& compute : one.compute) {
        auto device = std::make_shared<FakeDevice>();
        device->index_value = index_value;
        device->uuid_value = compute.uuid;
        device->name_value = name_value + " MIG";
        device->memory = {{5 * kGiB}, {0}, {0}, {5 * kGiB}};
        for (const Process& process : processes) {
          if (process.gpu_instance == one.id) device->processes.push_back(process);
        }
        devices.push_back(std::move(device));
      }
    }
    return devices;
  }

  StatusOr<std::vector<Process>> Processes() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return Or(processes);
  }
  void SetProcesses(std::vector<Process> now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    processes = std::move(now);
  }
  StatusOr<Utilization> Use() const override { return Or(utilization); }
  StatusOr<std::vector<ProcessUtilization>> ProcessUse(uint64_t) const override { return Or(process_utilization); }

 protected:
  Status MayChange() const {
    return may_change ? failure : Lacks("GPU {}: answered 4 (insufficient permissions)", index_value);
  }

 private:
  template <typename T>
  StatusOr<T> Or(const T& value) const {
    if (!failure.ok()) return failure;
    return value;
  }

  mutable std::mutex mutex_;  // guards processes, mode, mig, instances
};

class FakeLibrary : public Library {
 public:
  std::vector<std::shared_ptr<FakeDevice>> devices;
  std::string path_value = "fake", driver_version_value = "580.65.06", nvml_version_value = "13.580.65.06";
  uint32_t cuda_version_value = 13000;
  bool emulated_value = false;

  FakeDevice& Add() {
    devices.push_back(std::make_shared<FakeDevice>());
    devices.back()->index_value = static_cast<uint32_t>(devices.size() - 1);
    devices.back()->uuid_value.back() = static_cast<char>('0' + devices.size() - 1);
    return *devices.back();
  }
  StatusOr<std::vector<std::shared_ptr<const Device>>> Devices() const override {
    return std::vector<std::shared_ptr<const Device>>(devices.begin(), devices.end());
  }
  const std::string& path() const override { return path_value; }
  const std::string& driver_version() const override { return driver_version_value; }
  const std::string& nvml_version() const override { return nvml_version_value; }
  uint32_t cuda_version() const override { return cuda_version_value; }
  bool emulated() const override { return emulated_value; }
};

}  // namespace mete::nvml

#endif  // METE_NVML_FAKE_H_
