// NVML's field values: numbers by id, several with one call; and its samples. A field that the node does not have
// answers for itself, the call succeeds.
#include <time.h>

#include <algorithm>

#include "emulator/nvml/give.h"
#include "emulator/nvml/links.h"
#include "mete/nvml_prototypes.h"

namespace mete::emulator {

uint64_t WallClockUs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace mete::emulator

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithState;

struct Context {
  const GpuInfo& info;
  const GpuState& state;
  bool linked;     // its NVLinks are up
  unsigned scope;  // of the field: a link for those that ask one
};

using Has = bool (*)(const Context&);
bool Always(const Context&) { return true; }
bool Ecc(const Context& c) { return emulator::HasEcc(c.info) && c.state.ecc_mode != 0; }
bool OldEcc(const Context& c) { return Ecc(c) && !emulator::AmpereOrNewer(c.info); }
bool Remaps(const Context& c) { return emulator::AmpereOrNewer(c.info); }
bool Pcie(const Context& c) { return c.info.pcie_lanes > 0; }
bool Nvlink(const Context& c) { return c.info.nvlinks > 0; }
bool OneLink(const Context& c) { return c.scope < c.info.nvlinks; }
bool Hbm(const Context& c) { return c.info.hbm != 0; }
bool Averages(const Context& c) { return emulator::ComputeOf(c.info) > 80; }  // not on GA100
bool Limits(const Context& c) { return emulator::HopperOrNewer(c.info); }
bool C2c(const Context& c) { return emulator::Superchip(c.info); }

struct Field {
  unsigned first, last;  // ids
  Has has;
  int type;
  uint64_t (*value)(const Context&);
};

constexpr int kU32 = NVML_VALUE_TYPE_UNSIGNED_INT, kU64 = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
              kI32 = NVML_VALUE_TYPE_SIGNED_INT;
#define VALUE(expression)                     \
  [](const Context& c) -> uint64_t {          \
    (void)c;                                  \
    return static_cast<uint64_t>(expression); \
  }

// Ordered by id. The node's on-chip memories, buses and links do not fail: their counters are zero.
constexpr Field kFields[] = {
    {1, 1, Ecc, kU32, VALUE(c.state.ecc_mode)},
    {2, 2, Ecc, kU32, VALUE(c.state.ecc_pending)},
    {3, 3, Ecc, kU64, VALUE(c.state.health.ecc_volatile.dram_corrected)},
    {4, 4, Ecc, kU64, VALUE(c.state.health.ecc_volatile.dram_uncorrected)},
    {5, 5, Ecc, kU64, VALUE(c.state.health.ecc_aggregate.dram_corrected)},
    {6, 6, Ecc, kU64, VALUE(c.state.health.ecc_aggregate.dram_uncorrected)},
    {7, 10, OldEcc, kU64, VALUE(0)},
    {11, 11, Ecc, kU64, VALUE(c.state.health.ecc_volatile.dram_corrected)},
    {12, 12, Ecc, kU64, VALUE(c.state.health.ecc_volatile.dram_uncorrected)},
    {13, 21, OldEcc, kU64, VALUE(0)},
    {22, 22, Ecc, kU64, VALUE(c.state.health.ecc_aggregate.dram_corrected)},
    {23, 23, Ecc, kU64, VALUE(c.state.health.ecc_aggregate.dram_uncorrected)},
    {24, 28, OldEcc, kU64, VALUE(0)},
    {29, 29, OldEcc, kU32, VALUE(c.state.health.rows_remapped_correctable)},
    {30, 30, OldEcc, kU32, VALUE(c.state.health.rows_remapped_uncorrectable)},
    {31, 31, OldEcc, kU32, VALUE(c.state.health.remap_pending)},
    {32, 59, Nvlink, kU64, VALUE(0)},
    {74, 74, Always, kU64, VALUE(c.state.power_capped_ns)},
    {75, 75, Always, kU64, VALUE(c.state.throttled_ns)},
    {76, 81, Always, kU64, VALUE(0)},
    {82, 82, Hbm, kU32, VALUE(c.state.temperature_c + (c.state.utilization_memory + 9) / 10)},
    {83, 83, Always, kU64, VALUE(c.state.energy_mj)},
    {84, 90, Nvlink, kU32, VALUE(c.linked ? emulator::NvlinkMbps(c.info) : 0)},
    {91, 91, Always, kU32, VALUE(c.info.nvlinks)},
    {92, 93, OldEcc, kU32, VALUE(c.state.health.remap_pending)},
    {94, 95, Pcie, kU32, VALUE(0)},
    {96, 119, Nvlink, kU64, VALUE(0)},
    {132, 137, Nvlink, kU32, VALUE(c.linked ? emulator::NvlinkMbps(c.info) : 0)},
    {138, 141, Nvlink, kU64, VALUE(0)},
    {142, 142, Remaps, kU32, VALUE(c.state.health.rows_remapped_correctable)},
    {143, 143, Remaps, kU32, VALUE(c.state.health.rows_remapped_uncorrectable)},
    {144, 144, Remaps, kU32, VALUE(c.state.health.remap_pending)},
    {145, 145, Remaps, kU32, VALUE(c.state.health.remap_failed)},
    {147, 147, Nvlink, kU32, VALUE(c.linked ? c.info.nvlinks : 0)},
    {148, 160, Nvlink, kU64, VALUE(0)},
    {161, 163, OneLink, kU64, VALUE(0)},
    {164, 164, OneLink, kU32, VALUE(c.linked ? emulator::NvlinkMbps(c.info) : 0)},
    {165, 165, OneLink, kU32, VALUE(c.linked ? 1 : 0)},
    {166, 166, OneLink, kU32, VALUE(c.info.nvlink_generation + (c.info.nvlink_generation > 2 ? 2 : 0))},
    {167, 167, OneLink, kU32, VALUE(0)},
    {169, 169, Pcie, kU32, VALUE(0)},
    {170, 170, Always, kU32, VALUE(C2c(c) ? 10 : 0)},
    {171, 171, C2c, kU32, VALUE(1)},
    {172, 172, C2c, kU32, VALUE(45'000)},
    {173, 183, Pcie, kU32, VALUE(0)},
    {184, 184, Always, kU32, VALUE(c.info.mig_capable != 0 && emulator::HopperOrNewer(c.info))},
    {185, 185, Averages, kU32, VALUE(c.state.power_mw)},
    {186, 186, Always, kU32, VALUE(c.state.power_mw)},
    {187, 187, Always, kU32, VALUE(c.info.min_power_mw)},
    {188, 189, Always, kU32, VALUE(c.info.max_power_mw)},
    {190, 190, Always, kU32, VALUE(c.state.power_limit_mw)},
    {191, 191, Always, kU64, VALUE(c.state.energy_mj)},
    {192, 192, Always, kU32, VALUE(c.state.power_limit_mw)},
    {193, 193, Limits, kI32, VALUE(static_cast<int64_t>(c.info.slowdown_c) - c.info.shutdown_c)},
    {194, 195, Limits, kI32, VALUE(0)},
    {196, 196, Limits, kI32, VALUE(4)},
    {197, 197, Pcie, kU64, VALUE(c.state.activity.pcie_tx_bytes)},
    {198, 198, Pcie, kU64, VALUE(c.state.activity.pcie_rx_bytes)},
    {199, 199, Always, kU32, VALUE(c.info.mig_capable != 0)},
    {201, 215, OneLink, kU64, VALUE(0)},
    {226, 227, Always, kU32, VALUE(static_cast<uint32_t>(c.state.health.need) != 0)},
    {230, 230, Always, kU32, VALUE(static_cast<uint32_t>(c.state.health.need))},
    {231, 233, C2c, kU32, VALUE(0)},
    {269, 269, Always, kU64, VALUE(c.state.throttled_ns)},
    {270, 270, Always, kU64,
     VALUE((c.state.health.throttle_reasons & emulator::kReasonThermal) != 0 ? c.state.throttled_ns : 0)},
    {271, 271, Always, kU64,
     VALUE((c.state.health.throttle_reasons & emulator::kReasonPower) != 0 ? c.state.throttled_ns : 0)},
};
#undef VALUE

const Field* Find(unsigned id) {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const Field& field) { return id >= field.first && id <= field.last; });
  return found == std::end(kFields) ? nullptr : found;
}

void Fill(const Context& context, nvmlFieldValue_t* out) {
  out->value.ullVal = 0;
  out->valueType = kU32;
  const Field* field = Find(out->fieldId);
  if (field == nullptr || !field->has(context)) {
    out->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return;
  }
  out->nvmlReturn = NVML_SUCCESS;
  out->valueType = field->type;
  const uint64_t value = field->value(context);
  if (field->type == kU64) {
    out->value.ullVal = value;
  } else if (field->type == kI32) {
    out->value.siVal = static_cast<int>(value);
  } else {
    out->value.uiVal = static_cast<unsigned>(value);
  }
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t* values) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (valuesCount < 1 || values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    GpuState state = {};
    emulator::Result result = session.client->State(gpu, &state);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
    const bool linked = emulator::LinkedByNvlink(session.gpus(), gpu);
    const auto now = static_cast<long long>(emulator::WallClockUs());
    for (int i = 0; i < valuesCount; ++i) {
      values[i].timestamp = now;
      values[i].latencyUsec = 0;
      Fill({session.gpus()[gpu], state, linked, values[i].scopeId}, &values[i]);
    }
    return NVML_SUCCESS;
  });
}

