#include "interceptor/tracker.h"

#include <new>

#include "interceptor/process.h"
#include "ledger/futex.h"
#include "ledger/gate.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kPureEvery = 256;  // batches: one of a single kind

struct RememberedTrack {
  CUcontext context;
  CUstream stream;
  uint32_t epoch;
  bool per_thread;
  Track* track;
};
thread_local constinit __attribute__((tls_model("initial-exec"))) RememberedTrack last_track{};
thread_local constinit __attribute__((tls_model("initial-exec"))) char thread_mark = 0;

// Each thread has its own per-thread default stream in each context.
uint64_t KeyOfStream(CUcontext context, CUstream stream, bool per_thread) {
  auto key = reinterpret_cast<uint64_t>(context);
  if (per_thread) {
    key = (key ^ reinterpret_cast<uint64_t>(&thread_mark) * 0x9E3779B97F4A7C15ull) | uint64_t{1} << 63;
  } else if (!IsLegacyStream(stream)) {
    key = reinterpret_cast<uint64_t>(stream);
  }
  return key == 0 ? 1 : key;
}

}  // namespace

bool Tracker::Capturing(CUstream stream, bool per_thread) const {
  if (captures_.load(std::memory_order_relaxed) == 0) return false;
  auto* ask = per_thread && driver.cuStreamIsCapturing_ptsz != nullptr ? driver.cuStreamIsCapturing_ptsz
                                                                       : driver.cuStreamIsCapturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask != nullptr && ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Track* Tracker::Find(CUcontext context, CUstream stream, bool per_thread_api, bool create) {
  const bool per_thread = IsPerThreadStream(stream, per_thread_api);
  const uint32_t epoch = epoch_.load(std::memory_order_acquire);
  RememberedTrack& last = last_track;
  if (last.track != nullptr && last.epoch == epoch && last.stream == stream && last.context == context &&
      last.per_thread == per_thread) {
    return last.track;
  }
  const uint64_t key = KeyOfStream(context, stream, per_thread);
  Track* track = nullptr;
  by_key_.Update(key, [&](Track*& cell, bool fresh) {
    if (!fresh) track = cell;
    return !fresh;
  });
  if (track == nullptr) {
    if (!create) return nullptr;
    std::lock_guard lock(list_mutex_);
    if (!spare_.empty()) {
      track = spare_.back();
      spare_.pop_back();
    } else {
      track = new (std::nothrow) Track;
    }
    if (track == nullptr) return nullptr;
    {
      std::lock_guard track_lock(track->mutex);
      if (track->context != context) {  // its events stay with the context that they belong to
        track->events.clear();
        track->timeline.Forget();
      }
      track->stream = per_thread ? reinterpret_cast<CUstream>(2) : stream;
      track->context = context;
      track->per_thread = per_thread;
      track->last_done = 0;
      track->key = key;
      track->retired = false;
    }
    Track* other = nullptr;
    const bool known = by_key_.Update(key, [&](Track*& cell, bool fresh) {
      if (fresh) cell = track;
      other = cell;
      return true;
    });
    if (!known || other != track) {  // another thread was faster
      spare_.push_back(track);
      track = other;
    } else {
      list_.push_back(track);
    }
    if (track == nullptr) return nullptr;
  }
  last = {context, stream, epoch, per_thread, track};
  return track;
}

// Makes sure that a batch is open which has room for a launch of this kind. Gives the lock up while it waits.
CUresult Tracker::Open(Process& p, std::unique_lock<BiasedLock>& lock, Track& track, const ledger::View& first_view,
                       uint64_t key, uint64_t function_key, uint64_t* each) {
  // A shape that was never seen is believed to take what its function took last: programs whose shapes change with
  // every step launch few functions.
  uint64_t cost = costs_.Predict(key);
  if (cost == 0 && function_key != 0) cost = costs_.Predict(function_key);
  *each = cost == 0 ? ledger::kUnknownNs : cost;
  if (cost != 0 && track.AdmitsKind(key, cost)) return CUDA_SUCCESS;
  ledger::View view = first_view;
  uint64_t waiting_since = 0;
  for (;;) {
    if (track.open) Close(p, track);
    Reap(p, track);
    const uint32_t launches = track.Fit(*each);
    const uint64_t now = Now();
    if (view.limits->ended.load(std::memory_order_relaxed) != 0) {
      if (waiting_since != 0) ledger::EndWait(view, waiting_since, now);
      return kShareEnded;
    }
    const ledger::Decision decision = ledger::TryStart(view, *each * launches, now);
    if (decision.verdict == ledger::Verdict::kGo) {
      if (waiting_since != 0) ledger::EndWait(view, waiting_since, now);
      const uint64_t id = track.last_id.load(std::memory_order_relaxed) + 1;
      track.last_id.store(id, std::memory_order_relaxed);
      track.current = {};
      track.current.view = view;
      track.current.predicted = decision.admitted_ns;
      track.current.began = now;
      track.current.key = key;
      track.current.function_key = function_key;
      track.current.id = id;
      track.current.company = ledger::InFlight(*view.ledger, view.gpu) != track.pending.size() + 1;
      track.current.finished = view.ledger->gpu[view.gpu].finished.load(std::memory_order_relaxed);
      track.current.track_finished = track.finished;
      track.admitted = launches;
      track.launches_left.store(launches, std::memory_order_relaxed);
      track.cost_left = track.cost_admitted = *each * launches;
      track.open = true;
      track.held.store(id % kPureEvery == 0 ? Track::kPure : 0, std::memory_order_relaxed);
      SetOverdue(track);
      track.busy.store(true, std::memory_order_seq_cst);
      WakeHelper(p);
      return CUDA_SUCCESS;
    }
    if (decision.verdict == ledger::Verdict::kEnded) {
      if (waiting_since != 0) ledger::EndWait(view, waiting_since, now);
      return kShareEnded;
    }
    lock.unlock();
    if (waiting_since == 0) {
      waiting_since = now;
      ledger::BeginWait(view, now);
      // Announced: ask again, so that the first one to wait is told to ring.
    } else {
      if (decision.ring) Ring(*p.attachment.load(std::memory_order_acquire));
      ledger::FutexWaitUntil(view.limits->gpu[view.gpu].window_sequence, decision.window_sequence, decision.until_ns);
      if (HeartbeatStale(p)) KeepAttached(p);
    }
    const ledger::View current = ViewOf(p, view.gpu);
    if (current.limits != view.limits) {  // a new broker: be counted as waiting where it looks
      const uint64_t at = Now();
      ledger::EndWait(view, waiting_since, at);
      ledger::BeginWait(current, at);
      waiting_since = at;
      view = current;
    }
    lock.lock();
    if (cost != 0 && track.AdmitsKind(key, cost)) {
      ledger::EndWait(view, waiting_since, Now());  // another thread of this stream was let in, with room for us
      return CUDA_SUCCESS;
    }
  }
}

CUresult Tracker::Launch(Process& p, CUstream stream, bool per_thread, uint64_t key, const LaunchKind* kind,
                         CUresult (*launch)(void*), void* argument) {
  const uint64_t generation = lane_generation.load(std::memory_order_acquire);  // before what may change
  Place place;
  if (!Locate(p, &place)) return kNotInShare;
  if (place.view.limits->ended.load(std::memory_order_relaxed) != 0) return kShareEnded;
  if (place.context == nullptr || !ledger::Tracked(place.view) || Capturing(stream, per_thread))
    return launch(argument);
  Track* track = Find(place.context, stream, per_thread, true);
  if (track == nullptr) return kOutOfMemory;
  ThreadRecord* me = OwnRecord();
  std::unique_lock lock(track->mutex);
  if (!track->timeline.Started()) StartTimeline(*track);
  uint64_t cost = 0;
  const CUresult opened =
      Open(p, lock, *track, place.view, key, kind == nullptr ? 0 : CostKey(kind->function, 0, 0), &cost);
  if (opened != CUDA_SUCCESS) return opened;
  const CUresult result = launch(argument);
  Batch& batch = track->current;
  if (result != CUDA_SUCCESS) {
    if (track->OpenLaunches() == 0) {  // nothing went in flight
      track->Shut();
      Finish(p, batch, Now());
      track->busy.store(!track->pending.empty(), std::memory_order_relaxed);
    }
    return result;
  }
  if (kind != nullptr && me != nullptr && captures_.load(std::memory_order_relaxed) == 0) {
    if (me->generation != generation) me->Renew(generation);
    me->Put({*kind, stream, per_thread, me->stamp, place.view.limits, track, cost, key});
  }
  if (track->Count(key, cost) == 0) Close(p, *track);
  return result;
}

// The rest of Leave, for the launch that fills a batch.
void Tracker::CloseFull(Track& track) {
  Process* p = process.load(std::memory_order_acquire);
  p->tracker.Close(*p, track);
}

}  // namespace mete::interceptor
