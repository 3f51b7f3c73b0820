#include "emulator/cuda/context.h"

#include <algorithm>

#include "emulator/cuda/capture.h"
#include "emulator/cuda/external.h"
#include "emulator/cuda/graph_memory.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

constexpr int kStackDepth = 256;
// Plain data: a thread that ends runs nothing of ours.
thread_local Context* g_stack[kStackDepth];
thread_local int g_depth = 0;

// What a program sees for an Xid that the engine reports for its context.
CUresult FromXid(uint32_t xid) {
  switch (xid) {
    case 31: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case 8:
    case 109: return CUDA_ERROR_LAUNCH_TIMEOUT;
    case 48:
    case 94:
    case 95: return CUDA_ERROR_ECC_UNCORRECTABLE;
    case 74: return CUDA_ERROR_NVLINK_UNCORRECTABLE;
    case 79: return CUDA_ERROR_UNKNOWN;
    case 43:
    case 45: return CUDA_ERROR_LAUNCH_TIMEOUT;
    default: return CUDA_ERROR_LAUNCH_FAILED;
  }
}

}  // namespace

Context::Context(Device* d, uint64_t engine_id)
    : Handle(kKind),
      device(d),
      engine(engine_id),
      id(Driver::Get()->NextId()),
      heap(this, false),
      executor(this, &Driver::Get()->client()) {
  reach.store(1ull << Driver::Get()->OrdinalOf(device));
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

void Context::Fail(CUresult error, uint32_t xid) {
  int none = 0;
  if (!sticky.compare_exchange_strong(none, error, std::memory_order_acq_rel)) return;
  if (xid != 0) Driver::Get()->client().FailContext(engine, xid);
  executor.Wake();
}

CUresult Context::Explain(Result result) {
  switch (result) {
    case Result::kContextDead: {
      uint32_t xid = 0;
      Client& client = Driver::Get()->client();
      client.ContextState(engine, &xid);
      const uint32_t error = client.ContextError(engine);
      Fail(error != 0 ? static_cast<CUresult>(error) : FromXid(xid), 0);
      return Error();
    }
    case Result::kDeviceLost: {
      const uint32_t error = Driver::Get()->client().ContextError(engine);
      Fail(error != 0 ? static_cast<CUresult>(error) : CUDA_ERROR_UNKNOWN, 0);
      return Error();
    }
    case Result::kLost: Fail(CUDA_ERROR_DEVICE_UNAVAILABLE, 0); return Error();
    default: return FromResult(result);
  }
}

CUresult CreateContext(Device* device, uint32_t flags, Context** out) {
  Driver* driver = Driver::Get();
  uint64_t engine = 0;
  const Result result = driver->CreateContext(*device, &engine);
  // The instance has ended since cuInit, or the GPU was cut.
  if (result == Result::kNoSuchObject) return CUDA_ERROR_INVALID_DEVICE;
  if (result != Result::kOk) return FromResult(result);
  auto* context = new Context(device, engine);
  context->flags.store(flags);
  Stream* legacy = nullptr;
  const Result opened = context->executor.OpenStream(0, 0, true, &legacy);
  if (opened != Result::kOk) {
    driver->client().DestroyContext(engine);
    context->kind.store(HandleKind::kDead);
    delete context;
    return FromResult(opened);
  }
  std::lock_guard lock(driver->contexts_mutex);
  driver->contexts.push_back(context);
  *out = context;
  return CUDA_SUCCESS;
}

void DestroyContext(Context* context) {
  bool alive = true;
  if (!context->alive.compare_exchange_strong(alive, false)) return;
  Driver* driver = Driver::Get();
  AbandonCaptures(context);
  context->executor.Cancel();
  driver->client().DestroyContext(context->engine);  // ends every wait for its work
  context->executor.Stop();
  ReleaseOwned(context);
  DropPoolMemory(context);
  DropAllocations(context);
  DropGraphCharges(context);
  DropExternalCharges(context);
  context->heap.Clear(false);
  ForgetPeer(context);
}

Context* CurrentOrNull() { return g_depth == 0 ? nullptr : g_stack[g_depth - 1]; }

void PushContext(Context* context) {
  if (g_depth < kStackDepth) g_stack[g_depth++] = context;
}

Context* PopContext() { return g_depth == 0 ? nullptr : g_stack[--g_depth]; }

void ReplaceCurrent(Context* context) {
  if (g_depth != 0) --g_depth;
  if (context != nullptr) PushContext(context);
}

CUresult Initialized(Driver** driver) {
  *driver = Driver::Get();
  return *driver == nullptr ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult FindDevice(CUdevice dev, Device** device) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *device = driver->DeviceAt(dev);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult CurrentEvenFailed(Context** context) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  *context = CurrentOrNull();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(*context)->alive.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return CUDA_SUCCESS;
}

CUresult Current(Context** context) {
  if (CUresult error = CurrentEvenFailed(context)) return error;
  return (*context)->Error();
}

Context* ContextOn(Device* device, const Context* except) {
  Context* current = CurrentOrNull();
  if (current != nullptr && current != except && current->device == device && current->alive.load()) return current;
  Driver* driver = Driver::Get();
  std::lock_guard lock(driver->contexts_mutex);
  for (Context* context : driver->contexts) {
    if (context != except && context->device == device && context->alive.load()) return context;
  }
  return nullptr;
}

CUresult ResolveStream(Context* context, CUstream handle, Stream** stream) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 2) {
    const bool per_thread = number == 2 || (number == 0 && PerThreadDefaultStream::Active());
    *stream = per_thread ? context->executor.PerThread() : context->executor.legacy();
    return *stream == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  }
  *stream = FromHandle<Stream>(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((*stream)->context != context) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
