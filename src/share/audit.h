// Reads once a second, and when asked, what the driver says about every GPU and its processes, in a thread of its own:
// a driver that hangs must not stop the broker. What it means is decided by the broker.
//
// Ownership: the library must outlive the audit. Thread rule: Take and Again from any thread.
#ifndef METE_SHARE_AUDIT_H_
#define METE_SHARE_AUDIT_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "nvml/library.h"

namespace mete::share {

struct GpuReading {
  uint32_t index = 0;
  std::string uuid, name;
  std::string parent;  // of a MIG device: its GPU's UUID; of a GPU: empty
  nvml::MemoryUse memory;
  nvml::MigState mig;
  std::vector<nvml::GpuInstance> instances;  // of a GPU in MIG mode
  std::vector<nvml::Process> processes;
};

StatusOr<std::vector<GpuReading>> ReadGpus(const nvml::Library& library);

class Audit {
 public:
  using Reading = StatusOr<std::vector<GpuReading>>;

  // `ready` is called in the audit's thread when a new reading can be taken.
  Audit(const nvml::Library& library, std::chrono::milliseconds period, std::function<void()> ready);
  ~Audit();

  // The newest reading that was not taken yet.
  std::optional<Reading> Take();

  // Reads once more without waiting for the period, but not within 2 ms of the last.
  void Again();

 private:
  void Run();

  const nvml::Library& library_;
  const std::chrono::milliseconds period_;
  const std::function<void()> ready_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::optional<Reading> latest_;
  bool again_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace mete::share

#endif  // METE_SHARE_AUDIT_H_
