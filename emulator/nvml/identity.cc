// NVML's calls that say which board a GPU is: names, numbers, firmware.
#include "emulator/nvml/identity.h"

#include <cstring>

#include "emulator/nvml/give.h"
#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::emulator {

std::string UuidTextOf(const char* prefix, const uint8_t (&uuid)[16]) {
  std::string text = prefix;
  for (size_t i = 0; i < sizeof(uuid); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

std::string UuidTextOf(const GpuInfo& info) { return UuidTextOf("GPU-", info.uuid); }

// A board of the emulator has no printed number: thirteen digits made from its UUID.
std::string SerialTextOf(const GpuInfo& info) {
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

namespace {

bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

nvml::abi::nvmlBrandType_t BrandOf(const std::string& name) {
  if (StartsWith(name, "Tesla")) return nvml::abi::NVML_BRAND_TESLA;
  if (StartsWith(name, "NVIDIA GeForce RTX")) return nvml::abi::NVML_BRAND_GEFORCE_RTX;
  if (name.find("GeForce") != std::string::npos) return nvml::abi::NVML_BRAND_GEFORCE;
  if (StartsWith(name, "NVIDIA RTX")) return nvml::abi::NVML_BRAND_NVIDIA_RTX;
  return nvml::abi::NVML_BRAND_NVIDIA;
}

nvml::abi::nvmlDeviceArchitecture_t ArchitectureOf(const GpuInfo& info) {
  const std::string word(info.architecture, strnlen(info.architecture, sizeof(info.architecture)));
  if (word == "volta") return nvml::abi::NVML_DEVICE_ARCH_VOLTA;
  if (word == "turing") return nvml::abi::NVML_DEVICE_ARCH_TURING;
  if (word == "ampere") return nvml::abi::NVML_DEVICE_ARCH_AMPERE;
  if (word == "ada") return nvml::abi::NVML_DEVICE_ARCH_ADA;
  if (word == "hopper") return nvml::abi::NVML_DEVICE_ARCH_HOPPER;
  if (word == "blackwell") return nvml::abi::NVML_DEVICE_ARCH_BLACKWELL;
  return nvml::abi::NVML_DEVICE_ARCH_UNKNOWN;
}

// FP32 lanes of an SM.
unsigned CoresPerSm(const GpuInfo& info) {
  const unsigned compute = ComputeOf(info);
  return compute <= 80 ? 64 : 128;
}

bool HasGsp(const GpuInfo& info) { return ComputeOf(info) >= 75; }

template <size_t N>
std::string TextOf(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

// The four objects that the board's information ROM may hold.
std::string InforomVersion(const GpuInfo& info, int object) {
  switch (object) {
    case 0: return "2.0";
    case 1: return AmpereOrNewer(info) ? "6.16" : "5.0";
    default: return {};
  }
}

// A number that stands for the ROM's content: the same for the same board.
unsigned Checksum(const GpuInfo& info) {
  uint32_t sum = 2166136261u;  // FNV-1a
  for (const char c : SerialTextOf(info) + TextOf(info.part_number)) {
    sum = (sum ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return sum;
}

}  // namespace

}  // namespace mete::emulator

namespace mete::nvml::abi {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;

extern "C" {

// A MIG device is called as its GPU and its profile.
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return emulator::WithEither(
      device,
      [&](NvmlSession& session, const emulator::MigAt& at) {
        emulator::MigProfileInfo profile = {};
        emulator::MigComputeProfileInfo compute = {};
        const nvmlReturn_t code = emulator::ProfilesOf(session, at, &profile, &compute);
        if (code != NVML_SUCCESS) return code;
        return emulator::CopyText(emulator::NameOf(session.gpus()[at.gpu]) + " MIG " + emulator::TextOf(compute.name),
                                  name, length);
      },
      [&] { return emulator::GiveText(device, name, length, emulator::NameOf); });
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return emulator::WithEither(
      device,
      [&](NvmlSession&, const emulator::MigAt& at) {
        return emulator::CopyText(emulator::MigUuidText(*at.compute), uuid, length);
      },
      [&] {
        return emulator::GiveText(device, uuid, length, [](const GpuInfo& info) { return emulator::UuidTextOf(info); });
      });
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  return emulator::GiveText(device, serial, length, emulator::SerialTextOf);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return emulator::WithEither(
      device,
      [&](NvmlSession&, const emulator::MigAt& at) {
        if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        *index = at.index;
        return NVML_SUCCESS;
      },
      [&] { return emulator::GiveInfo(device, index, [](const GpuInfo&, unsigned gpu) { return gpu; }); });
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minorNumber) {
  return emulator::GiveInfo(device, minorNumber, [](const GpuInfo& info, unsigned) { return info.minor; });
}

// Of boards with NVLink: their place on the baseboard, counted from 1.
nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int* moduleId) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (moduleId == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (session.gpus()[gpu].nvlinks == 0) return NVML_ERROR_NOT_SUPPORTED;
    *moduleId = gpu + 1;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* type) {
  return emulator::GiveInfo(device, type,
                            [](const GpuInfo& info, unsigned) { return emulator::BrandOf(emulator::NameOf(info)); });
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* arch) {
  return emulator::GiveInfo(device, arch, [](const GpuInfo& info, unsigned) { return emulator::ArchitectureOf(info); });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *major = static_cast<int>(session.gpus()[gpu].compute_major);
    *minor = static_cast<int>(session.gpus()[gpu].compute_minor);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int* numCores) {
  return emulator::GiveInfo(device, numCores,
                            [](const GpuInfo& info, unsigned) { return info.sm_count * emulator::CoresPerSm(info); });
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* boardId) {
  return emulator::GiveInfo(device, boardId,
                            [](const GpuInfo& info, unsigned) { return emulator::AddressOf(info).bus << 8; });
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char* partNumber, unsigned int length) {
  return emulator::GiveText(device, partNumber, length,
                            [](const GpuInfo& info) { return emulator::TextOf(info.part_number); });
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char* version, unsigned int length) {
  return emulator::GiveText(device, version, length, [](const GpuInfo& info) { return emulator::TextOf(info.vbios); });
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char* version, unsigned int length) {
  return emulator::GiveText(device, version, length, [](const GpuInfo& info) {
    // Its number follows the board's part number, "900-2G183-…" → "G183.0200.00.02".
    const std::string part = emulator::TextOf(info.part_number);
    return (part.size() > 8 ? part.substr(5, 4) : std::string("G000")) + ".0200.00.02";
  });
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char* version,
                                         unsigned int length) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (version == nullptr || object < 0 || object > 3) return NVML_ERROR_INVALID_ARGUMENT;
    const std::string text = emulator::InforomVersion(session.gpus()[gpu], object);
    return text.empty() ? NVML_ERROR_NOT_SUPPORTED : emulator::CopyText(text, version, length);
  });
}

nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device, unsigned int* checksum) {
  return emulator::GiveInfo(device, checksum, [](const GpuInfo& info, unsigned) { return emulator::Checksum(info); });
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
  return emulator::WithGpu(device, [](NvmlSession&, unsigned) { return NVML_SUCCESS; });
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int* isEnabled, unsigned int* defaultMode) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (isEnabled == nullptr || defaultMode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *isEnabled = *defaultMode = emulator::HasGsp(session.gpus()[gpu]);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char* version) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!emulator::HasGsp(session.gpus()[gpu])) return NVML_ERROR_NOT_SUPPORTED;
    return emulator::CopyText(session.client->DriverVersion(), version, 80);
  });
}

