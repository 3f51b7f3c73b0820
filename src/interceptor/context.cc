#include "interceptor/context.h"

#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {

CUresult Contexts::Begin(Process& p, CUdevice device, uint64_t* charged) {
  *charged = 0;
  const int gpu = GpuOfDevice(p, device);
  if (gpu == -1) return kNotInShare;
  if (gpu < 0) return CUDA_SUCCESS;
  const ledger::View view = ViewOf(p, static_cast<uint32_t>(gpu));
  const uint64_t bytes = view.limits->gpu[gpu].context_bytes.load(std::memory_order_relaxed);
  if (view.limits->ended.load(std::memory_order_relaxed) != 0) return kShareEnded;
  if (bytes != 0 && !ReserveOrReclaim(p, view, bytes)) return kOutOfMemory;
  *charged = bytes;
  return CUDA_SUCCESS;
}

void Contexts::End(Process& p, CUdevice device, CUcontext context, uint64_t charged) {
  const int gpu = GpuOfDevice(p, device);
  if (gpu < 0) return;
  ForgetContexts();  // the address may have belonged to a context elsewhere
  std::lock_guard lock(mutex_);
  contexts_[context] = {static_cast<uint32_t>(gpu), 1, charged};
}

void Contexts::Cancel(Process& p, CUdevice device, uint64_t charged) {
  const int gpu = GpuOfDevice(p, device);
  if (gpu >= 0 && charged != 0) ledger::Return(ViewOf(p, static_cast<uint32_t>(gpu)), charged);
}

CUresult Contexts::Attached(CUcontext context) {
  std::lock_guard lock(mutex_);
  auto found = contexts_.find(context);
  if (found != contexts_.end()) ++found->second.users;
  return CUDA_SUCCESS;
}

bool Contexts::Detached(CUcontext context) {
  std::lock_guard lock(mutex_);
  auto found = contexts_.find(context);
  return found != contexts_.end() && --found->second.users == 0;
}

void Contexts::Going(Process& p, CUcontext context) { p.tracker.ContextGoing(context); }

void Contexts::Gone(Process& p, CUcontext context, bool destroyed) {
  p.tracker.ContextGone(p, context);
  if (!destroyed) return;
  ForgetContexts();
  p.memory.Forget(p, context);
  p.pools.Refresh(p);
  p.graphs.Refresh(p);
  Known known{};
  {
    std::lock_guard lock(mutex_);
    auto found = contexts_.find(context);
    if (found == contexts_.end()) return;
    known = found->second;
    contexts_.erase(found);
  }
  if (known.charged != 0) ledger::Return(ViewOf(p, known.gpu), known.charged);
}

CUresult Contexts::RetainPrimary(Process& p, decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context,
                                 CUdevice device) {
  std::lock_guard lock(mutex_);
  Primary& primary = primaries_[device];
  uint64_t charged = 0;
  if (primary.users == 0) {
    const CUresult room = Begin(p, device, &charged);
    if (room != CUDA_SUCCESS) return room;
  } else if (GpuOfDevice(p, device) == -1) {
    return kNotInShare;
  }
  const CUresult result = real(context, device);
  if (result != CUDA_SUCCESS || context == nullptr) {
    Cancel(p, device, charged);
    return result;
  }
  if (primary.users++ == 0) {
    ForgetContexts();
    primary.context = *context;
    primary.charged = charged;
  }
  return result;
}

CUresult Contexts::ReleasePrimary(Process& p, CUresult (*real)(CUdevice), CUdevice device, bool reset) {
  std::lock_guard lock(mutex_);
  auto found = primaries_.find(device);
  const bool last = found != primaries_.end() && found->second.users != 0 && (reset || found->second.users == 1);
  if (!last) {
    const CUresult result = real(device);
    if (result == CUDA_SUCCESS && found != primaries_.end() && found->second.users != 0) --found->second.users;
    return result;
  }
  Primary& primary = found->second;
  p.tracker.ContextGoing(primary.context);
  const CUresult result = real(device);
  p.tracker.ContextGone(p, primary.context);
  if (result != CUDA_SUCCESS) return result;
  ForgetContexts();
  p.memory.Forget(p, primary.context);
  p.pools.Refresh(p);
  p.graphs.Refresh(p);
  const int gpu = GpuOfDevice(p, device);
  if (gpu >= 0 && primary.charged != 0) ledger::Return(ViewOf(p, static_cast<uint32_t>(gpu)), primary.charged);
  primary = {};  // after a reset the next retain finds it gone and is charged anew
  return result;
}

}  // namespace mete::interceptor
