// The stream functions of the driver API. Those of capture are in capture.cc.
#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/event.h"
#include "emulator/cuda/graph.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {
namespace {

// For functions that take a stream of any context; default streams are the current context's.
CUresult Find(CUstream handle, Stream** stream, bool even_failed = false) {
  Context* context = nullptr;
  if (reinterpret_cast<uintptr_t>(handle) > 2) {
    Driver* driver = nullptr;
    if (CUresult error = Initialized(&driver)) return error;
    if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
    *stream = FromHandle<Stream>(handle);
    if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return even_failed ? CUDA_SUCCESS : (*stream)->context->Error();
  }
  if (CUresult error = even_failed ? CurrentEvenFailed(&context) : Current(&context)) return error;
  return ResolveStream(context, handle, stream);
}

bool IsStreamAttribute(CUstreamAttrID id) {
  return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         id == CU_LAUNCH_ATTRIBUTE_PRIORITY || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN ||
         id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}

}  // namespace

CUresult api::cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || (flags & ~static_cast<unsigned int>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  const int clamped = std::max(-5, std::min(0, priority));
  if (CUresult error = context->Explain(context->executor.OpenStream(flags, clamped, false, &stream))) return error;
  *out = ToHandle<CUstream>(stream);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamCreate(CUstream* out, unsigned int flags) {
  return api::cuStreamCreateWithPriority(out, flags, 0);
}

CUresult api::cuStreamDestroy_v2(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream, true)) return error;
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return CUDA_ERROR_INVALID_HANDLE;  // default streams stay
  AbandonCapture(stream);
  stream->context->executor.CloseStream(stream);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamSynchronize(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (CUresult error = RefuseWhileCapturing(stream->context, stream)) return error;
  const CUresult result = stream->context->executor.Synchronize(stream);
  if (result == CUDA_SUCCESS) TrimPools(stream->context, false);
  return result;
}

CUresult api::cuStreamQuery(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (CUresult error = RefuseWhileCapturing(stream->context, stream)) return error;
  return stream->context->executor.Query(stream);
}

CUresult api::cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetPriority(CUstream handle, int* priority) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetId(CUstream handle, unsigned long long* id) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetCtx(CUstream handle, CUcontext* context) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = ToHandle<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return api::cuStreamGetCtx(handle, context);
}

CUresult api::cuStreamGetDevice(CUstream handle, CUdevice* device) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = Driver::Get()->OrdinalOf(stream->context->device);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  auto* event = FromHandle<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return WaitForEvent(event, stream, flags == CU_EVENT_WAIT_EXTERNAL);
}

CUresult api::cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = RefuseWhileCapturing(stream->context, stream)) return error;
  Item item;
  item.light = true;
  item.host_even_on_error = true;
  item.host = [=](CUresult status) { callback(handle, status, data); };
  return stream->context->executor.Enqueue(stream, std::move(item));
}

CUresult api::cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Perform(stream, HostOperation{{function, data}});
}

CUresult api::cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length, unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  const auto found = Allocations::Get().Find(address);
  if (!found || found->kind != AllocationKind::kManaged || flags == 0 || flags > CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  return length == 0 || (address == found->address && length == found->bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The attributes of a stream: hints, kept so that they can be read and copied.
CUresult api::cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (value == nullptr || !IsStreamAttribute(id)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) stream->priority = std::max(-5, std::min(0, value->priority));
  stream->attributes[id] = *value;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (value == nullptr || !IsStreamAttribute(id)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  auto it = stream->attributes.find(id);
  *value = {};
  if (it != stream->attributes.end()) *value = it->second;
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  if (id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && value->syncPolicy == 0)
    value->syncPolicy = CU_SYNC_POLICY_AUTO;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamCopyAttributes(CUstream to, CUstream from) {
  Stream *destination = nullptr, *source = nullptr;
  if (CUresult error = Find(to, &destination)) return error;
  if (CUresult error = Find(from, &source)) return error;
  if (destination->context != source->context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  destination->attributes = source->attributes;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
