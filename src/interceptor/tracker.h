// Launches of this process that the share has to account for: the way in (one gate for every kind of launch), and
// noticing that they are complete.
//
// Launches of a stream go in batches: one whose predicted cost is 50 µs or more alone, smaller ones up to 64 or 50 µs
// together. The ledger sees a batch start before its first launch, and finish once it was seen to be complete. Complete
// is seen in the program's own synchronise and query calls, or by one helper thread, started with the first launch,
// which asks for an event recorded behind the batch; it sleeps while nothing is in flight. Captured launches do nothing
// yet and pass; the graph is accounted for when it is launched.
//
// A track's lock is held over a launch, so that a batch's event is recorded behind all of it. Waiting for the gate
// happens without any lock. Thread-safe; ns of CLOCK_MONOTONIC.
#ifndef METE_INTERCEPTOR_TRACKER_H_
#define METE_INTERCEPTOR_TRACKER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "interceptor/cost.h"
#include "interceptor/cuda_api.h"
#include "interceptor/sharded_map.h"
#include "interceptor/spin_lock.h"
#include "interceptor/timeline.h"
#include "ledger/layout.h"

namespace mete::interceptor {

struct Process;

// Launches that are put in flight and finished together.
struct Batch {
  ledger::View view;
  uint64_t predicted = 0;  // as told to the ledger
  uint64_t began = 0;
  uint64_t cost = 0;  // predicted, of what was really launched
  uint64_t key = 0;   // the cost table's; 0: several kinds
  uint64_t id = 0;    // counts up in the track
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

// A stream's launches.
struct Track {
  SpinLock mutex;
  uint64_t key = 0;      // in the map of tracks
  bool retired = false;  // the stream is gone; what is pending is still waited for
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  bool per_thread = false;        // only its own thread can record on it
  std::atomic<bool> busy{false};  // something is open or pending
  bool open = false;
  Batch current;  // while open
  uint32_t launches_left = 0;
  uint64_t cost_left = 0;
  uint64_t unit_key = 0, unit_cost = 0;  // the last kind launched, and its predicted cost as of the batch's beginning
  uint64_t last_id = 0;
  uint64_t finished = 0;   // batches
  uint64_t last_done = 0;  // when the last batch was complete
  Timeline timeline;
  std::deque<Batch> pending;
  std::vector<CUevent> events;  // spare ones of this context
};

class Tracker {
 public:
  // False until the first tracked launch: nothing can be in flight.
  bool Used() const { return helper_state_.load(std::memory_order_relaxed) != 0; }

  // Puts one launch through: waits for the gate, calls launch(argument), remembers it.
  CUresult Launch(Process& p, CUstream stream, bool per_thread, uint64_t key, CUresult (*launch)(void*),
                  void* argument);

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
  void CaptureBegan() { captures_.fetch_add(1, std::memory_order_relaxed); }

  // One round of the helper thread: what is due is closed and asked for. When to look again, or UINT64_MAX if nothing
  // is in flight.
  uint64_t LookAfter(Process& p);
  void Quiesce();  // waits (briefly) until the helper is out of the driver
  void HelperLoop(Process& p);

 private:
  Track* Find(CUcontext context, CUstream stream, bool per_thread, bool create);
  bool Capturing(CUstream stream, bool per_thread) const;
  CUresult Enter(Process& p, std::unique_lock<SpinLock>& lock, Track& track, const ledger::View& view, uint64_t key);
  CUevent SpareEvent(Track& track);
  void StartTimeline(Track& track);      // with its lock and context, nothing of it in flight
  void Close(Process& p, Track& track);  // with its lock and context: records the event
  void Reap(Process& p, Track& track);   // with its lock: what is complete is finished
  void FinishFirst(Process& p, Track& track, size_t count, uint64_t noticed);
  void Finish(Process& p, const Batch& batch, uint64_t now);
  void Forget(Track& track);  // with the list's lock
  void WakeHelper(Process& p);

  CostTable costs_;
  std::atomic<uint32_t> captures_{0};
  std::atomic<uint32_t> epoch_{1};  // of the threads' remembered tracks
  ShardedMap<Track*> by_key_;
  std::mutex list_mutex_;
  std::vector<Track*> list_;
  struct Leaving {
    CUcontext context;
    Batch batch;
  };
  std::vector<Leaving> leaving_;           // of contexts that go; under list_mutex_
  std::vector<Track*> spare_;              // of streams that are gone: used again, never freed; under list_mutex_
  std::vector<Track*> round_list_;         // the helper's own
  std::atomic<uint32_t> helper_state_{0};  // kNone, kAwake, kAsleep: a futex word
  std::mutex round_;                       // held while the helper uses the driver
};

// Keeps the helper out of a driver that is being taken down.
void StopHelper();

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_TRACKER_H_
