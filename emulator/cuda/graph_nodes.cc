// Nodes of graphs in the driver API: adding them, and their parameters.
#include <algorithm>

#include "api.h"
#include "emulator/cuda/external.h"
#include "emulator/cuda/graph.h"
#include "emulator/cuda/graph_memory.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {
namespace {

CUresult ContextArgument(CUcontext handle, Context** context) {
  *context = handle == nullptr ? CurrentOrNull() : FromHandle<Context>(handle);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->alive.load() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult EventArgument(CUevent handle, Event** event) {
  *event = FromHandle<Event>(handle);
  return *event == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

LaunchRequest ShapeOf(const CUDA_KERNEL_NODE_PARAMS_v3& p) {
  return {{p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, false, {}};
}

GraphAllocation* AllocationIn(const Graph& graph, CUdeviceptr address) {
  for (const GraphNode* node : graph.nodes) {
    const auto* allocate = std::get_if<AllocateOperation>(&node->operation);
    if (allocate != nullptr && allocate->allocation->address == address) return allocate->allocation.get();
  }
  return nullptr;
}

CUresult FindFree(CUdeviceptr address, FreeOperation* out) {
  out->address = address;
  out->allocation = FindGraphAllocation(address);
  if (out->allocation == nullptr || out->allocation->freed_by_graph) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// The end of every call that adds a node.
CUresult Add(CUgraphNode* out, Graph* graph, const CUgraphNode* dependencies, size_t count, Operation operation) {
  if (out == nullptr || count > graph->nodes.size() || !IsList(dependencies, count)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> after;
  for (size_t i = 0; i < count; ++i) {
    auto* node = FromHandle<GraphNode>(dependencies[i]);
    if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    if (std::find(after.begin(), after.end(), node) != after.end()) return CUDA_ERROR_INVALID_VALUE;
    after.push_back(node);
  }
  if (auto* release = std::get_if<FreeOperation>(&operation)) {
    if (GraphAllocation* own = AllocationIn(*graph, release->address)) own->freed_by_graph = true;
  }
  if (auto* child = std::get_if<ChildOperation>(&operation)) {
    if (child->graph == graph || HasMemoryNodes(*child->graph)) return CUDA_ERROR_NOT_SUPPORTED;
    child->graph = CloneGraph(*child->graph);
  }
  *out = ToHandle<CUgraphNode>(AddNode(graph, std::move(operation), after));
  return CUDA_SUCCESS;
}

// Adds a node from parameters of its kind, which `fill` puts into the general form.
template <typename P, typename Fill>
CUresult AddKind(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count, CUgraphNodeType type,
                 const P* parameters, Fill fill) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (out == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams general{};
  general.type = type;
  fill(&general, *parameters);
  Operation operation;
  if (CUresult error = FromParameters(general, &operation)) return error;
  return Add(out, graph, dependencies, count, std::move(operation));
}

CUresult AddGeneral(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                    size_t count, CUgraphNodeParams* parameters) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  if (out == nullptr || parameters == nullptr || (data != nullptr && !IsList(data, count)))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; data != nullptr && i < count; ++i) {
    if (data[i].type != 0 || data[i].from_port != 0 || data[i].to_port != 0) return CUDA_ERROR_NOT_SUPPORTED;
  }
  Operation operation;
  if (CUresult error = FromParameters(*parameters, &operation)) return error;
  if (const auto* allocate = std::get_if<AllocateOperation>(&operation))
    parameters->alloc.dptr = allocate->allocation->address;
  return Add(out, graph, dependencies, count, std::move(operation));
}

}  // namespace

CUresult FromParameters(const CUgraphNodeParams& p, Operation* out) {
  Context* context = nullptr;
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      KernelOperation kernel;
      const CUfunction function =
          p.kernel.func != nullptr ? p.kernel.func : reinterpret_cast<CUfunction>(p.kernel.kern);
      if (CUresult error =
              MakeKernel(function, ShapeOf(p.kernel), p.kernel.kernelParams, p.kernel.extra, nullptr, 0, &kernel))
        return error;
      *out = std::move(kernel);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CopyOperation copy;
      if (CUresult error = ContextArgument(p.memcpy.copyCtx, &context)) return error;
      if (CUresult error = MakeCopy(context, p.memcpy.copyParams, &copy)) return error;
      *out = copy;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      FillOperation fill;
      if (CUresult error = ContextArgument(p.memset.ctx, &context)) return error;
      const CUDA_MEMSET_NODE_PARAMS parameters = {p.memset.dst,         p.memset.pitch, p.memset.value,
                                                  p.memset.elementSize, p.memset.width, p.memset.height};
      if (CUresult error = MakeFill(context, parameters, true, &fill)) return error;
      *out = fill;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      if (p.host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *out = HostOperation{p.host};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      auto* graph = FromHandle<Graph>(p.graph.graph);
      if (graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
      if (p.graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_NOT_SUPPORTED;
      *out = ChildOperation{graph};
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY: *out = EmptyOperation{}; return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
      Event* event = nullptr;
      const bool record = p.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
      if (CUresult error = EventArgument(record ? p.eventRecord.event : p.eventWait.event, &event)) return error;
      *out = record ? Operation(RecordOperation{event}) : Operation(WaitOperation{event});
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: return MakeSignal(p.extSemSignal, out);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return MakeSemaphoreWait(p.extSemWait, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      AllocateOperation allocate;
      if (CUresult error = NewGraphAllocation(p.alloc, &allocate.allocation)) return error;
      *out = std::move(allocate);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      FreeOperation release;
      if (CUresult error = FindFree(p.free.dptr, &release)) return error;
      *out = std::move(release);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      MemoryOperation memory;
      if (CUresult error = ContextArgument(p.memOp.ctx, &context)) return error;
      if (CUresult error = MakeMemoryOperation(context, p.memOp.paramArray, p.memOp.count, p.memOp.flags, &memory))
        return error;
      *out = std::move(memory);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return CUDA_ERROR_NOT_SUPPORTED;  // a kernel would have to set the condition
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult api::cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                             CUgraphNodeParams* parameters) {
  return AddGeneral(out, graph, dependencies, nullptr, count, parameters);
}

CUresult api::cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* parameters) {
  return AddGeneral(out, graph, dependencies, data, count, parameters);
}

CUresult api::cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_KERNEL, parameters,
                 [](CUgraphNodeParams* general, const CUDA_KERNEL_NODE_PARAMS& p) { general->kernel = Widen(p); });
}

CUresult api::cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_KERNEL, parameters,
                 [](CUgraphNodeParams* general, const CUDA_KERNEL_NODE_PARAMS_v1& p) { general->kernel = Widen(p); });
}

CUresult api::cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   const CUDA_MEMCPY3D* parameters, CUcontext context) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEMCPY, parameters,
                 [context](CUgraphNodeParams* general, const CUDA_MEMCPY3D& p) {
                   general->memcpy = {0, 0, context, p};
                 });
}

