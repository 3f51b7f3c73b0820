// NVML's GPU performance monitoring (Hopper and newer): a sample is a copy of the engine's activity counters, a metric
// what passed between two of them.
#include <algorithm>
#include <map>
#include <mutex>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithNode;

constexpr unsigned kVersion = 1;

struct Sample {
  bool taken = false;
  unsigned gpu = 0;
  GpuState state = {};
};

// Handles are counted numbers, as those of event sets.
struct Samples {
  std::mutex mutex;
  uintptr_t next = 1;
  std::map<uintptr_t, Sample> samples;
};

Samples& TheSamples() {
  static Samples* samples = new Samples;
  return *samples;
}

bool Find(nvmlGpmSample_t handle, Sample* copy) {
  std::lock_guard<std::mutex> lock(TheSamples().mutex);
  const auto found = TheSamples().samples.find(reinterpret_cast<uintptr_t>(handle));
  if (found == TheSamples().samples.end()) return false;
  *copy = found->second;
  return true;
}

struct Metric {
  unsigned first, last;  // ids
  const char *name, *meaning, *unit;
  double (*value)(const GpuInfo&, const GpuState&, const GpuState&);
};

double Percent(uint64_t from, uint64_t to, const GpuState& first, const GpuState& second) {
  const double interval = static_cast<double>(second.engine_time_ns - first.engine_time_ns);
  return std::clamp(100.0 * static_cast<double>(to - from) / interval, 0.0, 100.0);
}
double MibPerSecond(uint64_t from, uint64_t to, const GpuState& first, const GpuState& second) {
  const double seconds = static_cast<double>(second.engine_time_ns - first.engine_time_ns) * 1e-9;
  return static_cast<double>(to - from) / (1 << 20) / seconds;
}

#define PART(field) [](const GpuInfo&, const GpuState& a, const GpuState& b) { return Percent(a.field, b.field, a, b); }
#define RATE(field) \
  [](const GpuInfo&, const GpuState& a, const GpuState& b) { return MibPerSecond(a.field, b.field, a, b); }
double Nothing(const GpuInfo&, const GpuState&, const GpuState&) { return 0; }

// The model has no tensor cores, no half-precision pipe and no media engines: those are never used.
constexpr Metric kMetrics[] = {
    {1, 1, "Graphics", "time in which anything ran", "%", PART(busy_ns)},
    {2, 2, "SM Active", "SMs with work", "%", PART(activity.sm_active_ns)},
    {3, 3, "SM Occupancy", "resident warps of those that fit", "%", PART(activity.occupancy_ns)},
    {4, 4, "Integer", "use of the integer pipe", "%", PART(activity.integer_ns)},
    {5, 9, "Tensor", "use of the tensor pipe", "%", Nothing},
    {10, 10, "DRAM", "used DRAM bandwidth", "%", PART(memory_busy_ns)},
    {11, 11, "FP64", "use of the double-precision pipe", "%", PART(activity.fp64_ns)},
    {12, 12, "FP32", "use of the single-precision pipe", "%", PART(activity.fp32_ns)},
    {13, 13, "FP16", "use of the half-precision pipe", "%", Nothing},
    {20, 20, "PCIe TX", "traffic from the GPU", "MiB/s", RATE(activity.pcie_tx_bytes)},
    {21, 21, "PCIe RX", "traffic to the GPU", "MiB/s", RATE(activity.pcie_rx_bytes)},
    {30, 37, "NVDEC", "use of a video decoder", "%", Nothing},
    {40, 47, "NVJPG", "use of a JPEG engine", "%", Nothing},
    {50, 51, "NVOFA", "use of the optical-flow engine", "%", Nothing},
    {60, 97, "NVLink", "traffic of the links", "MiB/s", Nothing},
};
#undef PART
#undef RATE

void Fill(const GpuInfo& info, const Sample& first, const Sample& second, nvmlGpmMetric_t* metric) {
  metric->value = 0;
  metric->metricInfo = {};
  metric->nvmlReturn = metric->metricId == 0 || metric->metricId >= NVML_GPM_METRIC_MAX ? NVML_ERROR_INVALID_ARGUMENT
                                                                                        : NVML_ERROR_NOT_SUPPORTED;
  for (const Metric& known : kMetrics) {
    if (metric->metricId < known.first || metric->metricId > known.last) continue;
    metric->value = known.value(info, first.state, second.state);
    metric->nvmlReturn = NVML_SUCCESS;
    // The interface has no const; nobody writes through it.
    metric->metricInfo = {const_cast<char*>(known.name), const_cast<char*>(known.meaning),
                          const_cast<char*>(known.unit)};
  }
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t* gpmSupport) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (gpmSupport == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpmSupport->version != kVersion) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    gpmSupport->isSupportedDevice = emulator::HopperOrNewer(session.gpus()[gpu]) ? 1 : 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t* gpmSample) {
  return WithNode([&](NvmlSession&) {
    if (gpmSample == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::lock_guard<std::mutex> lock(TheSamples().mutex);
    const uintptr_t handle = TheSamples().next++;
    TheSamples().samples[handle] = {};
    *gpmSample = reinterpret_cast<nvmlGpmSample_t>(handle);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t gpmSample) {
  return WithNode([&](NvmlSession&) {
    std::lock_guard<std::mutex> lock(TheSamples().mutex);
    const bool known = TheSamples().samples.erase(reinterpret_cast<uintptr_t>(gpmSample)) != 0;
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t gpmSample) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    Sample sample;
    if (!Find(gpmSample, &sample)) return NVML_ERROR_INVALID_ARGUMENT;
    if (!emulator::HopperOrNewer(session.gpus()[gpu])) return NVML_ERROR_NOT_SUPPORTED;
    sample = {true, gpu, {}};
    const emulator::Result result = session.client->State(gpu, &sample.state);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
    std::lock_guard<std::mutex> lock(TheSamples().mutex);
    const auto found = TheSamples().samples.find(reinterpret_cast<uintptr_t>(gpmSample));
    if (found == TheSamples().samples.end()) return NVML_ERROR_INVALID_ARGUMENT;
    found->second = sample;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t* metricsGet) {
  return WithNode([&](NvmlSession& session) {
    if (metricsGet == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (metricsGet->version != kVersion) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    Sample first, second;
    if (metricsGet->numMetrics > NVML_GPM_METRIC_MAX || !Find(metricsGet->sample1, &first) ||
        !Find(metricsGet->sample2, &second) || !first.taken || !second.taken || first.gpu != second.gpu ||
        first.state.engine_time_ns >= second.state.engine_time_ns || first.gpu >= session.gpus().size()) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < metricsGet->numMetrics; ++i) {
      Fill(session.gpus()[first.gpu], first, second, &metricsGet->metrics[i]);
    }
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
