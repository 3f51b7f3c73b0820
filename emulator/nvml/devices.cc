// NVML's calls that find a GPU and say which one it is.
#include <strings.h>

#include <cstring>

#include "emulator/nvml/pci.h"
#include "emulator/nvml/state.h"
#include "mete/nvml_prototypes.h"

namespace mete::emulator {

namespace {

std::string UuidText(const GpuInfo& info) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof(info.uuid); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[info.uuid[i] >> 4];
    text += kDigits[info.uuid[i] & 15];
  }
  return text;
}

// A board of the emulator has no printed number: thirteen digits made from its UUID.
std::string SerialText(const GpuInfo& info) {
  uint64_t number = 0;
  std::memcpy(&number, info.uuid, sizeof(number));
  std::string digits = std::to_string(number % 10'000'000'000'000ull);
  return std::string(13 - digits.size(), '0') + digits;
}

PciAddress AddressOf(const GpuInfo& info) {
  PciAddress address;
  ParsePciAddress({info.pci_bus_id, strnlen(info.pci_bus_id, sizeof(info.pci_bus_id))}, &address);
  return address;
}

std::string NameOf(const GpuInfo& info) { return {info.name, strnlen(info.name, sizeof(info.name))}; }

bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

nvml::abi::nvmlBrandType_t BrandOf(const std::string& name) {
  if (StartsWith(name, "Tesla")) return nvml::abi::NVML_BRAND_TESLA;
  if (StartsWith(name, "NVIDIA GeForce RTX")) return nvml::abi::NVML_BRAND_GEFORCE_RTX;
  if (name.find("GeForce") != std::string::npos) return nvml::abi::NVML_BRAND_GEFORCE;
  if (StartsWith(name, "NVIDIA RTX")) return nvml::abi::NVML_BRAND_NVIDIA_RTX;
  return nvml::abi::NVML_BRAND_NVIDIA;
}

nvml::abi::nvmlDeviceArchitecture_t ArchitectureOf(const GpuInfo& info) {
  std::string word(info.architecture, strnlen(info.architecture, sizeof(info.architecture)));
  if (word == "volta") return nvml::abi::NVML_DEVICE_ARCH_VOLTA;
  if (word == "turing") return nvml::abi::NVML_DEVICE_ARCH_TURING;
  if (word == "ampere") return nvml::abi::NVML_DEVICE_ARCH_AMPERE;
  if (word == "ada") return nvml::abi::NVML_DEVICE_ARCH_ADA;
  if (word == "hopper") return nvml::abi::NVML_DEVICE_ARCH_HOPPER;
  if (word == "blackwell") return nvml::abi::NVML_DEVICE_ARCH_BLACKWELL;
  return nvml::abi::NVML_DEVICE_ARCH_UNKNOWN;
}

// The first GPU for which `same` holds.
template <typename Same>
nvml::abi::nvmlReturn_t Find(nvml::abi::nvmlDevice_t* device, const char* text, Same same) {
  return WithNode([&](NvmlSession& session) {
    if (device == nullptr || text == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned gpu = 0; gpu < session.gpus().size() && gpu < kMaxNvmlGpus; ++gpu) {
      if (!same(session.gpus()[gpu])) continue;
      *device = NvmlHandle(gpu);
      return nvml::abi::NVML_SUCCESS;
    }
    return nvml::abi::NVML_ERROR_NOT_FOUND;
  });
}

template <typename T, typename Value>
nvml::abi::nvmlReturn_t Give(nvml::abi::nvmlDevice_t device, T* out, Value value) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (out == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    *out = static_cast<T>(value(session.gpus()[gpu], gpu));
    return nvml::abi::NVML_SUCCESS;
  });
}

template <typename Value>
nvml::abi::nvmlReturn_t GiveText(nvml::abi::nvmlDevice_t device, char* out, unsigned length, Value value) {
  return WithGpu(device,
                 [&](NvmlSession& session, unsigned gpu) { return CopyText(value(session.gpus()[gpu]), out, length); });
}

}  // namespace

}  // namespace mete::emulator

