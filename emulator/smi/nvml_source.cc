#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "emulator/smi/nvml_calls.h"
#include "emulator/smi/nvml_mig.h"
#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

namespace {

using nvml::abi::nvmlDevice_t;
using nvml::abi::nvmlReturn_t;

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
  MigSource* mig() override { return &mig_; }

  Exit Read(unsigned wanted, SmiSnapshot* snapshot, std::string* message) override {
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
      code = ReadProcesses(device, (wanted & kUsage) != 0, &gpu);
      gpu.lost = code == nvml::abi::NVML_ERROR_GPU_IS_LOST;
      if (code != nvml::abi::NVML_SUCCESS && !gpu.lost) {
        return Fail(code, "listing the processes of GPU " + std::to_string(i), message);
      }
      if (!gpu.lost) {
        ReadState(device, &gpu);
        ReadClocks(device, &gpu);
        ReadModes(device, &gpu);
        ReadMigDevices(nvml_, device, &gpu);
        ReadErrors(device, &gpu);
        ReadAccounting(device, (wanted & kAccounting) != 0, &gpu);
        ReadLinks(device, &gpu);
      }
      snapshot->gpus.push_back(std::move(gpu));
    }
    return kOk;
  }

  Exit Set(uint32_t gpu, SmiSetting setting, uint64_t value, std::string* message) override {
    nvmlDevice_t device = nullptr;
    nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
    if (code == nvml::abi::NVML_SUCCESS) code = Change(device, setting, value);
    return code == nvml::abi::NVML_SUCCESS ? kOk : Fail(code, "changing GPU " + std::to_string(gpu), message);
  }

  Exit SetLimits(uint32_t gpu, const std::string& folder, const SmiLimits& limits, std::string* message) override {
    nvmlDevice_t device = nullptr;
    nvml::abi::nvmlSetMemoryLimits_v1_t asked = {folder.c_str(), limits.soft, limits.hard};
    nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
    if (code == nvml::abi::NVML_SUCCESS) code = nvml_.nvmlDeviceSetMemoryLimits_v1(device, &asked);
    return code == nvml::abi::NVML_SUCCESS ? kOk : Fail(code, "setting the memory limits of " + folder, message);
  }

  Exit ReadLimits(uint32_t gpu, const std::string& folder, SmiLimits* limits, std::string* message) override {
    nvmlDevice_t device = nullptr;
    nvml::abi::nvmlGetMemoryLimits_v1_t got = {folder.c_str(), 0, 0, 0};
    nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(gpu, &device);
    if (code == nvml::abi::NVML_SUCCESS) code = nvml_.nvmlDeviceGetMemoryLimits_v1(device, &got);
    *limits = {got.softLimit, got.hardLimit, got.currentUsed};
    return code == nvml::abi::NVML_SUCCESS ? kOk : Fail(code, "reading the memory limits of " + folder, message);
  }

  Exit ReadTopology(size_t gpus, SmiTopology* topology, std::string* message) override {
    std::vector<nvmlDevice_t> devices(gpus);
    for (unsigned i = 0; i < gpus; ++i) {
      const nvmlReturn_t code = nvml_.nvmlDeviceGetHandleByIndex_v2(i, &devices[i]);
      if (code != nvml::abi::NVML_SUCCESS) return Fail(code, "finding GPU " + std::to_string(i), message);
    }
    for (nvmlDevice_t one : devices) {
      auto& levels = topology->levels.emplace_back();
      auto& links = topology->nvlinks.emplace_back();
      auto& peers = topology->peers.emplace_back();
      for (nvmlDevice_t other : devices) {
        levels.push_back(Ask<int>(nvml_.nvmlDeviceGetTopologyCommonAncestor, one, other).value_or(-1));
        std::vector<int>& kinds = peers.emplace_back();
        for (int kind = 0; kind < nvml::abi::NVML_P2P_CAPS_INDEX_UNKNOWN; ++kind) {
          int status = -1;
          nvml_.nvmlDeviceGetP2PStatus(one, other, kind, &status);
          kinds.push_back(status);
        }
        const bool linked = one != other && kinds[nvml::abi::NVML_P2P_CAPS_INDEX_NVLINK] == 0;
        links.push_back(linked ? LinksUp(one) : 0);
      }
      topology->processors.push_back(Near(nvml_.nvmlDeviceGetCpuAffinity, one));
      topology->memory.push_back(Near(nvml_.nvmlDeviceGetMemoryAffinity, one, 0u));
    }
    return kOk;
  }

  Exit Fail(nvmlReturn_t code, const std::string& what, std::string* message) const {
    *message = what + " failed: " + nvml_.nvmlErrorString(code);
    if (code == nvml::abi::NVML_ERROR_IN_USE) *message += "; end the processes that use it first";
    return ExitOf(code);
  }

 private:
  nvmlReturn_t Change(nvmlDevice_t device, SmiSetting setting, uint64_t value) {
    const auto low = static_cast<unsigned>(value), high = static_cast<unsigned>(value >> 32);
    unsigned word = low;
    switch (setting) {
      case SmiSetting::kComputeMode: return nvml_.nvmlDeviceSetComputeMode(device, static_cast<int>(low));
      case SmiSetting::kPersistence: return nvml_.nvmlDeviceSetPersistenceMode(device, static_cast<int>(low));
      case SmiSetting::kPowerLimit: return nvml_.nvmlDeviceSetPowerManagementLimit(device, low);
      case SmiSetting::kApplicationClocks: return nvml_.nvmlDeviceSetApplicationsClocks(device, high, low);
      case SmiSetting::kResetApplicationClocks: return nvml_.nvmlDeviceResetApplicationsClocks(device);
      case SmiSetting::kLockedClocks: return nvml_.nvmlDeviceSetGpuLockedClocks(device, low, high);
      case SmiSetting::kResetLockedClocks: return nvml_.nvmlDeviceResetGpuLockedClocks(device);
      case SmiSetting::kEcc: return nvml_.nvmlDeviceSetEccMode(device, static_cast<int>(low));
      case SmiSetting::kClearEcc: return nvml_.nvmlDeviceClearEccErrorCounts(device, static_cast<int>(low));
      case SmiSetting::kAccounting: return nvml_.nvmlDeviceSetAccountingMode(device, static_cast<int>(low));
      case SmiSetting::kClearAccounting: return nvml_.nvmlDeviceClearAccountingPids(device);
      case SmiSetting::kTimeSlice: return Control(device, nvml::abi::kSetTimeSlice, &word);
      case SmiSetting::kReset: return Control(device, nvml::abi::kResetGpu, nullptr);
    }
    return nvml::abi::NVML_ERROR_NOT_SUPPORTED;
  }

  nvmlReturn_t Control(nvmlDevice_t device, int what, unsigned* value) const {
    return nvml_.control == nullptr ? nvml::abi::NVML_ERROR_NOT_SUPPORTED : nvml_.control(device, what, value);
  }

  // A set of processors or memory nodes as "0-3,8".
  template <typename Call, typename... After>
  static std::string Near(Call call, nvmlDevice_t device, After... after) {
    constexpr unsigned kBits = 8 * sizeof(unsigned long);
    std::array<unsigned long, 32> set = {};
    if (call(device, static_cast<unsigned>(set.size()), set.data(), after...) != nvml::abi::NVML_SUCCESS) return "N/A";
    std::string text;
    const auto has = [&](unsigned i) { return i < set.size() * kBits && (set[i / kBits] >> (i % kBits) & 1) != 0; };
    for (unsigned i = 0; i < set.size() * kBits; ++i) {
      if (!has(i)) continue;
      unsigned last = i;
      while (has(last + 1)) ++last;
      text += (text.empty() ? "" : ",") + std::to_string(i) + (last > i ? "-" + std::to_string(last) : "");
      i = last;
    }
    return text.empty() ? "N/A" : text;
  }

  unsigned LinksUp(nvmlDevice_t device) const {
    unsigned up = 0;
    for (unsigned link = 0; link < nvml::abi::NVML_NVLINK_MAX_LINKS; ++link) {
      int active = 0;
      if (nvml_.nvmlDeviceGetNvLinkState(device, link, &active) == nvml::abi::NVML_SUCCESS && active != 0) ++up;
    }
    return up;
  }

  std::optional<uint64_t> FieldOf(nvmlDevice_t device, unsigned id, unsigned scope = 0) const {
    nvml::abi::nvmlFieldValue_t field = {};
    field.fieldId = id;
    field.scopeId = scope;
    if (nvml_.nvmlDeviceGetFieldValues(device, 1, &field) != nvml::abi::NVML_SUCCESS ||
        field.nvmlReturn != nvml::abi::NVML_SUCCESS) {
      return std::nullopt;
    }
    return field.valueType == nvml::abi::NVML_VALUE_TYPE_UNSIGNED_INT ? field.value.uiVal : field.value.ullVal;
  }

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
    constexpr const char* kBrands[] = {"Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan"};
    if (const auto brand = Ask<int>(nvml_.nvmlDeviceGetBrand, device)) {
      gpu->brand = *brand >= 0 && *brand < 7                     ? kBrands[*brand]
                   : *brand == nvml::abi::NVML_BRAND_NVIDIA_RTX  ? "NVIDIA RTX"
                   : *brand == nvml::abi::NVML_BRAND_GEFORCE_RTX ? "GeForce RTX"
                                                                 : "NVIDIA";
    }
    constexpr const char* kArchitectures[] = {"Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"};
    const auto architecture = Ask<unsigned>(nvml_.nvmlDeviceGetArchitecture, device);
    if (architecture && *architecture >= 5 && *architecture < 11) gpu->architecture = kArchitectures[*architecture - 5];
    gpu->minor = Ask<unsigned>(nvml_.nvmlDeviceGetMinorNumber, device);
    gpu->board_id = Ask<unsigned>(nvml_.nvmlDeviceGetBoardId, device);
    gpu->module_id = Ask<unsigned>(nvml_.nvmlDeviceGetModuleId, device);
    gpu->cores = Ask<unsigned>(nvml_.nvmlDeviceGetNumGpuCores, device);
    gpu->vbios = Text(nvml_.nvmlDeviceGetVbiosVersion, device);
    gpu->part_number = Text(nvml_.nvmlDeviceGetBoardPartNumber, device);
    gpu->inforom_image = Text(nvml_.nvmlDeviceGetInforomImageVersion, device);
    std::array<char, 128> text = {};
    if (nvml_.nvmlDeviceGetInforomVersion(device, 0, text.data(), text.size() - 1) == nvml::abi::NVML_SUCCESS) {
      gpu->inforom_oem = text.data();
    }
    if (nvml_.nvmlDeviceGetInforomVersion(device, 1, text.data(), text.size() - 1) == nvml::abi::NVML_SUCCESS) {
      gpu->inforom_ecc = text.data();
    }
    if (nvml_.nvmlDeviceGetGspFirmwareVersion(device, text.data()) == nvml::abi::NVML_SUCCESS) {
      gpu->gsp_version = text.data();
    }
    nvml::abi::nvmlDeviceAddressingMode_t mode = {};
    mode.version = nvml::abi::StructVersion<nvml::abi::nvmlDeviceAddressingMode_t>(1);
    if (nvml_.nvmlDeviceGetAddressingMode(device, &mode) == nvml::abi::NVML_SUCCESS) {
      gpu->addressing = mode.value == 2 ? "ATS" : mode.value == 1 ? "HMM" : "None";
    }
  }

  void ReadState(nvmlDevice_t device, SmiGpu* gpu) const {
    unsigned least = 0, most = 0;
    nvml::abi::nvmlMemory_v2_t memory = {};
    memory.version = nvml::abi::StructVersion<nvml::abi::nvmlMemory_v2_t>(2);
    nvml::abi::nvmlMemory_t old = {};
    const nvmlReturn_t told = nvml_.nvmlDeviceGetMemoryInfo_v2(device, &memory);
    gpu->memory_denied = told == nvml::abi::NVML_ERROR_NO_PERMISSION;
    if (told == nvml::abi::NVML_SUCCESS) {
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
    nvml_.nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most);
    if (most != 0) {
      gpu->power_min_mw = least;
      gpu->power_max_mw = most;
    }
    gpu->power_average_mw = FieldOf(device, nvml::abi::NVML_FI_DEV_POWER_AVERAGE);
    gpu->energy_mj = Ask<unsigned long long>(nvml_.nvmlDeviceGetTotalEnergyConsumption, device);
    const auto threshold = [&](int kind) {
      return Ask<unsigned>(nvml_.nvmlDeviceGetTemperatureThreshold, device, kind);
    };
    gpu->shutdown_c = threshold(nvml::abi::NVML_TEMPERATURE_THRESHOLD_SHUTDOWN);
    gpu->slowdown_c = threshold(nvml::abi::NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
    gpu->gpu_max_c = threshold(nvml::abi::NVML_TEMPERATURE_THRESHOLD_GPU_MAX);
    gpu->memory_max_c = threshold(nvml::abi::NVML_TEMPERATURE_THRESHOLD_MEM_MAX);
    gpu->memory_temperature_c = FieldOf(device, 82);
    nvml::abi::nvmlMarginTemperature_t margin = {};
    margin.version = nvml::abi::StructVersion<nvml::abi::nvmlMarginTemperature_t>(1);
    if (nvml_.nvmlDeviceGetMarginTemperature(device, &margin) == nvml::abi::NVML_SUCCESS) {
      gpu->temperature_limit_c = margin.marginTemperature;
    }
    if (const auto bar1 = Ask<nvml::abi::nvmlBAR1Memory_t>(nvml_.nvmlDeviceGetBAR1MemoryInfo, device)) {
      gpu->bar1_total = bar1->bar1Total;
      gpu->bar1_used = bar1->bar1Used;
      gpu->bar1_free = bar1->bar1Free;
    }
    unsigned period = 0, percent = 0;
    const auto engine = [&](auto call) -> std::optional<uint32_t> {
      if (call(device, &percent, &period) != nvml::abi::NVML_SUCCESS) return std::nullopt;
      return percent;
    };
    gpu->encoder = engine(nvml_.nvmlDeviceGetEncoderUtilization);
    gpu->decoder = engine(nvml_.nvmlDeviceGetDecoderUtilization);
    gpu->jpeg = engine(nvml_.nvmlDeviceGetJpgUtilization);
    gpu->ofa = engine(nvml_.nvmlDeviceGetOfaUtilization);
    gpu->fan_percent = Ask<unsigned>(nvml_.nvmlDeviceGetFanSpeed, device);
    gpu->replays = Ask<unsigned>(nvml_.nvmlDeviceGetPcieReplayCounter, device);
    gpu->tx_kbps = Ask<unsigned>(nvml_.nvmlDeviceGetPcieThroughput, device, nvml::abi::NVML_PCIE_UTIL_TX_BYTES);
    gpu->rx_kbps = Ask<unsigned>(nvml_.nvmlDeviceGetPcieThroughput, device, nvml::abi::NVML_PCIE_UTIL_RX_BYTES);
    gpu->link_gen = Ask<unsigned>(nvml_.nvmlDeviceGetCurrPcieLinkGeneration, device);
    gpu->link_gen_max = Ask<unsigned>(nvml_.nvmlDeviceGetMaxPcieLinkGeneration, device);
    gpu->link_width = Ask<unsigned>(nvml_.nvmlDeviceGetCurrPcieLinkWidth, device);
    gpu->link_width_max = Ask<unsigned>(nvml_.nvmlDeviceGetMaxPcieLinkWidth, device);
  }

  void ReadClocks(nvmlDevice_t device, SmiGpu* gpu) const {
    gpu->sm_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetClockInfo, device, nvml::abi::NVML_CLOCK_SM);
    gpu->memory_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetClockInfo, device, nvml::abi::NVML_CLOCK_MEM);
    gpu->max_sm_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetMaxClockInfo, device, nvml::abi::NVML_CLOCK_SM);
    gpu->max_memory_mhz = Ask<unsigned>(nvml_.nvmlDeviceGetMaxClockInfo, device, nvml::abi::NVML_CLOCK_MEM);
    const auto clock = [&](auto call, int kind) { return Ask<unsigned>(call, device, kind); };
    gpu->application_sm_mhz = clock(nvml_.nvmlDeviceGetApplicationsClock, nvml::abi::NVML_CLOCK_SM);
    gpu->application_memory_mhz = clock(nvml_.nvmlDeviceGetApplicationsClock, nvml::abi::NVML_CLOCK_MEM);
    gpu->default_sm_mhz = clock(nvml_.nvmlDeviceGetDefaultApplicationsClock, nvml::abi::NVML_CLOCK_SM);
    gpu->default_memory_mhz = clock(nvml_.nvmlDeviceGetDefaultApplicationsClock, nvml::abi::NVML_CLOCK_MEM);
    gpu->memory_clocks_mhz.resize(16);
    unsigned count = 16;
    const auto listed = [&](nvmlReturn_t code, std::vector<uint32_t>* list) {
      list->resize(code == nvml::abi::NVML_SUCCESS ? std::min<size_t>(count, list->size()) : 0);
    };
    listed(nvml_.nvmlDeviceGetSupportedMemoryClocks(device, &count, gpu->memory_clocks_mhz.data()),
           &gpu->memory_clocks_mhz);
    if (!gpu->memory_clocks_mhz.empty()) {
      count = 512;
      gpu->sm_clocks_mhz.resize(count);
      listed(nvml_.nvmlDeviceGetSupportedGraphicsClocks(device, gpu->memory_clocks_mhz[0], &count,
                                                        gpu->sm_clocks_mhz.data()),
             &gpu->sm_clocks_mhz);
    }
    gpu->clock_reasons = Ask<unsigned long long>(nvml_.nvmlDeviceGetCurrentClocksEventReasons, device);
    const auto held_back = [&](int kind) -> std::optional<uint64_t> {
      nvml::abi::nvmlViolationTime_t time = {};
      if (nvml_.nvmlDeviceGetViolationStatus(device, kind, &time) != nvml::abi::NVML_SUCCESS) return std::nullopt;
      return time.violationTime;
    };
    gpu->power_capped_ns = held_back(nvml::abi::NVML_PERF_POLICY_POWER);
    gpu->throttled_ns = held_back(nvml::abi::NVML_PERF_POLICY_THERMAL);
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
    }
    unsigned mig = 0, mig_pending = 0;
    if (nvml_.nvmlDeviceGetMigMode(device, &mig, &mig_pending) == nvml::abi::NVML_SUCCESS) {
      gpu->mig = mig;
      gpu->mig_pending = mig_pending;
    }
  }

  void ReadErrors(nvmlDevice_t device, SmiGpu* gpu) const {
    const auto count = [&](int error, int kind, int place) {
      return Ask<unsigned long long>(nvml_.nvmlDeviceGetMemoryErrorCounter, device, error, kind, place);
    };
    const auto counts = [&](int kind) {
      SmiEcc ecc = {
          count(0, kind, nvml::abi::NVML_MEMORY_LOCATION_DRAM), count(1, kind, nvml::abi::NVML_MEMORY_LOCATION_DRAM),
          count(0, kind, nvml::abi::NVML_MEMORY_LOCATION_SRAM), count(1, kind, nvml::abi::NVML_MEMORY_LOCATION_SRAM)};
      if (!ecc.dram_uncorrected && !ecc.sram_uncorrected) {  // a library that knows totals only
        ecc.dram_corrected = Ask<unsigned long long>(nvml_.nvmlDeviceGetTotalEccErrors, device, 0, kind);
        ecc.dram_uncorrected = Ask<unsigned long long>(nvml_.nvmlDeviceGetTotalEccErrors, device, 1, kind);
      }
      return ecc;
    };
    gpu->ecc_volatile = counts(nvml::abi::NVML_VOLATILE_ECC);
    gpu->ecc_aggregate = counts(nvml::abi::NVML_AGGREGATE_ECC);
    const auto pages = [&](int cause) -> std::optional<uint32_t> {
      unsigned found = 0;
      const nvmlReturn_t code = nvml_.nvmlDeviceGetRetiredPages(device, cause, &found, nullptr);
      const bool counted = code == nvml::abi::NVML_SUCCESS || code == nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE;
      return counted ? std::optional<uint32_t>(found) : std::nullopt;
    };
    gpu->retired_single = pages(0);
    gpu->retired_double = pages(1);
    gpu->retired_pending = Ask<int>(nvml_.nvmlDeviceGetRetiredPagesPendingStatus, device);
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (nvml_.nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &pending, &failed) ==
        nvml::abi::NVML_SUCCESS) {
      gpu->remapped_corrected = corrected;
      gpu->remapped_uncorrected = uncorrected;
      gpu->remap_pending = pending;
      gpu->remap_failed = failed;
    }
    using Histogram = nvml::abi::nvmlRowRemapperHistogramValues_t;
    if (const auto banks = Ask<Histogram>(nvml_.nvmlDeviceGetRowRemapperHistogram, device)) {
      gpu->banks_max = banks->max;
      gpu->banks_high = banks->high;
      gpu->banks_partial = banks->partial;
      gpu->banks_low = banks->low;
      gpu->banks_none = banks->none;
    }
    gpu->recovery_action = FieldOf(device, 230);
  }

  void ReadAccounting(nvmlDevice_t device, bool processes, SmiGpu* gpu) const {
    gpu->accounting = Ask<int>(nvml_.nvmlDeviceGetAccountingMode, device);
    gpu->accounting_buffer = Ask<unsigned>(nvml_.nvmlDeviceGetAccountingBufferSize, device);
    if (!processes || gpu->accounting.value_or(0) == 0) return;
    std::vector<unsigned> pids(gpu->accounting_buffer.value_or(0));
    auto count = static_cast<unsigned>(pids.size());
    if (nvml_.nvmlDeviceGetAccountingPids(device, &count, pids.data()) != nvml::abi::NVML_SUCCESS) return;
    for (unsigned i = 0; i < count && i < pids.size(); ++i) {
      nvml::abi::nvmlAccountingStats_t stats = {};
      if (nvml_.nvmlDeviceGetAccountingStats(device, pids[i], &stats) != nvml::abi::NVML_SUCCESS) continue;
      gpu->accounted.push_back({pids[i], stats.gpuUtilization, stats.memoryUtilization, stats.maxMemoryUsage,
                                stats.time, stats.isRunning != 0});
    }
  }

  void ReadLinks(nvmlDevice_t device, SmiGpu* gpu) const {
    const auto links = FieldOf(device, 91).value_or(0);
    for (unsigned link = 0; link < links && link < nvml::abi::NVML_NVLINK_MAX_LINKS; ++link) {
      int active = 0;
      nvml_.nvmlDeviceGetNvLinkState(device, link, &active);
      gpu->nvlink_mbps.push_back(active != 0 ? FieldOf(device, 164, link) : std::nullopt);
    }
    if (const auto fabric = Ask<nvml::abi::nvmlGpuFabricInfo_t>(nvml_.nvmlDeviceGetGpuFabricInfo, device)) {
      gpu->fabric_state = fabric->state;
    }
    unsigned slice = 0;
    if (Control(device, nvml::abi::kGetTimeSlice, &slice) == nvml::abi::NVML_SUCCESS) gpu->time_slice_class = slice;
  }

  void ReadUsage(nvmlDevice_t device, SmiGpu* gpu) const {
    std::vector<nvml::abi::nvmlProcessUtilizationSample_t> samples(256);
    auto count = static_cast<unsigned>(samples.size());
    if (nvml_.nvmlDeviceGetProcessUtilization(device, samples.data(), &count, 0) != nvml::abi::NVML_SUCCESS) return;
    for (SmiProcess& process : gpu->processes) {
      for (unsigned i = 0; i < count && i < samples.size(); ++i) {
        if (samples[i].pid != process.pid) continue;
        process.sm_percent = samples[i].smUtil;
        process.memory_percent = samples[i].memUtil;
      }
    }
  }

  nvmlReturn_t ReadProcesses(nvmlDevice_t device, bool with_usage, SmiGpu* gpu) const {
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
      if (infos[i].gpuInstanceId != UINT_MAX) process.gpu_instance = infos[i].gpuInstanceId;
      if (infos[i].computeInstanceId != UINT_MAX) process.compute_instance = infos[i].computeInstanceId;
      std::array<char, 1024> name = {};
      bool known = nvml_.nvmlSystemGetProcessName(process.pid, name.data(), name.size() - 1) == nvml::abi::NVML_SUCCESS;
      process.name = known ? name.data() : "[Not Found]";
      gpu->processes.push_back(std::move(process));
    }
    if (with_usage && !gpu->processes.empty()) ReadUsage(device, gpu);
    return nvml::abi::NVML_SUCCESS;
  }

  Calls nvml_;
  bool emulated_;
  NvmlMig mig_{nvml_};
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

