// NVML's event sets over the engine's numbered events. A set begins with what happens after its first registration.
#include <time.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::EventInfo;
using emulator::GpuInfo;
using emulator::NvmlSession;
using emulator::Result;
using emulator::WithGpu;
using emulator::WithNode;

constexpr uint64_t kLookMs = 500;  // how soon a wait notices that its engine, or a GPU, has gone

struct Set {
  std::map<unsigned, unsigned long long> types;  // registered, by GPU
  uint64_t seen = 0;                             // number of the last event looked at
};

// Handles are counted numbers: a freed one is never valid again.
struct Sets {
  std::mutex mutex;
  uintptr_t next = 1;
  std::map<uintptr_t, Set> sets;
};

Sets& TheSets() {
  static Sets* sets = new Sets;
  return *sets;
}

// A copy of the set, since another thread may free it; false: there is no such set.
bool Look(nvmlEventSet_t handle, Set* copy) {
  std::lock_guard<std::mutex> lock(TheSets().mutex);
  const auto found = TheSets().sets.find(reinterpret_cast<uintptr_t>(handle));
  if (found == TheSets().sets.end()) return false;
  *copy = found->second;
  return true;
}

void Seen(nvmlEventSet_t handle, uint64_t number) {
  std::lock_guard<std::mutex> lock(TheSets().mutex);
  const auto found = TheSets().sets.find(reinterpret_cast<uintptr_t>(handle));
  if (found != TheSets().sets.end()) found->second.seen = std::max(found->second.seen, number);
}

unsigned long long TypesOf(const GpuInfo& info) {
  unsigned long long types = emulator::kEventXid;  // events about clocks ended with Kepler
  if (emulator::HasEcc(info)) types |= emulator::kEventSingleBitEcc | emulator::kEventDoubleBitEcc;
  return types;
}

uint64_t MonotonicMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

// The next event that the set waits for; false: none yet.
nvmlReturn_t Next(NvmlSession& session, nvmlEventSet_t handle, const Set& set, nvmlEventData_t* data, bool* found) {
  std::vector<EventInfo> events;
  const Result result = session.client->Events(set.seen, &events);
  if (result != Result::kOk) return result == Result::kLost ? NVML_ERROR_UNKNOWN : emulator::FromResult(result);
  for (const EventInfo& event : events) {
    Seen(handle, event.number);
    const auto wanted = set.types.find(event.gpu);
    if (wanted == set.types.end() || (wanted->second & event.type) == 0) continue;
    *data = {emulator::NvmlHandle(event.gpu), event.type, event.xid, event.gpu_instance, event.compute_instance};
    *found = true;
    return NVML_SUCCESS;
  }
  return NVML_SUCCESS;
}

// One of the set's GPUs, or the engine, has gone.
nvmlReturn_t Lost(NvmlSession& session, const Set& set) {
  for (const auto& [gpu, types] : set.types) {
    emulator::GpuState state = {};
    const Result result = session.client->State(gpu, &state);
    if (result == Result::kDeviceLost) return NVML_ERROR_GPU_IS_LOST;
    if (result == Result::kLost) return NVML_ERROR_UNKNOWN;
  }
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  return WithNode([&](NvmlSession&) {
    if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::lock_guard<std::mutex> lock(TheSets().mutex);
    uintptr_t handle = TheSets().next++;
    TheSets().sets[handle] = {};
    *set = reinterpret_cast<nvmlEventSet_t>(handle);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  return WithNode([&](NvmlSession&) {
    std::lock_guard<std::mutex> lock(TheSets().mutex);
    return TheSets().sets.erase(reinterpret_cast<uintptr_t>(set)) != 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* eventTypes) {
  return emulator::GiveInfo(device, eventTypes, [](const GpuInfo& info, unsigned) { return TypesOf(info); });
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const uint64_t newest = session.client->EventCount();
    std::lock_guard<std::mutex> lock(TheSets().mutex);
    const auto found = TheSets().sets.find(reinterpret_cast<uintptr_t>(set));
    if (found == TheSets().sets.end()) return NVML_ERROR_INVALID_ARGUMENT;
    if ((eventTypes & ~TypesOf(session.gpus()[gpu])) != 0) return NVML_ERROR_NOT_SUPPORTED;
    if (found->second.types.empty()) found->second.seen = newest;
    found->second.types[gpu] |= eventTypes;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeoutms) {
  return WithNode([&](NvmlSession& session) {
    const uint64_t end = MonotonicMs() + timeoutms;
    for (;;) {
      Set copy;
      if (data == nullptr || !Look(set, &copy)) return NVML_ERROR_INVALID_ARGUMENT;
      const uint64_t newest = session.client->EventCount();  // before the look: what comes later ends the wait
      bool found = false;
      nvmlReturn_t code = NVML_SUCCESS;
      if (!copy.types.empty()) code = Next(session, set, copy, data, &found);
      if (found || code != NVML_SUCCESS) return code;
      code = Lost(session, copy);
      if (code != NVML_SUCCESS) return code;
      const uint64_t now = MonotonicMs();
      if (now >= end) return NVML_ERROR_TIMEOUT;
      session.client->AwaitEvent(newest, std::min(end - now, kLookMs) * 1'000'000);
    }
  });
}
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeoutms) {
  return nvmlEventSetWait_v2(set, data, timeoutms);
}

}  // extern "C"

}  // namespace mete::nvml::abi
