// What the proxy keeps for each thread that launches: which biased lock it is inside, and the ways of its last launches
// into the batch that is open for them. One live thread has a record at a time; it is made at the thread's first
// tracked launch, handed on to another thread when it ends, and never freed, since other threads look at `inside`.
// Everything but `inside` is the thread's own. libc only.
#ifndef METE_INTERCEPTOR_THREAD_RECORD_H_
#define METE_INTERCEPTOR_THREAD_RECORD_H_

#include <atomic>
#include <cstdint>

#include "interceptor/cuda_api.h"
#include "ledger/layout.h"

namespace mete::interceptor {

struct Track;
class BiasedLock;

// What decides how long a launch is believed to take.
struct LaunchKind {
  const void* function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  bool operator==(const LaunchKind&) const = default;
};

// What a launch of a kind needed to be looked up for: good for the next one as long as the record's generation holds.
struct Lane {
  LaunchKind kind;
  CUstream stream;
  bool per_thread;  // by the per-thread interface
  const ledger::LimitsPage* limits;
  Track* track;
  uint64_t cost;  // as predicted when it was looked up
  uint64_t key;   // of the cost table
};

struct alignas(64) ThreadRecord {
  std::atomic<const BiasedLock*> inside{nullptr};
  uint64_t generation = 0;       // that the lanes were looked up in; 0: none
  ThreadRecord* next = nullptr;  // while nobody has it
  static constexpr uint32_t kLanes = 8;
  Lane lanes[kLanes] = {};

  Lane& LaneOf(const void* function) {
    return lanes[reinterpret_cast<uintptr_t>(function) * 0x9E3779B97F4A7C15ull >> 61];
  }
};

// Initial-exec: a plain load instead of a call; the loader keeps room for this much in late-loaded libraries.
extern thread_local constinit __attribute__((tls_model("initial-exec"))) ThreadRecord* own_record;

// The calling thread's record; null: no memory.
ThreadRecord* OwnRecord();

// Counts up whenever something changed that a lane of any thread may depend on: a stream or a context went, a capture
// began, the pages are new, the process is the child of a fork.
extern constinit std::atomic<uint64_t> lane_generation;
inline void LanesChanged() { lane_generation.fetch_add(1, std::memory_order_acq_rel); }

// A call of this thread may have made another context current.
inline void ContextChanged() {
  if (own_record != nullptr) own_record->generation = 0;
}

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_THREAD_RECORD_H_
