#include "nvml/library.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "nvml/api.h"
#include "nvml/mig_calls.h"

namespace mete::nvml {

namespace {

using abi::nvmlDevice_t;
using abi::nvmlReturn_t;

constexpr std::array<const char*, 6> kFolders = {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib",
                                                 "lib/x86_64-linux-gnu",     "lib64",     "lib"};
constexpr const char* kSoname = "libnvidia-ml.so.1";
constexpr unsigned kNoInstance = ~0U;  // a process that is on no MIG device

class RealDevice : public Device {
 public:
  RealDevice(std::shared_ptr<const Api> api, nvmlDevice_t handle, uint32_t index, std::string uuid, std::string name)
      : api_(std::move(api)), handle_(handle), index_(index), uuid_(std::move(uuid)), name_(std::move(name)) {}

  uint32_t index() const override { return index_; }
  const std::string& uuid() const override { return uuid_; }
  const std::string& name() const override { return name_; }

  StatusOr<uint32_t> MinorNumber() const override {
    unsigned value = 0;
    METE_RETURN_IF_ERROR(Check(api_->minor(handle_, &value), "nvmlDeviceGetMinorNumber"));
    return value;
  }

  StatusOr<std::string> PciBusId() const override {
    abi::nvmlPciInfo_t info = {};
    METE_RETURN_IF_ERROR(Check(api_->pci_info(handle_, &info), "nvmlDeviceGetPciInfo_v3"));
    return std::string(info.busId, strnlen(info.busId, sizeof(info.busId)));
  }

  StatusOr<uint32_t> PciDeviceId() const override {
    abi::nvmlPciInfo_t info = {};
    METE_RETURN_IF_ERROR(Check(api_->pci_info(handle_, &info), "nvmlDeviceGetPciInfo_v3"));
    return info.pciDeviceId;
  }

  StatusOr<ComputeCapability> Capability() const override {
    ComputeCapability value;
    METE_RETURN_IF_ERROR(
        Check(api_->capability(handle_, &value.major, &value.minor), "nvmlDeviceGetCudaComputeCapability"));
    return value;
  }

  StatusOr<MemoryUse> Memory() const override {
    if (api_->memory_v2 != nullptr) {
      abi::nvmlMemory_v2_t info = {};
      info.version = abi::StructVersion<abi::nvmlMemory_v2_t>(2);
      nvmlReturn_t code = api_->memory_v2(handle_, &info);
      if (code != abi::NVML_ERROR_NOT_SUPPORTED && code != abi::NVML_ERROR_ARGUMENT_VERSION_MISMATCH) {
        METE_RETURN_IF_ERROR(Check(code, "nvmlDeviceGetMemoryInfo_v2"));
        return MemoryUse{{info.total}, {info.reserved}, {info.used}, {info.free}};
      }
    }
    abi::nvmlMemory_t info = {};
    METE_RETURN_IF_ERROR(Check(api_->memory(handle_, &info), "nvmlDeviceGetMemoryInfo"));
    return MemoryUse{{info.total}, {0}, {info.used}, {info.free}};
  }

  StatusOr<MigState> Mig() const override {
    if (api_->mig_mode == nullptr) return MigState{};
    unsigned current = 0, pending = 0;
    nvmlReturn_t code = api_->mig_mode(handle_, &current, &pending);
    if (code == abi::NVML_ERROR_NOT_SUPPORTED) return MigState{};
    METE_RETURN_IF_ERROR(Check(code, "nvmlDeviceGetMigMode"));
    auto mode = [](unsigned value) {
      return value == abi::NVML_DEVICE_MIG_ENABLE ? MigMode::kEnabled : MigMode::kDisabled;
    };
    return MigState{mode(current), mode(pending)};
  }

  StatusOr<ComputeMode> Mode() const override {
    int value = 0;
    METE_RETURN_IF_ERROR(Check(api_->compute_mode(handle_, &value), "nvmlDeviceGetComputeMode"));
    if (value < abi::NVML_COMPUTEMODE_DEFAULT || value > abi::NVML_COMPUTEMODE_EXCLUSIVE_PROCESS) {
      return Fault("{}: compute mode {} is none that mete knows", Object(), value);
    }
    return static_cast<ComputeMode>(value);
  }

  Status SetMode(ComputeMode mode) const override {
    constexpr const char* kCall = "nvmlDeviceSetComputeMode";
    if (api_->set_compute_mode == nullptr) return Check(abi::NVML_ERROR_FUNCTION_NOT_FOUND, kCall);
    return Check(api_->set_compute_mode(handle_, static_cast<int>(mode)), kCall);
  }