CUresult api::cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEMSET, parameters,
                 [context](CUgraphNodeParams* general, const CUDA_MEMSET_NODE_PARAMS& p) {
                   general->memset = {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height, context};
                 });
}

CUresult api::cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 const CUDA_HOST_NODE_PARAMS* parameters) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_HOST, parameters,
                 [](CUgraphNodeParams* general, const CUDA_HOST_NODE_PARAMS& p) { general->host = p; });
}

CUresult api::cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                       CUgraph child) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_GRAPH, &child,
                 [](CUgraphNodeParams* general, CUgraph p) { general->graph.graph = p; });
}

CUresult api::cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  const int nothing = 0;
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_EMPTY, &nothing, [](CUgraphNodeParams*, int) {});
}

CUresult api::cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                        CUevent event) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event,
                 [](CUgraphNodeParams* general, CUevent p) { general->eventRecord.event = p; });
}

CUresult api::cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                      CUevent event) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event,
                 [](CUgraphNodeParams* general, CUevent p) { general->eventWait.event = p; });
}

CUresult api::cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  general.alloc = *parameters;
  const CUresult result = AddGeneral(out, handle, dependencies, nullptr, count, &general);
  if (result == CUDA_SUCCESS) parameters->dptr = general.alloc.dptr;
  return result;
}

CUresult api::cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                    CUdeviceptr address) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_MEM_FREE, &address,
                 [](CUgraphNodeParams* general, CUdeviceptr p) { general->free.dptr = p; });
}

CUresult api::cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, parameters,
                 [](CUgraphNodeParams* general, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) { general->memOp = p; });
}

CUresult api::cuGraphAddExternalSemaphoresSignalNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                                     size_t count, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* parameters) {
  return AddKind(
      out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, parameters,
      [](CUgraphNodeParams* general, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS& p) { general->extSemSignal = p; });
}

CUresult api::cuGraphAddExternalSemaphoresWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                                   size_t count, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* parameters) {
  return AddKind(out, graph, dependencies, count, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, parameters,
                 [](CUgraphNodeParams* general, const CUDA_EXT_SEM_WAIT_NODE_PARAMS& p) { general->extSemWait = p; });
}

}  // namespace mete::emulator::cuda
