#include <dlfcn.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "emulator/smi/snapshot.h"
#include "mete/nvml_prototypes.h"

namespace mete::emulator::smi {

namespace {

using nvml::abi::nvmlDevice_t;
using nvml::abi::nvmlReturn_t;

// A list that clang-format never settles on.
// clang-format off
#define SMI_CALLS(X)                                                                                          \
  X(nvmlInit_v2)                                                                                              \
  X(nvmlShutdown)                                                                                             \
  X(nvmlErrorString)                                                                                          \
  X(nvmlSystemGetDriverVersion) X(nvmlSystemGetCudaDriverVersion_v2) X(nvmlSystemGetProcessName)              \
      X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID)     \
          X(nvmlDeviceGetSerial) X(nvmlDeviceGetPciInfo_v3) X(nvmlDeviceGetCudaComputeCapability)             \
              X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetUtilizationRates)       \
                  X(nvmlDeviceGetTemperature) X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetPowerManagementLimit) \
                      X(nvmlDeviceGetPowerManagementDefaultLimit) X(nvmlDeviceGetEnforcedPowerLimit)          \
                          X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetMaxClockInfo)                              \
                              X(nvmlDeviceGetCurrPcieLinkGeneration) X(nvmlDeviceGetMaxPcieLinkGeneration)    \
                                  X(nvmlDeviceGetCurrPcieLinkWidth) X(nvmlDeviceGetMaxPcieLinkWidth)          \
                                      X(nvmlDeviceGetPerformanceState) X(nvmlDeviceGetComputeMode)            \
                                          X(nvmlDeviceSetComputeMode) X(nvmlDeviceGetPersistenceMode)         \
                                              X(nvmlDeviceGetDisplayMode) X(nvmlDeviceGetDisplayActive)       \
                                                  X(nvmlDeviceGetEccMode) X(nvmlDeviceGetTotalEccErrors)      \
                                                      X(nvmlDeviceGetMigMode)                                 \
                                                          X(nvmlDeviceGetComputeRunningProcesses_v3)
// clang-format on

struct Calls {
#define SMI_MEMBER(name) decltype(&nvml::abi::name) name = nullptr;
  SMI_CALLS(SMI_MEMBER)
#undef SMI_MEMBER
};

// Calls that answer with one number.
template <typename Value, typename Call, typename... Before>
std::optional<Value> Ask(Call call, nvmlDevice_t device, Before... before) {
  Value value = {};
  if (call(device, before..., &value) != nvml::abi::NVML_SUCCESS) return std::nullopt;
  return value;
}

template <typename Call>
std::string Text(Call call, nvmlDevice_t device) {
  std::array<char, 128> text = {};
  return call(device, text.data(), text.size() - 1) == nvml::abi::NVML_SUCCESS ? text.data() : "";
}

class NvmlSource : public SmiSource {
 public:
  NvmlSource(const Calls& calls, bool emulated) : nvml_(calls), emulated_(emulated) {}
  ~NvmlSource() override { nvml_.nvmlShutdown(); }
  bool emulated() const override { return emulated_; }

  Exit Read(SmiSnapshot* snapshot, std::string* message) override {
    std::array<char, 96> version = {};
    unsigned count = 0;
    nvmlReturn_t code = nvml_.nvmlSystemGetDriverVersion(version.data(), version.size() - 1);
    if (code == nvml::abi::NVML_SUCCESS) code = nvml_.nvmlDeviceGetCount_v2(&count);
    if (code != nvml::abi::NVML_SUCCESS) return Fail(code, "reading the node", message);
    snapshot->driver_version = version.data();
    nvml_.nvmlSystemGetCudaDriverVersion_v2(&snapshot->cuda_version);
    for (unsigned i = 0; i < count; ++i) {
      nvmlDevice_t device = nullptr;
      code = nvml_.nvmlDeviceGetHandleByIndex_v2(i, &device);
      if (code != nvml::abi::NVML_SUCCESS) return Fail(code, "finding GPU " + std::to_string(i), message);
      SmiGpu gpu;
      gpu.index = i;
      ReadIdentity(device, &gpu);
      ReadState(device, &gpu);
      ReadModes(device, &gpu);
      code = ReadProcesses(device, &gpu);
      if (code != nvml::abi::NVML_SUCCESS)
        return Fail(code, "listing the processes of GPU " + std::to_string(i), message);
      snapshot->gpus.push_back(std::move(gpu));
    }
    return kOk;
  }

  Exit SetComputeMode(uint32_t gpu, int mode, std::string* message) override {
    nvmlDevice_t device = nullptr;
    nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
    if (code == nvml::abi::NVML_SUCCESS) code = nvml_.nvmlDeviceSetComputeMode(device, mode);
    return code == nvml::abi::NVML_SUCCESS
               ? kOk
               : Fail(code, "setting the compute mode of GPU " + std::to_string(gpu), message);
  }