Exit ExitOf(nvmlReturn_t code) {
  switch (static_cast<int>(code)) {
    case nvml::abi::NVML_SUCCESS: return kOk;
    case nvml::abi::NVML_ERROR_INVALID_ARGUMENT: return kInvalidArgument;
    case nvml::abi::NVML_ERROR_NOT_SUPPORTED: return kNotAvailable;
    case nvml::abi::NVML_ERROR_NO_PERMISSION: return kNoPermission;
    case nvml::abi::NVML_ERROR_NOT_FOUND: return kNotFound;
    case nvml::abi::NVML_ERROR_DRIVER_NOT_LOADED: return kDriverNotLoaded;
    case nvml::abi::NVML_ERROR_GPU_IS_LOST: return kGpuLost;
    default: return kOther;
  }
}

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
  calls.control = reinterpret_cast<decltype(calls.control)>(dlsym(library, "mete_emulated_control"));
  if (nvmlReturn_t code = calls.nvmlInit_v2(); code != nvml::abi::NVML_SUCCESS) {
    *message = std::string("NVIDIA-SMI has failed: the driver does not answer (") + calls.nvmlErrorString(code) +
               "). See whether the node is up with 'mete emulate status'";
    return code == nvml::abi::NVML_ERROR_DRIVER_NOT_LOADED ? kDriverNotLoaded : kOther;
  }
  *source = std::make_unique<NvmlSource>(calls, dlsym(library, "mete_emulated_node") != nullptr);
  return kOk;
}

}  // namespace mete::emulator::smi