// The per-device identifier: 64 bits that never change.
nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, nvmlPdi_t* pdi) {
  return emulator::GiveVersioned(device, pdi, 1, [](const GpuInfo& info, const GpuState&, nvmlPdi_t* out) {
    std::memcpy(&out->value, info.uuid + 8, sizeof(out->value));
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int* multiGpuBool) {
  return emulator::GiveSame(device, multiGpuBool, 0u);
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int* onSameBoard) {
  return emulator::WithGpu(device1, [&](NvmlSession& session, unsigned first) {
    unsigned second = 0;
    if (onSameBoard == nullptr || !emulator::NvmlGpuOf(session, device2, &second)) return NVML_ERROR_INVALID_ARGUMENT;
    *onSameBoard = first == second;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t* type) {
  return emulator::GiveSame(device, type, NVML_BUS_TYPE_PCIE);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t* pVirtualMode) {
  return emulator::GiveSame(device, pVirtualMode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t* mode) {
  return emulator::GiveVersioned(device, mode, 1,
                                 [](const GpuInfo& info, const GpuState&, nvmlDeviceAddressingMode_t* out) {
                                   out->value = emulator::Superchip(info) ? 2 : 0;
                                   return NVML_SUCCESS;
                                 });
}

nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t device, nvmlDeviceCapabilities_t* caps) {
  return emulator::GiveVersioned(
      device, caps, 1, [](const GpuInfo&, const GpuState&, nvmlDeviceCapabilities_t*) { return NVML_SUCCESS; });
}

}  // extern "C"

}  // namespace mete::nvml::abi