  StatusOr<MigState> SetMig(bool on) const override {
    METE_RETURN_IF_ERROR(Calls().SetMode(on));
    return Mig();
  }
  StatusOr<std::vector<GpuInstance>> GpuInstances() const override { return Calls().All(); }
  StatusOr<GpuInstance> CreateGpuInstance(uint32_t profile, int start, int size) const override {
    return Calls().Create(profile, start, size);
  }
  StatusOr<ComputeInstance> CreateComputeInstance(uint32_t gpu_instance, int compute_slices) const override {
    return Calls().CreateCompute(gpu_instance, compute_slices);
  }
  Status DestroyComputeInstance(uint32_t gpu_instance, uint32_t compute_instance) const override {
    return Calls().DestroyCompute(gpu_instance, compute_instance);
  }
  Status DestroyGpuInstance(uint32_t gpu_instance) const override { return Calls().Destroy(gpu_instance); }
  StatusOr<std::vector<std::shared_ptr<const Device>>> MigDevices() const override {
    std::vector<std::shared_ptr<const Device>> devices;
    METE_ASSIGN_OR_RETURN(const std::vector<MigHandle> handles, Calls().Handles());
    for (const MigHandle& one : handles) {
      devices.push_back(std::make_shared<RealDevice>(api_, one.handle, index_, one.uuid, one.name));
    }
    return devices;
  }

