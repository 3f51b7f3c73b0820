// The event functions of the driver API. Times are engine times, so that a late wake-up of this process does not show.
#include <thread>
#include <vector>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/event.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {
namespace {

CUresult Find(CUevent handle, Event** event) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  *event = FromHandle<Event>(handle);
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!(*event)->context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return CUDA_SUCCESS;
}

// What was recorded in a capture never happens, so nobody can ask whether it has.
CUresult FindUncaptured(CUevent handle, Event** event) {
  if (CUresult error = Find(handle, event)) return error;
  std::lock_guard lock((*event)->mutex);
  return (*event)->captured != nullptr ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

uint64_t TimeOf(Instant& instant) {
  uint64_t time = instant.time_ns.load();
  if (time == 0) {
    time = Driver::Get()->client().MarkerTime(instant.engine_stream, instant.sequence);
    instant.time_ns.store(time);
  }
  return time;
}

CUresult Record(CUevent handle, CUstream stream_handle, bool external) {
  Event* event = nullptr;
  if (CUresult error = Find(handle, &event)) return error;
  Stream* stream = nullptr;
  if (CUresult error = event->context->Error()) return error;
  if (CUresult error = ResolveStream(event->context, stream_handle, &stream)) return error;
  return RecordEvent(event, stream, external);
}

}  // namespace

Event* NewEvent(Context* context, unsigned int flags) {
  Event* event = Shells<Event>::Get().Take();
  event->context = context;
  event->flags = flags;
  event->kind.store(HandleKind::kEvent, std::memory_order_release);
  return event;
}

std::function<bool()> ReachedElsewhere(Event* event) {
  const uint64_t number = event->shared->description().recorded.load(std::memory_order_acquire);
  return [file = event->shared, number, opened = event->opened, maker = event->maker] {
    return file->description().reached.load(std::memory_order_acquire) >= number || (opened && !IsAlive(maker));
  };
}

CUresult RecordEvent(Event* event, Stream* stream, bool external) {
  bool handled = false;
  const CUresult error = CaptureRecord(event, stream, external, &handled);
  if (error != CUDA_SUCCESS || handled) return error;
  Item item = MakeItem(stream->context, RecordOperation{event});
  if (event->shared != nullptr) {
    const uint64_t number = event->shared->description().recorded.fetch_add(1) + 1;
    item.host_even_on_error = true;  // whoever waits must not wait for ever
    item.host = [file = event->shared, number](CUresult) {
      std::atomic<uint64_t>& reached = file->description().reached;
      uint64_t before = reached.load();
      while (before < number && !reached.compare_exchange_weak(before, number)) {
      }
    };
  }
  return stream->context->executor.Enqueue(stream, std::move(item));
}

CUresult WaitForEvent(Event* event, Stream* stream, bool external) {
  bool handled = false;
  const CUresult error = CaptureWait(event, stream, external, &handled);
  if (error != CUDA_SUCCESS || handled) return error;
  Item item;
  if (event->shared != nullptr) {
    item.light = true;
    item.due = ReachedElsewhere(event);
  } else {
    item = MakeItem(stream->context, WaitOperation{event});
    if (item.after.empty()) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  }
  return stream->context->executor.Enqueue(stream, std::move(item));
}

CUresult api::cuEventCreate(CUevent* out, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<ShareFile> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    shared = ShareFile::Make(ShareKind::kEvent, 0, context->device);
    if (shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Event* event = NewEvent(context, flags);
  event->shared = std::move(shared);
  *out = ToHandle<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult api::cuEventDestroy_v2(CUevent handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  auto* event = FromHandle<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::lock_guard lock(event->mutex);
    event->latest = nullptr;
    event->captured = nullptr;
    event->shared = nullptr;
    event->opened = false;
  }
  Shells<Event>::Get().Give(event);
  return CUDA_SUCCESS;
}

CUresult api::cuEventRecord(CUevent event, CUstream stream) { return Record(event, stream, false); }

CUresult api::cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return Record(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
}

CUresult api::cuEventQuery(CUevent handle) {
  Event* event = nullptr;
  if (CUresult error = FindUncaptured(handle, &event)) return error;
  if (event->shared != nullptr) return ReachedElsewhere(event)() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  const std::shared_ptr<Instant> instant = event->Latest();
  if (instant == nullptr) return CUDA_SUCCESS;
  const bool reached = event->context->executor.Reached(*instant);
  if (reached) {
    TimeOf(*instant);
    return CUDA_SUCCESS;
  }
  uint32_t xid = 0;
  if (CUresult error = event->context->Explain(Driver::Get()->client().ContextState(event->context->engine, &xid)))
    return error;
  if (CUresult error = event->context->Error()) return error;
  return CUDA_ERROR_NOT_READY;
}

CUresult api::cuEventSynchronize(CUevent handle) {
  Event* event = nullptr;
  if (CUresult error = FindUncaptured(handle, &event)) return error;
  if (event->shared != nullptr) {
    for (const auto reached = ReachedElsewhere(event); !reached();) {
      if (CUresult error = event->context->Error()) return error;
      std::this_thread::sleep_for(kPollInterval);
    }
    return CUDA_SUCCESS;
  }
  const std::shared_ptr<Instant> instant = event->Latest();
  if (instant == nullptr) return CUDA_SUCCESS;
  if (CUresult error = event->context->executor.WaitFor(instant)) return error;
  TimeOf(*instant);
  TrimPools(event->context, false);
  return CUDA_SUCCESS;
}

CUresult api::cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Event *start = nullptr, *end = nullptr;
  if (CUresult error = FindUncaptured(start_handle, &start)) return error;
  if (CUresult error = FindUncaptured(end_handle, &end)) return error;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Instant> from = start->Latest(), to = end->Latest();
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (auto [event, instant] : {std::pair{start, from}, std::pair{end, to}}) {
    if (event->context->executor.Reached(*instant)) continue;
    const CUresult error = event->context->Error();
    return error != CUDA_SUCCESS ? error : CUDA_ERROR_NOT_READY;
  }
  const uint64_t begin_ns = TimeOf(*from), end_ns = TimeOf(*to);
  if (begin_ns == 0 || end_ns == 0) return CUDA_ERROR_UNKNOWN;  // so old that the engine has forgotten it
  *milliseconds = static_cast<float>((static_cast<double>(end_ns) - static_cast<double>(begin_ns)) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
