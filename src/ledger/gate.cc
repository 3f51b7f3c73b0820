#include "ledger/gate.h"

#include "ledger/slots.h"

namespace mete::ledger {
namespace {

using internal::SaturatingAdd;
using internal::SaturatingSubtract;

constexpr uint32_t kAttempts = 4;
constexpr uint64_t kBusy = 1;
constexpr uint64_t kLongestPredictionNs = 3'600'000'000'000;

// The busy word is a time with its lowest bit used as the state: set while something is in flight. The time is how far
// the share's GPU time has been charged and never goes back, so no interval is ever charged twice, even by a process
// that read its clock long before it gets to the word.
struct Busy {
  bool busy;
  uint64_t since_ns;
};
Busy Unpack(uint64_t word) { return {(word & kBusy) != 0, word & ~kBusy}; }
uint64_t Pack(bool busy, uint64_t at_ns) { return (at_ns & ~kBusy) | (busy ? kBusy : 0); }

// So is the budget's: set while the share saves up, for all its processes.
constexpr uint64_t kSaving = 1;

struct Rules {
  bool fresh;   // the broker lives: windows count
  bool capped;  // the budget counts: beside others within a window the arbiter keeps it
  bool free;    // nobody else wants the GPU and no cap counts
  uint32_t share;
};

Rules RulesOf(const LimitsPage& limits, const GpuLimits& gpu, uint64_t now_ns) {
  const uint64_t heartbeat = limits.heartbeat_ns.load(std::memory_order_relaxed);
  Rules rules;
  rules.fresh = SaturatingSubtract(now_ns, heartbeat) <= kHeartbeatStaleNs;
  const bool open = gpu.window_until_ns.load(std::memory_order_seq_cst) == kWindowOpen;
  const bool hard = gpu.mode.load(std::memory_order_relaxed) == static_cast<uint32_t>(ComputeMode::kHard);
  rules.capped = !rules.fresh || (hard && open);
  rules.free = rules.fresh && open && !hard;
  rules.share = internal::ClampShare(gpu.share.load(std::memory_order_relaxed));
  return rules;
}

void ChargeInterval(GpuLedger& gpu, const Rules& rules, uint64_t from_ns, uint64_t to_ns) {
  const uint64_t cost = to_ns - from_ns;
  gpu.used_ns.fetch_add(cost, std::memory_order_relaxed);
  const uint64_t step = internal::Scale(cost, kFullShare, rules.share);
  uint64_t tat = gpu.tat_ns.load(std::memory_order_relaxed);
  for (;;) {
    uint64_t next = SaturatingAdd(tat > from_ns ? tat : from_ns, step);
    // Without a cap that counts here a share may use more than its part; it must not pay for it when it becomes capped.
    if (!rules.capped && next > to_ns + kBurstNs) next = to_ns + kBurstNs;
    next = (next & ~kSaving) | (tat & kSaving);
    if (gpu.tat_ns.compare_exchange_weak(tat, next, std::memory_order_seq_cst)) return;
  }
}

void MarkBusy(GpuLedger& gpu, uint64_t now_ns) {
  uint64_t word = gpu.busy_since_ns.load(std::memory_order_seq_cst);
  while (!Unpack(word).busy) {
    const uint64_t from = word > now_ns ? word : now_ns;
    if (gpu.busy_since_ns.compare_exchange_weak(word, Pack(true, from), std::memory_order_seq_cst)) return;
  }
}

// Charges up to now and notes whether anything is still in flight; true if nothing is. Whoever moves the word charges
// the interval that it moved it over.
bool Checkpoint(LedgerPage& ledger, GpuLedger& gpu, const Rules& rules, uint64_t now_ns) {
  uint64_t word = gpu.busy_since_ns.load(std::memory_order_seq_cst);
  for (;;) {
    const bool drained = internal::Sum(ledger, gpu.in_flight) == 0;
    const Busy old = Unpack(word);
    if (!old.busy) {
      if (!drained) MarkBusy(gpu, now_ns);
      return drained;
    }
    const uint64_t to = old.since_ns > now_ns ? old.since_ns : now_ns & ~kBusy;
    if (!gpu.busy_since_ns.compare_exchange_weak(word, Pack(!drained, to), std::memory_order_seq_cst)) continue;
    if (to > old.since_ns) ChargeInterval(gpu, rules, old.since_ns, to);
    // A launch may have come between the sum and the exchange, and have seen the word still busy.
    if (drained && internal::Sum(ledger, gpu.in_flight) != 0) {
      MarkBusy(gpu, now_ns);
      return false;
    }
    return drained;
  }
}

// 0: the budget lets a launch go. Otherwise when to ask again. Once used up, it lets nobody go before there is a
// refill: if each kernel that ends let one more go, the GPU would run dry between any two.
uint64_t BudgetNotBefore(GpuLedger& gpu, const Rules& rules, const Busy& busy, uint64_t owed_ns, uint64_t now_ns) {
  const uint64_t word = gpu.tat_ns.load(std::memory_order_seq_cst);
  const bool saving = (word & kSaving) != 0;
  uint64_t tat = word & ~kSaving;
  if (busy.busy && tat < busy.since_ns) tat = busy.since_ns;
  tat = SaturatingAdd(tat, internal::Scale(owed_ns, kFullShare, rules.share));
  const uint64_t resumed = kBurstNs - RefillNs(rules.share);
  if (tat > now_ns && tat - now_ns > (saving ? resumed : kBurstNs)) {
    if (!saving) gpu.tat_ns.fetch_or(kSaving, std::memory_order_seq_cst);
    return tat - resumed;
  }
  if (saving) gpu.tat_ns.fetch_and(~kSaving, std::memory_order_seq_cst);
  return 0;
}

// 0: one more launch may join `launches` others that hold `outstanding_ns`. Otherwise when to ask again.
uint64_t NotBefore(GpuLedger& gpu, const Rules& rules, uint64_t launches, uint64_t outstanding_ns,
                   uint64_t predicted_ns, uint64_t window_until_ns, uint64_t now_ns) {
  const Busy busy = Unpack(gpu.busy_since_ns.load(std::memory_order_seq_cst));
  const uint64_t elapsed = busy.busy ? SaturatingSubtract(now_ns, busy.since_ns) : 0;
  if (rules.capped) {
    // What is in flight will have cost at least the time since the last charge, and is predicted to cost `outstanding`.
    const uint64_t owed = elapsed > outstanding_ns ? elapsed : outstanding_ns;
    const uint64_t not_before = BudgetNotBefore(gpu, rules, busy, owed, now_ns);
    if (not_before != 0) return not_before;
  }
  if (launches == 0 && outstanding_ns == 0) return 0;
  const uint64_t late = SaturatingSubtract(elapsed, outstanding_ns);
  const uint64_t rest = SaturatingSubtract(outstanding_ns, elapsed);
  if (launches != 0 && elapsed > outstanding_ns) {
    // Later than predicted: the predictions say nothing, so count launches instead.
    if (launches < kBlindLaunches || late > kHungNs) return 0;
    return SaturatingAdd(now_ns, elapsed / 8 < 100'000 ? 100'000 : elapsed / 8);
  }
  if (rest <= kLeadNs) return 0;
  const uint64_t window_rest = SaturatingAdd(SaturatingSubtract(window_until_ns, now_ns), kWindowToleranceNs);
  const uint64_t depth = rules.free ? kOpenDepthNs : kDepthNs;
  if (SaturatingAdd(rest, predicted_ns) <= (window_rest < depth ? window_rest : depth)) return 0;
  return SaturatingAdd(now_ns, rest - kLeadNs);
}

}  // namespace

Decision TryStart(const View& view, uint64_t predicted_ns, uint64_t now_ns) {
  const LimitsPage& limits = *view.limits;
  const GpuLimits& asked = limits.gpu[view.gpu];
  GpuLedger& gpu = view.ledger->gpu[view.gpu];
  // The sequence first: a window that changes after this makes the caller's futex wait return at once.
  Decision decision = {Verdict::kWait, false, now_ns + kLongestWaitNs,
                       asked.window_sequence.load(std::memory_order_seq_cst), 0};
  if (limits.ended.load(std::memory_order_relaxed) != 0) {
    decision.verdict = Verdict::kEnded;
    return decision;
  }
  const Rules rules = RulesOf(limits, asked, now_ns);
  const uint64_t window = rules.fresh ? asked.window_until_ns.load(std::memory_order_seq_cst) : kWindowOpen;
  if (window <= now_ns) {
    decision.ring = window == kWindowClosed && gpu.waiting[view.slot].load(std::memory_order_relaxed) != 0;
    const uint64_t stale_at = limits.heartbeat_ns.load(std::memory_order_relaxed) + kHeartbeatStaleNs + 1;
    if (stale_at > now_ns && stale_at < decision.until_ns) decision.until_ns = stale_at;
    return decision;
  }
  // Never measured: it may be a second long, and several of it would overrun any budget. Taken for long, it goes alone,
  // and its window is not handed over before it is seen to be complete.
  if (predicted_ns == kUnknownNs) predicted_ns = kHungNs;
  if (predicted_ns < 1) predicted_ns = 1;
  if (predicted_ns > kLongestPredictionNs) predicted_ns = kLongestPredictionNs;
  uint64_t not_before = 0;
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    not_before = NotBefore(gpu, rules, internal::Sum(*view.ledger, gpu.in_flight),
                           internal::Sum(*view.ledger, gpu.outstanding_ns), predicted_ns, window, now_ns);
    if (not_before != 0) break;
    // As with memory: raise our own word, then look at all of them. Of several that ask at once at most one goes beyond
    // the bound; the others step back. in_flight rises only when it is decided, so it never shows what did not happen.
    const uint64_t raised = internal::Raise(gpu.outstanding_ns[view.slot], predicted_ns);
    not_before = NotBefore(gpu, rules, internal::Sum(*view.ledger, gpu.in_flight),
                           SaturatingSubtract(internal::Sum(*view.ledger, gpu.outstanding_ns), raised), predicted_ns,
                           window, now_ns);
    if (not_before == 0) {
      internal::Raise<uint32_t>(gpu.in_flight[view.slot], 1);
      MarkBusy(gpu, now_ns);
      decision.verdict = Verdict::kGo;
      decision.admitted_ns = raised;
      return decision;
    }
    internal::Lower(gpu.outstanding_ns[view.slot], raised);
    internal::BackOff(attempt, view.slot);
  }
  if (not_before < now_ns + kShortestWaitNs) not_before = now_ns + kShortestWaitNs;
  if (not_before < decision.until_ns) decision.until_ns = not_before;
  return decision;
}

