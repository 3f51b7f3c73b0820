// Contexts: each takes device memory of its own, charged from its creation to its end with the estimate that the limits
// page gives for this GPU; what is in it (memory, launches in flight) goes with it. Contexts on GPUs outside the share
// are refused. One lock, not held over the creation of a context but over everything about primary contexts, whose
// coming and going must be seen in order. Thread-safe.
#ifndef METE_INTERCEPTOR_CONTEXT_H_
#define METE_INTERCEPTOR_CONTEXT_H_

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "interceptor/cuda_api.h"

namespace mete::interceptor {

struct Process;

class Contexts {
 public:
  // Asks for room for a context on `device`. Not CUDA_SUCCESS: refused. *charged may be 0 (no such device: ask the
  // driver).
  CUresult Begin(Process& p, CUdevice device, uint64_t* charged);
  void End(Process& p, CUdevice device, CUcontext context, uint64_t charged);
  void Cancel(Process& p, CUdevice device, uint64_t charged);

  CUresult Attached(CUcontext context);  // cuCtxAttach counts a user
  // A context goes: what runs in it is forgotten, `destroy` is called, and its memory given back if that succeeded.
  template <typename Call>
  CUresult Destroy(Process& p, CUcontext context, Call destroy) {
    Going(p, context);
    const CUresult result = destroy();
    Gone(p, context, result == CUDA_SUCCESS);
    return result;
  }
  // cuCtxDetach: true when this was the last user.
  bool Detached(CUcontext context);

  // What a context's limits take beyond what they took before: its heap for malloc, its buffer for printf, and the
  // stacks of all threads that the GPU can hold at once.
  CUresult SetLimit(Process& p, decltype(&::cuCtxSetLimit) real, CUlimit limit, size_t value);

  // Calls look(context, gpu) for every context of this process. It may not call back.
  template <typename Look>
  void ForEach(Look look) {
    std::lock_guard lock(mutex_);
    for (const auto& [context, known] : contexts_) look(context, known.gpu);
    for (const auto& [device, primary] : primaries_) {
      if (primary.users != 0) look(primary.context, primary.gpu);
    }
  }

  // A green context makes the driver hold its device's primary context: charged as one more context, until it goes.
  // What was allocated while it was current belongs to the primary context and stays.
  CUresult CreateGreen(Process& p, decltype(&::cuGreenCtxCreate) real, CUgreenCtx* green, CUdevResourceDesc resources,
                       CUdevice device, unsigned int flags);
  CUresult DestroyGreen(Process& p, decltype(&::cuGreenCtxDestroy) real, CUgreenCtx green);

  CUresult RetainPrimary(Process& p, decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context, CUdevice device);
  CUresult ReleasePrimary(Process& p, CUresult (*real)(CUdevice), CUdevice device, bool reset);

 private:
  struct Known {
    uint32_t gpu;
    uint32_t users;
    uint64_t charged;
  };
  struct Primary {
    CUcontext context;
    uint64_t charged;
    uint32_t users;
    uint32_t gpu;
  };
  CUresult RetainPrimary(Process& p, decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context, CUdevice device,
                         bool* made);
  uint64_t* ChargedOf(CUcontext context);  // with the lock; null: not one of ours
  void Going(Process& p, CUcontext context);
  void Gone(Process& p, CUcontext context, bool destroyed);

  std::mutex mutex_;
  std::unordered_map<CUcontext, Known> contexts_;
  std::unordered_map<CUdevice, Primary> primaries_;
  std::unordered_map<CUgreenCtx, Known> greens_;
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_CONTEXT_H_