  Exit Fail(nvmlReturn_t code, const std::string& what, std::string* message) const {
    *message = what + " failed: " + nvml_.nvmlErrorString(code);
    switch (static_cast<int>(code)) {
      case nvml::abi::NVML_ERROR_INVALID_ARGUMENT: return kInvalidArgument;
      case nvml::abi::NVML_ERROR_NOT_SUPPORTED: return kNotAvailable;
      case nvml::abi::NVML_ERROR_NO_PERMISSION: return kNoPermission;
      case nvml::abi::NVML_ERROR_NOT_FOUND: return kNotFound;
      case nvml::abi::NVML_ERROR_DRIVER_NOT_LOADED: return kDriverNotLoaded;
      case nvml::abi::NVML_ERROR_GPU_IS_LOST: return kGpuLost;
      default: return kOther;
    }
  }

 private:
  void ReadIdentity(nvmlDevice_t device, SmiGpu* gpu) const {
    gpu->name = Text(nvml_.nvmlDeviceGetName, device);
    gpu->uuid = Text(nvml_.nvmlDeviceGetUUID, device);
    gpu->serial = Text(nvml_.nvmlDeviceGetSerial, device);
    nvml::abi::nvmlPciInfo_t pci = {};
    if (nvml_.nvmlDeviceGetPciInfo_v3(device, &pci) == nvml::abi::NVML_SUCCESS) {
      gpu->bus_id.assign(pci.busId, strnlen(pci.busId, sizeof(pci.busId)));
      gpu->domain = pci.domain;
      gpu->bus = pci.bus;
      gpu->device = pci.device;
      gpu->pci_device_id = pci.pciDeviceId;
      gpu->pci_subsystem_id = pci.pciSubSystemId;
    }
    nvml_.nvmlDeviceGetCudaComputeCapability(device, &gpu->compute_major, &gpu->compute_minor);
  }

  void ReadState(nvmlDevice_t device, SmiGpu* gpu) const {
    nvml::abi::nvmlMemory_v2_t memory = {};
    memory.version = nvml::abi::StructVersion<nvml::abi::nvmlMemory_v2_t>(2);
    nvml::abi::nvmlMemory_t old = {};
    if (nvml_.nvmlDeviceGetMemoryInfo_v2(device, &memory) == nvml::abi::NVML_SUCCESS) {
      gpu->memory_total = memory.total;
      gpu->memory_reserved = memory.reserved;
      gpu->memory_used = memory.used;
      gpu->memory_free = memory.free;
    } else if (nvml_.nvmlDeviceGetMemoryInfo(device, &old) == nvml::abi::NVML_SUCCESS) {
      gpu->memory_total = old.total;
      gpu->memory_used = old.used;
      gpu->memory_free = old.free;
    }
    if (auto use = Ask<nvml::abi::nvmlUtilization_t>(nvml_.nvmlDeviceGetUtilizationRates, device)) {
      gpu->utilization_gpu = use->gpu;
      gpu->utilization_memory = use->memory;
    }
    gpu->temperature_c = Ask<unsigned>(nvml_.nvmlDeviceGetTemperature, device, nvml::abi::NVML_TEMPERATURE_GPU);
    gpu->power_mw = Ask<unsigned>(nvml_.nvmlDeviceGetPowerUsage, device);
    gpu->power_limit_mw = Ask<unsigned>(nvml_.nvmlDeviceGetPowerManagementLimit, device);
    gpu->power_default_mw = Ask<unsigned>(nvml_.nvmlDeviceGetPowerManagementDefaultLimit, device);
    gpu->enforced_limit_mw = Ask<unsigned>(nvml_.nvmlDeviceGetEnforcedPowerLimit, device);
    gpu->sm_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetClockInfo, device, nvml::abi::NVML_CLOCK_SM);
    gpu->memory_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetClockInfo, device, nvml::abi::NVML_CLOCK_MEM);
    gpu->max_sm_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetMaxClockInfo, device, nvml::abi::NVML_CLOCK_SM);
    gpu->max_memory_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetMaxClockInfo, device, nvml::abi::NVML_CLOCK_MEM);
    gpu->link_gen = Ask<unsigned>(nvml_.nvmlDeviceGetCurrPcieLinkGeneration, device);
    gpu->link_gen_max = Ask<unsigned>(nvml_.nvmlDeviceGetMaxPcieLinkGeneration, device);
    gpu->link_width = Ask<unsigned>(nvml_.nvmlDeviceGetCurrPcieLinkWidth, device);
    gpu->link_width_max = Ask<unsigned>(nvml_.nvmlDeviceGetMaxPcieLinkWidth, device);
  }

  void ReadModes(nvmlDevice_t device, SmiGpu* gpu) const {
    gpu->pstate = Ask<int>(nvml_.nvmlDeviceGetPerformanceState, device);
    gpu->compute_mode = Ask<int>(nvml_.nvmlDeviceGetComputeMode, device);
    gpu->persistence = Ask<int>(nvml_.nvmlDeviceGetPersistenceMode, device);
    gpu->display_mode = Ask<int>(nvml_.nvmlDeviceGetDisplayMode, device);
    gpu->display_active = Ask<int>(nvml_.nvmlDeviceGetDisplayActive, device);
    int ecc = 0, ecc_pending = 0;
    if (nvml_.nvmlDeviceGetEccMode(device, &ecc, &ecc_pending) == nvml::abi::NVML_SUCCESS) {
      gpu->ecc = ecc;
      gpu->ecc_pending = ecc_pending;
      gpu->ecc_errors =
          Ask<unsigned long long>(nvml_.nvmlDeviceGetTotalEccErrors, device, 1, 0);  // uncorrected, volatile
    }
    unsigned mig = 0, mig_pending = 0;
    if (nvml_.nvmlDeviceGetMigMode(device, &mig, &mig_pending) == nvml::abi::NVML_SUCCESS) {
      gpu->mig = mig;
      gpu->mig_pending = mig_pending;
    }
  }

  nvmlReturn_t ReadProcesses(nvmlDevice_t device, SmiGpu* gpu) const {
    std::vector<nvml::abi::nvmlProcessInfo_t> infos(64);
    nvmlReturn_t code = nvml::abi::NVML_SUCCESS;
    unsigned count = 0;
    for (int attempt = 0; attempt < 8; ++attempt) {
      count = static_cast<unsigned>(infos.size());
      code = nvml_.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos.data());
      if (code != nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE) break;
      infos.resize(infos.size() * 2 + count);
    }
    if (code == nvml::abi::NVML_ERROR_NOT_SUPPORTED) return nvml::abi::NVML_SUCCESS;
    if (code != nvml::abi::NVML_SUCCESS) return code;
    for (unsigned i = 0; i < count && i < infos.size(); ++i) {
      SmiProcess process;
      process.pid = infos[i].pid;
      if (infos[i].usedGpuMemory != nvml::abi::NVML_VALUE_NOT_AVAILABLE) process.used_bytes = infos[i].usedGpuMemory;
      std::array<char, 1024> name = {};
      bool known = nvml_.nvmlSystemGetProcessName(process.pid, name.data(), name.size() - 1) == nvml::abi::NVML_SUCCESS;
      process.name = known ? name.data() : "[Not Found]";
      gpu->processes.push_back(std::move(process));
    }
    return nvml::abi::NVML_SUCCESS;
  }

  Calls nvml_;
  bool emulated_;
};

