// Utilisation per process from the engine's counters: the driver keeps a history of samples, the engine keeps sums, so
// a sample here is the difference between two readings of this process. Thread-safe. libc and the C++ runtime only.
#ifndef METE_EMULATOR_NVML_SAMPLER_H_
#define METE_EMULATOR_NVML_SAMPLER_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "emulator/engine/client.h"

namespace mete::emulator {

struct ProcessSample {
  uint32_t pid;
  uint64_t time_us;     // wall clock at its end
  uint32_t sm, memory;  // percent of the interval
};

class ProcessSampler {
 public:
  // Samples that ended after `since_us`. The first call for a GPU waits for kIntervalMs, because one reading is no
  // difference; later ones cover the time since the reading before, and repeat it when that is younger than
  // kIntervalMs.
  Result Read(Client& client, uint32_t gpu, uint64_t since_us, std::vector<ProcessSample>* samples);

  static constexpr int kIntervalMs = 100;

 private:
  struct Used {
    uint64_t busy_ns = 0, memory_busy_ns = 0;
  };
  struct Reading {
    uint64_t engine_time_ns = 0;
    std::map<uint32_t, Used> used;       // by pid
    std::vector<ProcessSample> samples;  // of the interval that ended with this reading
  };
  static Result Take(Client& client, uint32_t gpu, const Reading& before, Reading* reading);

  std::mutex mutex_;
  std::map<uint32_t, Reading> last_;  // by GPU
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_SAMPLER_H_
