// Graphs: operations as nodes, with dependencies, and what they are instantiated to.
// Thread rule: any thread. GraphMutex guards every Graph and GraphNode; an executable graph has a mutex of its own.
// Ownership: a graph owns its nodes, a child node its copy of a graph. Dead handles stay as shells.
#ifndef METE_EMULATOR_CUDA_GRAPH_H_
#define METE_EMULATOR_CUDA_GRAPH_H_

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {

std::mutex& GraphMutex();

struct Graph;
struct UserObject;

struct GraphNode : Handle {
  static constexpr HandleKind kKind = HandleKind::kGraphNode;
  GraphNode() : Handle(kKind) {}
  Graph* graph = nullptr;
  Operation operation;
  std::vector<GraphNode*> after, before;  // dependencies, and nodes that depend on it
  uint64_t original = 0;                  // id of the node it was cloned from
  uint64_t id = 0;
  std::vector<void*> parameter_view;  // what a query of a kernel's parameters points to
};

struct Graph : Handle {
  static constexpr HandleKind kKind = HandleKind::kGraph;
  Graph() : Handle(kKind) {}
  std::vector<GraphNode*> nodes;
  GraphNode* owner = nullptr;  // the child node it belongs to
  bool capturing = false;      // a capture goes on into it
  uint64_t id = 0, original = 0;
  std::map<UserObject*, unsigned int> objects;  // user objects and how often it holds them
};

// All with GraphMutex held.
Graph* NewGraph();
GraphNode* AddNode(Graph* graph, Operation operation, const std::vector<GraphNode*>& after);
bool Connect(GraphNode* from, GraphNode* to);  // false: there already, or a node with itself
void DestroyNode(GraphNode* node);
void DestroyGraph(Graph* graph);
Graph* CloneGraph(const Graph& graph);
bool HasMemoryNodes(const Graph& graph);
// Dependencies first; false: there is a cycle.
bool InOrder(const Graph& graph, std::vector<GraphNode*>* order);

// The beginning of calls on graphs.
CUresult FindGraph(CUgraph handle, Graph** graph);
CUresult FindNode(CUgraphNode handle, GraphNode** node);

// From a node's parameters of any kind to its operation; where they name no context it is the current one.
CUresult FromParameters(const CUgraphNodeParams& parameters, Operation* operation);

// Kernel parameters of any version in the newest form.
inline CUDA_KERNEL_NODE_PARAMS_v3 Widen(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}
inline CUDA_KERNEL_NODE_PARAMS_v3 Widen(const CUDA_KERNEL_NODE_PARAMS& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    p.kern,      p.ctx};
}

// User objects (user_object.cc).
void ReleaseObject(UserObject* object, unsigned int count);
void RetainObject(UserObject* object, unsigned int count);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_GRAPH_H_
