// What one request of a program costs: kernels, copies and the host's own time, read from YAML (data/workloads.yaml is
// embedded; more can be given in files). A kernel is described by what it executes and touches, never by how long it
// takes. Plain values; any thread.
//
//   schema: mete/workloads/1
//   workloads:
//     - id: yolos-small
//       what: one picture through YOLOS-small
//       est: true                          # numbers are estimates
//       src: [nos]                         # keys of `sources`
//       steps:                             # in order; the host waits for all before a `host_us`, and at the end
//         - {host_us: 200}
//         - {copy: to-device, mib: 12}     # or to-host, on-device
//         - name: scores                   # a kernel
//           times: 12                      # so often, one after another
//           blocks: 4356, threads: 256, registers: 128, shared_kib: 32
//           warp_instructions: {fp32: 98304, load_store: 4096}      # of one block; classes as in work.h
//           memory_kib: 128                # global memory traffic of one block
//           working_set_mib: 430           # distinct bytes of the launch
//           critical_cycles: 20000         # the longest chain of one warp
//       repeat: 12                         # all steps so often
#ifndef METE_EMULATOR_SIMULATE_WORKLOAD_H_
#define METE_EMULATOR_SIMULATE_WORKLOAD_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulator/engine/work.h"

namespace mete::emulator {

struct Step {
  uint64_t host_ns = 0;  // not 0: the host's own time, no work for the GPU
  Work work;
};

struct Workload {
  std::string id, what;
  std::vector<Step> steps;  // `times` and `repeat` written out
};
using Workloads = std::map<std::string, Workload, std::less<>>;

// Adds the workloads of the text to `all`; a known id is replaced. Usage with file and line.
Status ReadWorkloads(const std::string& text, const std::string& file, Workloads* all);
// data/workloads.yaml, which a test reads.
const Workloads& BuiltInWorkloads();

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_WORKLOAD_H_