void BeginWait(const View& view, uint64_t) {
  GpuLedger& gpu = view.ledger->gpu[view.gpu];
  internal::Raise<uint32_t>(gpu.waiting[view.slot], 1);
  gpu.waits.fetch_add(1, std::memory_order_relaxed);
}

void EndWait(const View& view, uint64_t began_ns, uint64_t now_ns) {
  GpuLedger& gpu = view.ledger->gpu[view.gpu];
  internal::Lower<uint32_t>(gpu.waiting[view.slot], 1);
  gpu.waited_ns.fetch_add(SaturatingSubtract(now_ns, began_ns), std::memory_order_relaxed);
}

uint64_t Trim(const View& view, uint64_t admitted_ns, uint64_t predicted_ns) {
  if (predicted_ns < 1) predicted_ns = 1;
  if (predicted_ns >= admitted_ns) return admitted_ns;
  internal::Lower(view.ledger->gpu[view.gpu].outstanding_ns[view.slot], admitted_ns - predicted_ns);
  return predicted_ns;
}

bool Finish(const View& view, uint32_t count, uint64_t predicted_ns, uint64_t now_ns) {
  const GpuLimits& asked = view.limits->gpu[view.gpu];
  GpuLedger& gpu = view.ledger->gpu[view.gpu];
  const Rules rules = RulesOf(*view.limits, asked, now_ns);
  internal::Lower(gpu.outstanding_ns[view.slot], predicted_ns < count ? uint64_t{count} : predicted_ns);
  internal::Lower(gpu.in_flight[view.slot], count);
  gpu.finished.fetch_add(1, std::memory_order_relaxed);
  const bool drained = Checkpoint(*view.ledger, gpu, rules, now_ns);
  return drained && rules.fresh && asked.window_until_ns.load(std::memory_order_relaxed) != kWindowOpen;
}

