// The workloads of mete-load. Each runs in one process, prints its result as one line of JSON on stdout as soon as it
// has it (hog before it holds), and returns OK, or the error that ended it. One thread calls.
#ifndef METE_LAB_LOAD_WORKLOADS_H_
#define METE_LAB_LOAD_WORKLOADS_H_

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "lab/load/options.h"

namespace mete::lab {

// Receives a process's result; called once.
using Emit = std::function<void(const Json&)>;

Status RunClosedLoop(const LoadOptions& options, const Emit& emit);  // compute, memory-stream
Status RunCalibrate(const LoadOptions& options, const Emit& emit);
Status RunHog(const LoadOptions& options, const Emit& emit);
Status RunInfer(const LoadOptions& options, const Emit& emit);
Status RunIdle(const LoadOptions& options, const Emit& emit);
Status RunFault(const LoadOptions& options, const Emit& emit);

// The one that the options name, in this process.
Status RunWorkload(const LoadOptions& options, const Emit& emit);

// The calls that `hog --api` knows.
const std::vector<std::string>& HogApis();
const std::vector<std::string>& FaultKinds();

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_WORKLOADS_H_
