// fault: a kernel that the GPU must stop, to see whom else it stops.
#include <cstring>

#include "lab/load/session.h"
#include "lab/load/workloads.h"

namespace mete::lab {

namespace {

struct Kind {
  const char* name;
  const char* kernel;
  CUresult expected;
};

constexpr Kind kKinds[] = {
    {"illegal-address", "illegal", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"misaligned", "misaligned", CUDA_ERROR_MISALIGNED_ADDRESS},
    {"trap", "trap", CUDA_ERROR_LAUNCH_FAILED},
};

}  // namespace

const std::vector<std::string>& FaultKinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names;
    for (const Kind& kind : kKinds) names.push_back(kind.name);
    return names;
  }();
  return kinds;
}

Status RunFault(const LoadOptions& options, const Emit& emit) {
  const Kind* kind = nullptr;
  for (const Kind& candidate : kKinds) {
    if (options.fault_kind == candidate.name) kind = &candidate;
  }
  if (kind == nullptr) return Usage("--kind {}: there is no such fault", options.fault_kind);
  METE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(options));
  const Driver& driver = session->driver();
  METE_ASSIGN_OR_RETURN(CUfunction function, session->Function(kind->kernel));
  CUdeviceptr block = 0;
  METE_CUDA(driver, cuMemAlloc_v2, &block, 4096);
  METE_RETURN_IF_ERROR(session->WaitForStart(options));

  CUdeviceptr address = kind->expected == CUDA_ERROR_ILLEGAL_ADDRESS ? 16 : block;
  void* parameters[] = {&address};
  METE_CUDA(driver, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, nullptr,
            kind->expected == CUDA_ERROR_LAUNCH_FAILED ? nullptr : parameters, nullptr);
  CUresult first = driver.cuCtxSynchronize();
  CUdeviceptr again = 0;
  CUresult later = driver.cuMemAlloc_v2(&again, 4096);

  Json result = session->Result("fault");
  result["kind"] = kind->name;
  result["error"] = first == CUDA_SUCCESS ? Json(nullptr) : Json(driver.ErrorName(first));
  result["error_code"] = static_cast<int>(first);
  result["sticky"] = later == first && first != CUDA_SUCCESS;
  emit(result);
  if (first == kind->expected) return OkStatus();
  if (first == CUDA_SUCCESS)
    return absl::AbortedError(fmt::format("fault {}: the kernel ended without an error", kind->name));
  return driver.Check(first, "cuCtxSynchronize");
}

Status RunWorkload(const LoadOptions& options, const Emit& emit) {
  switch (options.workload) {
    case Workload::kCompute:
    case Workload::kMemoryStream: return RunClosedLoop(options, emit);
    case Workload::kCalibrate: return RunCalibrate(options, emit);
    case Workload::kHog: return RunHog(options, emit);
    case Workload::kInfer: return RunInfer(options, emit);
    case Workload::kIdle: return RunIdle(options, emit);
    case Workload::kFault: return RunFault(options, emit);
  }
  return Fault("workload {} has no code", static_cast<int>(options.workload));
}

}  // namespace mete::lab
