// infer: requests at planned instants, whether or not the GPU keeps up (open loop). A latency counts from the planned
// start, so that a late launch is the system's delay and not lost; the service time counts from the launch.
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "lab/load/latencies.h"
#include "lab/load/session.h"
#include "lab/load/workloads.h"

namespace mete::lab {

namespace {

struct Request {
  Clock::time_point planned, sent;
  CUevent event = nullptr;
};

double Ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

// Notes when each request is done, in order, while the other thread goes on launching.
class Collector {
 public:
  explicit Collector(const Session& session) : session_(session), thread_([this] { Run(); }) {}
  ~Collector() { Finish(); }

  void Add(const Request& request) {
    std::lock_guard<std::mutex> lock(mutex_);
    open_.push_back(request);
    changed_.notify_one();
  }
  // An event whose request is done, or null.
  CUevent TakeSpare() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) return nullptr;
    CUevent event = spare_.back();
    spare_.pop_back();
    return event;
  }
  size_t Backlog() {
    std::lock_guard<std::mutex> lock(mutex_);
    return open_.size();
  }
  void Finish() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      last_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }
  // After Finish.
  const Status& status() const { return status_; }
  const std::vector<double>& response_ms() const { return response_; }
  const std::vector<double>& service_ms() const { return service_; }

 private:
  void Run() {
    status_ = session_.MakeCurrent();
    while (status_.ok()) {
      Request request;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return last_ || !open_.empty(); });
        if (open_.empty()) return;
        request = open_.front();
      }
      status_ = session_.driver().Check(session_.driver().cuEventSynchronize(request.event), "cuEventSynchronize");
      if (!status_.ok()) return;
      auto now = Clock::now();
      response_.push_back(Ms(now - request.planned));
      service_.push_back(Ms(now - request.sent));
      std::lock_guard<std::mutex> lock(mutex_);
      open_.pop_front();
      spare_.push_back(request.event);
    }
  }

  const Session& session_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> open_;
  std::vector<CUevent> spare_;
  bool last_ = false;
  Status status_;
  std::vector<double> response_, service_;
  std::thread thread_;  // last: it uses the others
};

// Exponential gaps, from the generator's bits alone, so that a seed means the same everywhere.
class Arrivals {
 public:
  Arrivals(double rate, uint64_t seed) : rate_(rate), bits_(seed) {}
  double NextGapSeconds() {
    double uniform = static_cast<double>(bits_() >> 11) * 0x1.0p-53;
    return -std::log1p(-uniform) / rate_;
  }

 private:
  double rate_;
  std::mt19937_64 bits_;
};

}  // namespace

Status RunInfer(const LoadOptions& options, const Emit& emit) {
  METE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(options));
  const Driver& driver = session->driver();
  METE_ASSIGN_OR_RETURN(WorkKernel kernel, session->MakeKernel(options, false));
  METE_ASSIGN_OR_RETURN(KernelLength length, session->Length(options, kernel));
  METE_RETURN_IF_ERROR(session->Launch(kernel, length.iterations, nullptr));
  METE_CUDA(driver, cuCtxSynchronize);
  METE_ASSIGN_OR_RETURN(CUstream stream, session->Stream());
  METE_RETURN_IF_ERROR(session->WaitForStart(options));

  Arrivals arrivals(options.rate, options.seed);
  Collector collector(*session);
  auto start = Clock::now();
  double planned = arrivals.NextGapSeconds();
  uint64_t sent = 0;
  size_t backlog = 0;
  while (planned < options.seconds) {
    Request request;
    request.planned = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(planned));
    if (!SleepUntil(request.planned)) break;
    request.event = collector.TakeSpare();
    if (request.event == nullptr) {
      METE_ASSIGN_OR_RETURN(request.event, session->Event());
    }
    request.sent = Clock::now();
    METE_RETURN_IF_ERROR(session->Launch(kernel, length.iterations, stream));
    METE_CUDA(driver, cuEventRecord, request.event, stream);
    collector.Add(request);
    ++sent;
    backlog = std::max(backlog, collector.Backlog());
    planned += arrivals.NextGapSeconds();
  }
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  collector.Finish();
  METE_RETURN_IF_ERROR(collector.status());

  Json result = session->Result("infer");
  result["rate"] = options.rate;
  result["seed"] = options.seed;
  result["requests"] = sent;
  result["kernels"] = sent;
  result["kernel_ms"] = length.ms;
  result["iterations"] = length.iterations;
  result["gpu_ms"] = static_cast<double>(sent) * length.ms;
  result["seconds"] = seconds;
  result["largest_backlog"] = backlog;
  result["response_ms"] = Summary(collector.response_ms());
  result["service_ms"] = Summary(collector.service_ms());
  if (options.raw) {
    result["responses"] = collector.response_ms();
    result["services"] = collector.service_ms();
  }
  emit(result);
  return OkStatus();
}

}  // namespace mete::lab
