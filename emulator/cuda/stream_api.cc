// The stream functions of the driver API. Capture is not implemented: a stream truthfully says that it is not
// capturing.
#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/event.h"
#include "emulator/cuda/memory.h"

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

CUresult NotCapturing(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (id != nullptr) *id = 0;
  return CUDA_SUCCESS;
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
  stream->context->executor.CloseStream(stream);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamSynchronize(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  const CUresult result = stream->context->executor.Synchronize(stream);
  if (result == CUDA_SUCCESS) TrimPools(stream->context, false);
  return result;
}

CUresult api::cuStreamQuery(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
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
  if (flags != CU_EVENT_WAIT_DEFAULT) {
    return flags == CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_ILLEGAL_STATE
                                           : CUDA_ERROR_INVALID_VALUE;  // only while capturing
  }
  std::shared_ptr<Instant> instant = event->Latest();
  if (instant == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  Item item;
  item.light = true;
  item.after.push_back(std::move(instant));
  return stream->context->executor.Enqueue(stream, std::move(item));
}

CUresult api::cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
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
  Item item;
  item.light = true;
  item.host = [=](CUresult) { function(data); };
  return stream->context->executor.Enqueue(stream, std::move(item));
}

CUresult api::cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length, unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult error = Find(handle, &stream)) return error;
  const auto found = Allocations::Get().Find(address);
  if (!found || found->kind != AllocationKind::kManaged || flags == 0 || flags > CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  return length == 0 || (address == found->address && length == found->bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return NotCapturing(handle, status, nullptr);
}

CUresult api::cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return NotCapturing(handle, status, id);
}

CUresult api::cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                        const CUgraphNode**, size_t*) {
  return NotCapturing(handle, status, id);
}

CUresult api::cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                        const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
  return NotCapturing(handle, status, id);
}

CUresult api::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  // Kept per thread as documented; without capture it has nothing to act on.
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(current, *mode);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
