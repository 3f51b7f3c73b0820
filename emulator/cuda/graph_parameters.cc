// Parameters of nodes that are there already, in a graph and in its executable form.
#include <algorithm>

#include "api.h"
#include "emulator/cuda/graph_exec.h"
#include "emulator/cuda/graph_memory.h"

namespace mete::emulator::cuda {
namespace {

// Finds a node whose operation is an O.
template <typename O>
CUresult FindKind(CUgraphNode handle, GraphNode** node, O** operation) {
  if (CUresult error = FindNode(handle, node)) return error;
  *operation = std::get_if<O>(&(*node)->operation);
  return *operation == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Answers a question about a node with what `read` puts into `out`.
template <typename O, typename P, typename Read>
CUresult Get(CUgraphNode handle, P* out, Read read) {
  std::lock_guard lock(GraphMutex());
  GraphNode* node = nullptr;
  O* operation = nullptr;
  if (CUresult error = FindKind(handle, &node, &operation)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  read(out, *operation, node);
  return CUDA_SUCCESS;
}

bool IsMemory(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

CUresult Replace(Operation* old, Operation fresh) {
  if (TypeOf(*old) != TypeOf(fresh)) return CUDA_ERROR_INVALID_VALUE;
  auto *before = std::get_if<KernelOperation>(old), *after = std::get_if<KernelOperation>(&fresh);
  if (before != nullptr && after->attributes.empty()) {  // attributes are set by calls of their own
    after->attributes = before->attributes;
    after->request.cooperative = before->request.cooperative;
  }
  *old = std::move(fresh);
  return CUDA_SUCCESS;
}

CUresult SetNode(CUgraphNode handle, const CUgraphNodeParams& parameters) {
  std::lock_guard lock(GraphMutex());
  GraphNode* node = nullptr;
  if (CUresult error = FindNode(handle, &node)) return error;
  if (TypeOf(node->operation) != parameters.type) return CUDA_ERROR_INVALID_VALUE;
  if (IsMemory(parameters.type) || parameters.type == CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_NOT_SUPPORTED;
  Operation operation;
  if (CUresult error = FromParameters(parameters, &operation)) return error;
  return Replace(&node->operation, std::move(operation));
}

// The place of a graph's node in the executable form; GraphMutex held, exec's too.
ExecNode* Place(GraphExec* exec, const GraphNode* node) {
  auto it = exec->index.find(node->id);
  return it == exec->index.end() ? nullptr : &exec->nodes[it->second];
}

// Puts the operations of `fresh` in the place of those of `old`, node by node; both must have the same shape.
CUresult ReplaceChild(GraphExec* exec, const Graph& old, const Graph& fresh) {
  std::vector<GraphNode*> places, nodes;
  if (!InOrder(old, &places) || !InOrder(fresh, &nodes) || places.size() != nodes.size())
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  for (size_t i = 0; i < places.size(); ++i) {
    if (TypeOf(places[i]->operation) != TypeOf(nodes[i]->operation) ||
        places[i]->after.size() != nodes[i]->after.size())
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    const auto* child = std::get_if<ChildOperation>(&places[i]->operation);
    if (child != nullptr) {
      const Graph& inner = *std::get<ChildOperation>(nodes[i]->operation).graph;
      if (CUresult error = ReplaceChild(exec, *child->graph, inner)) return error;
    } else if (ExecNode* place = Place(exec, places[i])) {
      place->operation = nodes[i]->operation;
    }
  }
  return CUDA_SUCCESS;
}

CUresult SetExec(CUgraphExec exec_handle, CUgraphNode handle, const CUgraphNodeParams& parameters) {
  std::lock_guard graphs(GraphMutex());
  GraphExec* exec = nullptr;
  GraphNode* node = nullptr;
  if (CUresult error = FindExec(exec_handle, &exec)) return error;
  if (CUresult error = FindNode(handle, &node)) return error;
  if (TypeOf(node->operation) != parameters.type) return CUDA_ERROR_INVALID_VALUE;
  if (IsMemory(parameters.type)) return CUDA_ERROR_NOT_SUPPORTED;
  Operation operation;
  if (CUresult error = FromParameters(parameters, &operation)) return error;
  std::lock_guard lock(exec->mutex);
  if (const auto* child = std::get_if<ChildOperation>(&operation))
    return ReplaceChild(exec, *std::get<ChildOperation>(node->operation).graph, *child->graph);
  ExecNode* place = Place(exec, node);
  if (place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ContextOf(place->operation) != ContextOf(operation)) return CUDA_ERROR_INVALID_VALUE;  // lanes are fixed
  return Replace(&place->operation, std::move(operation));
}

CUgraphNodeParams OfKernel(const CUDA_KERNEL_NODE_PARAMS_v3& p) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_KERNEL;
  general.kernel = p;
  return general;
}

CUgraphNodeParams Copy(const CUDA_MEMCPY3D& p, CUcontext context) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  general.memcpy = {0, 0, context, p};
  return general;
}

CUgraphNodeParams Fill(const CUDA_MEMSET_NODE_PARAMS& p, CUcontext context) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_MEMSET;
  general.memset = {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height, context};
  return general;
}

CUgraphNodeParams Host(const CUDA_HOST_NODE_PARAMS& p) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_HOST;
  general.host = p;
  return general;
}

CUgraphNodeParams OfEvent(CUgraphNodeType type, CUevent event) {
  CUgraphNodeParams general{};
  general.type = type;
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    general.eventRecord.event = event;
  } else {
    general.eventWait.event = event;
  }
  return general;
}

CUgraphNodeParams Memory(const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  general.memOp = p;
  return general;
}

CUgraphNodeParams Signal(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS& p) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  general.extSemSignal = p;
  return general;
}

