#include "emulator/cuda/graph.h"

#include <algorithm>
#include <set>

#include "emulator/cuda/graph_memory.h"

namespace mete::emulator::cuda {

std::mutex& GraphMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

CUgraphNodeType TypeOf(const Operation& operation) {
  static constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,         CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,
      CU_GRAPH_NODE_TYPE_MEMSET,        CU_GRAPH_NODE_TYPE_HOST,         CU_GRAPH_NODE_TYPE_GRAPH,
      CU_GRAPH_NODE_TYPE_EVENT_RECORD,  CU_GRAPH_NODE_TYPE_WAIT_EVENT,   CU_GRAPH_NODE_TYPE_MEM_ALLOC,
      CU_GRAPH_NODE_TYPE_MEM_FREE,      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
      CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};
  static_assert(std::size(kTypes) == std::variant_size_v<Operation>);
  return kTypes[operation.index()];
}

Context* ContextOf(const Operation& operation) {
  if (const auto* kernel = std::get_if<KernelOperation>(&operation)) return kernel->function->context;
  if (const auto* copy = std::get_if<CopyOperation>(&operation)) return copy->context;
  if (const auto* fill = std::get_if<FillOperation>(&operation)) return fill->context;
  if (const auto* record = std::get_if<RecordOperation>(&operation)) return record->event->context;
  if (const auto* memory = std::get_if<MemoryOperation>(&operation)) return memory->context;
  return nullptr;
}

Graph* NewGraph() {
  Graph* graph = Shells<Graph>::Get().Take();
  graph->id = Driver::Get()->NextId();
  graph->kind.store(HandleKind::kGraph, std::memory_order_release);
  return graph;
}

bool Connect(GraphNode* from, GraphNode* to) {
  if (from == to || std::find(to->after.begin(), to->after.end(), from) != to->after.end()) return false;
  to->after.push_back(from);
  from->before.push_back(to);
  return true;
}

GraphNode* AddNode(Graph* graph, Operation operation, const std::vector<GraphNode*>& after) {
  GraphNode* node = Shells<GraphNode>::Get().Take();
  node->graph = graph;
  node->operation = std::move(operation);
  node->id = Driver::Get()->NextId();
  if (auto* child = std::get_if<ChildOperation>(&node->operation)) child->graph->owner = node;
  for (GraphNode* dependency : after) Connect(dependency, node);
  graph->nodes.push_back(node);
  node->kind.store(HandleKind::kGraphNode, std::memory_order_release);
  return node;
}

namespace {

void Bury(GraphNode* node) {
  if (auto* child = std::get_if<ChildOperation>(&node->operation)) DestroyGraph(child->graph);
  node->operation = EmptyOperation{};
  node->after.clear();
  node->before.clear();
  node->graph = nullptr;
  node->original = 0;
  Shells<GraphNode>::Get().Give(node);
}

}  // namespace

void DestroyNode(GraphNode* node) {
  for (GraphNode* other : node->after) std::erase(other->before, node);
  for (GraphNode* other : node->before) std::erase(other->after, node);
  std::erase(node->graph->nodes, node);
  Bury(node);
}

void DestroyGraph(Graph* graph) {
  for (GraphNode* node : graph->nodes) Bury(node);
  for (const auto& [object, count] : graph->objects) ReleaseObject(object, count);
  graph->nodes.clear();
  graph->objects.clear();
  graph->owner = nullptr;
  graph->capturing = false;
  graph->original = 0;
  Shells<Graph>::Get().Give(graph);
}

Graph* CloneGraph(const Graph& graph) {
  Graph* clone = NewGraph();
  clone->original = graph.id;
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  for (const GraphNode* node : graph.nodes) {
    Operation operation = node->operation;
    if (auto* child = std::get_if<ChildOperation>(&operation)) child->graph = CloneGraph(*child->graph);
    GraphNode* copy = AddNode(clone, std::move(operation), {});
    copy->original = node->id;
    twin[node] = copy;
  }
  for (const GraphNode* node : graph.nodes) {
    for (const GraphNode* dependency : node->after) Connect(twin[dependency], twin[node]);
  }
  for (const auto& [object, count] : graph.objects) {
    RetainObject(object, count);
    clone->objects[object] = count;
  }
  return clone;
}

bool HasMemoryNodes(const Graph& graph) {
  for (const GraphNode* node : graph.nodes) {
    if (std::holds_alternative<AllocateOperation>(node->operation) ||
        std::holds_alternative<FreeOperation>(node->operation))
      return true;
    if (const auto* child = std::get_if<ChildOperation>(&node->operation)) {
      if (HasMemoryNodes(*child->graph)) return true;
    }
  }
  return false;
}

bool InOrder(const Graph& graph, std::vector<GraphNode*>* order) {
  std::unordered_map<const GraphNode*, size_t> open;
  order->clear();
  for (GraphNode* node : graph.nodes) {
    open[node] = node->after.size();
    if (node->after.empty()) order->push_back(node);
  }
  for (size_t i = 0; i < order->size(); ++i) {
    for (GraphNode* next : (*order)[i]->before) {
      if (--open[next] == 0) order->push_back(next);
    }
  }
  return order->size() == graph.nodes.size();
}

CUresult FindGraph(CUgraph handle, Graph** graph) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *graph = FromHandle<Graph>(handle);
  return *graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult FindNode(CUgraphNode handle, GraphNode** node) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *node = FromHandle<GraphNode>(handle);
  return *node == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
