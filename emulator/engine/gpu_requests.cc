// What NVML and nvidia-smi read and set: the state of a GPU, its settings, accounting, events.
#include <algorithm>

#include "emulator/engine/engine.h"

namespace mete::emulator {

namespace {

constexpr uint32_t kFastestState = 0, kIdleState = 8;

}  // namespace

void Engine::Meters(Gpu& gpu, uint64_t now_ns) {
  const GpuCounters counters = gpu.model.Counters();
  const uint64_t busy = counters.busy_ns - gpu.metered_busy_ns;
  gpu.metered_busy_ns = counters.busy_ns;
  if ((gpu.sm_clock.reasons & kClocksPowerCap) != 0) gpu.power_capped_ns += busy;
  if ((gpu.sm_clock.reasons & kClocksFault) != 0) gpu.throttled_ns += busy;
  gpu.meter.Sample(now_ns, counters, gpu.info.max_power_mw, gpu.applied_clock);
}

void Engine::ApplySpeed(uint32_t index, uint64_t now_ns) {
  Gpu& gpu = *gpus_[index];
  const SmClock clock = SmClockOf(gpu.info, gpu.settings, gpu.clock, gpu.health.throttle_reasons);
  const double part = static_cast<double>(clock.khz) / std::max<uint32_t>(1, gpu.info.clock_khz);
  if (part == gpu.applied_clock && gpu.memory == gpu.applied_memory && clock.reasons == gpu.sm_clock.reasons) return;
  Meters(gpu, now_ns);  // what was drawn so far was drawn at the clock before
  gpu.sm_clock = clock;
  gpu.applied_clock = part;
  gpu.applied_memory = gpu.memory;
  gpu.model.SetSpeed(now_ns, part, gpu.memory);
}

GpuState Engine::StateOf(uint32_t index, uint64_t now_ns) {
  Gpu& gpu = *gpus_[index];
  const GpuInfo& info = gpu.info;
  Meters(gpu, now_ns);
  const GpuCounters counters = gpu.model.Counters();
  GpuState state = {};
  state.engine_time_ns = now_ns;
  state.memory_used_bytes = gpu.used;
  state.busy_ns = counters.busy_ns;
  state.memory_busy_ns = counters.memory_busy_ns;
  state.energy_mj = gpu.meter.EnergyMj();
  state.power_mw = gpu.meter.PowerMw();
  state.temperature_c = gpu.meter.TemperatureC();
  // Boards with stacked memory keep its clock and their performance state when they are idle.
  const bool asleep = gpu.contexts == 0 && info.hbm == 0;
  const uint32_t idle_khz = std::max(std::min(info.idle_clock_khz, info.clock_khz), gpu.settings.locked_min_khz);
  state.sm_clock_khz = gpu.contexts > 0 ? gpu.sm_clock.khz : std::min(idle_khz, gpu.sm_clock.khz);
  state.memory_clock_khz = asleep ? std::min(info.idle_memory_clock_khz, info.memory_clock_khz) : info.memory_clock_khz;
  state.utilization_gpu = gpu.meter.UtilizationGpu();
  state.utilization_memory = gpu.meter.UtilizationMemory();
  state.contexts = gpu.contexts;
  state.compute_mode = gpu.compute_mode;

  state.performance_state = asleep ? kIdleState : kFastestState;
  state.pcie_rx_kbps = gpu.meter.HostToDeviceKbps();
  state.pcie_tx_kbps = gpu.meter.DeviceToHostKbps();
  state.mig_mode = gpu.mig.on() ? 1 : 0;
  state.mig_pending = gpu.mig.pending() ? 1 : 0;
  state.clocks_event_reasons = state.utilization_gpu == 0 ? kClocksIdle : gpu.sm_clock.reasons;
  state.clocks_event_reasons |= gpu.sm_clock.reasons & kClocksFault;
  state.power_capped_ns = gpu.power_capped_ns;
  state.throttled_ns = gpu.throttled_ns;
  state.activity.sm_active_ns = counters.sm_active_ns;
  state.activity.occupancy_ns = counters.occupancy_ns;
  state.activity.integer_ns = counters.class_busy_ns[kAlu];
  state.activity.fp32_ns = counters.class_busy_ns[kFp32];
  state.activity.fp64_ns = counters.class_busy_ns[kFp64];
  state.activity.dram_bytes = static_cast<uint64_t>(counters.bytes);
  state.activity.pcie_rx_bytes = counters.host_to_device_bytes;
  state.activity.pcie_tx_bytes = counters.device_to_host_bytes;

  const GpuSettings& set = gpu.settings;
  state.power_limit_mw = set.power_limit_mw != 0 ? set.power_limit_mw : info.max_power_mw;
  state.application_sm_khz = set.application_sm_khz != 0 ? set.application_sm_khz : info.clock_khz;
  state.application_memory_khz = info.memory_clock_khz;
  state.locked_sm_min_khz = set.locked_min_khz;
  state.locked_sm_max_khz = set.locked_max_khz;
  state.persistence_mode = set.persistence;
  state.accounting_mode = set.accounting;
  state.ecc_mode = set.ecc;
  state.ecc_pending = set.ecc_pending;
  state.time_slice_class = gpu.time_slice_class;

  state.health = gpu.health;
  return state;
}

Result Engine::Set(const Session& session, uint32_t index, GpuSetting setting, uint64_t value, uint64_t now_ns) {
  if (session.peer.uid != settings_.owner_uid) return Result::kNotOwner;
  Gpu& gpu = *gpus_[index];
  if (gpu.health.lost != 0) return Result::kDeviceLost;
  if (gpu.mig.on() && (setting == GpuSetting::kAccounting || setting == GpuSetting::kClearAccounting)) {
    return Result::kNotSupported;
  }
  const Result result = ChangeSetting(gpu.info, setting, value, &gpu.settings);
  if (result != Result::kOk) return result;
  switch (setting) {
    case GpuSetting::kAccounting: gpu.accounting.Enable(value != 0); break;
    case GpuSetting::kClearAccounting: gpu.accounting.Clear(); break;
    case GpuSetting::kClearVolatileEcc: gpu.health.ecc_volatile = {}; break;
    case GpuSetting::kClearAggregateEcc: gpu.health.ecc_aggregate = {}; break;
    default: ApplySpeed(index, now_ns);
  }
  return result;
}

std::vector<AccountingRecord> Engine::AccountingOf(uint32_t index, uint64_t now_ns) const {
  std::vector<ProcessInfo> present;
  for (const auto& [id, session] : sessions_) {
    for (const ContextRecord& context : session->contexts) {
      if (context.id == 0 || context.gpu != index || context.dead) continue;
      ProcessInfo& process = present.emplace_back();
      process.pid = session->peer.pid;
      process.busy_ns = gpus_[index]->model.ContextBusyNs(context.model);
      process.memory_busy_ns = gpus_[index]->model.ContextMemoryBusyNs(context.model);
    }
  }
  return gpus_[index]->accounting.Records(now_ns, present);
}

}  // namespace mete::emulator
