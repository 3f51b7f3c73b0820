// NVML's calls about PCIe and NVLink.
#include "emulator/nvml/links.h"

#include <cstddef>

#include "emulator/nvml/give.h"
#include "emulator/nvml/pci.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;

bool HasPcie(const GpuInfo& info) { return info.pcie_lanes > 0; }

// body(info, link is up) for a link that the board has.
template <typename Body>
nvmlReturn_t WithLink(nvmlDevice_t device, unsigned link, const void* out, Body body) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const GpuInfo& info = session.gpus()[gpu];
    if (out == nullptr || link >= NVML_NVLINK_MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT;
    if (info.nvlinks == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (link >= info.nvlinks) return NVML_ERROR_INVALID_ARGUMENT;
    return body(info, emulator::LinkedByNvlink(session.gpus(), gpu));
  });
}

// The switch at the other end of link `link`: a device of its own on the node's last buses.
nvmlPciInfo_t SwitchAt(unsigned link) {
  nvmlPciInfo_t pci = {};
  pci.bus = 0xE0 + link % 6;
  pci.pciDeviceId = 0x22A310DE;
  emulator::PciAddress address;
  address.bus = pci.bus;
  emulator::CopyText(emulator::ToPciBusId(address), pci.busId, sizeof(pci.busId));
  emulator::CopyText(emulator::ToLegacyPciBusId(address), pci.busIdLegacy, sizeof(pci.busIdLegacy));
  return pci;
}

// The counters of the first NVLink generations are gone from the boards that the node can have.
nvmlReturn_t OldCounters(nvmlDevice_t device) {
  return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_NOT_SUPPORTED; });
}

nvmlReturn_t RemotePci(nvmlDevice_t device, unsigned link, nvmlPciInfo_t* pci, size_t bytes) {
  return WithLink(device, link, pci, [&](const GpuInfo&, bool up) {
    if (!up) return NVML_ERROR_NOT_SUPPORTED;
    const nvmlPciInfo_t info = SwitchAt(link);
    std::memcpy(static_cast<void*>(pci), &info, bytes);
    return NVML_SUCCESS;
  });
}

}  // namespace

extern "C" {

// --- PCIe ----------------------------------------------------------------------------------------------------------

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* currLinkGen) {
  return emulator::GiveIf(device, currLinkGen, HasPcie,
                          [](const GpuInfo& info, const GpuState&) { return info.pcie_gen; });
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* maxLinkGen) {
  return nvmlDeviceGetCurrPcieLinkGeneration(device, maxLinkGen);
}
nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* maxLinkGenDevice) {
  return nvmlDeviceGetCurrPcieLinkGeneration(device, maxLinkGenDevice);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* currLinkWidth) {
  return emulator::GiveIf(device, currLinkWidth, HasPcie,
                          [](const GpuInfo& info, const GpuState&) { return info.pcie_lanes; });
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* maxLinkWidth) {
  return nvmlDeviceGetCurrPcieLinkWidth(device, maxLinkWidth);
}

nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int* pcieSpeed) {
  return emulator::GiveIf(device, pcieSpeed, HasPcie,
                          [](const GpuInfo& info, const GpuState&) { return emulator::PcieLaneMbps(info.pcie_gen); });
}

// NVML's codes for it: generation 1 is 1, and so on.
nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int* maxSpeed) {
  return nvmlDeviceGetPcieSpeed(device, maxSpeed);
}

// Nothing is ever lost on the node's buses.
nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int* value) {
  return emulator::GiveIf(device, value, HasPcie, [](const GpuInfo&, const GpuState&) { return 0u; });
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int* value) {
  return emulator::WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (value == nullptr || (counter != NVML_PCIE_UTIL_TX_BYTES && counter != NVML_PCIE_UTIL_RX_BYTES)) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (!HasPcie(info)) return NVML_ERROR_NOT_SUPPORTED;
    *value = counter == NVML_PCIE_UTIL_TX_BYTES ? state.pcie_tx_kbps : state.pcie_rx_kbps;
    return NVML_SUCCESS;
  });
}

// --- NVLink --------------------------------------------------------------------------------------------------------

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t* isActive) {
  return WithLink(device, link, isActive, [&](const GpuInfo&, bool up) {
    *isActive = up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int* version) {
  return WithLink(device, link, version, [&](const GpuInfo& info, bool) {
    // NVML's numbers, not the marketing's: 2.0 is 2, 3.0 is 5, 4.0 is 6, 5.0 is 7.
    constexpr unsigned kNumbers[] = {0, 1, 2, 5, 6, 7};
    *version = kNumbers[std::min<unsigned>(info.nvlink_generation, 5)];
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                           unsigned int* capResult) {
  return WithLink(device, link, capResult, [&](const GpuInfo&, bool) {
    if (capability < 0 || capability > 5) return NVML_ERROR_INVALID_ARGUMENT;
    *capResult = capability == 4 ? 0 : 1;  // everything but an SLI bridge
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  return RemotePci(device, link, pci, sizeof(nvmlPciInfo_t));
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci) {
  return RemotePci(device, link, pci, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t* pNvLinkDeviceType) {
  return WithLink(device, link, pNvLinkDeviceType, [&](const GpuInfo&, bool up) {
    if (!up) return NVML_ERROR_NOT_SUPPORTED;
    *pNvLinkDeviceType = NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long* counterValue) {
  return WithLink(device, link, counterValue, [&](const GpuInfo&, bool) {
    if (counter < 0 || counter > 4) return NVML_ERROR_INVALID_ARGUMENT;
    *counterValue = 0;  // the node's links do not fail
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceResetNvLinkErrorCounters(nvmlDevice_t device, unsigned int link) {
  return WithLink(device, link, &device, [](const GpuInfo&, bool) { return NVML_SUCCESS; });
}

nvmlReturn_t nvmlDeviceGetNvLinkUtilizationCounter(nvmlDevice_t device, unsigned int, unsigned int, unsigned long long*,
                                                   unsigned long long*) {
  return OldCounters(device);
}
nvmlReturn_t nvmlDeviceGetNvLinkUtilizationControl(nvmlDevice_t device, unsigned int, unsigned int,
                                                   nvmlNvLinkUtilizationControl_t*) {
  return OldCounters(device);
}
nvmlReturn_t nvmlDeviceSetNvLinkUtilizationControl(nvmlDevice_t device, unsigned int, unsigned int,
                                                   nvmlNvLinkUtilizationControl_t*, unsigned int) {
  return OldCounters(device);
}
nvmlReturn_t nvmlDeviceFreezeNvLinkUtilizationCounter(nvmlDevice_t device, unsigned int, unsigned int,
                                                      nvmlEnableState_t) {
  return OldCounters(device);
}
nvmlReturn_t nvmlDeviceResetNvLinkUtilizationCounter(nvmlDevice_t device, unsigned int, unsigned int) {
  return OldCounters(device);
}

}  // extern "C"

}  // namespace mete::nvml::abi
