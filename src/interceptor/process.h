// What the proxy knows in this process: its attachment to the share, and its records. One object, made at the first
// call that needs it, never destroyed, replaced by nothing in a forked child (which attaches for itself).
//
// Ready() is the way in for every wrapper: null means that the limits are not in force here, and the call is refused.
#ifndef METE_INTERCEPTOR_PROCESS_H_
#define METE_INTERCEPTOR_PROCESS_H_

#include <atomic>
#include <cstdint>

#include "interceptor/connection.h"
#include "interceptor/context.h"
#include "interceptor/driver.h"
#include "interceptor/graph_memory.h"
#include "interceptor/library.h"
#include "interceptor/memory.h"
#include "interceptor/pool.h"
#include "interceptor/tracker.h"
#include "interceptor/vmm.h"
#include "ledger/futex.h"

namespace mete::interceptor {

inline constexpr int kMaxDevices = 64;

// `attachment` is first: launch_entry.h reads it.
struct Process {  // NOLINT(clang-analyzer-optin.performance.Padding)
  // Switched as a whole when a new broker hands out new pages; older ones stay valid.
  std::atomic<const Attachment*> attachment{nullptr};
  Pools pools;
  Vmm vmm;
  Contexts contexts;
  // The share's index of each driver device; -1: not in the share, -2: no such device.
  std::atomic<int8_t> gpu_of_device[kMaxDevices];
  std::atomic<bool> devices_known{false};
  Memory memory;
  GraphMemory graphs;
  Libraries libraries;
  Tracker tracker;
};

extern std::atomic<Process*> process;

// Attaches if need be. `again`: try once more although it failed before (cuInit only).
Process* AttachNow(bool again);

inline Process* Ready() {
  Process* p = process.load(std::memory_order_acquire);
  return p != nullptr ? p : AttachNow(false);
}

inline ledger::View ViewOf(const Process& p, uint32_t gpu) {
  const Attachment* a = p.attachment.load(std::memory_order_acquire);
  return {a->limits, a->ledger, gpu, a->slot};
}

// Reads which of the driver's devices belong to the share. Needs an initialised driver; repeats until that works.
void MapDevices(Process& p);

// The share's index of a driver device, -1 for a GPU outside the share, -2 where the driver has no such device.
int GpuOfDevice(Process& p, CUdevice device);

// Where a call of this thread takes effect.
struct Place {
  CUcontext context = nullptr;  // null: none is current, and the driver will say so
  uint32_t gpu = 0;
  ledger::View view;
};

// The current context and its GPU. False: its GPU is not in the share. With no context: true and context null.
bool Locate(Process& p, Place* place);

// Forgets what threads remember about contexts; for a context that goes.
void ForgetContexts();

// If the broker is gone or new, says hello to it again. Takes at most one thread at a time; the others return at once.
void KeepAttached(Process& p);

// True when the broker's heartbeat is old enough to look after the connection. Costs a coarse clock read.
bool HeartbeatStale(const Process& p);

inline uint64_t Now() { return ledger::MonotonicNs(); }

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_PROCESS_H_