  StatusOr<std::vector<Process>> Processes() const override {
    METE_ASSIGN_OR_RETURN(std::vector<Process> all, List(api_->processes, "nvmlDeviceGetComputeRunningProcesses"));
    // Not every board lists these; a process with both kinds of contexts is in both lists, with all of its memory.
    StatusOr<std::vector<Process>> graphics = List(api_->graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses");
    if (!graphics.ok()) return Unsupported(graphics.status()) ? all : StatusOr<std::vector<Process>>(graphics.status());
    for (Process& process : *graphics) {
      const auto known =
          std::find_if(all.begin(), all.end(), [&](const Process& other) { return other.pid == process.pid; });
      if (known == all.end()) {
        all.push_back(std::move(process));
      } else {
        known->used = std::max(known->used, process.used);
      }
    }
    return all;
  }

  StatusOr<Utilization> Use() const override {
    abi::nvmlUtilization_t value = {};
    METE_RETURN_IF_ERROR(Check(api_->utilization(handle_, &value), "nvmlDeviceGetUtilizationRates"));
    return Utilization{value.gpu, value.memory};
  }

  StatusOr<std::vector<ProcessUtilization>> ProcessUse(uint64_t since_us) const override {
    std::vector<abi::nvmlProcessUtilizationSample_t> samples(128);
    nvmlReturn_t code = abi::NVML_SUCCESS;
    unsigned count = 0;
    for (int attempt = 0; attempt < 8; ++attempt) {
      count = static_cast<unsigned>(samples.size());
      code = api_->process_utilization(handle_, samples.data(), &count, since_us);
      if (code != abi::NVML_ERROR_INSUFFICIENT_SIZE) break;
      samples.resize(std::max<size_t>(samples.size() * 2, size_t{count} + 16));
    }
    if (code == abi::NVML_ERROR_NOT_FOUND) return std::vector<ProcessUtilization>{};
    METE_RETURN_IF_ERROR(Check(code, "nvmlDeviceGetProcessUtilization"));
    std::vector<ProcessUtilization> result;
    for (unsigned i = 0; i < count && i < samples.size(); ++i) {
      if (samples[i].pid == 0) continue;  // an unused place
      result.push_back({samples[i].pid, samples[i].smUtil, samples[i].memUtil});
    }
    return result;
  }

  StatusOr<CgroupMemory> MemoryOfCgroup(const std::string& folder) const override {
    constexpr const char* kCall = "nvmlDeviceGetMemoryLimits_v1";
    if (api_->memory_limits == nullptr) return Check(abi::NVML_ERROR_FUNCTION_NOT_FOUND, kCall);
    abi::nvmlGetMemoryLimits_v1_t limits = {folder.c_str(), 0, 0, 0};
    METE_RETURN_IF_ERROR(api_->Check(api_->memory_limits(handle_, &limits), kCall, Of(folder)));
    return CgroupMemory{{limits.hardLimit}, {limits.currentUsed}};
  }

  Status LimitCgroup(const std::string& folder, Bytes hard) const override {
    constexpr const char* kCall = "nvmlDeviceSetMemoryLimits_v1";
    if (api_->set_memory_limits == nullptr) return Check(abi::NVML_ERROR_FUNCTION_NOT_FOUND, kCall);
    abi::nvmlSetMemoryLimits_v1_t limits = {folder.c_str(), 0, hard.count};
    return api_->Check(api_->set_memory_limits(handle_, &limits), kCall, Of(folder));
  }

 private:
  using ListCall = decltype(Api::processes);
  StatusOr<std::vector<Process>> List(ListCall call, const char* name) const {
    if (call == nullptr) return Check(abi::NVML_ERROR_FUNCTION_NOT_FOUND, name);
    std::vector<abi::nvmlProcessInfo_t> infos(64);
    nvmlReturn_t code = abi::NVML_SUCCESS;
    unsigned count = 0;
    for (int attempt = 0; attempt < 8; ++attempt) {  // processes come while we ask
      count = static_cast<unsigned>(infos.size());
      code = call(handle_, &count, infos.data());
      if (code != abi::NVML_ERROR_INSUFFICIENT_SIZE) break;
      infos.resize(std::max<size_t>(infos.size() * 2, size_t{count} + 16));
    }
    METE_RETURN_IF_ERROR(Check(code, name));
    if (count > infos.size())
      return Fault("{}: {} counts {} processes in {} places", Object(), name, count, infos.size());
    std::vector<Process> result;
    for (unsigned i = 0; i < count; ++i) {
      Process process;
      process.pid = infos[i].pid;
      if (infos[i].usedGpuMemory != abi::NVML_VALUE_NOT_AVAILABLE) process.used = {infos[i].usedGpuMemory};
      process.name = NameOf(infos[i].pid);
      if (infos[i].gpuInstanceId != kNoInstance) process.gpu_instance = infos[i].gpuInstanceId;
      if (infos[i].computeInstanceId != kNoInstance) process.compute_instance = infos[i].computeInstanceId;
      result.push_back(std::move(process));
    }
    return result;
  }
  std::string Of(const std::string& folder) const { return fmt::format("{}, cgroup {}", Object(), folder); }
  MigCalls Calls() const { return {*api_, handle_, Object()}; }
  std::string Object() const { return fmt::format("GPU {} ({})", index_, uuid_); }
  Status Check(nvmlReturn_t code, const char* call) const { return api_->Check(code, call, Object()); }
  std::string NameOf(uint32_t pid) const {
    std::array<char, 1024> buffer = {};
    if (api_->process_name == nullptr ||
        api_->process_name(pid, buffer.data(), buffer.size() - 1) != abi::NVML_SUCCESS) {
      return {};
    }
    return buffer.data();
  }

  std::shared_ptr<const Api> api_;
  nvmlDevice_t handle_;
  uint32_t index_;
  std::string uuid_, name_;
};

class RealLibrary : public Library {
 public:
  static StatusOr<std::unique_ptr<Library>> Make(const std::string& file) {
    METE_ASSIGN_OR_RETURN(std::shared_ptr<const Api> api, Api::Load(file));
    auto library = std::make_unique<RealLibrary>();
    library->api_ = api;
    std::array<char, 96> text = {};
    METE_RETURN_IF_ERROR(
        api->Check(api->driver_version(text.data(), text.size() - 1), "nvmlSystemGetDriverVersion", file));
    library->driver_version_ = text.data();
    text = {};
    METE_RETURN_IF_ERROR(api->Check(api->nvml_version(text.data(), text.size() - 1), "nvmlSystemGetNVMLVersion", file));
    library->nvml_version_ = text.data();
    int cuda = 0;
    METE_RETURN_IF_ERROR(api->Check(api->cuda_version(&cuda), "nvmlSystemGetCudaDriverVersion_v2", file));
    library->cuda_version_ = static_cast<uint32_t>(cuda);
    return library;
  }

  StatusOr<std::vector<std::shared_ptr<const Device>>> Devices() const override {
    unsigned count = 0;
    METE_RETURN_IF_ERROR(api_->Check(api_->count(&count), "nvmlDeviceGetCount_v2", api_->file));
    std::vector<std::shared_ptr<const Device>> devices;
    for (unsigned i = 0; i < count; ++i) {
      std::string object = fmt::format("GPU {}", i);
      nvmlDevice_t handle = nullptr;
      nvmlReturn_t code = api_->handle_by_index(i, &handle);
      if (code == abi::NVML_ERROR_NO_PERMISSION) continue;  // a card this user may not open, for example in a container
      METE_RETURN_IF_ERROR(api_->Check(code, "nvmlDeviceGetHandleByIndex_v2", object));
      std::array<char, 128> uuid = {}, name = {};
      METE_RETURN_IF_ERROR(api_->Check(api_->uuid(handle, uuid.data(), uuid.size() - 1), "nvmlDeviceGetUUID", object));
      METE_RETURN_IF_ERROR(api_->Check(api_->name(handle, name.data(), name.size() - 1), "nvmlDeviceGetName", object));
      devices.push_back(std::make_shared<RealDevice>(api_, handle, i, uuid.data(), name.data()));
    }
    return devices;
  }

