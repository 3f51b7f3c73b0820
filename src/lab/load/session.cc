#include "lab/load/session.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>

#include "lab/load/kernels.h"

namespace mete::lab {

namespace {

constexpr uint32_t kBlock = 256;
int g_stop_pipe[2] = {-1, -1};

void OnStop(int) {
  int saved = errno;
  char byte = 0;
  if (write(g_stop_pipe[1], &byte, 1) < 0) {  // full: already asked
  }
  errno = saved;
}

}  // namespace

void InstallStopSignals() {
  if (g_stop_pipe[0] >= 0 || pipe2(g_stop_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return;
  struct sigaction action = {};
  action.sa_handler = OnStop;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopAsked() {
  pollfd look = {g_stop_pipe[0], POLLIN, 0};
  return g_stop_pipe[0] >= 0 && poll(&look, 1, 0) > 0;
}

bool SleepUntil(Clock::time_point end) {
  while (true) {
    auto now = Clock::now();
    if (now >= end) return true;
    auto left = end - now;
    if (left < std::chrono::milliseconds(1)) {
      timespec pause = {0, static_cast<long>(std::chrono::nanoseconds(left).count())};
      nanosleep(&pause, nullptr);
      continue;
    }
    auto ms = std::min<int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count(), 3'600'000);
    pollfd look = {g_stop_pipe[0], POLLIN, 0};
    if (poll(&look, 1, static_cast<int>(ms)) > 0) return false;
  }
}

StatusOr<std::unique_ptr<Session>> Session::Open(const LoadOptions& options) {
  std::unique_ptr<Session> session(new Session);
  METE_ASSIGN_OR_RETURN(session->driver_, Driver::Load(options.lookup));
  const Driver& driver = *session->driver_;
  if (CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
    return Lacks("the CUDA driver does not start: cuInit: {} ({})", driver.ErrorName(result), static_cast<int>(result));
  }
  int count = 0;
  METE_CUDA(driver, cuDeviceGetCount, &count);
  if (count == 0) return Lacks("the CUDA driver shows no GPU; look at CUDA_VISIBLE_DEVICES and 'mete inventory'");
  if (options.gpu >= static_cast<uint32_t>(count)) {
    return Usage("there is no GPU {}; CUDA shows {}, from 0", options.gpu, count);
  }
  METE_CUDA(driver, cuDeviceGet, &session->device_, static_cast<int>(options.gpu));
  char name[128] = {};
  METE_CUDA(driver, cuDeviceGetName, name, sizeof(name) - 1, session->device_);
  session->gpu_name_ = name;
  METE_CUDA(driver, cuDevicePrimaryCtxRetain, &session->context_, session->device_);
  METE_CUDA(driver, cuCtxSetCurrent, session->context_);
  return session;
}

Session::~Session() {
  // Before anything that the driver took down itself; a failed context answers with an error that changes nothing.
  if (context_ != nullptr) driver_->cuDevicePrimaryCtxRelease_v2(device_);
}

Status Session::MakeCurrent() const {
  METE_CUDA(*driver_, cuCtxSetCurrent, context_);
  return OkStatus();
}

StatusOr<CUfunction> Session::Function(const char* name) {
  if (module_ == nullptr) METE_CUDA(*driver_, cuModuleLoadData, &module_, kKernels);
  CUfunction function = nullptr;
  METE_CUDA(*driver_, cuModuleGetFunction, &function, module_, name);
  return function;
}

StatusOr<CUstream> Session::Stream() const {
  CUstream stream = nullptr;
  METE_CUDA(*driver_, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return stream;
}

StatusOr<CUevent> Session::Event() const {
  CUevent event = nullptr;
  METE_CUDA(*driver_, cuEventCreate, &event, CU_EVENT_BLOCKING_SYNC);
  return event;
}

StatusOr<WorkKernel> Session::MakeKernel(const LoadOptions& options, bool stream) {
  WorkKernel kernel;
  kernel.stream = stream;
  METE_ASSIGN_OR_RETURN(kernel.function, Function(stream ? "stream" : "compute"));
  int sms = 0, threads = 0;
  METE_CUDA(*driver_, cuDeviceGetAttribute, &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  METE_CUDA(*driver_, cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device_);
  uint32_t fill = static_cast<uint32_t>(std::max(1, sms) * std::max(1, threads / static_cast<int>(kBlock)));
  kernel.grid = options.grid != 0 ? options.grid : fill;
  if (!stream) {
    METE_CUDA(*driver_, cuMemAlloc_v2, &kernel.first, 4096);
    return kernel;
  }
  uint64_t half = options.memory.count / 2 / 16 * 16;
  if (half == 0 || half / 16 > UINT32_MAX) {
    return Usage("--memory {}: memory-stream takes 32 B to 128 GiB", ToString(options.memory));
  }
  kernel.vectors = static_cast<uint32_t>(half / 16);
  METE_CUDA(*driver_, cuMemAlloc_v2, &kernel.first, half);
  METE_CUDA(*driver_, cuMemAlloc_v2, &kernel.second, half);
  return kernel;
}

Status Session::Launch(const WorkKernel& kernel, uint64_t iterations, CUstream stream) const {
  CUdeviceptr first = kernel.first, second = kernel.second;
  uint32_t vectors = kernel.vectors, count = static_cast<uint32_t>(iterations);
  void* compute[] = {&first, &count};
  void* copy[] = {&first, &second, &vectors, &count};
  METE_CUDA(*driver_, cuLaunchKernel, kernel.function, kernel.grid, 1, 1, kBlock, 1, 1, 0, stream,
            kernel.stream ? copy : compute, nullptr);
  return OkStatus();
}

StatusOr<double> Session::ShortestMs(const WorkKernel& kernel, uint64_t iterations, CUstream stream) const {
  constexpr int kLaunches = 12;
  METE_RETURN_IF_ERROR(Launch(kernel, iterations, stream));  // translation and caches
  METE_CUDA(*driver_, cuStreamSynchronize, stream);
  std::vector<CUevent> events;
  for (int i = 0; i < kLaunches; ++i) {
    METE_ASSIGN_OR_RETURN(CUevent event, Event());
    events.push_back(event);
  }
  for (CUevent event : events) {
    METE_RETURN_IF_ERROR(Launch(kernel, iterations, stream));
    METE_CUDA(*driver_, cuEventRecord, event, stream);
  }
  METE_CUDA(*driver_, cuStreamSynchronize, stream);
  double shortest = INFINITY;
  for (int i = 1; i < kLaunches; ++i) {
    float ms = 0;
    METE_CUDA(*driver_, cuEventElapsedTime, &ms, events[static_cast<size_t>(i) - 1], events[static_cast<size_t>(i)]);
    if (ms > 0) shortest = std::min(shortest, static_cast<double>(ms));
  }
  if (std::isinf(shortest))
    return Fault("the driver measured no time at all between kernels of {} iterations", iterations);
  return shortest;
}

StatusOr<KernelLength> Session::Length(const LoadOptions& options, const WorkKernel& kernel) const {
  if (options.iterations != 0) {
    return KernelLength{options.iterations, options.kernel_ms,
                        static_cast<double>(options.iterations) / options.kernel_ms};
  }
  // Short kernels, so that most of them fit between two turns of the neighbours: the shortest is then undisturbed.
  constexpr double kShortMs = 0.1;
  constexpr uint64_t kMost = UINT32_MAX / 8;
  METE_ASSIGN_OR_RETURN(CUstream stream, Stream());
  uint64_t few = kernel.stream ? 1 : 64;
  METE_ASSIGN_OR_RETURN(double few_ms, ShortestMs(kernel, few, stream));
  while (few_ms < kShortMs && few < kMost) {
    few *= static_cast<uint64_t>(std::clamp(1.5 * kShortMs / few_ms, 2.0, 16.0));
    METE_ASSIGN_OR_RETURN(few_ms, ShortestMs(kernel, few, stream));
  }
  // The difference of two lengths is free of what every launch costs.
  METE_ASSIGN_OR_RETURN(double more_ms, ShortestMs(kernel, 4 * few, stream));
  double per_iteration = (more_ms - few_ms) / static_cast<double>(3 * few);
  if (per_iteration <= 0) {
    return Fault(
        "kernels of {} and {} iterations take {:.4f} and {:.4f} ms: their length cannot be set. State --iterations",
        few, 4 * few, few_ms, more_ms);
  }
  double wanted = options.kernel_ms / per_iteration;
  if (wanted > UINT32_MAX)
    return Usage("--kernel-ms {}: at most {:.0f} on this GPU", options.kernel_ms, UINT32_MAX * per_iteration);
  if (wanted < 0.5 && !kernel.stream) {
    return Usage("--kernel-ms {}: a grid of {} blocks takes at least {:.4f} ms on this GPU; make the grid smaller",
                 options.kernel_ms, kernel.grid, per_iteration);
  }
  KernelLength length;
  length.iterations = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(wanted)));
  length.ms = static_cast<double>(length.iterations) * per_iteration;
  length.iterations_per_ms = 1 / per_iteration;
  return length;
}

Status Session::WaitForStart(const LoadOptions& options) const {
  if (options.ready_fd < 0 || options.go_fd < 0) return OkStatus();
  char byte = 1;
  if (write(options.ready_fd, &byte, 1) != 1 || read(options.go_fd, &byte, 1) != 1) {
    return Fault("the process that started this one is gone");
  }
  return OkStatus();
}

Json Session::Result(const char* workload) const {
  Json result;
  result["workload"] = workload;
  result["gpu"] = gpu_name_;
  if (driver_->emulated) result["emulated"] = true;
  result["processes"] = 1;
  return result;
}

}  // namespace mete::lab