CUgraphNodeParams Wait(const CUDA_EXT_SEM_WAIT_NODE_PARAMS& p) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
  general.extSemWait = p;
  return general;
}

// A copy or fill keeps its context when only its parameters are set.
CUcontext ContextOfNode(CUgraphNode handle) {
  std::lock_guard lock(GraphMutex());
  auto* node = FromHandle<GraphNode>(handle);
  Context* context = node == nullptr ? nullptr : ContextOf(node->operation);
  return context == nullptr ? nullptr : ToHandle<CUcontext>(context);
}

template <typename P>
void ReadKernel(P* out, const KernelOperation& operation, GraphNode* node) {
  const LaunchRequest& r = operation.request;
  node->parameter_view.clear();
  for (const ptx::Parameter& parameter : operation.function->entry->parameters)
    node->parameter_view.push_back(const_cast<uint8_t*>(r.parameters.data()) + parameter.offset);
  *out = {};
  out->func = operation.handle;
  out->gridDimX = r.grid[0];
  out->gridDimY = r.grid[1];
  out->gridDimZ = r.grid[2];
  out->blockDimX = r.block[0];
  out->blockDimY = r.block[1];
  out->blockDimZ = r.block[2];
  out->sharedMemBytes = r.shared;
  out->kernelParams = node->parameter_view.empty() ? nullptr : node->parameter_view.data();
}

}  // namespace

CUresult api::cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  return Get<KernelOperation>(node, out, ReadKernel<CUDA_KERNEL_NODE_PARAMS>);
}

CUresult api::cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return Get<KernelOperation>(node, out, ReadKernel<CUDA_KERNEL_NODE_PARAMS_v1>);
}

CUresult api::cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return Get<CopyOperation>(node, out,
                            [](CUDA_MEMCPY3D* p, const CopyOperation& o, GraphNode*) { *p = o.description; });
}

CUresult api::cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return Get<FillOperation>(node, out,
                            [](CUDA_MEMSET_NODE_PARAMS* p, const FillOperation& o, GraphNode*) { *p = o.parameters; });
}

CUresult api::cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return Get<HostOperation>(node, out,
                            [](CUDA_HOST_NODE_PARAMS* p, const HostOperation& o, GraphNode*) { *p = o.parameters; });
}

CUresult api::cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return Get<RecordOperation>(
      node, out, [](CUevent* p, const RecordOperation& o, GraphNode*) { *p = ToHandle<CUevent>(o.event); });
}

CUresult api::cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return Get<WaitOperation>(node, out,
                            [](CUevent* p, const WaitOperation& o, GraphNode*) { *p = ToHandle<CUevent>(o.event); });
}

CUresult api::cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return Get<AllocateOperation>(node, out, [](CUDA_MEM_ALLOC_NODE_PARAMS* p, const AllocateOperation& o, GraphNode*) {
    *p = o.allocation->parameters;
  });
}

CUresult api::cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return Get<FreeOperation>(node, out, [](CUdeviceptr* p, const FreeOperation& o, GraphNode*) { *p = o.address; });
}

CUresult api::cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return Get<MemoryOperation>(node, out, [](CUDA_BATCH_MEM_OP_NODE_PARAMS* p, MemoryOperation& o, GraphNode*) {
    *p = {ToHandle<CUcontext>(o.context), static_cast<unsigned int>(o.steps.size()), o.steps.data(), o.flags};
  });
}