// Counters that can be cleared are those of links, and they are zero.
nvmlReturn_t nvmlDeviceClearFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t* values) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (valuesCount < 1 || values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < valuesCount; ++i) {
      const unsigned id = values[i].fieldId;
      const bool of_links = (id >= 32 && id <= 59) || (id >= 96 && id <= 119) || (id >= 148 && id <= 163);
      const bool clear = of_links && session.gpus()[gpu].nvlinks > 0;
      values[i].nvmlReturn = clear ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
  });
}

// The driver keeps a history of samples; the engine's numbers are of the last second, so there is one sample: now.
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long lastSeenTimeStamp,
                                  nvmlValueType_t* sampleValType, unsigned int* sampleCount, nvmlSample_t* samples) {
  return WithState(device, [&](const GpuInfo&, const GpuState& state) {
    if (type < 0 || type >= NVML_SAMPLINGTYPE_COUNT || sampleValType == nullptr || sampleCount == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned value = 0;
    switch (type) {
      case NVML_TOTAL_POWER_SAMPLES: value = state.power_mw; break;
      case NVML_GPU_UTILIZATION_SAMPLES: value = state.utilization_gpu; break;
      case NVML_MEMORY_UTILIZATION_SAMPLES: value = state.utilization_memory; break;
      case NVML_PROCESSOR_CLK_SAMPLES: value = state.sm_clock_khz / 1000; break;
      case NVML_MEMORY_CLK_SAMPLES: value = state.memory_clock_khz / 1000; break;
      case NVML_ENC_UTILIZATION_SAMPLES:
      case NVML_DEC_UTILIZATION_SAMPLES:
      case NVML_JPG_UTILIZATION_SAMPLES:
      case NVML_OFA_UTILIZATION_SAMPLES: break;
      default: return NVML_ERROR_NOT_SUPPORTED;  // of a module with a processor
    }
    const unsigned long long now = emulator::WallClockUs();
    if (lastSeenTimeStamp >= now) return NVML_ERROR_NOT_FOUND;
    *sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (samples == nullptr) {
      *sampleCount = 1;
      return NVML_SUCCESS;
    }
    if (*sampleCount < 1) return NVML_ERROR_INSUFFICIENT_SIZE;
    *sampleCount = 1;
    samples[0].timeStamp = now;
    samples[0].sampleValue.ullVal = 0;
    samples[0].sampleValue.uiVal = value;
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