  const std::string& path() const override { return api_->file; }
  const std::string& driver_version() const override { return driver_version_; }
  const std::string& nvml_version() const override { return nvml_version_; }
  uint32_t cuda_version() const override { return cuda_version_; }
  bool emulated() const override { return api_->emulated; }
  bool limits_cgroups() const override { return api_->memory_limits != nullptr && api_->set_memory_limits != nullptr; }

 private:
  std::shared_ptr<const Api> api_;
  std::string driver_version_, nvml_version_;
  uint32_t cuda_version_ = 0;
};

}  // namespace

StatusOr<CgroupMemory> Device::MemoryOfCgroup(const std::string&) const {
  return absl::UnimplementedError(fmt::format("GPU {}: this driver has no memory limits by cgroup", index()));
}

namespace {

Status NoCall(const Device& device, const char* what) {
  return absl::UnimplementedError(fmt::format("GPU {}: this driver has no {}", device.index(), what));
}

}  // namespace

StatusOr<uint32_t> Device::PciDeviceId() const { return NoCall(*this, "PCI ids"); }
Status Device::SetMode(ComputeMode) const { return NoCall(*this, "compute modes"); }
StatusOr<MigState> Device::SetMig(bool) const { return NoCall(*this, "MIG"); }
StatusOr<std::vector<GpuInstance>> Device::GpuInstances() const { return NoCall(*this, "MIG"); }
StatusOr<GpuInstance> Device::CreateGpuInstance(uint32_t, int, int) const { return NoCall(*this, "MIG"); }
StatusOr<ComputeInstance> Device::CreateComputeInstance(uint32_t, int) const { return NoCall(*this, "MIG"); }
Status Device::DestroyComputeInstance(uint32_t, uint32_t) const { return NoCall(*this, "MIG"); }
Status Device::DestroyGpuInstance(uint32_t) const { return NoCall(*this, "MIG"); }
StatusOr<std::vector<std::shared_ptr<const Device>>> Device::MigDevices() const { return NoCall(*this, "MIG"); }

Status Device::LimitCgroup(const std::string&, Bytes) const {
  return absl::UnimplementedError(fmt::format("GPU {}: this driver has no memory limits by cgroup", index()));
}

StatusOr<std::string> Library::Find(std::string_view driver_root) {
  std::string root(driver_root);
  while (!root.empty() && root.back() == '/') root.pop_back();
  for (const char* folder : kFolders) {
    std::string file = fmt::format("{}/{}/{}", root, folder, kSoname);
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return Lacks(
      "no NVIDIA driver below {}: {} is in none of its library folders. Install the driver, name its root with "
      "--driver-root, or start an emulated GPU node with 'mete emulate up'",
      root.empty() ? "/" : root, kSoname);
}

StatusOr<std::unique_ptr<Library>> Library::Open(std::string_view driver_root) {
  StatusOr<std::string> file = Find(driver_root);
  if (file.ok()) return RealLibrary::Make(*file);
  bool host = !driver_root.empty() && driver_root.find_first_not_of('/') == std::string_view::npos;
  if (host) {
    // The loader knows more folders (ld.so.conf, LD_LIBRARY_PATH) than the list above.
    StatusOr<std::unique_ptr<Library>> library = RealLibrary::Make(kSoname);
    if (library.ok() || Message(library.status()).find("cannot load") == std::string::npos) return library;
  }
  return file.status();
}

StatusOr<std::shared_ptr<const Device>> Library::FindDevice(std::string_view name) const {
  METE_ASSIGN_OR_RETURN(auto devices, Devices());
  unsigned index = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  bool is_index = error == std::errc() && end == name.data() + name.size();
  std::string have;
  for (const auto& device : devices) {
    if (is_index ? device->index() == index : device->uuid() == name) return device;
    StatusOr<std::string> bus = device->PciBusId();
    if (!is_index && bus.ok() && *bus == name) return device;
    have += fmt::format("{}{} ({}, {})", have.empty() ? "" : ", ", device->index(), device->name(), device->uuid());
  }
  return NoSuch("there is no GPU '{}'; this node has {}", name, have.empty() ? "none" : have);
}

bool Unsupported(const Status& status) { return status.code() == absl::StatusCode::kUnimplemented; }

}  // namespace mete::nvml
