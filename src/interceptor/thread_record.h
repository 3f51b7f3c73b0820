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
  uint32_t stamp;   // the record's when it was looked up; another one, 0 included: it no longer holds
  const ledger::LimitsPage* limits;
  Track* track;
  uint64_t cost;  // as predicted when it was looked up
  uint64_t key;   // of the cost table

  bool Is(const LaunchKind& of, CUstream on, bool by_per_thread, uint32_t at) const {
    return kind == of && stream == on && per_thread == by_per_thread && stamp == at;
  }
};

struct alignas(64) ThreadRecord {
  std::atomic<const BiasedLock*> inside{nullptr};
  uint64_t generation = 0;       // of lane_generation that the lanes hold for; 0: none do
  uint32_t stamp = 1;            // counts up with every generation
  ThreadRecord* next = nullptr;  // while nobody has it

  // As a cache: a kind has its set, and a set room for two kinds. Programs launch some dozens in turn.
  static constexpr uint32_t kSetBits = 6, kWays = 2;
  Lane lanes[kWays << kSetBits] = {};

  // The first lane of its set.
  Lane* SetOf(const LaunchKind& kind) {
    const uint64_t mixed = reinterpret_cast<uint64_t>(kind.function) + (uint64_t{kind.grid_x} << 32 | kind.block_x);
    return &lanes[(mixed * 0x9E3779B97F4A7C15ull >> (64 - kSetBits)) * kWays];
  }
  const Lane* Find(const LaunchKind& kind, CUstream stream, bool per_thread) {
    const Lane* lane = SetOf(kind);
    if (!lane->Is(kind, stream, per_thread, stamp) && !(++lane)->Is(kind, stream, per_thread, stamp)) return nullptr;
    return lane;
  }
  // Takes the place of the lane of this kind, or of the one that was put there first.
  void Put(const Lane& lane) {
    Lane* set = SetOf(lane.kind);
    if (set[1].Is(lane.kind, lane.stream, lane.per_thread, stamp)) {
      set[1] = lane;
    } else {
      if (!set[0].Is(lane.kind, lane.stream, lane.per_thread, stamp)) set[1] = set[0];
      set[0] = lane;
    }
  }
  // Forgets all lanes.
  void Renew(uint64_t now) {
    generation = now;
    if (++stamp != 0) return;
    for (Lane& lane : lanes) lane.stamp = 0;  // once in 2^32 times
    stamp = 1;
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
