// What one step of a stream or one node of a graph does. A call checks its arguments, makes an Operation, and either
// queues it in its stream or, while the stream captures, lets it become a node; a graph launch queues its nodes the
// same way. So a captured call and a direct one are the same code.
//
// Values; a pointer in one is a handle that lives on as a shell when it is destroyed. Any thread.
#ifndef METE_EMULATOR_CUDA_OPERATION_H_
#define METE_EMULATOR_CUDA_OPERATION_H_

#include <memory>
#include <variant>
#include <vector>

#include "emulator/cuda/copy.h"
#include "emulator/cuda/event.h"
#include "emulator/cuda/executor.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {

struct ExternalSemaphore;
struct Graph;
struct GraphAllocation;

struct EmptyOperation {};

struct KernelOperation {
  Function* function = nullptr;
  LaunchRequest request;
  CUfunction handle = nullptr;  // as the program gave it
  std::vector<CUlaunchAttribute> attributes;
};

struct CopyOperation {
  Context* context = nullptr;
  CUDA_MEMCPY3D description{};
  Transfer transfer;
};

struct FillOperation {
  Context* context = nullptr;
  CUDA_MEMSET_NODE_PARAMS parameters{};
};

struct HostOperation {
  CUDA_HOST_NODE_PARAMS parameters{};
};

struct ChildOperation {
  Graph* graph = nullptr;  // the node's own copy
};

struct RecordOperation {
  Event* event = nullptr;
};

struct WaitOperation {
  Event* event = nullptr;
};

struct AllocateOperation {
  std::shared_ptr<GraphAllocation> allocation;
};

struct FreeOperation {
  CUdeviceptr address = 0;
  std::shared_ptr<GraphAllocation> allocation;  // null: of no graph
};

struct MemoryOperation {  // cuStreamWaitValue and its like
  Context* context = nullptr;
  std::vector<CUstreamBatchMemOpParams> steps;
  unsigned int flags = 0;
};

struct SignalOperation {
  std::vector<ExternalSemaphore*> semaphores;
  std::vector<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS> parameters;
};

struct SemaphoreWaitOperation {
  std::vector<ExternalSemaphore*> semaphores;
  std::vector<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> parameters;
};

using Operation = std::variant<EmptyOperation, KernelOperation, CopyOperation, FillOperation, HostOperation,
                               ChildOperation, RecordOperation, WaitOperation, AllocateOperation, FreeOperation,
                               MemoryOperation, SignalOperation, SemaphoreWaitOperation>;

CUgraphNodeType TypeOf(const Operation& operation);

// The context whose GPU has to do it; null where any can.
Context* ContextOf(const Operation& operation);

// The item that does it. Not for ChildOperation, which a graph launch takes apart.
Item MakeItem(Context* context, const Operation& operation);

// Queues it, or captures it.
CUresult Perform(Stream* stream, Operation operation);

// Arguments to operations: what the calls of a family, direct ones and those on nodes, have in common.
// planned: for a graph.
CUresult MakeFill(Context* context, const CUDA_MEMSET_NODE_PARAMS& parameters, bool planned, FillOperation* out);
CUresult MakeCopy(Context* context, const CUDA_MEMCPY3D& description, CopyOperation* out);
CUresult MakeMemoryOperation(Context* context, const CUstreamBatchMemOpParams* steps, unsigned int count,
                             unsigned int flags, MemoryOperation* out);
CUresult MakeKernel(CUfunction handle, const LaunchRequest& shape, void** each, void** extra,
                    const CUlaunchAttribute* attributes, unsigned int attribute_count, KernelOperation* out);

// The parts of MakeItem that stand with their families.
Item KernelItem(Function* function, const LaunchRequest& request);           // launch.cc
Item TransferItem(Context* context, const Transfer& transfer);               // copy.cc
Item FillItem(Context* context, const CUDA_MEMSET_NODE_PARAMS& parameters);  // copy.cc
Item MemoryItem(const MemoryOperation& operation);                           // memory_operation.cc
Item SignalItem(const SignalOperation& operation);                           // external.cc
Item SemaphoreWaitItem(const SemaphoreWaitOperation& operation);             // external.cc
Item AllocateItem(const AllocateOperation& operation);                       // graph_memory.cc
Item FreeItem(const FreeOperation& operation);                               // graph_memory.cc

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_OPERATION_H_
