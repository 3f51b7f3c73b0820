// Compute of a share on one GPU: may this launch go now, and what did it cost.
//
//   for (;;) {
//     Decision d = TryStart(view, predicted_ns, now());
//     if (d.verdict == Verdict::kGo) break;             // counted in flight; must be balanced by Finish
//     wait until d.until_ns, or for the window word to leave d.window_sequence, whichever is first
//   }
//   real_launch(); …; Finish(view, predicted_ns, now());  // when completion was noticed
//
// The charge is the union of the share's in-flight intervals over all its processes, never the sum. The budget is one
// word (GCRA): TAT = max(now, TAT) + cost / share. Time is always passed in, so the same code decides in virtual time.
// All functions are lock-free, thread-safe, callable from several processes, and survive the death of any of them.
// libc only. See README.md for the rules and their proofs.
#ifndef METE_LEDGER_GATE_H_
#define METE_LEDGER_GATE_H_

#include <cstdint>

#include "ledger/layout.h"

namespace mete::ledger {

enum class Verdict : uint32_t {
  kGo = 0,
  kWait = 1,   // wait until `until_ns` or until limits->gpu[i].window_sequence != window_sequence
  kEnded = 2,  // the share was released
};

struct Decision {
  Verdict verdict;
  bool ring;                 // the caller must ring the broker's doorbell (first waiter of a closed window)
  uint64_t until_ns;         // kWait: try again at the latest then (bounded: at most 100 ms ahead)
  uint32_t window_sequence;  // kWait: futex value to wait on
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

// `count` launches of together `predicted_ns` were seen to be complete at now_ns. Charges the union up to now. True
// when the caller must ring the doorbell: the share has drained and others may want its window.
bool Finish(const View& view, uint32_t count, uint64_t predicted_ns, uint64_t now_ns);

// Sums over slots; used by the broker and by the view.
uint64_t InFlight(const LedgerPage& ledger, uint32_t gpu);
uint64_t Waiting(const LedgerPage& ledger, uint32_t gpu);
uint64_t OutstandingNs(const LedgerPage& ledger, uint32_t gpu);

// The broker clears what a dead process left: its words in every GPU's arrays, then the slot itself. Charges the union
// interval it may have held open.
void ClearSlot(LedgerPage& ledger, const LimitsPage& limits, uint32_t slot, uint64_t now_ns);

}  // namespace mete::ledger

#endif  // METE_LEDGER_GATE_H_
