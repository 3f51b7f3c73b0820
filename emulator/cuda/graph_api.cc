// The shape of graphs in the driver API: making and copying them, their nodes and edges.
#include <algorithm>
#include <cstdio>

#include "api.h"
#include "emulator/cuda/graph.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {
namespace {

CUgraphNode Out(GraphNode* node) { return ToHandle<CUgraphNode>(node); }

// The documented way to hand out a list: no place for it asks for its length; a place longer than the list is filled up
// with null, and the length comes back.
CUresult PutNodes(const std::vector<GraphNode*>& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    if (!IsList(out, *count)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? Out(nodes[i]) : nullptr;
    *count = std::min(*count, nodes.size());
  } else {
    *count = nodes.size();
  }
  return CUDA_SUCCESS;
}

void PutPlainEdges(CUgraphEdgeData* edges, size_t count) {
  if (edges != nullptr) std::fill(edges, edges + count, CUgraphEdgeData{});
}

CUresult Edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> starts, ends;
  for (GraphNode* node : graph->nodes) {
    for (GraphNode* dependency : node->after) {
      starts.push_back(dependency);
      ends.push_back(node);
    }
  }
  size_t room = *count;
  if (CUresult error = PutNodes(starts, from, count)) return error;
  if (from != nullptr) PutPlainEdges(data, *count);
  return PutNodes(ends, to, from == nullptr ? count : &room);
}

CUresult Neighbours(CUgraphNode handle, std::vector<GraphNode*> GraphNode::*which, CUgraphNode* out,
                    CUgraphEdgeData* data, size_t* count) {
  std::lock_guard lock(GraphMutex());
  GraphNode* node = nullptr;
  if (CUresult error = FindNode(handle, &node)) return error;
  if (CUresult error = PutNodes(node->*which, out, count)) return error;
  if (out != nullptr) PutPlainEdges(data, *count);
  return CUDA_SUCCESS;
}

CUresult ChangeEdges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                     size_t count, bool add) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (count == 0) return CUDA_SUCCESS;
  if (!IsList(from, count) || !IsList(to, count) || (data != nullptr && !IsList(data, count)))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<GraphNode*, GraphNode*>> pairs;
  for (size_t i = 0; i < count; ++i) {
    auto *start = FromHandle<GraphNode>(from[i]), *end = FromHandle<GraphNode>(to[i]);
    if (start == nullptr || end == nullptr || start->graph != graph || end->graph != graph || start == end)
      return CUDA_ERROR_INVALID_VALUE;
    if (data != nullptr && (data[i].from_port != 0 || data[i].to_port != 0 || data[i].type != 0))
      return CUDA_ERROR_NOT_SUPPORTED;  // only plain edges are
    const bool there = std::find(end->after.begin(), end->after.end(), start) != end->after.end();
    if (there == add) return CUDA_ERROR_INVALID_VALUE;
    pairs.emplace_back(start, end);
  }
  for (auto [start, end] : pairs) {
    if (add) {
      Connect(start, end);
    } else {
      std::erase(end->after, start);
      std::erase(start->before, end);
    }
  }
  return CUDA_SUCCESS;
}

const char* NameOf(CUgraphNodeType type) {
  static constexpr const char* kNames[] = {"kernel",
                                           "memcpy",
                                           "memset",
                                           "host",
                                           "graph",
                                           "empty",
                                           "wait event",
                                           "record event",
                                           "signal semaphores",
                                           "wait for semaphores",
                                           "allocate",
                                           "free",
                                           "memory operations",
                                           "conditional"};
  return static_cast<size_t>(type) < std::size(kNames) ? kNames[type] : "?";
}

}  // namespace

CUresult api::cuGraphCreate(CUgraph* out, unsigned int flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  *out = ToHandle<CUgraph>(NewGraph());
  return CUDA_SUCCESS;
}

CUresult api::cuGraphDestroy(CUgraph handle) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (graph->owner != nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  DestroyGraph(graph);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphClone(CUgraph* out, CUgraph handle) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (HasMemoryNodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;  // their addresses are fixed
  *out = ToHandle<CUgraph>(CloneGraph(*graph));
  return CUDA_SUCCESS;
}

CUresult api::cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original_handle, CUgraph clone_handle) {
  std::lock_guard lock(GraphMutex());
  GraphNode* original = nullptr;
  Graph* clone = nullptr;
  if (CUresult error = FindNode(original_handle, &original)) return error;
  if (CUresult error = FindGraph(clone_handle, &clone)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (GraphNode* node : clone->nodes) {
    if (node->original != original->id) continue;
    *out = Out(node);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  return PutNodes(graph->nodes, nodes, count);
}

CUresult api::cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  std::vector<GraphNode*> roots;
  for (GraphNode* node : graph->nodes) {
    if (node->after.empty()) roots.push_back(node);
  }
  return PutNodes(roots, nodes, count);
}

CUresult api::cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return Edges(graph, from, to, nullptr, count);
}

CUresult api::cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                                 size_t* count) {
  return Edges(graph, from, to, data, count);
}

CUresult api::cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return Neighbours(node, &GraphNode::after, out, nullptr, count);
}

CUresult api::cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count) {
  return Neighbours(node, &GraphNode::after, out, data, count);
}

CUresult api::cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return Neighbours(node, &GraphNode::before, out, nullptr, count);
}

CUresult api::cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                              size_t* count) {
  return Neighbours(node, &GraphNode::before, out, data, count);
}

CUresult api::cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return ChangeEdges(graph, from, to, nullptr, count, true);
}

CUresult api::cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* data, size_t count) {
  return ChangeEdges(graph, from, to, data, count, true);
}

CUresult api::cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return ChangeEdges(graph, from, to, nullptr, count, false);
}

CUresult api::cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData* data, size_t count) {
  return ChangeEdges(graph, from, to, data, count, false);
}

CUresult api::cuGraphDestroyNode(CUgraphNode handle) {
  std::lock_guard lock(GraphMutex());
  GraphNode* node = nullptr;
  if (CUresult error = FindNode(handle, &node)) return error;
  if (node->graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = TypeOf(node->operation);
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) return CUDA_ERROR_NOT_SUPPORTED;
  DestroyNode(node);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  std::lock_guard lock(GraphMutex());
  GraphNode* node = nullptr;
  if (CUresult error = FindNode(handle, &node)) return error;
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = TypeOf(node->operation);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  std::lock_guard lock(GraphMutex());
  GraphNode* node = nullptr;
  if (CUresult error = FindNode(handle, &node)) return error;
  const auto* child = std::get_if<ChildOperation>(&node->operation);
  if (out == nullptr || child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUgraph>(child->graph);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph graph_%llu {\n", static_cast<unsigned long long>(graph->id));
  for (const GraphNode* node : graph->nodes) {
    const auto id = static_cast<unsigned long long>(node->id);
    fprintf(file, "  node_%llu [label=\"%s\"];\n", id, NameOf(TypeOf(node->operation)));
    for (const GraphNode* dependency : node->after)
      fprintf(file, "  node_%llu -> node_%llu;\n", static_cast<unsigned long long>(dependency->id), id);
  }
  fprintf(file, "}\n");
  return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace mete::emulator::cuda
