// Launches of this process that the share has to account for: the way in (one gate for every kind of launch), and
// noticing that they are complete.
//
// Launches of a stream go in batches: one whose predicted cost is 500 µs or more alone, smaller ones up to 256 or 500
// µs together. The ledger sees a batch start before its first launch, and finish once it was seen to be complete.
// Complete is seen in the program's own synchronise and query calls, or by one helper thread, started with the first
// launch, which asks for an event recorded behind the batch; it sleeps while nothing is in flight. Captured launches do
// nothing yet and pass; the graph is accounted for when it is launched.
//
// A track's lock is held over a launch, so that a batch's event is recorded behind all of it. It is biased to the
// thread that launches, and while that thread is at it the helper asks it to close and to look (kNudged) rather than
// to take the lock away. Waiting for the gate happens without any lock.
//
// Most launches are like one before and find room in the open batch: they go by their thread's lane (Enter, Leave),
// which asks nothing of the driver, the clock or the ledger. A lane holds while its thread made no call that may make
// another context current, no stream or context went, no capture began and the pages are the same. A context made
// current by a call that is not wrapped would be noticed when the next batch opens.
//
// Thread-safe; ns of CLOCK_MONOTONIC.
#ifndef METE_INTERCEPTOR_TRACKER_H_
#define METE_INTERCEPTOR_TRACKER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "interceptor/biased_lock.h"
#include "interceptor/cost.h"
#include "interceptor/cuda_api.h"
#include "interceptor/sharded_map.h"
#include "interceptor/thread_record.h"
#include "interceptor/timeline.h"
#include "ledger/layout.h"

namespace mete::interceptor {

struct Process;

// Launches that are put in flight and finished together.
struct Batch {
  ledger::View view;
  uint64_t predicted = 0;  // as told to the ledger
  uint64_t began = 0;
  uint64_t cost = 0;          // predicted, of what was really launched; known once it is shut, as `launches` is
  uint64_t key = 0;           // the cost table's; 0: several kinds
  uint64_t function_key = 0;  // of the first; 0: no kernel
  uint64_t id = 0;            // counts up in the track
  uint32_t launches = 0;
  bool company = false;         // others of the share were in flight when it began
  uint64_t finished = 0;        // the ledger's count then,
  uint64_t track_finished = 0;  // and the track's
  CUevent event = nullptr;      // recorded behind it
};

// The default streams have handles of their own besides null.
inline bool IsLegacyStream(CUstream stream) { return stream == nullptr || stream == reinterpret_cast<CUstream>(1); }
inline bool IsPerThreadStream(CUstream stream, bool per_thread_api) {
  return stream == reinterpret_cast<CUstream>(2) || (stream == nullptr && per_thread_api);
}

inline constexpr uint32_t kBatchLaunches = 256;
inline constexpr uint64_t kBatchNs = 500'000;  // predicted cost of a batch, at most, if it is more than one launch

// A stream's launches.
struct Track {
  BiasedLock mutex;
  uint64_t key = 0;      // in the map of tracks
  bool retired = false;  // the stream is gone; what is pending is still waited for
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  bool per_thread = false;        // only its own thread can record on it
  std::atomic<bool> busy{false};  // something is open or pending
  bool open = false;
  Batch current;                           // while open
  std::atomic<uint32_t> launches_left{0};  // 0 when none is open; read by the helper without the lock,
  std::atomic<uint64_t> last_id{0};        // and so is this
  uint32_t admitted = 0;                   // launches that the open batch may have in all
  uint32_t usual = kBatchLaunches;         // launches in the last batch: the next is let in for twice as many at most
  uint64_t cost_admitted = 0, cost_left = 0;
  // kNudged by the helper: the next launch is to close the batch and look. kPure: of one kind only, so that something
  // is learnt where several kinds always take turns.
  static constexpr uint8_t kNudged = 1, kPure = 2;
  std::atomic<uint8_t> held{0};
  std::atomic<uint64_t> overdue_ns{kNothingIsDue};  // when the helper is to do so
  uint64_t seen = 0;                                // the helper's: of launches_left and last_id
  uint64_t finished = 0;                            // batches
  uint64_t last_done = 0;                           // when the last batch was complete
  Timeline timeline;
  std::deque<Batch> pending;
  std::vector<CUevent> events;  // spare ones of this context

  static constexpr uint64_t kNothingIsDue = UINT64_MAX;