uint32_t Relieved(const View& view, uint64_t now_ns) {
  GpuLedger& gpu = view.ledger->gpu[view.gpu];
  if (internal::Sum(*view.ledger, gpu.waiting) == 0) return 0;
  const GpuLimits& asked = view.limits->gpu[view.gpu];
  const Rules rules = RulesOf(*view.limits, asked, now_ns);
  const uint64_t window = rules.fresh ? asked.window_until_ns.load(std::memory_order_seq_cst) : kWindowOpen;
  if (window <= now_ns) return 0;
  const uint64_t not_before = NotBefore(gpu, rules, internal::Sum(*view.ledger, gpu.in_flight),
                                        internal::Sum(*view.ledger, gpu.outstanding_ns), 1, window, now_ns);
  if (not_before == 0) return kWakeAtOnce;
  // Out of budget, and nothing is left in flight whose end would tell: who waits may have expected it much later, and
  // is to find out for how long.
  return internal::Sum(*view.ledger, gpu.in_flight) == 0 ? 1 : 0;
}

uint64_t InFlight(const LedgerPage& ledger, uint32_t gpu) { return internal::Sum(ledger, ledger.gpu[gpu].in_flight); }

uint64_t Waiting(const LedgerPage& ledger, uint32_t gpu) { return internal::Sum(ledger, ledger.gpu[gpu].waiting); }

