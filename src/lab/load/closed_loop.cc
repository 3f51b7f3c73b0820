// compute and memory-stream: kernels of a known length, always `depth` in flight a stream. Work is counted by the GPU's
// own clock inside a window that begins `warmup` after the start and ends `cooldown` before the end, so that neighbours
// who start a little earlier or later are under load during all of it.
#include <algorithm>
#include <cstdio>
#include <deque>

#include "lab/load/session.h"
#include "lab/load/workloads.h"

namespace mete::lab {

namespace {

struct InFlight {
  CUevent event;
  size_t stream;
};

// What the window saw, in milliseconds of the GPU's clock since the start.
struct Window {
  double begin_ms, end_ms;
  uint64_t kernels = 0;
  double last_ms = 0;

  void Count(double at_ms) {
    last_ms = at_ms;
    if (at_ms >= begin_ms && at_ms < end_ms) ++kernels;
  }
  // As far as it got, if it was stopped early.
  double Seconds() const { return std::max(0.0, std::min(last_ms, end_ms) - begin_ms) / 1000; }
};

Status Loop(const LoadOptions& options, const Session& session, const WorkKernel& kernel, const KernelLength& length,
            Window* window) {
  const Driver& driver = session.driver();
  std::vector<CUstream> streams;
  std::deque<InFlight> flying;  // in launch order
  std::vector<CUevent> spare;
  for (uint32_t i = 0; i < options.streams; ++i) {
    METE_ASSIGN_OR_RETURN(CUstream stream, session.Stream());
    streams.push_back(stream);
  }
  METE_ASSIGN_OR_RETURN(CUevent start, session.Event());
  METE_CUDA(driver, cuEventRecord, start, streams[0]);
  METE_CUDA(driver, cuEventSynchronize, start);

  auto launch = [&](size_t stream) -> Status {
    if (spare.empty()) {
      METE_ASSIGN_OR_RETURN(CUevent event, session.Event());
      spare.push_back(event);
    }
    CUevent event = spare.back();
    spare.pop_back();
    METE_RETURN_IF_ERROR(session.Launch(kernel, length.iterations, streams[stream]));
    METE_CUDA(driver, cuEventRecord, event, streams[stream]);
    flying.push_back({event, stream});
    return OkStatus();
  };

  for (uint32_t i = 0; i < options.depth; ++i) {
    for (size_t stream = 0; stream < streams.size(); ++stream) METE_RETURN_IF_ERROR(launch(stream));
  }
  double stop_ms = window->end_ms + options.cooldown * 1000;
  uint64_t all = 0;
  auto report = Clock::now();
  while (!flying.empty()) {
    InFlight oldest = flying.front();
    flying.pop_front();
    METE_CUDA(driver, cuEventSynchronize, oldest.event);
    float ms = 0;
    METE_CUDA(driver, cuEventElapsedTime, &ms, start, oldest.event);
    window->Count(ms);
    ++all;
    spare.push_back(oldest.event);
    bool stop = ms >= stop_ms || StopAsked();
    if (!stop) METE_RETURN_IF_ERROR(launch(oldest.stream));
    if (options.progress && Clock::now() >= report) {
      printf("{\"kernels\":%llu}\n", static_cast<unsigned long long>(all));
      fflush(stdout);
      report = Clock::now() + std::chrono::seconds(1);
    }
  }
  return OkStatus();
}

}  // namespace

Status RunClosedLoop(const LoadOptions& options, const Emit& emit) {
  METE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(options));
  bool stream = options.workload == Workload::kMemoryStream;
  METE_ASSIGN_OR_RETURN(WorkKernel kernel, session->MakeKernel(options, stream));
  METE_ASSIGN_OR_RETURN(KernelLength length, session->Length(options, kernel));
  if (options.iterations != 0) {  // not launched yet: translation and caches before the start, not after it
    METE_RETURN_IF_ERROR(session->Launch(kernel, length.iterations, nullptr));
    METE_CUDA(session->driver(), cuCtxSynchronize);
  }
  METE_RETURN_IF_ERROR(session->WaitForStart(options));
  Window window = {options.warmup * 1000, (options.warmup + options.seconds) * 1000};
  METE_RETURN_IF_ERROR(Loop(options, *session, kernel, length, &window));

  Json result = session->Result(stream ? "memory-stream" : "compute");
  double seconds = window.Seconds(), gpu_ms = static_cast<double>(window.kernels) * length.ms;
  result["kernels"] = window.kernels;
  result["kernel_ms"] = length.ms;
  result["iterations"] = length.iterations;
  result["grid"] = kernel.grid;
  result["streams"] = options.streams;
  result["depth"] = options.depth;
  result["gpu_ms"] = gpu_ms;
  result["seconds"] = seconds;
  if (stream) {
    result["bytes"] =
        static_cast<double>(window.kernels) * static_cast<double>(length.iterations) * kernel.vectors * 32.0;
  }
  emit(result);
  return OkStatus();
}

Status RunCalibrate(const LoadOptions& options, const Emit& emit) {
  METE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(options));
  METE_ASSIGN_OR_RETURN(WorkKernel kernel, session->MakeKernel(options, options.stream_kernel));
  METE_ASSIGN_OR_RETURN(KernelLength length, session->Length(options, kernel));
  Json result = session->Result("calibrate");
  result["kernel"] = options.stream_kernel ? "memory-stream" : "compute";
  result["grid"] = kernel.grid;
  result["iterations"] = length.iterations;
  result["kernel_ms"] = length.ms;
  result["iterations_per_ms"] = length.iterations_per_ms;
  emit(result);
  return OkStatus();
}

}  // namespace mete::lab
