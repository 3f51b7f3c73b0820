// NVML's calls about the library and the system: start and end, versions, error texts, process names.
#include <algorithm>
#include <cstring>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

// Its presence says that this is an emulated node. Reports show it; nothing decides by it.
extern "C" {
__attribute__((visibility("default"))) extern const int mete_emulated_node;
const int mete_emulated_node = 1;
}

namespace mete::nvml::abi {

using emulator::CopyText;
using emulator::NvmlInitialise;
using emulator::NvmlSession;
using emulator::NvmlShutdown;
using emulator::WithNode;

namespace {

nvmlReturn_t NoSuchUnit() {
  return WithNode([](NvmlSession&) { return NVML_ERROR_INVALID_ARGUMENT; });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  try {
    return NvmlInitialise(flags);
  } catch (...) {
    return NVML_ERROR_MEMORY;
  }
}

nvmlReturn_t nvmlShutdown(void) { return NvmlShutdown(); }

// In the emulator's own words.
const char* nvmlErrorString(nvmlReturn_t result) {
  switch (static_cast<int>(result)) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_CORRUPTED_INFOROM: return "Corrupted infoROM";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_OPERATING_SYSTEM: return "Operating System Call Failed";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_NO_DATA: return "No Data";
    case NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: return "vGPU Not Supported With ECC";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ERROR_FREQ_NOT_SUPPORTED: return "Frequency Not Supported";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    case NVML_ERROR_DEPRECATED: return "Deprecated";
    case NVML_ERROR_NOT_READY: return "Not Ready";
    case NVML_ERROR_GPU_NOT_FOUND: return "GPU Not Found";
    case NVML_ERROR_INVALID_STATE: return "Invalid State";
    case NVML_ERROR_RESET_TYPE_NOT_SUPPORTED: return "Reset Type Not Supported";
    default: return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  return WithNode([&](NvmlSession& session) { return CopyText(session.client->DriverVersion(), version, length); });
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  // CUDA's major version in front of the driver's.
  return WithNode([&](NvmlSession& session) {
    std::string text = std::to_string(session.client->CudaVersion() / 1000) + "." + session.client->DriverVersion();
    return CopyText(text, version, length);
  });
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  return WithNode([&](NvmlSession& session) {
    if (cudaDriverVersion == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *cudaDriverVersion = static_cast<int>(session.client->CudaVersion());
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  return nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* branchInfo, unsigned int length) {
  return WithNode([&](NvmlSession& session) {
    if (branchInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (branchInfo->version != StructVersion<nvmlSystemDriverBranchInfo_t>(1)) {
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    const std::string driver = session.client->DriverVersion();
    return CopyText("r" + driver.substr(0, driver.find('.')) + "_00", branchInfo->branch,
                    std::min<unsigned>(length, sizeof(branchInfo->branch)));
  });
}

// Host interface cards and excluded GPUs: the node has none.
nvmlReturn_t nvmlSystemGetHicVersion(unsigned int* hwbcCount, nvmlHwbcEntry_t* hwbcEntries) {
  return WithNode([&](NvmlSession&) { return emulator::GiveList<nvmlHwbcEntry_t>({}, hwbcCount, hwbcEntries); });
}
nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* deviceCount) {
  return WithNode([&](NvmlSession&) {
    if (deviceCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *deviceCount = 0;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int, nvmlExcludedDeviceInfo_t*) {
  return WithNode([](NvmlSession&) { return NVML_ERROR_INVALID_ARGUMENT; });
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  return WithNode([&](NvmlSession& session) {
    if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned gpu = 0; gpu < session.gpus().size(); ++gpu) {
      std::vector<emulator::ProcessInfo> processes;
      emulator::Result result = session.client->Processes(gpu, &processes);
      if (result != emulator::Result::kOk) return emulator::FromResult(result);
      for (const emulator::ProcessInfo& process : processes) {
        if (process.pid != pid) continue;
        std::string text(process.name, strnlen(process.name, sizeof(process.name)));
        text.resize(std::min<size_t>(text.size(), length - 1));  // cropped, as documented
        return CopyText(text, name, length);
      }
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

// --- S-class units: chassis with GPUs, of which the node has none, so that no handle of one is valid
// ------------------

nvmlReturn_t nvmlUnitGetCount(unsigned int* unitCount) { return nvmlGetExcludedDeviceCount(unitCount); }
nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int, nvmlUnit_t*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitGetUnitInfo(nvmlUnit_t, nvmlUnitInfo_t*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitGetLedState(nvmlUnit_t, nvmlLedState_t*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitGetPsuInfo(nvmlUnit_t, nvmlPSUInfo_t*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitGetTemperature(nvmlUnit_t, unsigned int, unsigned int*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitGetFanSpeedInfo(nvmlUnit_t, nvmlUnitFanSpeeds_t*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitGetDevices(nvmlUnit_t, unsigned int*, nvmlDevice_t*) { return NoSuchUnit(); }
nvmlReturn_t nvmlUnitSetLedState(nvmlUnit_t, nvmlLedColor_t) { return NoSuchUnit(); }

}  // extern "C"

}  // namespace mete::nvml::abi
