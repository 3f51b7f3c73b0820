// The event functions of the driver API. Times are engine times, so that a late wake-up of this process does not show.
#include <vector>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/event.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {
namespace {

// Destroyed events are used again: a program may make millions.
std::mutex g_spare_mutex;
std::vector<Event*>& Spare() {
  static auto* spare = new std::vector<Event*>;
  return *spare;
}

CUresult Find(CUevent handle, Event** event) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  *event = FromHandle<Event>(handle);
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!(*event)->context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return CUDA_SUCCESS;
}

uint64_t TimeOf(Instant& instant) {
  uint64_t time = instant.time_ns.load();
  if (time == 0) {
    time = Driver::Get()->client().MarkerTime(instant.engine_stream, instant.sequence);
    instant.time_ns.store(time);
  }
  return time;
}

CUresult Record(CUevent handle, CUstream stream_handle) {
  Event* event = nullptr;
  if (CUresult error = Find(handle, &event)) return error;
  Stream* stream = nullptr;
  if (CUresult error = event->context->Error()) return error;
  if (CUresult error = ResolveStream(event->context, stream_handle, &stream)) return error;
  auto instant = std::make_shared<Instant>();
  instant->context = event->context;
  Item item;
  item.light = true;
  item.records = instant;
  {
    std::lock_guard lock(event->mutex);
    event->latest = instant;
  }
  return event->context->executor.Enqueue(stream, std::move(item));
}

}  // namespace

CUresult api::cuEventCreate(CUevent* out, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    return (flags & CU_EVENT_DISABLE_TIMING) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  }
  Event* event = nullptr;
  {
    std::lock_guard lock(g_spare_mutex);
    if (!Spare().empty()) {
      event = Spare().back();
      Spare().pop_back();
    }
  }
  if (event == nullptr) event = new Event;
  event->context = context;
  event->flags = flags;
  event->kind.store(HandleKind::kEvent, std::memory_order_release);
  *out = ToHandle<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult api::cuEventDestroy_v2(CUevent handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  auto* event = FromHandle<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  event->kind.store(HandleKind::kDead, std::memory_order_release);
  {
    std::lock_guard lock(event->mutex);
    event->latest = nullptr;
  }
  std::lock_guard lock(g_spare_mutex);
  Spare().push_back(event);
  return CUDA_SUCCESS;
}

CUresult api::cuEventRecord(CUevent event, CUstream stream) { return Record(event, stream); }

CUresult api::cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  if (flags == CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;  // only while capturing
  return flags != CU_EVENT_RECORD_DEFAULT ? CUDA_ERROR_INVALID_VALUE : Record(event, stream);
}

CUresult api::cuEventQuery(CUevent handle) {
  Event* event = nullptr;
  if (CUresult error = Find(handle, &event)) return error;
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
  if (CUresult error = Find(handle, &event)) return error;
  const std::shared_ptr<Instant> instant = event->Latest();
  if (instant == nullptr) return CUDA_SUCCESS;
  if (CUresult error = event->context->executor.WaitFor(instant)) return error;
  TimeOf(*instant);
  TrimPools(event->context, false);
  return CUDA_SUCCESS;
}

CUresult api::cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Event *start = nullptr, *end = nullptr;
  if (CUresult error = Find(start_handle, &start)) return error;
  if (CUresult error = Find(end_handle, &end)) return error;
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
