// What NVML and nvidia-smi read of a GPU, and what they may set: plain data of fixed layout that crosses the engine's
// socket. Counters never fall but for the resets that say so. libc and the C++ runtime only. Times: ns of
// CLOCK_MONOTONIC unless a name says otherwise; clocks in kHz; power in mW.
#ifndef METE_EMULATOR_ENGINE_GPU_STATE_H_
#define METE_EMULATOR_ENGINE_GPU_STATE_H_

#include <cstddef>
#include <cstdint>

#include "emulator/engine/faults.h"
#include "emulator/engine/mig_info.h"

namespace mete::emulator {

struct ProcessInfo {  // one process on one GPU, or on one MIG device of it
  uint32_t pid;
  uint32_t gpu;
  uint32_t gpu_instance = kNoInstance, compute_instance = kNoInstance;  // kNoInstance: of the GPU itself
  uint64_t memory_bytes;                                                // contexts and allocations
  uint64_t busy_ns;                                                     // GPU time so far
  uint64_t memory_busy_ns;                                              // DRAM time at full bandwidth so far
  char name[128];                                                       // /proc/PID/exe or comm
};

// How busy the parts of a GPU were so far, in ns of the whole part's time.
struct GpuActivity {
  uint64_t sm_active_ns;                  // SMs that hold a block
  uint64_t occupancy_ns;                  // resident warps of all that fit
  uint64_t integer_ns, fp32_ns, fp64_ns;  // issue slots of these classes
  uint64_t dram_bytes;
  uint64_t pcie_rx_bytes, pcie_tx_bytes;  // host to device, device to host
};

struct GpuState {  // a snapshot
  uint64_t engine_time_ns;
  uint64_t memory_used_bytes;  // without reserved_bytes
  uint64_t busy_ns;            // time with at least one kernel resident, so far
  uint64_t memory_busy_ns;     // time in which DRAM was read or written, so far
  uint64_t energy_mj;
  uint32_t power_mw, temperature_c, sm_clock_khz, memory_clock_khz;
  uint32_t utilization_gpu, utilization_memory;  // percent of the last second
  uint32_t contexts;
  uint32_t compute_mode;  // NVML's numbers

  uint32_t performance_state;              // NVML's number, 0 the fastest
  uint32_t pcie_rx_kbps, pcie_tx_kbps;     // KB/s of the last second
  uint16_t mig_mode, mig_pending;          // 1: on
  uint64_t clocks_event_reasons;           // NVML's bits, that hold now
  uint64_t power_capped_ns, throttled_ns;  // held back by the power limit; by a fault (heat, power brake), so far
  GpuActivity activity;

  // As set by the node's owner.
  uint32_t power_limit_mw;
  uint32_t application_sm_khz, application_memory_khz;
  uint32_t locked_sm_min_khz, locked_sm_max_khz;  // 0: not locked
  uint32_t persistence_mode, accounting_mode, ecc_mode, ecc_pending;
  uint32_t time_slice_class;  // compute-policy: 0 default, 1 short, 2 medium, 3 long

  Health health;
};

// One process in a GPU's accounting.
struct AccountingRecord {
  uint32_t pid;
  uint8_t utilization_gpu, utilization_memory;  // percent of its life
  uint8_t running;
  uint8_t reserved;
  uint64_t most_memory_bytes;
  uint64_t milliseconds;  // of its life; 0 while it runs
  uint64_t started_us;    // wall clock
};
static_assert(sizeof(AccountingRecord) == 32);
inline constexpr size_t kMostAccounted = 4000;  // of one GPU; the oldest ended ones make room

// What the node's owner may change, with the meaning of the value.
enum class GpuSetting : uint32_t {
  kPersistence = 1,    // 0 or 1
  kAccounting,         // 0 or 1
  kEcc,                // 0 or 1, in force after a reset
  kPowerLimit,         // mW, within the board's limits
  kApplicationClocks,  // memory kHz << 32 | SM kHz; 0: the board's own
  kLockedSmClocks,     // most kHz << 32 | least kHz; 0: not locked
  kClearVolatileEcc,
  kClearAggregateEcc,
  kClearAccounting,
  kLast = kClearAccounting,
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_GPU_STATE_H_
