#include "emulator/cuda/graph_exec.h"

#include <algorithm>
#include <set>

#include "emulator/cuda/capture.h"
#include "emulator/cuda/graph_memory.h"

namespace mete::emulator::cuda {
namespace {

constexpr size_t kLanes = 16;

// Graphs with memory nodes that have an executable form: there may be one only, for its addresses are fixed.
std::set<uint64_t>& WithMemory() {
  static auto* graphs = new std::set<uint64_t>;  // guarded by GraphMutex
  return *graphs;
}

// Appends the graph's nodes; `leaves`: what stands at its end.
bool Flatten(const Graph& graph, const std::vector<uint32_t>& entry, GraphExec* exec, std::vector<uint32_t>* leaves) {
  std::vector<GraphNode*> order;
  if (!InOrder(graph, &order)) return false;
  std::unordered_map<const GraphNode*, std::vector<uint32_t>> end;
  std::set<uint32_t> last;
  for (const GraphNode* node : order) {
    std::set<uint32_t> after(entry.begin(), node->after.empty() ? entry.end() : entry.begin());
    for (const GraphNode* dependency : node->after) after.insert(end[dependency].begin(), end[dependency].end());
    std::vector<uint32_t>& own = end[node];
    if (const auto* child = std::get_if<ChildOperation>(&node->operation)) {
      const std::vector<uint32_t> inner(after.begin(), after.end());
      if (!Flatten(*child->graph, inner, exec, &own)) return false;
    } else {
      exec->index[node->id] = static_cast<uint32_t>(exec->nodes.size());
      own = {static_cast<uint32_t>(exec->nodes.size())};
      exec->nodes.push_back({node->operation, {after.begin(), after.end()}});
    }
    if (node->before.empty()) last.insert(own.begin(), own.end());
  }
  if (graph.nodes.empty()) last.insert(entry.begin(), entry.end());
  leaves->assign(last.begin(), last.end());
  return true;
}

// A node goes on in the lane of a node it waits for, if nothing has gone on there yet.
void AssignLanes(GraphExec* exec) {
  exec->lanes = {{exec->context, nullptr}};
  std::vector<int64_t> tail = {-1};
  for (uint32_t i = 0; i < exec->nodes.size(); ++i) {
    ExecNode& node = exec->nodes[i];
    Context* context = ContextOf(node.operation);
    if (context == nullptr)
      context = node.after.empty() ? exec->context : exec->lanes[exec->nodes[node.after[0]].lane].context;
    size_t lane = exec->lanes.size();
    for (size_t l = 0; l < exec->lanes.size() && lane == exec->lanes.size(); ++l) {
      if (exec->lanes[l].context != context) continue;
      const bool unused = tail[l] < 0;
      const bool goes_on = !unused && std::find(node.after.begin(), node.after.end(), tail[l]) != node.after.end();
      if (unused || goes_on || exec->lanes.size() >= kLanes) lane = l;
    }
    if (lane == exec->lanes.size()) {
      exec->lanes.push_back({context, nullptr});
      tail.push_back(-1);
    }
    node.lane = static_cast<uint32_t>(lane);
    tail[lane] = i;
    for (uint32_t dependency : node.after) exec->nodes[dependency].awaited |= exec->nodes[dependency].lane != lane;
  }
}

// Every handle that the nodes use must still be one.
CUresult CheckAlive(const GraphExec& exec) {
  for (const Lane& lane : exec.lanes) {
    if (!lane.context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (CUresult error = lane.context->Error()) return error;
  }
  for (const ExecNode& node : exec.nodes) {
    if (const auto* kernel = std::get_if<KernelOperation>(&node.operation)) {
      if (!kernel->function->Is(HandleKind::kFunction)) return CUDA_ERROR_INVALID_HANDLE;
    }
    if (const auto* record = std::get_if<RecordOperation>(&node.operation)) {
      if (!record->event->Is(HandleKind::kEvent)) return CUDA_ERROR_INVALID_HANDLE;
    }
    if (const auto* wait = std::get_if<WaitOperation>(&node.operation)) {
      if (!wait->event->Is(HandleKind::kEvent)) return CUDA_ERROR_INVALID_HANDLE;
    }
  }
  return CUDA_SUCCESS;
}

// Memory for the allocation nodes, counted before anything is queued.
CUresult ChargeAll(GraphExec& exec, Stream* stream) {
  const bool automatic = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const ExecNode& node : exec.nodes) {
    const auto* allocate = std::get_if<AllocateOperation>(&node.operation);
    if (allocate == nullptr) continue;
    GraphAllocation& allocation = *allocate->allocation;
    if (!allocation.freed_by_graph && allocation.users.load() != 0) {
      if (!automatic) return CUDA_ERROR_INVALID_VALUE;  // what the last launch allocated was not freed
      if (ClaimGraphFree(allocation)) {
        Item item = FreeItem({allocation.address, allocate->allocation});
        if (CUresult error = stream->context->executor.Enqueue(stream, std::move(item))) return error;
      }
    }
    if (CUresult error = ChargeGraphAllocation(allocation, stream->context)) return error;
  }
  for (const ExecNode& node : exec.nodes) {
    if (const auto* allocate = std::get_if<AllocateOperation>(&node.operation))
      allocate->allocation->users.fetch_add(1);
    // A free of what another graph allocated.
    const auto* release = std::get_if<FreeOperation>(&node.operation);
    if (release != nullptr && !release->allocation->freed_by_graph && !ClaimGraphFree(*release->allocation))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Put(Stream* stream, Item item) { return stream->context->executor.Enqueue(stream, std::move(item)); }

std::shared_ptr<Instant> NewInstant(Context* context) {
  auto instant = std::make_shared<Instant>();
  instant->context = context;
  return instant;
}

CUresult StreamOf(GraphExec& exec, uint32_t number, Stream* launch, Stream** out) {
  Lane& lane = exec.lanes[number];
  if (number == 0 && lane.context == launch->context) {
    *out = launch;
    return CUDA_SUCCESS;
  }
  if (lane.stream == nullptr) {
    const Result result = lane.context->executor.OpenStream(CU_STREAM_NON_BLOCKING, 0, false, &lane.stream);
    if (CUresult error = lane.context->Explain(result)) return error;
  }
  *out = lane.stream;
  return CUDA_SUCCESS;
}

// One node into its lane. `done`: what others wait for, made if somebody does.
CUresult PutNode(const ExecNode& node, bool awaited, std::vector<std::shared_ptr<Instant>> after, Stream* stream,
                 std::shared_ptr<Instant>* done) {
  Item item;
  item.light = true;
  if (node.enabled) item = MakeItem(stream->context, node.operation);
  item.after.insert(item.after.end(), after.begin(), after.end());
  if (item.records != nullptr) *done = item.records;  // the node of an event
  if (awaited && *done == nullptr) *done = NewInstant(stream->context);
  const bool apart = awaited && item.host != nullptr;  // whoever waits, waits for the function too
  if (awaited && !apart) item.records = *done;
  if (CUresult error = Put(stream, std::move(item))) return error;
  if (!apart) return CUDA_SUCCESS;
  Item record;
  record.light = true;
  record.records = *done;
  return Put(stream, std::move(record));
}

CUresult Queue(GraphExec& exec, Stream* launch) {
  std::vector<Stream*> streams(exec.lanes.size());
  bool beside = false;
  for (uint32_t i = 0; i < exec.lanes.size(); ++i) {
    if (CUresult error = StreamOf(exec, i, launch, &streams[i])) return error;
    beside |= streams[i] != launch;
  }
  std::shared_ptr<Instant> start;
  if (beside || exec.last != nullptr) {
    Item item;
    item.light = true;
    if (exec.last != nullptr) item.after.push_back(exec.last);
    if (beside) item.records = start = NewInstant(launch->context);
    if (CUresult error = Put(launch, std::move(item))) return error;
  }
  std::vector<std::shared_ptr<Instant>> done(exec.nodes.size());
  std::vector<int64_t> tail(exec.lanes.size(), -1);
  for (uint32_t i = 0; i < exec.nodes.size(); ++i) tail[exec.nodes[i].lane] = i;
  for (uint32_t i = 0; i < exec.nodes.size(); ++i) {
    const ExecNode& node = exec.nodes[i];
    Stream* stream = streams[node.lane];
    std::vector<std::shared_ptr<Instant>> after;
    for (uint32_t dependency : node.after) {
      if (exec.nodes[dependency].lane != node.lane) after.push_back(done[dependency]);
    }
    if (node.after.empty() && stream != launch) after.push_back(start);
    const bool awaited = node.awaited || (stream != launch && tail[node.lane] == i);
    if (CUresult error = PutNode(node, awaited, std::move(after), stream, &done[i])) return error;
  }
  Item end;
  end.light = true;
  for (uint32_t i = 0; i < exec.lanes.size(); ++i) {
    if (streams[i] != launch && tail[i] >= 0) end.after.push_back(done[static_cast<size_t>(tail[i])]);
  }
  end.records = exec.last = NewInstant(launch->context);
  return Put(launch, std::move(end));
}

}  // namespace

CUresult FindExec(CUgraphExec handle, GraphExec** exec) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *exec = FromHandle<GraphExec>(handle);
  return *exec == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Instantiate(const Graph& graph, Context* context, unsigned long long flags, GraphExec** out, GraphNode** wrong,
                     CUgraphInstantiateResult* reason) {
  *wrong = nullptr;
  *reason = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (flags > 15 || graph.capturing) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const bool memory = HasMemoryNodes(graph);
  if (memory && WithMemory().contains(graph.id)) return CUDA_ERROR_NOT_SUPPORTED;
  GraphExec* exec = Shells<GraphExec>::Get().Take();
  std::lock_guard lock(exec->mutex);
  exec->context = context;
  exec->flags = flags;
  exec->graph_id = graph.id;
  std::vector<uint32_t> leaves;
  if (!Flatten(graph, {}, exec, &leaves)) {
    *reason = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    exec->nodes.clear();
    exec->index.clear();
    Shells<GraphExec>::Get().Give(exec);
    return CUDA_ERROR_INVALID_VALUE;
  }
  AssignLanes(exec);
  if (memory) WithMemory().insert(graph.id);
  *reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  exec->kind.store(HandleKind::kGraphExec, std::memory_order_release);
  *out = exec;
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(GraphExec* exec, Stream* stream) {
  std::lock_guard lock(exec->mutex);
  if (!exec->Is(HandleKind::kGraphExec)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = CheckAlive(*exec)) return error;
  if (CUresult error = ChargeAll(*exec, stream)) return error;
  return Queue(*exec, stream);
}

void DestroyExec(GraphExec* exec) {
  std::lock_guard lock(exec->mutex);
  for (Lane& lane : exec->lanes) {
    if (lane.stream != nullptr && lane.context->alive.load()) lane.context->executor.CloseStream(lane.stream);
  }
  WithMemory().erase(exec->graph_id);
  exec->nodes.clear();
  exec->index.clear();
  exec->lanes.clear();
  exec->last = nullptr;
  Shells<GraphExec>::Get().Give(exec);
}

}  // namespace mete::emulator::cuda