CUresult api::cuGraphExternalSemaphoresSignalNodeGetParams(CUgraphNode node, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* out) {
  return Get<SignalOperation>(node, out, [](CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* p, SignalOperation& o, GraphNode*) {
    *p = {reinterpret_cast<CUexternalSemaphore*>(o.semaphores.data()), o.parameters.data(),
          static_cast<unsigned int>(o.semaphores.size())};
  });
}

CUresult api::cuGraphExternalSemaphoresWaitNodeGetParams(CUgraphNode node, CUDA_EXT_SEM_WAIT_NODE_PARAMS* out) {
  return Get<SemaphoreWaitOperation>(node, out,
                                     [](CUDA_EXT_SEM_WAIT_NODE_PARAMS* p, SemaphoreWaitOperation& o, GraphNode*) {
                                       *p = {reinterpret_cast<CUexternalSemaphore*>(o.semaphores.data()),
                                             o.parameters.data(), static_cast<unsigned int>(o.semaphores.size())};
                                     });
}

CUresult api::cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, *p);
}

CUresult api::cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, *p);
}

CUresult api::cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, OfKernel(Widen(*p)));
}

CUresult api::cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, OfKernel(Widen(*p)));
}

CUresult api::cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, OfKernel(Widen(*p)));
}

CUresult api::cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, OfKernel(Widen(*p)));
}

CUresult api::cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, Copy(*p, ContextOfNode(node)));
}

CUresult api::cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p,
                                             CUcontext context) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, Copy(*p, context));
}

CUresult api::cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, Fill(*p, ContextOfNode(node)));
}

CUresult api::cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p,
                                             CUcontext context) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, Fill(*p, context));
}

CUresult api::cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, Host(*p));
}

CUresult api::cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, Host(*p));
}

CUresult api::cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_GRAPH;
  general.graph.graph = child;
  return SetExec(exec, node, general);
}

CUresult api::cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return SetNode(node, OfEvent(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}

CUresult api::cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SetExec(exec, node, OfEvent(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}

CUresult api::cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return SetNode(node, OfEvent(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

CUresult api::cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SetExec(exec, node, OfEvent(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

CUresult api::cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, Memory(*p));
}

CUresult api::cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, Memory(*p));
}

CUresult api::cuGraphExternalSemaphoresSignalNodeSetParams(CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, Signal(*p));
}

CUresult api::cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                               const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, Signal(*p));
}

CUresult api::cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNode(node, Wait(*p));
}

CUresult api::cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                             const CUDA_EXT_SEM_WAIT_NODE_PARAMS* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExec(exec, node, Wait(*p));
}

namespace {

// The attributes that a kernel node keeps; others make no difference here.
CUresult KernelNode(CUgraphNode handle, KernelOperation** kernel) {
  GraphNode* node = nullptr;
  return FindKind(handle, &node, kernel);
}

CUlaunchAttribute* FindAttribute(KernelOperation& kernel, CUlaunchAttributeID id) {
  for (CUlaunchAttribute& known : kernel.attributes) {
    if (known.id == id) return &known;
  }
  return nullptr;
}

}  // namespace

CUresult api::cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
  std::lock_guard lock(GraphMutex());
  KernelOperation* kernel = nullptr;
  if (CUresult error = KernelNode(node, &kernel)) return error;
  if (value == nullptr || id <= CU_LAUNCH_ATTRIBUTE_IGNORE || id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
    return CUDA_ERROR_INVALID_VALUE;
  const CUlaunchAttribute* known = FindAttribute(*kernel, id);
  *value = {};
  if (known != nullptr) *value = known->value;
  if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value->cooperative = kernel->request.cooperative;
  return CUDA_SUCCESS;
}

CUresult api::cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                            const CUkernelNodeAttrValue* value) {
  std::lock_guard lock(GraphMutex());
  KernelOperation* kernel = nullptr;
  if (CUresult error = KernelNode(node, &kernel)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttribute attribute{};
  attribute.id = id;
  attribute.value = *value;
  LaunchRequest changed = kernel->request;
  if (CUresult error = ApplyAttribute(attribute, &changed)) return error;
  kernel->request.cooperative = changed.cooperative;
  if (CUlaunchAttribute* known = FindAttribute(*kernel, id)) {
    *known = attribute;
  } else {
    kernel->attributes.push_back(attribute);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  std::lock_guard lock(GraphMutex());
  KernelOperation *destination = nullptr, *source = nullptr;
  if (CUresult error = KernelNode(to, &destination)) return error;
  if (CUresult error = KernelNode(from, &source)) return error;
  destination->attributes = source->attributes;
  destination->request.cooperative = source->request.cooperative;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
