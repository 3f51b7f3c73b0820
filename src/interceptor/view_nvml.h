// What a tenant sees through NVML: the share's GPUs and MIG devices only, its quota as their memory, its own processes.
//
// Every function asks the real library first and then narrows the answer; handles are the driver's own. The share's
// pages are read as an observer, without a slot. Thread-safe. Bytes throughout.
#ifndef METE_INTERCEPTOR_VIEW_NVML_H_
#define METE_INTERCEPTOR_VIEW_NVML_H_

#include <cstdint>

#include "interceptor/nvml_seen.h"
#include "ledger/layout.h"
#include "nvml/abi.h"

namespace mete::interceptor {

using nvml::abi::nvmlDevice_t;
using nvml::abi::nvmlReturn_t;

inline constexpr char kPrivateNvmlName[] = "libmete-driver-ml.so.1";

struct Share {
  const ledger::LimitsPage* limits = nullptr;
  const ledger::LedgerPage* ledger = nullptr;
  uint32_t gpu_count = 0;
  SeenDevices seen;  // those of the share that the driver knows
};

// Joins the share as an observer if that has not happened; null: its limits are not in force, the reason was said.
const Share* Observe();
// Looks the share's GPUs up in the real library; after a successful real nvmlInit.
void FindDevices();

struct Usage {
  uint64_t quota;  // kNoQuota: not limited
  uint64_t used;
};
Usage UsageOf(const Share& share, int gpu);

// What a process of this share holds on a device of it, or on its parts of one; false: not one of ours, or another
// device. `pid` in the broker's pid name space.
bool HeldBy(const Share& share, nvmlDevice_t device, unsigned pid, uint64_t* bytes);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_VIEW_NVML_H_
