// Executable graphs in the driver API.
#include <algorithm>
#include <cstring>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/graph_exec.h"

namespace mete::emulator::cuda {
namespace {

CUresult InstantiateFrom(CUgraphExec* out, CUgraph handle, unsigned long long flags, GraphNode** wrong,
                         CUgraphInstantiateResult* reason) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  *wrong = nullptr;
  *reason = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  GraphExec* exec = nullptr;
  if (CUresult error = Instantiate(*graph, context, flags, &exec, wrong, reason)) return error;
  *out = ToHandle<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult InstantiateWithLog(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, size_t bytes) {
  GraphNode* wrong = nullptr;
  CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  const CUresult result = InstantiateFrom(out, graph, 0, &wrong, &reason);
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && bytes != 0) {
    const char* text = reason == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE ? "the graph has a cycle" : "";
    const size_t length = std::min(strlen(text), bytes - 1);  // the size may be more than is there
    memcpy(log, text, length);
    log[length] = '\0';
  }
  return result;
}

// The graph that an executable one stands for now, as a child of a graph that is being captured.
Graph* Rebuild(GraphExec& exec) {
  Graph* graph = NewGraph();
  std::vector<GraphNode*> made;
  for (const ExecNode& node : exec.nodes) {
    std::vector<GraphNode*> after;
    for (uint32_t dependency : node.after) after.push_back(made[dependency]);
    made.push_back(AddNode(graph, node.enabled ? node.operation : Operation(EmptyOperation{}), after));
  }
  return graph;
}

CUresult CaptureLaunch(GraphExec* exec, Stream* stream, bool* captured) {
  *captured = false;
  if (!stream->capturing.load()) return CUDA_SUCCESS;
  Graph* graph = nullptr;
  {
    std::lock_guard lock(GraphMutex());
    std::lock_guard exec_lock(exec->mutex);
    graph = Rebuild(*exec);
    if (HasMemoryNodes(*graph)) {
      DestroyGraph(graph);
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  const CUresult result = CaptureOperation(stream, ChildOperation{graph}, captured);  // takes a copy
  std::lock_guard lock(GraphMutex());
  DestroyGraph(graph);
  return result;
}

CUresult UpdateFrom(CUgraphExec exec_handle, CUgraph handle, CUgraphExecUpdateResultInfo* info) {
  std::lock_guard lock(GraphMutex());
  GraphExec* exec = nullptr;
  Graph* graph = nullptr;
  if (CUresult error = FindExec(exec_handle, &exec)) return error;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  auto refuse = [info](CUgraphExecUpdateResult why) {
    info->result = why;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  };
  if (HasMemoryNodes(*graph)) return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  GraphExec* fresh = nullptr;
  GraphNode* wrong = nullptr;
  CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  if (Instantiate(*graph, exec->context, 0, &fresh, &wrong, &reason) != CUDA_SUCCESS)
    return refuse(CU_GRAPH_EXEC_UPDATE_ERROR);
  CUgraphExecUpdateResult why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  {
    std::lock_guard exec_lock(exec->mutex);
    if (fresh->nodes.size() != exec->nodes.size()) why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; why == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < exec->nodes.size(); ++i) {
      const ExecNode &old = exec->nodes[i], &now = fresh->nodes[i];
      if (TypeOf(old.operation) != TypeOf(now.operation)) {
        why = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
      } else if (old.after != now.after) {
        why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      } else if (ContextOf(old.operation) != ContextOf(now.operation)) {
        why = TypeOf(old.operation) == CU_GRAPH_NODE_TYPE_KERNEL
                  ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
                  : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      }
      if (why == CU_GRAPH_EXEC_UPDATE_SUCCESS) continue;
      for (GraphNode* node : graph->nodes) {
        auto it = fresh->index.find(node->id);
        if (it != fresh->index.end() && it->second == i) info->errorNode = ToHandle<CUgraphNode>(node);
      }
    }
    if (why == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      for (size_t i = 0; i < exec->nodes.size(); ++i) exec->nodes[i].operation = fresh->nodes[i].operation;
    }
  }
  DestroyExec(fresh);
  info->result = why;
  return why == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

}  // namespace

CUresult api::cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  GraphNode* wrong = nullptr;
  CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;  // needs a stream
  return InstantiateFrom(out, graph, flags, &wrong, &reason);
}

CUresult api::cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* wrong = nullptr;
  const CUresult result = InstantiateFrom(out, graph, p->flags, &wrong, &p->result_out);
  p->hErrNode_out = wrong == nullptr ? nullptr : ToHandle<CUgraphNode>(wrong);
  if (result != CUDA_SUCCESS || (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) return result;
  return api::cuGraphUpload(*out, p->hUploadStream);
}

CUresult api::cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, size_t bytes) {
  return InstantiateWithLog(out, graph, error_node, log, bytes);
}

CUresult api::cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log, size_t bytes) {
  return InstantiateWithLog(out, graph, error_node, log, bytes);
}

CUresult api::cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  GraphExec* exec = nullptr;
  if (CUresult error = FindExec(handle, &exec)) return error;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(exec->mutex);
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult api::cuGraphExecDestroy(CUgraphExec handle) {
  std::lock_guard lock(GraphMutex());
  GraphExec* exec = nullptr;
  if (CUresult error = FindExec(handle, &exec)) return error;
  DestroyExec(exec);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  GraphExec* exec = nullptr;
  if (CUresult error = FindExec(handle, &exec)) return error;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  return ResolveStream(context, stream_handle, &stream);  // there is nothing to carry over
}

CUresult api::cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  GraphExec* exec = nullptr;
  if (CUresult error = FindExec(handle, &exec)) return error;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  bool captured = false;
  if (CUresult error = CaptureLaunch(exec, stream, &captured)) return error;
  if (captured) return CUDA_SUCCESS;
  if (CapturesActive()) {
    if (CUresult error = RefuseWhileCapturing(context, stream)) return error;
  }
  if (CUresult error = LaunchGraph(exec, stream)) return error;
  return Driver::Get()->launch_blocking() ? context->executor.Synchronize(stream) : CUDA_SUCCESS;
}

CUresult api::cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return UpdateFrom(exec, graph, info);
}

CUresult api::cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult outcome = UpdateFrom(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return outcome;
}

namespace {

CUresult Switch(CUgraphExec exec_handle, CUgraphNode handle, const unsigned int* set, unsigned int* get) {
  std::lock_guard graphs(GraphMutex());
  GraphExec* exec = nullptr;
  GraphNode* node = nullptr;
  if (CUresult error = FindExec(exec_handle, &exec)) return error;
  if (CUresult error = FindNode(handle, &node)) return error;
  const CUgraphNodeType type = TypeOf(node->operation);
  if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(exec->mutex);
  auto it = exec->index.find(node->id);
  if (it == exec->index.end()) return CUDA_ERROR_INVALID_VALUE;
  if (set != nullptr) exec->nodes[it->second].enabled = *set != 0;
  if (get != nullptr) *get = exec->nodes[it->second].enabled;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
  return Switch(exec, node, &enabled, nullptr);
}

CUresult api::cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int* enabled) {
  return enabled == nullptr && Driver::Get() != nullptr ? CUDA_ERROR_INVALID_VALUE
                                                        : Switch(exec, node, nullptr, enabled);
}

}  // namespace mete::emulator::cuda
