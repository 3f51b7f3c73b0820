// Stream memory operations: a stream writes a word of memory, or waits until one has a value. Whoever changes the word
// is no stream of ours, so it is looked at again and again.
#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/graph_memory.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {
namespace {

bool IsWait(const CUstreamBatchMemOpParams& step) {
  return step.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || step.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

bool IsWide(const CUstreamBatchMemOpParams& step) {
  return step.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || step.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

template <typename T, typename Signed>
bool Holds(uint8_t* place, T wanted, unsigned int how) {
  const T found = __atomic_load_n(reinterpret_cast<T*>(place), __ATOMIC_ACQUIRE);
  switch (how) {
    case CU_STREAM_WAIT_VALUE_EQ: return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND: return (found & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: return static_cast<T>(~(found | wanted)) != 0;
    default: return static_cast<Signed>(found - wanted) >= 0;
  }
}

// Memory that is gone is not waited for.
bool Done(const CUstreamBatchMemOpParams& step) {
  const bool wide = IsWide(step), wait = IsWait(step);
  if (!wait && step.operation != CU_STREAM_MEM_OP_WRITE_VALUE_32 && step.operation != CU_STREAM_MEM_OP_WRITE_VALUE_64)
    return true;  // a barrier: streams here are always ordered
  uint8_t* place = Driver::Get()->content().Translate(step.waitValue.address, wide ? 8 : 4, !wait);
  if (place == nullptr) return true;
  if (wait) {
    const unsigned int how = step.waitValue.flags & 3;
    return wide ? Holds<uint64_t, int64_t>(place, step.waitValue.value64, how)
                : Holds<uint32_t, int32_t>(place, step.waitValue.value, how);
  }
  if (wide) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(place), step.writeValue.value64, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(place), step.writeValue.value, __ATOMIC_RELEASE);
  }
  return true;
}

CUresult Check(const CUstreamBatchMemOpParams& step) {
  switch (step.operation) {
    case CU_STREAM_MEM_OP_BARRIER: return step.memoryBarrier.flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;  // as the attribute says
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((step.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      if (step.waitValue.flags > 3) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (step.writeValue.flags > 1) return CUDA_ERROR_INVALID_VALUE;
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t bytes = IsWide(step) ? 8 : 4;
  const CUdeviceptr address = step.waitValue.address;
  if (address == 0 || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool there = Driver::Get()->content().Contains(address, bytes, !IsWait(step));
  return there || IsGraphMemory(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Queue(CUstream handle, const CUstreamBatchMemOpParams* steps, unsigned int count, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, handle, &stream)) return error;
  MemoryOperation operation;
  if (CUresult error = MakeMemoryOperation(context, steps, count, flags, &operation)) return error;
  return Perform(stream, std::move(operation));
}

CUstreamBatchMemOpParams Step(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value, unsigned int flags) {
  CUstreamBatchMemOpParams step{};
  step.waitValue.operation = type;
  step.waitValue.address = address;
  step.waitValue.value64 = value;
  step.waitValue.flags = flags;
  return step;
}

}  // namespace

CUresult MakeMemoryOperation(Context* context, const CUstreamBatchMemOpParams* steps, unsigned int count,
                             unsigned int flags, MemoryOperation* out) {
  if (count == 0 || count > 256 || !IsList(steps, count) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (CUresult error = Check(steps[i])) return error;
  }
  out->context = context;
  out->steps.assign(steps, steps + count);
  out->flags = flags;
  return CUDA_SUCCESS;
}

Item MemoryItem(const MemoryOperation& operation) {
  Item item;
  item.light = true;
  item.due = [steps = operation.steps, next = size_t{0}]() mutable {
    while (next < steps.size() && Done(steps[next])) ++next;
    return next == steps.size();
  };
  return item;
}

CUresult api::cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* steps,
                                    unsigned int flags) {
  return Queue(stream, steps, count, flags);
}

CUresult api::cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  const auto step = Step(CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
  return Queue(stream, &step, 1, 0);
}

CUresult api::cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  const auto step = Step(CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
  return Queue(stream, &step, 1, 0);
}

CUresult api::cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  const auto step = Step(CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
  return Queue(stream, &step, 1, 0);
}

CUresult api::cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  const auto step = Step(CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
  return Queue(stream, &step, 1, 0);
}

}  // namespace mete::emulator::cuda
