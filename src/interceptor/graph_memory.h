// Memory of graphs: allocation nodes (also those that a capture makes of stream-ordered allocations) take memory when
// the graph is launched, and the driver keeps it between launches until it is trimmed or the graph is gone. A launch
// that may need more than is held asks the ledger first; afterwards the ledger is moved to what the driver says it
// holds for graphs on that GPU. A graph without such nodes costs one look-up per launch, and nothing once none ever had
// any. One lock, not held over a launch. Thread-safe. Bytes.
#ifndef METE_INTERCEPTOR_GRAPH_MEMORY_H_
#define METE_INTERCEPTOR_GRAPH_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "interceptor/cuda_api.h"
#include "interceptor/sharded_map.h"
#include "ledger/layout.h"

namespace mete::interceptor {

struct Process;

class GraphMemory {
 public:
  // `exec` was made of `graph`.
  void Instantiated(Process& p, CUgraphExec exec, CUgraph graph);
  // Before a launch or an upload; not CUDA_SUCCESS: refused, do not launch. `needs`: End must follow.
  CUresult Begin(Process& p, CUgraphExec exec, bool* needs);
  void End(Process& p, CUgraphExec exec, bool launched);
  // The executable graph is gone; or all memory that is not in use was given back.
  void Destroyed(Process& p, CUgraphExec exec);
  void Trimmed(Process& p);
  // Counts again, unless somebody is at it; true: something was given back.
  bool Refresh(Process& p);

 private:
  struct Footprint {
    uint64_t bytes[ledger::kMaxGpus];     // that its nodes ask for, in whole granules
    uint64_t reserved[ledger::kMaxGpus];  // by a launch under way
    uint32_t held;                        // the epoch of its last launch: its memory is there
  };
  void Add(Process& p, CUgraph graph, Footprint* footprint, int depth);
  bool Settle(Process& p, uint32_t gpu, uint64_t ahead);  // with the lock; true: given back

  std::atomic<bool> used_{false};  // some graph has an allocation node
  std::atomic<uint32_t> epoch_{1};
  std::mutex mutex_;
  ShardedMap<Footprint*> footprints_;
  uint64_t charged_[ledger::kMaxGpus] = {};
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_GRAPH_MEMORY_H_
