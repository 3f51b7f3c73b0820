// NVML's calls about errors of a GPU's memory: ECC mode and counters, retired pages, remapped rows. The engine keeps
// the counts, of DRAM only: the node's on-chip memories do not fail.
#include <cstring>

#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::emulator {

bool HasEcc(const GpuInfo& info) {
  return memmem(info.name, strnlen(info.name, sizeof(info.name)), "GeForce", 7) == nullptr;
}

}  // namespace mete::emulator

namespace mete::nvml::abi {

namespace {

using emulator::EccCounts;
using emulator::GpuInfo;
using emulator::GpuState;
using emulator::WithState;

constexpr unsigned kBanksPerStack = 64;  // whose spare rows the histogram counts

bool Known(int error, int counter) { return error >= 0 && error <= 1 && counter >= 0 && counter <= 1; }

uint64_t DramErrors(const GpuState& state, int error, int counter) {
  const EccCounts& counts = counter == NVML_VOLATILE_ECC ? state.health.ecc_volatile : state.health.ecc_aggregate;
  return error == NVML_MEMORY_ERROR_TYPE_CORRECTED ? counts.dram_corrected : counts.dram_uncorrected;
}

// body(info, state) on boards whose error correction is on.
template <typename Body>
nvmlReturn_t WithEcc(nvmlDevice_t device, bool arguments_are_good, Body body) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (!arguments_are_good) return NVML_ERROR_INVALID_ARGUMENT;
    if (!emulator::HasEcc(info) || state.ecc_mode == 0) return NVML_ERROR_NOT_SUPPORTED;
    return body(info, state);
  });
}

// Which pages are out of use: the board's choice, the same each time.
std::vector<unsigned long long> PagesOutOfUse(const GpuInfo& info, unsigned first, unsigned count) {
  std::vector<unsigned long long> pages;
  const uint64_t total = info.memory_bytes >> 12;
  for (unsigned i = first; i < first + count && total > 0; ++i) {
    uint64_t mixed = (info.uuid[0] + 1ull + i) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 29;
    pages.push_back(mixed % total << 12);
  }
  return pages;
}

nvmlReturn_t GivePages(nvmlDevice_t device, int cause, unsigned* count, unsigned long long* addresses,
                       unsigned long long* timestamps, bool with_times) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (count == nullptr || cause < 0 || cause > 1) return NVML_ERROR_INVALID_ARGUMENT;
    if (emulator::AmpereOrNewer(info) || !emulator::HasEcc(info)) return NVML_ERROR_NOT_SUPPORTED;  // rows are remapped
    const unsigned corrected = state.health.rows_remapped_correctable;
    const std::vector<unsigned long long> pages =
        cause == 0 ? PagesOutOfUse(info, 0, corrected)
                   : PagesOutOfUse(info, corrected, state.health.rows_remapped_uncorrectable);
    if (with_times && timestamps == nullptr && *count >= pages.size() && !pages.empty()) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    const nvmlReturn_t code = emulator::GiveList(pages, count, addresses);
    for (size_t i = 0; code == NVML_SUCCESS && timestamps != nullptr && i < pages.size(); ++i) {
      timestamps[i] = emulator::WallClockUs() / 1'000'000;
    }
    return code;
  });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (current == nullptr || pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!emulator::HasEcc(info)) return NVML_ERROR_NOT_SUPPORTED;
    *current = static_cast<int>(state.ecc_mode);
    *pending = static_cast<int>(state.ecc_pending);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t* defaultMode) {
  return emulator::GiveIf(device, defaultMode, emulator::HasEcc,
                          [](const GpuInfo&, const GpuState&) { return NVML_FEATURE_ENABLED; });
}

nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t ecc) {
  return WithState(device, [&](const GpuInfo& info, const GpuState&) {
    if (ecc < 0 || ecc > 1) return NVML_ERROR_INVALID_ARGUMENT;
    if (!emulator::HasEcc(info)) return NVML_ERROR_NOT_SUPPORTED;
    return emulator::Change(device, emulator::GpuSetting::kEcc, static_cast<uint64_t>(ecc));
  });
}

nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t counterType) {
  return WithEcc(device, counterType == NVML_VOLATILE_ECC || counterType == NVML_AGGREGATE_ECC,
                 [&](const GpuInfo&, const GpuState&) {
                   return emulator::Change(device,
                                           counterType == NVML_VOLATILE_ECC ? emulator::GpuSetting::kClearVolatileEcc
                                                                            : emulator::GpuSetting::kClearAggregateEcc,
                                           0);
                 });
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                         nvmlEccCounterType_t counterType, unsigned long long* eccCounts) {
  return WithEcc(device, eccCounts != nullptr && Known(errorType, counterType),
                 [&](const GpuInfo&, const GpuState& state) {
                   *eccCounts = DramErrors(state, errorType, counterType);
                   return NVML_SUCCESS;
                 });
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                            nvmlEccCounterType_t counterType, nvmlEccErrorCounts_t* eccCounts) {
  return WithEcc(device, eccCounts != nullptr && Known(errorType, counterType),
                 [&](const GpuInfo&, const GpuState& state) {
                   *eccCounts = {0, 0, DramErrors(state, errorType, counterType), 0};
                   return NVML_SUCCESS;
                 });
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                             nvmlEccCounterType_t counterType, nvmlMemoryLocation_t locationType,
                                             unsigned long long* count) {
  const bool good = count != nullptr && Known(errorType, counterType) && locationType >= 0 &&
                    locationType < NVML_MEMORY_LOCATION_COUNT;
  emulator::MigAt at;
  const bool of_instance = emulator::WithNode([&](emulator::NvmlSession& session) {
                             return emulator::FindMig(session, device, &at);
                           }) == NVML_SUCCESS;
  if (of_instance) {  // memory on the chip is counted by instance, DRAM by GPU
    if (!good) return NVML_ERROR_INVALID_ARGUMENT;
    if (locationType != NVML_MEMORY_LOCATION_SRAM) return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    return NVML_SUCCESS;
  }
  return WithEcc(device, good, [&](const GpuInfo& info, const GpuState& state) {
    // Since Ampere there are two counters, of DRAM and of everything on the chip.
    if (emulator::AmpereOrNewer(info) && locationType != NVML_MEMORY_LOCATION_DRAM &&
        locationType != NVML_MEMORY_LOCATION_SRAM) {
      return NVML_ERROR_NOT_SUPPORTED;
    }
    *count = locationType == NVML_MEMORY_LOCATION_DRAM ? DramErrors(state, errorType, counterType) : 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t* status) {
  return emulator::GiveVersioned(device, status, 1,
                                 [](const GpuInfo& info, const GpuState& state, nvmlEccSramErrorStatus_t*) {
                                   const bool has = emulator::AmpereOrNewer(info) && emulator::HasEcc(info);
                                   return has && state.ecc_mode != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
                                 });
}

// --- Memory taken out of use -----------------------------------------------------------------------------------------

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int* pageCount,
                                       unsigned long long* addresses) {
  return GivePages(device, cause, pageCount, addresses, nullptr, false);
}
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int* pageCount,
                                          unsigned long long* addresses, unsigned long long* timestamps) {
  return GivePages(device, cause, pageCount, addresses, timestamps, true);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t* isPending) {
  return emulator::GiveIf(
      device, isPending, [](const GpuInfo& info) { return !emulator::AmpereOrNewer(info) && emulator::HasEcc(info); },
      [](const GpuInfo&, const GpuState& state) { return state.health.remap_pending; });
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrRows, unsigned int* uncRows,
                                       unsigned int* isPending, unsigned int* failureOccurred) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (corrRows == nullptr || uncRows == nullptr || isPending == nullptr || failureOccurred == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (!emulator::AmpereOrNewer(info)) return NVML_ERROR_NOT_SUPPORTED;
    *corrRows = state.health.rows_remapped_correctable;
    *uncRows = state.health.rows_remapped_uncorrectable;
    *isPending = state.health.remap_pending;
    *failureOccurred = state.health.remap_failed;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t* info) {
  return emulator::GiveIf(device, info, emulator::AmpereOrNewer, [](const GpuInfo&, const GpuState& state) {
    const emulator::Health& health = state.health;
    return nvmlRemappedRowsInfo_v2_t{health.rows_remapped_correctable,
                                     0,
                                     health.rows_remapped_uncorrectable,
                                     0,
                                     health.remap_pending,
                                     health.remap_failed};
  });
}

// A bank has several spare rows; one that gave any away is no longer full. Rows are taken to be of different banks.
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t* values) {
  return emulator::GiveIf(device, values, emulator::AmpereOrNewer, [](const GpuInfo& info, const GpuState& state) {
    const unsigned banks = std::max(1u, info.memory_bus_bits / 1024) * kBanksPerStack;
    const unsigned touched =
        std::min(banks, state.health.rows_remapped_correctable + state.health.rows_remapped_uncorrectable);
    const unsigned exhausted = state.health.remap_failed != 0 && touched > 0 ? 1 : 0;
    return nvmlRowRemapperHistogramValues_t{banks - touched, touched - exhausted, 0, 0, exhausted};
  });
}

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t* repairStatus) {
  return emulator::GiveVersioned(device, repairStatus, 1,
                                 [](const GpuInfo& info, const GpuState&, nvmlRepairStatus_t*) {
                                   return emulator::AmpereOrNewer(info) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
                                 });
}

}  // extern "C"

}  // namespace mete::nvml::abi