  // With its lock: is there room for a launch of this cost in the open batch, which anything may join.
  bool Admits(uint64_t cost) const {
    return launches_left.load(std::memory_order_relaxed) != 0 && cost_left >= cost &&
           held.load(std::memory_order_relaxed) == 0;
  }
  bool AdmitsKind(uint64_t kind, uint64_t cost) const {
    if (launches_left.load(std::memory_order_relaxed) == 0 || cost_left < cost) return false;
    const uint8_t why = held.load(std::memory_order_relaxed);
    return why == 0 || (why == kPure && kind == current.key);
  }
  // A launch of this cost went into the open batch. How many more may.
  uint32_t Count(uint64_t kind, uint64_t cost) {
    if (current.key != kind) [[unlikely]]
      current.key = OpenLaunches() == 0 ? kind : 0;
    cost_left -= cost;
    const uint32_t left = launches_left.load(std::memory_order_relaxed) - 1;
    launches_left.store(left, std::memory_order_relaxed);
    return left;
  }
  // How many launches of `each` ns the next batch is let in for.
  uint32_t Fit(uint64_t each) const {
    const uint64_t fit = per_thread || each >= kBatchNs ? 1 : kBatchNs / each;
    return static_cast<uint32_t>(std::min({fit, uint64_t{kBatchLaunches}, uint64_t{2} * usual}));
  }
  uint32_t OpenLaunches() const { return open ? admitted - launches_left.load(std::memory_order_relaxed) : 0; }
  // Nothing more may join the open batch.
  void Shut() {
    current.launches = OpenLaunches();
    usual = current.launches == 0 ? 1 : current.launches;
    current.cost = cost_admitted - cost_left;
    open = false;
    launches_left.store(0, std::memory_order_relaxed);
  }
};

class Tracker {
 public:
  // False until the first tracked launch: nothing can be in flight.
  bool Used() const { return helper_state_.load(std::memory_order_relaxed) != 0; }

  // Puts one launch through: waits for the gate, calls launch(argument), remembers it. With `kind`, also the way in for
  // the next one of the kind.
  CUresult Launch(Process& p, CUstream stream, bool per_thread, uint64_t key, const LaunchKind* kind,
                  CUresult (*launch)(void*), void* argument);

  // The short way of a launch: Enter, and if it returns true the launch, then Leave with what the driver said.
  static bool Enter(ThreadRecord& me, const Lane& lane);
  static void Leave(ThreadRecord& me, const Lane& lane, CUresult result);

  // Around a call that tells whether a stream is done: what was launched before it, and what of that is complete if it
  // succeeded (or failed for good).
  struct Mark {
    Track* track = nullptr;
    uint64_t last_id = 0;
    uint64_t open_id = 0;
    uint32_t open_launches = 0;
  };
  Mark Before(Process& p, CUstream stream, bool per_thread);
  void After(Process& p, const Mark& mark, CUresult result);
  // The same for everything in a context (null: the current one).
  static constexpr unsigned kMaxMarks = 64;
  unsigned BeforeContext(Process& p, CUcontext context, Mark marks[kMaxMarks]);
  // An event of the program is asked for: whatever is behind it is looked at.
  void BeforeEvent(Process& p);
  void AfterEvent(Process& p);

  // What runs in a stream that goes is still accounted for; its track is used for another stream later.
  void StreamGoing(Process& p, CUstream stream);
  void ContextGoing(CUcontext context);             // takes its batches away from the helper
  void ContextGone(Process& p, CUcontext context);  // and finishes them
  void CaptureBegan() {
    captures_.fetch_add(1, std::memory_order_relaxed);
    LanesChanged();
  }

  // One round of the helper thread: what is due is closed and asked for. When to look again, or UINT64_MAX if nothing
  // is in flight.
  uint64_t LookAfter(Process& p);
  void Quiesce();  // waits (briefly) until the helper is out of the driver
  void HelperLoop(Process& p);

 private:
  Track* Find(CUcontext context, CUstream stream, bool per_thread, bool create);
  bool Capturing(CUstream stream, bool per_thread) const;
  CUresult Open(Process& p, std::unique_lock<BiasedLock>& lock, Track& track, const ledger::View& view, uint64_t key,
                uint64_t function_key, uint64_t* cost);
  static void CloseFull(Track& track);
  void Look(Process& p, Track& track, uint64_t* next);
  static void SetOverdue(Track& track);
  CUevent SpareEvent(Track& track);
  void StartTimeline(Track& track);      // with its lock and context, nothing of it in flight
  void Close(Process& p, Track& track);  // with its lock and context: records the event
  void Reap(Process& p, Track& track);   // with its lock: what is complete is finished
  void FinishFirst(Process& p, Track& track, size_t count, uint64_t noticed);
  void Finish(Process& p, const Batch& batch, uint64_t now);
  void Forget(Track& track);  // with the list's lock
  void WakeHelper(Process& p);

  CostTable costs_;
  ShardedMap<Track*> by_key_;
  std::mutex list_mutex_;
  std::vector<Track*> list_;
  struct Leaving {
    CUcontext context;
    Batch batch;
  };
  std::vector<Leaving> leaving_;    // of contexts that go; under list_mutex_
  std::vector<Track*> spare_;       // of streams that are gone: used again, never freed; under list_mutex_
  std::vector<Track*> round_list_;  // the helper's own
  std::mutex round_;                // held while the helper uses the driver
  std::atomic<uint32_t> captures_{0};
  std::atomic<uint32_t> epoch_{1};         // of the threads' remembered tracks
  std::atomic<uint32_t> helper_state_{0};  // kNone, kAwake, kAsleep: a futex word
};

// Keeps the helper out of a driver that is being taken down.
void StopHelper();

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_TRACKER_H_
