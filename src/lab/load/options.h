// What the command line of mete-load says. Plain data; defaults are the documented ones.
#ifndef METE_LAB_LOAD_OPTIONS_H_
#define METE_LAB_LOAD_OPTIONS_H_

#include <cstdint>
#include <string>

#include "base/quantities.h"
#include "lab/load/driver.h"

namespace mete::lab {

enum class Workload { kCompute, kMemoryStream, kHog, kInfer, kIdle, kFault, kCalibrate };

struct LoadOptions {
  Workload workload = Workload::kCompute;
  // of every workload
  uint32_t gpu = 0;  // index among the devices that CUDA shows
  uint32_t processes = 1;
  Lookup lookup = Lookup::kDlsym;
  bool json = false;
  bool progress = false;            // a JSON line a second while it runs
  double seconds = 10;              // measured time; idle: how long
  double warmup = 1, cooldown = 1;  // seconds under load before and after the measured time

  // kernels
  double kernel_ms = 1;
  uint64_t iterations = 0;  // of kernel_ms length; 0: calibrate
  uint32_t grid = 0;        // blocks of 256 threads; 0: fills the GPU once
  uint32_t streams = 1;
  uint32_t depth = 8;          // kernels in flight a stream
  bool stream_kernel = false;  // calibrate: for memory-stream
  Bytes memory{256 * kMiB};    // memory-stream: both buffers together; idle: what it holds

  // infer
  double rate = 100;  // requests a second
  uint64_t seed = 1;

  // hog
  std::string api = "alloc";
  Bytes chunk{256 * kMiB};
  double hold = 0;  // seconds

  std::string fault_kind = "illegal-address";

  // Between a process and those it starts; not for people.
  int ready_fd = -1, go_fd = -1;
  bool raw = false;  // infer: every latency, for the sum over processes
};

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_OPTIONS_H_
