// A context: memory, streams and modules on one device, and its sticky error. Contexts stay in memory for ever as
// handles; what they hold goes when they are destroyed. The stack of current contexts is per thread. Thread rule: any
// thread.
#ifndef METE_EMULATOR_CUDA_CONTEXT_H_
#define METE_EMULATOR_CUDA_CONTEXT_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "emulator/cuda/driver.h"
#include "emulator/cuda/executor.h"
#include "emulator/cuda/heap.h"

namespace mete::emulator::cuda {

struct Context : Handle {
  static constexpr HandleKind kKind = HandleKind::kContext;
  Context(Device* d, uint64_t engine_id);

  Device* const device;
  const uint64_t engine;  // the engine's number
  const uint64_t id;
  bool primary = false;
  uint32_t api_version = 3020;
  std::atomic<int> attached{1};  // cuCtxAttach and cuCtxDetach
  std::atomic<uint32_t> flags{0};
  std::atomic<int> sticky{0};  // a CUresult that every later call returns
  std::atomic<bool> alive{true};
  std::atomic<int> cache_config{0}, shared_config{0};
  std::mutex mutex;  // of what follows
  uint64_t limits[10] = {};
  std::unordered_set<Handle*> owned;  // modules, arrays: freed with the context
  Heap heap;
  Executor executor;
  // Devices whose memory this context's kernels may use, as bits: its own, and peers whose access is enabled.
  std::atomic<uint64_t> reach{0};
  std::unordered_set<Context*> peers;  // guarded by mutex: contexts it may access

  CUresult Error() const { return static_cast<CUresult>(sticky.load(std::memory_order_acquire)); }
  // Records the first sticky error, tells the engine (xid 0: it knows already) and wakes whoever waits.
  void Fail(CUresult error, uint32_t xid);
  // What a failed engine call means for this context; a dead context becomes sticky.
  CUresult Explain(Result result);
};

// Makes a context with its engine object and default stream.
CUresult CreateContext(Device* device, uint32_t flags, Context** context);
void DestroyContext(Context* context);

// The calling thread's stack.
Context* CurrentOrNull();
void PushContext(Context* context);
Context* PopContext();                  // null if empty
void ReplaceCurrent(Context* context);  // null pops

// For the beginning of a call: initialised, a live context is current, no sticky error, not inside a host function.
CUresult Current(Context** context);
// The same without the check for a sticky error.
CUresult CurrentEvenFailed(Context** context);
// The device of an ordinal, for calls that need no context.
CUresult FindDevice(CUdevice dev, Device** device);
// Only that cuInit was called.
CUresult Initialized(Driver** driver);

// Takes a context that ends out of what others may access (peer.cc).
void ForgetPeer(Context* context);

// A live context on the device to count memory under, `except` never: the current one if it is there.
Context* ContextOn(Device* device, const Context* except);

// What a stream argument means: null, 1 and 2 are default streams.
CUresult ResolveStream(Context* context, CUstream handle, Stream** stream);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_CONTEXT_H_
