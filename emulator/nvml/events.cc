// NVML's event sets. They can be made, filled and waited for; the engine publishes no events yet, so a wait ends with
// its time limit, or with the engine.
#include <time.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "emulator/nvml/state.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::NvmlSession;
using emulator::WithGpu;
using emulator::WithNode;

constexpr unsigned long long kTypes = nvmlEventTypeXidCriticalError;

// Handles are counted numbers: a freed one is never valid again.
struct Sets {
  std::mutex mutex;
  uintptr_t next = 1;
  std::map<uintptr_t, unsigned long long> types;  // registered, by handle
};

Sets& TheSets() {
  static Sets* sets = new Sets;
  return *sets;
}

bool Known(nvmlEventSet_t set) {
  std::lock_guard<std::mutex> lock(TheSets().mutex);
  return TheSets().types.count(reinterpret_cast<uintptr_t>(set)) != 0;
}

uint64_t MonotonicMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  return WithNode([&](NvmlSession&) {
    if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::lock_guard<std::mutex> lock(TheSets().mutex);
    uintptr_t handle = TheSets().next++;
    TheSets().types[handle] = 0;
    *set = reinterpret_cast<nvmlEventSet_t>(handle);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  return WithNode([&](NvmlSession&) {
    std::lock_guard<std::mutex> lock(TheSets().mutex);
    return TheSets().types.erase(reinterpret_cast<uintptr_t>(set)) != 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* eventTypes) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (eventTypes == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *eventTypes = kTypes;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    std::lock_guard<std::mutex> lock(TheSets().mutex);
    auto found = TheSets().types.find(reinterpret_cast<uintptr_t>(set));
    if (found == TheSets().types.end()) return NVML_ERROR_INVALID_ARGUMENT;
    if ((eventTypes & ~kTypes) != 0) return NVML_ERROR_NOT_SUPPORTED;
    found->second |= eventTypes;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeoutms) {
  return WithNode([&](NvmlSession& session) {
    if (data == nullptr || !Known(set)) return NVML_ERROR_INVALID_ARGUMENT;
    constexpr uint64_t kLookMs = 500;  // how soon a wait notices that its engine has gone
    uint64_t end = MonotonicMs() + timeoutms;
    for (uint64_t now = MonotonicMs(); now < end; now = MonotonicMs()) {
      uint64_t pause = std::min(end - now, kLookMs);
      timespec sleep = {static_cast<time_t>(pause / 1000), static_cast<long>(pause % 1000) * 1'000'000};
      nanosleep(&sleep, nullptr);
      emulator::GpuState state = {};
      if (!session.gpus().empty() && session.client->State(0, &state) == emulator::Result::kLost) {
        return NVML_ERROR_UNKNOWN;
      }
    }
    return NVML_ERROR_TIMEOUT;
  });
}
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeoutms) {
  return nvmlEventSetWait_v2(set, data, timeoutms);
}

}  // extern "C"

}  // namespace mete::nvml::abi
