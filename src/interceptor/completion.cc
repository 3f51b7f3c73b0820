// Noticing that launches are complete: the program's own calls, and the helper thread.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "interceptor/process.h"
#include "interceptor/tracker.h"
#include "ledger/futex.h"
#include "ledger/gate.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kOpenAtMostNs = 100'000;  // a batch that does not fill is closed then
constexpr uint64_t kSoonestNs = 50'000;      // between two looks
constexpr uint64_t kLatestNs = 2'000'000;
constexpr uint64_t kUnaskedNs = 200'000;  // after its predicted end, while its thread is launching
constexpr uint64_t kLingerNs = 5'000'000, kLingerStepNs = 200'000;
constexpr uint64_t kIdleNs = 1'000'000'000;  // asleep: the broker is looked after this often

enum : uint32_t { kNone = 0, kAwake = 1, kAsleep = 2 };

constinit std::atomic<bool> stopping{false};

CUresult Record(const Track& track, CUevent event) {
  return driver.cuEventRecord == nullptr ? CUDA_ERROR_NOT_SUPPORTED : driver.cuEventRecord(event, track.stream);
}

// Makes a context current in this thread for a while.
class InContext {
 public:
  explicit InContext(CUcontext context)
      : pushed_(driver.cuCtxPushCurrent_v2 != nullptr && driver.cuCtxPopCurrent_v2 != nullptr &&
                driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  ~InContext() {
    CUcontext popped;
    if (pushed_) driver.cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool pushed_;
};

bool Complete(CUevent event) {
  if (driver.cuEventQuery == nullptr) return true;
  const CUresult result = driver.cuEventQuery(event);
  return result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_INVALID_CONTEXT;  // a failed context runs nothing
}

// Whether nothing but this track's own batches was in flight of the share from its beginning to now: then the time that
// it took is its own. What another stream or process has in flight stretches it.
bool Alone(const Track& track, const Batch& batch) {
  const ledger::View& view = batch.view;
  return !batch.company &&
         view.ledger->gpu[view.gpu].finished.load(std::memory_order_relaxed) - batch.finished ==
             track.finished - batch.track_finished &&
         ledger::InFlight(*view.ledger, view.gpu) == track.pending.size() + (track.open ? 1 : 0);
}

void Moment() {
  const timespec moment{0, 1'000'000};
  nanosleep(&moment, nullptr);
}

void* RunHelper(void* argument) {
  auto* p = static_cast<Process*>(argument);
  p->tracker.HelperLoop(*p);
  return nullptr;
}

}  // namespace

void Tracker::Finish(Process& p, const Batch& batch, uint64_t now) {
  const ledger::View& view = batch.view;
  if (ledger::Finish(view, 1, batch.predicted, now)) Ring(*p.attachment.load(std::memory_order_acquire));
  const uint32_t waiters = ledger::Relieved(view, Now());
  if (waiters != 0) ledger::FutexWake(view.limits->gpu[view.gpu].window_sequence, static_cast<int>(waiters));
}

CUevent Tracker::SpareEvent(Track& track) {
  CUevent event = nullptr;
  if (!track.events.empty()) {
    event = track.events.back();
    track.events.pop_back();
  } else if (driver.cuEventCreate == nullptr || driver.cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS) {
    event = nullptr;
  }
  return event;
}

void Tracker::StartTimeline(Track& track) {
  CUevent event = SpareEvent(track);
  const uint64_t now = Now();
  if (event == nullptr) return;
  if (Record(track, event) == CUDA_SUCCESS) {
    track.timeline.Start(event, now);
  } else {
    track.events.push_back(event);
  }
}

// When the helper is to ask for a look: a batch stands open for too long, or work is long over that nobody asked for.
void Tracker::SetOverdue(Track& track) {
  uint64_t at = track.open ? track.current.began + kOpenAtMostNs : Track::kNothingIsDue;
  if (!track.pending.empty()) {
    const Batch& first = track.pending.front();
    at = std::min(at, std::max(first.began, track.last_done) + first.cost + kUnaskedNs);
  }
  track.overdue_ns.store(at, std::memory_order_relaxed);
}

void Tracker::Close(Process& p, Track& track) {
  track.Shut();
  // What was admitted and not launched would seem to be still to come, and the next window wait for it.
  Batch& batch = track.current;
  batch.predicted =
      ledger::Trim(batch.view, batch.predicted, batch.predicted - std::min(batch.predicted, track.cost_left));
  CUevent event = SpareEvent(track);
  if (event != nullptr && Record(track, event) == CUDA_SUCCESS) {
    track.current.event = event;
    track.pending.push_back(track.current);
    SetOverdue(track);
    return;
  }
  // A context that cannot record any more has failed, and runs nothing.
  if (event != nullptr) track.events.push_back(event);
  Finish(p, track.current, Now());
  track.busy.store(!track.pending.empty(), std::memory_order_relaxed);
}

void Tracker::FinishFirst(Process& p, Track& track, size_t count, uint64_t noticed) {
  for (size_t i = 0; i < count; ++i) {
    const Batch batch = track.pending.front();
    const bool alone = Alone(track, batch);
    track.pending.pop_front();
    uint64_t done = noticed;
    if (batch.event != nullptr) {
      CUevent spare;
      const uint64_t least = batch.began + batch.launches * costs_.Predict(batch.key) / 8 * 7;
      done = track.timeline.Date(batch.event, least, noticed, &spare);
      if (spare != nullptr) track.events.push_back(spare);
    }
    const uint64_t from = std::max(batch.began, track.last_done);
    if (batch.key != 0 && batch.launches != 0) {
      const uint64_t one = (done > from ? done - from : 1) / batch.launches;
      // Company stretches the time, never shortens it: what is shorter than believed is true all the same.
      const uint64_t believed = costs_.Predict(batch.key);
      if (alone || believed == 0 || one < believed) {
        costs_.Learn(batch.key, one);
        if (batch.function_key != 0) costs_.Learn(batch.function_key, one);
      }
    }
    track.last_done = std::max(done, track.last_done);
    Finish(p, batch, done);
    ++track.finished;
  }
  SetOverdue(track);
  track.busy.store(track.open || !track.pending.empty(), std::memory_order_relaxed);
}

void Tracker::Reap(Process& p, Track& track) {
  size_t complete = 0;
  while (complete < track.pending.size() && Complete(track.pending[complete].event)) ++complete;
  if (complete == 0) return;
  FinishFirst(p, track, complete, Now());
}

Tracker::Mark Tracker::Before(Process& p, CUstream stream, bool per_thread) {
  Mark mark;
  Place place;
  if (!Locate(p, &place) || place.context == nullptr) return mark;
  Track* track = Find(place.context, stream, per_thread, false);
  if (track == nullptr || !track->busy.load(std::memory_order_relaxed)) return mark;
  std::lock_guard lock(track->mutex);
  mark.track = track;
  mark.last_id = track->last_id.load(std::memory_order_relaxed);
  if (track->open) {
    mark.open_id = track->current.id;
    mark.open_launches = track->OpenLaunches();
  }
  return mark;
}

void Tracker::After(Process& p, const Mark& mark, CUresult result) {
  if (mark.track == nullptr || result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_INVALID_HANDLE) return;
  Track& track = *mark.track;
  std::lock_guard lock(track.mutex);
  // The open batch is complete if nothing was added to it since.
  if (track.open && track.current.id == mark.open_id && track.OpenLaunches() == mark.open_launches) {
    track.Shut();
    track.pending.push_back(track.current);
  }
  size_t complete = 0;
  while (complete < track.pending.size() && track.pending[complete].id <= mark.last_id) {
    // Closed by somebody since, with launches added after the call began: left to its event.
    const Batch& batch = track.pending[complete];
    if (batch.id == mark.open_id && batch.launches != mark.open_launches) break;
    ++complete;
  }
  if (complete == 0) return;
  FinishFirst(p, track, complete, Now());
}

unsigned Tracker::BeforeContext(Process& p, CUcontext context, Mark marks[kMaxMarks]) {
  Place place;
  if (context == nullptr) {
    if (!Locate(p, &place) || place.context == nullptr) return 0;
    context = place.context;
  }
  unsigned count = 0;
  std::lock_guard list_lock(list_mutex_);
  for (Track* track : list_) {
    if (count == kMaxMarks) break;  // the helper sees to the rest
    if (!track->busy.load(std::memory_order_relaxed)) continue;
    std::lock_guard lock(track->mutex);
    if (track->context != context) continue;
    Mark& mark = marks[count++];
    mark = {track, track->last_id.load(std::memory_order_relaxed), track->open ? track->current.id : 0,
            track->OpenLaunches()};
  }
  return count;
}

void Tracker::BeforeEvent(Process& p) {
  Place place;
  if (!Locate(p, &place) || place.context == nullptr) return;
  std::lock_guard list_lock(list_mutex_);
  for (Track* track : list_) {
    if (!track->busy.load(std::memory_order_relaxed)) continue;
    std::unique_lock lock(track->mutex, std::try_to_lock);
    if (lock.owns_lock() && track->context == place.context && track->OpenLaunches() != 0 && !track->per_thread) {
      Close(p, *track);
    }
  }
}

void Tracker::AfterEvent(Process& p) {
  Place place;
  if (!Locate(p, &place) || place.context == nullptr) return;
  std::lock_guard list_lock(list_mutex_);
  for (Track* track : list_) {
    if (!track->busy.load(std::memory_order_relaxed)) continue;
    std::unique_lock lock(track->mutex, std::try_to_lock);
    if (lock.owns_lock() && track->context == place.context) Reap(p, *track);
  }
}

void Tracker::Forget(Track& track) {
  Track* present = nullptr;
  if (by_key_.Take(track.key, &present) && present != &track) by_key_.Insert(track.key, present);
  std::erase(list_, &track);
  spare_.push_back(&track);
  epoch_.fetch_add(1, std::memory_order_acq_rel);
  LanesChanged();
}

void Tracker::StreamGoing(Process& p, CUstream stream) {
  if (!Used() || IsLegacyStream(stream) || IsPerThreadStream(stream, false)) return;
  std::lock_guard list_lock(list_mutex_);
  Track* track = nullptr;
  if (!by_key_.Take(reinterpret_cast<uint64_t>(stream), &track)) return;
  std::lock_guard lock(track->mutex);
  InContext current(track->context);
  if (track->open) Close(p, *track);
  track->retired = true;  // the helper takes it off the list when its events have come
  epoch_.fetch_add(1, std::memory_order_acq_rel);
  LanesChanged();
}

void Tracker::ContextGoing(CUcontext context) {
  std::lock_guard round(round_);
  std::lock_guard list_lock(list_mutex_);
  for (size_t i = 0; i < list_.size();) {
    Track* track = list_[i];
    {
      std::lock_guard lock(track->mutex);
      if (track->context != context) {
        ++i;
        continue;
      }
      if (track->open) {
        track->Shut();
        track->pending.push_back(track->current);
      }
      for (const Batch& batch : track->pending) leaving_.push_back({context, batch});
      track->pending.clear();
      track->events.clear();  // they go with the context
      track->timeline.Forget();
      track->busy.store(false, std::memory_order_relaxed);
    }
    Forget(*track);
  }
}

void Tracker::ContextGone(Process& p, CUcontext context) {
  std::lock_guard list_lock(list_mutex_);
  const uint64_t now = Now();
  for (const Leaving& leaving : leaving_) {
    if (leaving.context == context) Finish(p, leaving.batch, now);
  }
  std::erase_if(leaving_, [&](const Leaving& leaving) { return leaving.context == context; });
}

uint64_t Tracker::LookAfter(Process& p) {
  std::lock_guard round(round_);
  if (stopping.load(std::memory_order_acquire)) return UINT64_MAX;
  round_list_.clear();
  {
    std::lock_guard list_lock(list_mutex_);
    for (Track* track : list_) {
      if (track->busy.load(std::memory_order_seq_cst)) round_list_.push_back(track);
    }
  }
  uint64_t next = UINT64_MAX;
  for (Track* track : round_list_) Look(p, *track, &next);
  return next;
}

void Tracker::Look(Process& p, Track& track, uint64_t* next) {
  if (track.mutex.Biased()) {
    const uint64_t seen =
        track.last_id.load(std::memory_order_relaxed) << 32 | track.launches_left.load(std::memory_order_relaxed);
    if (seen != track.seen) {  // its thread is launching, and looks after the track itself
      track.seen = seen;
      const uint64_t now = Now();
      if (now >= track.overdue_ns.load(std::memory_order_relaxed))
        track.held.store(Track::kNudged, std::memory_order_relaxed);
      *next = std::min(*next, now + kSoonestNs);
      return;
    }
  }
  if (!track.mutex.TryTakeOver()) {  // a launch is going on
    *next = std::min(*next, Now() + kSoonestNs);
    return;
  }
  std::unique_lock lock(track.mutex, std::adopt_lock);
  InContext current(track.context);
  if (track.OpenLaunches() != 0 && !track.per_thread) {
    const uint64_t due = track.current.began + kOpenAtMostNs;
    if (Now() >= due) {
      Close(p, track);
    } else {
      *next = std::min(*next, due);
    }
  }
  Reap(p, track);
  if (!track.pending.empty()) {
    const uint64_t now = Now();
    const Batch& first = track.pending.front();
    const uint64_t expected = std::max(first.began, track.last_done) + first.cost;
    // A cost learnt from late notices would confirm itself if nobody ever looked earlier: the first look comes an
    // eighth before it is expected, the next ones in steps of a part of it, and wider ones once it is overdue.
    const uint64_t early = expected - first.cost / 8;
    const uint64_t overdue = now > expected ? now - expected : 0;
    const uint64_t wait = early > now ? early - now : std::max(first.cost / 16, overdue / 8);
    *next = std::min(*next, now + std::clamp(wait, kSoonestNs, kLatestNs));
  } else if (track.open) {
    *next = std::min(*next, Now() + kSoonestNs);
  } else if (track.retired) {
    lock.unlock();
    std::lock_guard list_lock(list_mutex_);
    Forget(track);
  }
}

void Tracker::WakeHelper(Process& p) {
  uint32_t state = helper_state_.load(std::memory_order_seq_cst);
  if (state == kAwake) return;
  if (state == kAsleep) {
    if (helper_state_.exchange(kAwake, std::memory_order_seq_cst) == kAsleep) {
      ledger::FutexWake(helper_state_, 1);
    }
    return;
  }
  if (!helper_state_.compare_exchange_strong(state, kAwake, std::memory_order_seq_cst)) return;
  // No signal may be delivered to a thread that the program does not know of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, RunHelper, &p) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) helper_state_.store(kNone, std::memory_order_seq_cst);  // tried again at the next batch
}

void Tracker::HelperLoop(Process& p) {
  prctl(PR_SET_NAME, "mete-helper");
  prctl(PR_SET_TIMERSLACK, 1000);  // of this thread only
  if (driver.cuThreadExchangeStreamCaptureMode != nullptr) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&mode);  // the program's captures are not ours to disturb
  }
  uint64_t last_busy = Now();
  while (!stopping.load(std::memory_order_acquire)) {
    uint64_t next = LookAfter(p);
    if (HeartbeatStale(p)) KeepAttached(p);
    const uint64_t now = Now();
    if (next != UINT64_MAX) {
      last_busy = now;
    } else if (now - last_busy < kLingerNs) {
      next = now + kLingerStepNs;  // the next launch is likely to come soon, and need not wake us then
    } else {
      helper_state_.store(kAsleep, std::memory_order_seq_cst);
      next = LookAfter(p);  // a batch may have begun before we said that we sleep
      if (next == UINT64_MAX) {
        ledger::FutexWaitUntil(helper_state_, kAsleep, Now() + kIdleNs);
      }
      helper_state_.store(kAwake, std::memory_order_seq_cst);
      continue;
    }
    const timespec until{static_cast<time_t>(next / 1'000'000'000), static_cast<long>(next % 1'000'000'000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
}

void Tracker::Quiesce() {
  for (int i = 0; i < 100; ++i) {
    std::unique_lock round(round_, std::try_to_lock);
    if (round.owns_lock()) return;
    Moment();
  }
}

void StopHelper() {
  stopping.store(true, std::memory_order_release);
  Process* p = process.load(std::memory_order_acquire);
  if (p != nullptr) p->tracker.Quiesce();
}

namespace {
// Before the driver, on which we depend, is taken down.
__attribute__((destructor)) void Leave() { StopHelper(); }
}  // namespace

}  // namespace mete::interceptor
