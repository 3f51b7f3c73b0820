// A driver made of plain data, for tests of the layers above. Change the data between calls; only SetProcesses may be
// called while another thread uses the device.
#ifndef METE_NVML_FAKE_H_
#define METE_NVML_FAKE_H_

#include <cstdint>
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
  MigState mig{MigMode::kDisabled, MigMode::kDisabled};
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
  StatusOr<MigState> Mig() const override { return Or(mig); }
  StatusOr<ComputeMode> Mode() const override { return Or(mode); }
  Status SetMode(ComputeMode wanted) const override {
    METE_RETURN_IF_ERROR(MayChange());
    mode = wanted;
    return OkStatus();
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

  mutable std::mutex mutex_;  // guards processes
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
