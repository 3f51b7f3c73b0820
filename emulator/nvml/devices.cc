// NVML's calls that find a GPU, and its PCI address.
#include <strings.h>

#include <cstring>

#include "emulator/nvml/identity.h"
#include "emulator/nvml/mig.h"
#include "emulator/nvml/state.h"
#include "mete/nvml_prototypes.h"
#include "nvml/abi_details.h"

namespace mete::emulator {

namespace {

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

nvml::abi::nvmlReturn_t FindMigDevice(const char* uuid, nvml::abi::nvmlDevice_t* device) {
  return WithNode([&](NvmlSession& session) {
    if (device == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned gpu = 0; gpu < session.gpus().size(); ++gpu) {
      MigState state = {};
      if (session.client->Mig(gpu, &state) != Result::kOk) continue;  // lost: there are none on it
      for (unsigned i = 0; i < state.compute_instances && i < kMostMigInstances; ++i) {
        if (strcasecmp(MigUuidText(state.compute_instance[i]).c_str(), uuid) != 0) continue;
        *device = MigDeviceHandle(gpu, state.compute_instance[i]);
        return nvml::abi::NVML_SUCCESS;
      }
    }
    return nvml::abi::NVML_ERROR_NOT_FOUND;
  });
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
  if (uuid != nullptr && strncasecmp(uuid, "MIG-", 4) == 0) return emulator::FindMigDevice(uuid, device);
  return emulator::Find(device, uuid,
                        [&](const GpuInfo& info) { return strcasecmp(uuid, emulator::UuidTextOf(info).c_str()) == 0; });
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  return WithNode([&](NvmlSession&) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != StructVersion<nvmlUUID_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_ASCII) {
      const std::string text(uuid->value.str, strnlen(uuid->value.str, sizeof(uuid->value.str)));
      return nvmlDeviceGetHandleByUUID(text.c_str(), device);
    }
    if (uuid->type != NVML_UUID_TYPE_BINARY) return NVML_ERROR_INVALID_ARGUMENT;
    return emulator::Find(device, "", [&](const GpuInfo& info) {
      return std::memcmp(info.uuid, uuid->value.bytes, sizeof(info.uuid)) == 0;
    });
  });
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  return emulator::Find(device, serial, [&](const GpuInfo& info) { return emulator::SerialTextOf(info) == serial; });
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

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    emulator::PciAddress address = AddressOf(session.gpus()[gpu]);
    nvmlPciInfo_t info = {};
    info.domain = address.domain;
    info.bus = address.bus;
    info.device = address.device;
    info.pciDeviceId = session.gpus()[gpu].pci_device_id;
    info.pciSubSystemId = session.gpus()[gpu].pci_subsystem_id;
    emulator::CopyText(emulator::ToPciBusId(address), info.busId, sizeof(info.busId));
    emulator::CopyText(emulator::ToLegacyPciBusId(address), info.busIdLegacy, sizeof(info.busIdLegacy));
    *pci = info;
    return NVML_SUCCESS;
  });
}

// The older structures are shorter beginnings of the newer one: no byte beyond them is written.
static nvmlReturn_t GivePciPrefix(nvmlDevice_t device, nvmlPciInfo_t* pci, size_t bytes) {
  nvmlPciInfo_t info = {};
  if (pci == nullptr) return nvmlDeviceGetPciInfo_v3(device, nullptr);  // which says what is wrong
  const nvmlReturn_t code = nvmlDeviceGetPciInfo_v3(device, &info);
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

}  // extern "C"

}  // namespace mete::nvml::abi
