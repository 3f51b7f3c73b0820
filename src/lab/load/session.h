// One process's place on one GPU: driver, primary context, the module with the workloads' kernels, and what they share:
// launching, calibration, waiting for the common start, and being told to stop.
// A Session belongs to one thread unless said otherwise; Launch may be called from the thread that made the context
// current (MakeCurrent). Errors as in driver.h.
#ifndef METE_LAB_LOAD_SESSION_H_
#define METE_LAB_LOAD_SESSION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "lab/load/driver.h"
#include "lab/load/options.h"

namespace mete::lab {

using Clock = std::chrono::steady_clock;

// SIGINT and SIGTERM ask for an early end: loops look, sleeps return.
void InstallStopSignals();
bool StopAsked();
// Sleeps, at most until asked to stop; true if it slept to the end.
bool SleepUntil(Clock::time_point end);

// A kernel whose length is its iteration count: compute or stream.
struct WorkKernel {
  CUfunction function = nullptr;
  bool stream = false;
  CUdeviceptr first = 0, second = 0;  // compute: out; stream: from and to
  uint32_t vectors = 0;               // stream
  uint32_t grid = 1;
};

struct KernelLength {
  uint64_t iterations = 1;
  double ms = 0;  // of a kernel with so many iterations, alone on the GPU
  double iterations_per_ms = 0;
};

class Session {
 public:
  static StatusOr<std::unique_ptr<Session>> Open(const LoadOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Driver& driver() const { return *driver_; }
  CUdevice device() const { return device_; }
  const std::string& gpu_name() const { return gpu_name_; }

  Status MakeCurrent() const;
  StatusOr<CUfunction> Function(const char* name);
  StatusOr<CUstream> Stream() const;
  StatusOr<CUevent> Event() const;  // waits without spinning, keeps its time

  // The kernel that the options ask for, with the memory it needs.
  StatusOr<WorkKernel> MakeKernel(const LoadOptions& options, bool stream);
  Status Launch(const WorkKernel& kernel, uint64_t iterations, CUstream stream) const;
  // The length that the options ask for: measured, or what they state. Usage if the kernel cannot be that short.
  StatusOr<KernelLength> Length(const LoadOptions& options, const WorkKernel& kernel) const;

  // Says that this process is ready and waits for the others of its group; at once if it is alone.
  Status WaitForStart(const LoadOptions& options) const;

  // Fields that every result begins with.
  Json Result(const char* workload) const;

 private:
  Session() = default;
  // The shortest time between two ends of kernels launched back to back: what one takes when nobody comes between.
  StatusOr<double> ShortestMs(const WorkKernel& kernel, uint64_t iterations, CUstream stream) const;

  std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::string gpu_name_;
};

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_SESSION_H_