namespace mete::nvml::abi {

using emulator::AddressOf;
using emulator::GpuInfo;
using emulator::NvmlHandle;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithNode;

extern "C" {

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  return WithNode([&](NvmlSession& session) {
    if (deviceCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *deviceCount = static_cast<unsigned>(session.gpus().size());
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetCount(unsigned int* deviceCount) { return nvmlDeviceGetCount_v2(deviceCount); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  return WithNode([&](NvmlSession& session) {
    if (device == nullptr || index >= session.gpus().size() || index >= emulator::kMaxNvmlGpus) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    *device = NvmlHandle(index);
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  return emulator::Find(device, uuid,
                        [&](const GpuInfo& info) { return strcasecmp(uuid, emulator::UuidText(info).c_str()) == 0; });
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  return emulator::Find(device, serial, [&](const GpuInfo& info) { return emulator::SerialText(info) == serial; });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId, nvmlDevice_t* device) {
  emulator::PciAddress wanted;
  if (pciBusId != nullptr && !emulator::ParsePciAddress({pciBusId, strnlen(pciBusId, 64)}, &wanted)) {
    return WithNode([](NvmlSession&) { return NVML_ERROR_INVALID_ARGUMENT; });
  }
  return emulator::Find(device, pciBusId, [&](const GpuInfo& info) { return AddressOf(info) == wanted; });
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* pciBusId, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return emulator::GiveText(device, name, length, emulator::NameOf);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return emulator::GiveText(device, uuid, length, emulator::UuidText);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  return emulator::GiveText(device, serial, length, emulator::SerialText);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return emulator::Give(device, index, [](const GpuInfo&, unsigned gpu) { return gpu; });
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minorNumber) {
  return emulator::Give(device, minorNumber, [](const GpuInfo& info, unsigned) { return info.minor; });
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* type) {
  return emulator::Give(device, type,
                        [](const GpuInfo& info, unsigned) { return emulator::BrandOf(emulator::NameOf(info)); });
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* arch) {
  return emulator::Give(device, arch, [](const GpuInfo& info, unsigned) { return emulator::ArchitectureOf(info); });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *major = static_cast<int>(session.gpus()[gpu].compute_major);
    *minor = static_cast<int>(session.gpus()[gpu].compute_minor);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* boardId) {
  return emulator::Give(device, boardId, [](const GpuInfo& info, unsigned) { return AddressOf(info).bus << 8; });
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int* multiGpuBool) {
  return emulator::Give(device, multiGpuBool, [](const GpuInfo&, unsigned) { return 0; });
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int* onSameBoard) {
  return WithGpu(device1, [&](NvmlSession& session, unsigned first) {
    unsigned second = 0;
    if (onSameBoard == nullptr || !emulator::NvmlGpuOf(session, device2, &second)) return NVML_ERROR_INVALID_ARGUMENT;
    *onSameBoard = first == second;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    emulator::PciAddress address = AddressOf(session.gpus()[gpu]);
    nvmlPciInfo_t info = {};
    info.domain = address.domain;
    info.bus = address.bus;
    info.device = address.device;
    info.pciDeviceId = session.gpus()[gpu].pci_device_id;
    emulator::CopyText(emulator::ToPciBusId(address), info.busId, sizeof(info.busId));
    emulator::CopyText(emulator::ToLegacyPciBusId(address), info.busIdLegacy, sizeof(info.busIdLegacy));
    *pci = info;
    return NVML_SUCCESS;
  });
}

// The older structures are shorter beginnings of the newer one: no byte beyond them is written.
static nvmlReturn_t GivePciPrefix(nvmlDevice_t device, nvmlPciInfo_t* pci, size_t bytes) {
  nvmlPciInfo_t info = {};
  nvmlReturn_t code = nvmlDeviceGetPciInfo_v3(device, pci == nullptr ? nullptr : &info);
  if (code == NVML_SUCCESS) std::memcpy(static_cast<void*>(pci), &info, bytes);
  return code;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return GivePciPrefix(device, pci, sizeof(nvmlPciInfo_v2_t));
}
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return GivePciPrefix(device, pci, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (pci->version != StructVersion<nvmlPciInfoExt_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlPciInfo_t info = {};
    nvmlReturn_t code = nvmlDeviceGetPciInfo_v3(device, &info);
    if (code != NVML_SUCCESS) return code;
    *pci = {pci->version, info.domain, info.bus, info.device, info.pciDeviceId, info.pciSubSystemId, 3, 2, {}};
    std::memcpy(pci->busId, info.busId, sizeof(pci->busId));  // class 3, subclass 2: a 3D controller
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t* pathInfo) {
  return WithGpu(device1, [&](NvmlSession& session, unsigned first) {
    unsigned second = 0;
    if (pathInfo == nullptr || !emulator::NvmlGpuOf(session, device2, &second)) return NVML_ERROR_INVALID_ARGUMENT;
    *pathInfo = first == second ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2pIndex,
                                    nvmlGpuP2PStatus_t* p2pStatus) {
  return WithGpu(device1, [&](NvmlSession& session, unsigned) {
    unsigned second = 0;
    if (p2pStatus == nullptr || !emulator::NvmlGpuOf(session, device2, &second)) return NVML_ERROR_INVALID_ARGUMENT;
    if (p2pIndex < NVML_P2P_CAPS_INDEX_READ || p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    *p2pStatus = NVML_P2P_STATUS_NOT_SUPPORTED;  // the emulated node has no peer access
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t* type) {
  return emulator::Give(device, type, [](const GpuInfo&, unsigned) { return NVML_BUS_TYPE_PCIE; });
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t* pVirtualMode) {
  return emulator::Give(device, pVirtualMode,
                        [](const GpuInfo&, unsigned) { return NVML_GPU_VIRTUALIZATION_MODE_NONE; });
}

}  // extern "C"

}  // namespace mete::nvml::abi
