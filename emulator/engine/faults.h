// What can go wrong with an emulated GPU on purpose, and what a GPU's health is. Plain data of fixed layout: it crosses
// the socket and is read by the emulated NVML. libc and the C++ runtime only. Numbers are NVML's and CUDA's own.
#ifndef METE_EMULATOR_ENGINE_FAULTS_H_
#define METE_EMULATOR_ENGINE_FAULTS_H_

#include <cstdint>

#include "emulator/engine/mig_info.h"

namespace mete::emulator {

inline constexpr uint32_t kAllGpus = UINT32_MAX;
inline constexpr uint32_t kAllProcesses = UINT32_MAX;

enum class FaultKind : uint32_t {
  kXid = 1,           // `xid`; whom it hurts: data/xid.yaml
  kEccCorrectable,    // `count` single-bit errors; nobody is hurt
  kEccUncorrectable,  // Xid 48 and what follows it on the board; with `reason` 1 uncontained (Xid 95)
  kRowRemapPending,   // Xid 63
  kRowRemapFailure,   // Xid 64
  kLost,              // the driver cannot reach the GPU any more
  kOffBus,            // the same with its Xid, 79
  kThrottle,          // the SM clock times `factor`, for `reason`
  kSlowMemory,        // DRAM bandwidth times `factor`
  kHang,              // no kernel ends any more: of the process, else of the GPU
  kDriverRestart,     // every GPU: contexts and connections end, what does not survive a driver is forgotten
};

// Bits of nvmlDeviceGetCurrentClocksEventReasons.
inline constexpr uint32_t kReasonPower = 0x80;    // hardware power brake
inline constexpr uint32_t kReasonThermal = 0x40;  // hardware thermal slowdown

struct FaultSpec {
  FaultKind kind = FaultKind::kXid;
  uint32_t gpu = 0;
  uint32_t pid = 0;       // 0: whoever the kind hurts
  uint32_t xid = 0;       // kXid
  uint32_t count = 1;     // kEccCorrectable
  uint32_t reason = 0;    // kThrottle: bits as above; kEccUncorrectable: 1 uncontained
  uint64_t after_ns = 0;  // from now; the time for which `probability` is given begins then
  uint64_t seed = 1;
  double probability = 0;  // of happening within a second, again and again; 0: it happens once
  double factor = 1;       // kThrottle, kSlowMemory
};

struct FaultInfo {
  uint64_t id;
  FaultSpec spec;
  uint64_t due_ns;  // CLOCK_MONOTONIC; 0: will not happen (again)
  uint64_t happened;
};

// NVML's event types.
inline constexpr uint32_t kEventSingleBitEcc = 0x1, kEventDoubleBitEcc = 0x2, kEventXid = 0x8;

struct EventInfo {
  uint64_t number;  // from 1
  uint64_t at_ns;   // CLOCK_MONOTONIC
  uint32_t gpu;
  uint32_t type;
  uint32_t xid;
  uint32_t pid;                                                         // 0: of no process
  uint32_t gpu_instance = kNoInstance, compute_instance = kNoInstance;  // of the process
  uint32_t reserved = 0;
};

struct EccCounts {
  uint64_t dram_corrected, dram_uncorrected;
};

// The numbers of nvmlDeviceGpuRecoveryAction_t.
enum class Need : uint32_t { kNone = 0, kReset = 1, kReboot = 2 };

struct Health {
  EccCounts ecc_volatile;   // since the last reset or start of the driver
  EccCounts ecc_aggregate;  // of the board's life
  uint32_t rows_remapped_correctable, rows_remapped_uncorrectable;
  uint32_t remap_pending, remap_failed;  // 0 or 1
  uint32_t lost;                         // 1: calls on it answer kDeviceLost
  Need need;                             // until it is met nobody gets a new context
  uint32_t throttle_reasons;             // bits as above
  uint32_t last_xid;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_FAULTS_H_
