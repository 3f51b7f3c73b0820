// Compute of a share on one GPU: may this launch go now, and what did it cost.
//
//   Decision d = TryStart(view, predicted_ns, now());
//   if (d.verdict == Verdict::kWait) {
//     BeginWait(view, began = now());
//     while ((d = TryStart(view, predicted_ns, now())).verdict == Verdict::kWait) {
//       if (d.ring) ring the doorbell;
//       FutexWaitUntil(window_sequence, d.window_sequence, d.until_ns);
//     }
//     EndWait(view, began, now());
//   }
//   if (d.verdict == Verdict::kEnded) return an error;
//   real_launch(); …; if (Finish(view, 1, d.admitted_ns, now())) ring the doorbell;   // when completion was noticed
//   if (n = Relieved(view, now())) FutexWake(window_sequence, n);
//
// The charge is the union of the share's in-flight intervals over all its processes, never the sum. The budget is one
// word (GCRA): TAT = max(TAT, start of the interval) + length / share. A launch may go when
//   - the share's window is open (with a stale heartbeat every window is, and every share is capped),
//   - under a hard cap: TAT, with what is in flight, is at most kBurstNs ahead of now,
//   - what is in flight is predicted to end within kLeadNs, or together with this launch within kDepthNs and the
//   window.
// With nothing in flight the last rule always holds: a launch longer than every bound can go.
//
// Time is always passed in, so the same code decides in virtual time. All functions are lock-free, thread-safe,
// callable from several processes, and survive the death of any of them. libc only. README.md has the rules with their
// proofs.
#ifndef METE_LEDGER_GATE_H_
#define METE_LEDGER_GATE_H_

#include <cstdint>

#include "ledger/layout.h"

namespace mete::ledger {

inline constexpr uint64_t kBurstNs = 12'000'000;         // how far TAT may be ahead of now when a launch goes
inline constexpr uint64_t kOpenDepthNs = 20'000'000;     // the same while nobody else wants the GPU and no cap counts
inline constexpr uint64_t kUnknownNs = 4'000'000;        // predict this for a kernel never measured
inline constexpr uint64_t kDepthNs = 4'000'000;          // predicted work in flight, with the new launch
inline constexpr uint64_t kLeadNs = 300'000;             // queue the next one when so little is left
inline constexpr uint64_t kWindowToleranceNs = 100'000;  // predicted end may be so far beyond the window's
inline constexpr uint32_t kBlindLaunches = 4;            // in flight at most once predictions proved too short
inline constexpr uint64_t kHungNs = 1'000'000'000;       // after so long without a completion siblings go anyway
inline constexpr uint64_t kLongestWaitNs = 100'000'000;
inline constexpr uint64_t kShortestWaitNs = 20'000;
inline constexpr uint32_t kWakeAtOnce = 2;  // waiters: one goes at once, the other while it launches

inline constexpr uint64_t kRefillNs = 3'000'000;  // GPU time to save up before a share out of budget goes on

// How far TAT is to fall below its bound before a share that ran out of budget goes on: time for a batch of work, for
// one kernel at a time would pay a wake-up, a hand-over and a late notice for each. At most half the burst.
inline uint64_t RefillNs(uint32_t share) {
  const uint64_t refill = kRefillNs * kFullShare / (share < 1 ? 1 : share);
  return refill < kBurstNs / 2 ? refill : kBurstNs / 2;
}

enum class Verdict : uint32_t {
  kGo = 0,
  kWait = 1,   // wait until `until_ns` or until limits->gpu[i].window_sequence != window_sequence
  kEnded = 2,  // the share was released
};

struct Decision {
  Verdict verdict;
  bool ring;                 // the caller must ring the broker's doorbell (it waits for a window nobody knows it wants)
  uint64_t until_ns;         // kWait: try again at the latest then (bounded: at most kLongestWaitNs ahead)
  uint32_t window_sequence;  // kWait: futex value to wait on
  uint64_t admitted_ns;      // kGo: what it counts for while in flight, and what Finish is to be told
};

// True when launches on this GPU have to go through TryStart and Finish at all; a relaxed load.
inline bool Tracked(const View& view) {
  return (view.limits->gpu[view.gpu].flags.load(std::memory_order_relaxed) & kTracked) != 0;
}

// Asks to put one launch of predicted cost (ns of GPU time, at least 1) in flight. On kGo it is in flight.
Decision TryStart(const View& view, uint64_t predicted_ns, uint64_t now_ns);

// A thread that waits announces itself so that the broker sees demand; the pair must balance. TryStart's `ring` is only
// meaningful between them.
void BeginWait(const View& view, uint64_t now_ns);
void EndWait(const View& view, uint64_t began_ns, uint64_t now_ns);

// Of a launch that was admitted as `admitted_ns` (a batch) only `predicted_ns` became of it, and no more will: who
// waits for its end need not wait for the rest. Returns what Finish is to be told.
uint64_t Trim(const View& view, uint64_t admitted_ns, uint64_t predicted_ns);

// `count` launches of together `predicted_ns` were seen to be complete at now_ns. Charges the union up to now. True
// when the caller must ring the doorbell: the share has drained and others may want its window.
bool Finish(const View& view, uint32_t count, uint64_t predicted_ns, uint64_t now_ns);

// How many waiters of the share to wake (FutexWake on window_sequence) after a Finish: what was in flight ended earlier
// than predicted, and they sleep until the prediction. 0: nobody waits, or nobody could go yet.
uint32_t Relieved(const View& view, uint64_t now_ns);

// Sums over slots; used by the broker and by the view.
uint64_t InFlight(const LedgerPage& ledger, uint32_t gpu);
uint64_t Waiting(const LedgerPage& ledger, uint32_t gpu);
uint64_t OutstandingNs(const LedgerPage& ledger, uint32_t gpu);

// The predicted rest of what is in flight: outstanding less the time since the last completion.
uint64_t RestNs(const LedgerPage& ledger, uint32_t gpu, uint64_t now_ns);
// GPU time charged, with the interval that is still open at now_ns.
uint64_t UsedNs(const LedgerPage& ledger, uint32_t gpu, uint64_t now_ns);
// TAT, with the interval that is still open at now_ns charged at `share`.
uint64_t TatNs(const LedgerPage& ledger, uint32_t gpu, uint32_t share, uint64_t now_ns);

// The broker clears what a dead process left: its words in every GPU's arrays, then the slot itself. Charges the union
// interval it may have held open. True: a share has drained by it, look whose window is next. ClearWork leaves slot and
// memory for later (another process may still hold what it made).
bool ClearSlot(LedgerPage& ledger, const LimitsPage& limits, uint32_t slot, uint64_t now_ns);
bool ClearWork(LedgerPage& ledger, const LimitsPage& limits, uint32_t slot, uint64_t now_ns);

}  // namespace mete::ledger

#endif  // METE_LEDGER_GATE_H_