// The node's own library, beside this program: <node>/usr/bin/nvidia-smi, <node>/usr/lib/x86_64-linux-gnu.
void* OpenOwn() {
  char program[PATH_MAX];
  if (realpath("/proc/self/exe", program) == nullptr) return nullptr;
  std::string path = program;
  for (int i = 0; i < 2; ++i) path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  path += "/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Exit OpenNvml(std::unique_ptr<SmiSource>* source, std::string* message) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  // A host's own driver may stand in the loader's path; this program shows its node.
  if (library == nullptr || dlsym(library, "mete_emulated_node") == nullptr) {
    if (void* own = OpenOwn(); own != nullptr) library = own;
  }
  if (library == nullptr) {
    *message =
        "libnvidia-ml.so.1 is neither in the loader's path nor in this program's node. Bring a node up with 'mete "
        "emulate up'";
    return kNoLibrary;
  }
  Calls calls;
  const char* missing = nullptr;
#define SMI_RESOLVE(name)                                                     \
  calls.name = reinterpret_cast<decltype(calls.name)>(dlsym(library, #name)); \
  if (calls.name == nullptr && missing == nullptr) missing = #name;
  SMI_CALLS(SMI_RESOLVE)
#undef SMI_RESOLVE
  if (missing != nullptr) {
    *message = std::string("libnvidia-ml.so.1 has no ") + missing;
    return kNotBuilt;
  }
  if (nvmlReturn_t code = calls.nvmlInit_v2(); code != nvml::abi::NVML_SUCCESS) {
    *message = std::string("NVIDIA-SMI has failed: the driver does not answer (") + calls.nvmlErrorString(code) +
               "). See whether the node is up with 'mete emulate status'";
    return code == nvml::abi::NVML_ERROR_DRIVER_NOT_LOADED ? kDriverNotLoaded : kOther;
  }
  *source = std::make_unique<NvmlSource>(calls, dlsym(library, "mete_emulated_node") != nullptr);
  return kOk;
}

}  // namespace mete::emulator::smi
