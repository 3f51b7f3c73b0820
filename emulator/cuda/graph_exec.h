// Executable graphs: a graph's nodes in an order, spread over lanes. A lane is a stream of its own where nodes can run
// beside others; a chain runs in the launch's stream. Child graphs are taken apart into their nodes.
// Thread rule: any thread; the mutex of the graph, taken before any executor's and never by a worker.
#ifndef METE_EMULATOR_CUDA_GRAPH_EXEC_H_
#define METE_EMULATOR_CUDA_GRAPH_EXEC_H_

#include "emulator/cuda/graph.h"

namespace mete::emulator::cuda {

struct ExecNode {
  Operation operation;
  std::vector<uint32_t> after;  // earlier in the list
  uint32_t lane = 0;
  bool enabled = true;
  bool awaited = false;  // by a node of another lane, or by the end
};

struct Lane {
  Context* context = nullptr;
  Stream* stream = nullptr;  // null until it is needed
};

struct GraphExec : Handle {
  static constexpr HandleKind kKind = HandleKind::kGraphExec;
  GraphExec() : Handle(kKind) {}
  std::mutex mutex;  // of what follows
  Context* context = nullptr;
  unsigned long long flags = 0;
  uint64_t graph_id = 0;
  std::vector<ExecNode> nodes;
  std::unordered_map<uint64_t, uint32_t> index;  // id of the graph's node → place in `nodes`
  std::vector<Lane> lanes;
  std::shared_ptr<Instant> last;  // the end of the last launch: the next one comes after it
};

// With GraphMutex held.
// context: where nodes run that do not say.
CUresult Instantiate(const Graph& graph, Context* context, unsigned long long flags, GraphExec** out, GraphNode** wrong,
                     CUgraphInstantiateResult* reason);
CUresult FindExec(CUgraphExec handle, GraphExec** exec);
// Launches it behind what is in the stream.
CUresult LaunchGraph(GraphExec* exec, Stream* stream);
void DestroyExec(GraphExec* exec);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_GRAPH_EXEC_H_
