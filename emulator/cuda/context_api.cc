// The context functions of the driver API: primary contexts, created ones, the stack, and their settings.
#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {
namespace {

CUresult FromArgument(CUcontext handle, Context** context) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *context = handle == nullptr ? CurrentOrNull() : FromHandle<Context>(handle);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->alive.load() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool ValidFlags(unsigned int flags) {
  const unsigned int schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned int>(CU_CTX_FLAGS_MASK)) == 0 &&
         (schedule == 0 || (schedule & (schedule - 1)) == 0);
}

CUresult Create(CUcontext* out, unsigned int flags, CUdevice dev, uint32_t api_version) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (out == nullptr || !ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (CUresult error = CreateContext(device, flags, &context)) return error;
  context->api_version = api_version;
  PushContext(context);
  *out = ToHandle<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(Device* device, bool reset) {
  std::lock_guard lock(device->mutex);
  if (!reset) {
    if (device->primary_uses == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device->primary_uses != 0) return CUDA_SUCCESS;
  }
  if (device->primary == nullptr) return CUDA_SUCCESS;
  DestroyContext(device->primary);
  device->primary = nullptr;
  device->primary_uses = 0;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(device->mutex);
  if (device->primary == nullptr) {
    Context* context = nullptr;
    if (CUresult error = CreateContext(device, device->primary_flags, &context)) return error;
    context->primary = true;
    device->primary = context;
  }
  ++device->primary_uses;
  *out = ToHandle<CUcontext>(device->primary);
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  return ReleasePrimary(device, false);
}

CUresult api::cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  return ReleasePrimary(device, true);
}

CUresult api::cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(device->mutex);
  *flags = device->primary_flags;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(device->mutex);
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice dev) {
  return Create(context, flags, dev, 2000);
}

CUresult api::cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice dev) {
  return Create(context, flags, dev, 3020);
}

CUresult api::cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* parameters, int count, unsigned int flags,
                             CUdevice dev) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count < 0 || !IsList(parameters, static_cast<uint64_t>(count))) return CUDA_ERROR_INVALID_VALUE;
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;  // needs MPS
  return Create(context, flags, dev, 3030);
}

CUresult api::cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags, CUdevice dev) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (parameters != nullptr) {
    const int count = parameters->numExecAffinityParams;
    if (count < 0 || !IsList(parameters->execAffinityParams, static_cast<uint64_t>(count)))
      return CUDA_ERROR_INVALID_VALUE;
    if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (parameters->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return Create(context, flags, dev, 3040);
}

CUresult api::cuCtxDestroy_v2(CUcontext handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  auto* context = FromHandle<Context>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  DestroyContext(context);
  if (CurrentOrNull() == context) PopContext();
  return CUDA_SUCCESS;
}

CUresult api::cuCtxAttach(CUcontext* out, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context->attached.fetch_add(1);
  *out = ToHandle<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxDetach(CUcontext handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto* named = FromHandle<Context>(handle);
  if (named == nullptr || named != context) return CUDA_ERROR_INVALID_CONTEXT;  // only the current one
  if (context->attached.fetch_sub(1) > 1) return CUDA_SUCCESS;
  context->attached.store(1);
  return api::cuCtxDestroy_v2(handle);
}

CUresult api::cuCtxPushCurrent_v2(CUcontext handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  auto* context = FromHandle<Context>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  PushContext(context);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxPopCurrent_v2(CUcontext* out) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  Context* context = PopContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = ToHandle<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSetCurrent(CUcontext handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  Context* context = nullptr;
  if (handle != nullptr && (context = FromHandle<Context>(handle)) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ReplaceCurrent(context);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCurrent(CUcontext* out) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = CurrentOrNull();
  *out = context == nullptr ? nullptr : ToHandle<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetDevice(CUdevice* dev) {
  Context* context = nullptr;
  if (CUresult error = CurrentEvenFailed(&context)) return error;
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dev = Driver::Get()->OrdinalOf(context->device);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetDevice_v2(CUdevice* dev, CUcontext handle) {
  Context* context = nullptr;
  if (CUresult error = FromArgument(handle, &context)) return error;
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dev = Driver::Get()->OrdinalOf(context->device);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  Context* context = nullptr;
  if (CUresult error = FromArgument(handle, &context)) return error;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = nullptr;
  if (CUresult error = FromArgument(handle, &context)) return error;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSynchronize() {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (CUresult error = RefuseWhileCapturing(context, nullptr)) return error;
  return context->executor.SynchronizeAll();
}

CUresult api::cuCtxSynchronize_v2(CUcontext handle) {
  Context* context = nullptr;
  if (CUresult error = FromArgument(handle, &context)) return error;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if (CUresult error = RefuseWhileCapturing(context, nullptr)) return error;
  return context->executor.SynchronizeAll();
}

CUresult api::cuCtxGetFlags(unsigned int* flags) {
  Context* context = nullptr;
  if (CUresult error = CurrentEvenFailed(&context)) return error;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags.load() | CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSetFlags(unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = CurrentEvenFailed(&context)) return error;
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetLimit(size_t* value, CUlimit limit) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  std::lock_guard lock(context->mutex);
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE && value > 512 * 1024) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > context->device->info.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(context->mutex);
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCacheConfig(CUfunc_cache* config) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUfunc_cache>(context->cache_config.load());
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config.store(config);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // the only one since compute capability 5
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  return config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult api::cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxResetPersistingL2Cache() {
  Context* context = nullptr;
  return Current(&context);
}

CUresult api::cuCtxGetExecAffinity(CUexecAffinityParam* parameter, CUexecAffinityType type) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (parameter == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

}  // namespace mete::emulator::cuda
