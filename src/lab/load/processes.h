// --processes N: this program started N times, begun together, their results summed.
// The children die with their parent; SIGINT and SIGTERM are passed on to them. One thread.
#ifndef METE_LAB_LOAD_PROCESSES_H_
#define METE_LAB_LOAD_PROCESSES_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "lab/load/options.h"
#include "lab/load/workloads.h"

namespace mete::lab {

// `arguments`: this process's own command line without the program. Kernels are calibrated once, before the children
// start, so that they do not disturb each other's calibration. Emits the sum when every child has said its result, then
// waits for their ends. A child's error is the error of all; its status stands for the whole (exit statuses as in
// main.cc).
Status RunProcesses(const LoadOptions& options, const std::vector<std::string>& arguments, const Emit& emit);

// Adds up what N processes said. Never empty.
Json SumResults(const std::vector<Json>& results);

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_PROCESSES_H_
