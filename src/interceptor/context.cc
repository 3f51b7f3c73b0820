#include "interceptor/context.h"

#include <algorithm>

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
  {
    std::lock_guard lock(mutex_);
    contexts_[context] = {static_cast<uint32_t>(gpu), 1, charged};
  }
  p.libraries.ContextMade(p, context, static_cast<uint32_t>(gpu));
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

CUresult Contexts::CreateGreen(Process& p, decltype(&::cuGreenCtxCreate) real, CUgreenCtx* green,
                               CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
  uint64_t charged = 0;
  const CUresult room = Begin(p, device, &charged);
  if (room != CUDA_SUCCESS) return room;
  const CUresult result = real(green, resources, device, flags);
  if (result != CUDA_SUCCESS || green == nullptr) {
    Cancel(p, device, charged);
    return result;
  }
  ForgetContexts();  // the address of its context may have belonged to one elsewhere
  std::lock_guard lock(mutex_);
  greens_[*green] = {static_cast<uint32_t>(std::max(GpuOfDevice(p, device), 0)), 1, charged};
  return result;
}

CUresult Contexts::DestroyGreen(Process& p, decltype(&::cuGreenCtxDestroy) real, CUgreenCtx green) {
  CUcontext context = nullptr;
  if (driver.cuCtxFromGreenCtx != nullptr && driver.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS)
    context = nullptr;
  if (context != nullptr) Going(p, context);
  const CUresult result = real(green);
  if (context != nullptr) Gone(p, context, false);
  if (result != CUDA_SUCCESS) return result;
  ForgetContexts();
  Known known{};
  {
    std::lock_guard lock(mutex_);
    auto found = greens_.find(green);
    if (found == greens_.end()) return result;
    known = found->second;
    greens_.erase(found);
  }
  if (known.charged != 0) ledger::Return(ViewOf(p, known.gpu), known.charged);
  return result;
}

uint64_t* Contexts::ChargedOf(CUcontext context) {
  if (auto found = contexts_.find(context); found != contexts_.end()) return &found->second.charged;
  for (auto& [device, primary] : primaries_) {
    if (primary.users != 0 && primary.context == context) return &primary.charged;
  }
  return nullptr;
}

namespace {

// Bytes of device memory for one of a limit's; 0: it takes none.
uint64_t BytesPerUnit(CUlimit limit) {
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE) return 1;
  if (limit != CU_LIMIT_STACK_SIZE) return 0;
  CUdevice device = 0;
  int processors = 0, threads = 0;
  if (driver.cuCtxGetDevice == nullptr || driver.cuDeviceGetAttribute == nullptr ||
      driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device) !=
          CUDA_SUCCESS) {
    return 0;
  }
  return static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads);
}

}  // namespace

CUresult Contexts::SetLimit(Process& p, decltype(&::cuCtxSetLimit) real, CUlimit limit, size_t value) {
  Place place;
  if (!Locate(p, &place)) return kNotInShare;
  size_t before = 0;
  const uint64_t unit = place.context == nullptr ? 0 : BytesPerUnit(limit);
  if (unit == 0 || driver.cuCtxGetLimit == nullptr || driver.cuCtxGetLimit(&before, limit) != CUDA_SUCCESS) {
    return real(limit, value);
  }
  uint64_t more = 0;
  if (value > before && __builtin_mul_overflow(uint64_t{value - before}, unit, &more)) more = UINT64_MAX;
  if (more >= kAbsurd || (more != 0 && !ReserveOrReclaim(p, place.view, more))) return kOutOfMemory;
  const CUresult result = real(limit, value);
  std::lock_guard lock(mutex_);
  uint64_t* charged = ChargedOf(place.context);
  if (result != CUDA_SUCCESS || charged == nullptr) {
    if (more != 0) ledger::Return(place.view, more);
    return result;
  }
  *charged += more;
  // What the context came with is part of its estimate; only what was added can be given back.
  const uint64_t estimate = place.view.limits->gpu[place.gpu].context_bytes.load(std::memory_order_relaxed);
  if (value<before&& * charged> estimate) {
    const uint64_t less = std::min<uint64_t>((before - value) * unit, *charged - estimate);
    *charged -= less;
    ledger::Return(place.view, less);
  }
  return result;
}

CUresult Contexts::RetainPrimary(Process& p, decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context,
                                 CUdevice device) {
  bool made = false;
  const CUresult result = RetainPrimary(p, real, context, device, &made);
  const int gpu = GpuOfDevice(p, device);
  if (made && gpu >= 0) p.libraries.ContextMade(p, *context, static_cast<uint32_t>(gpu));
  return result;
}

CUresult Contexts::RetainPrimary(Process& p, decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context,
                                 CUdevice device, bool* made) {
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
    primary.gpu = static_cast<uint32_t>(std::max(GpuOfDevice(p, device), 0));
    *made = true;
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