uint64_t OutstandingNs(const LedgerPage& ledger, uint32_t gpu) {
  return internal::Sum(ledger, ledger.gpu[gpu].outstanding_ns);
}

uint64_t RestNs(const LedgerPage& ledger, uint32_t gpu, uint64_t now_ns) {
  const Busy busy = Unpack(ledger.gpu[gpu].busy_since_ns.load(std::memory_order_seq_cst));
  const uint64_t elapsed = busy.busy ? SaturatingSubtract(now_ns, busy.since_ns) : 0;
  return SaturatingSubtract(OutstandingNs(ledger, gpu), elapsed);
}

uint64_t UsedNs(const LedgerPage& ledger, uint32_t gpu, uint64_t now_ns) {
  const GpuLedger& words = ledger.gpu[gpu];
  // In this order a charge that happens meanwhile is missed for now rather than counted twice.
  const uint64_t charged = words.used_ns.load(std::memory_order_seq_cst);
  const Busy busy = Unpack(words.busy_since_ns.load(std::memory_order_seq_cst));
  return SaturatingAdd(charged, busy.busy ? SaturatingSubtract(now_ns, busy.since_ns) : 0);
}

uint64_t TatNs(const LedgerPage& ledger, uint32_t gpu, uint32_t share, uint64_t now_ns) {
  const GpuLedger& words = ledger.gpu[gpu];
  const uint64_t tat = words.tat_ns.load(std::memory_order_seq_cst) & ~kSaving;
  const Busy busy = Unpack(words.busy_since_ns.load(std::memory_order_seq_cst));
  if (!busy.busy) return tat;
  const uint64_t open = SaturatingSubtract(now_ns, busy.since_ns);
  return SaturatingAdd(tat > busy.since_ns ? tat : busy.since_ns,
                       internal::Scale(open, kFullShare, internal::ClampShare(share)));
}

bool ClearWork(LedgerPage& ledger, const LimitsPage& limits, uint32_t slot, uint64_t now_ns) {
  if (slot >= kMaxSlots) return false;
  bool drained = false;
  const uint32_t gpus = limits.gpu_count < kMaxGpus ? limits.gpu_count : kMaxGpus;
  for (uint32_t i = 0; i < gpus; ++i) {
    GpuLedger& gpu = ledger.gpu[i];
    gpu.outstanding_ns[slot].store(0, std::memory_order_seq_cst);
    gpu.waiting[slot].store(0, std::memory_order_seq_cst);
    gpu.in_flight[slot].store(0, std::memory_order_seq_cst);
    gpu.finished.fetch_add(1, std::memory_order_relaxed);
    drained |= Checkpoint(ledger, gpu, RulesOf(limits, limits.gpu[i], now_ns), now_ns);
  }
  return drained;
}

bool ClearSlot(LedgerPage& ledger, const LimitsPage& limits, uint32_t slot, uint64_t now_ns) {
  if (slot >= kMaxSlots) return false;
  const uint32_t gpus = limits.gpu_count < kMaxGpus ? limits.gpu_count : kMaxGpus;
  for (uint32_t i = 0; i < gpus; ++i) {
    ledger.gpu[i].memory[slot].store(0, std::memory_order_seq_cst);
    ledger.gpu[i].overhead[slot].store(0, std::memory_order_seq_cst);
    ledger.gpu[i].deferred[slot].store(0, std::memory_order_seq_cst);
    ledger.gpu[i].exported[slot].store(0, std::memory_order_seq_cst);
  }
  const bool drained = ClearWork(ledger, limits, slot, now_ns);
  ledger.slots[slot].pid.store(0, std::memory_order_relaxed);
  ledger.slots[slot].start_time.store(0, std::memory_order_relaxed);
  ledger.slots[slot].generation.store(0, std::memory_order_seq_cst);
  return drained;
}

}  // namespace mete::ledger
