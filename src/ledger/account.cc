#include "ledger/account.h"

#include "ledger/slots.h"

namespace mete::ledger {
namespace {

constexpr uint32_t kScanAttempts = 24;

// The overhead is the broker's alone: raising one's own word and then looking at all the others decides as before.
[[gnu::always_inline]] inline uint64_t Held(const LedgerPage& ledger, const GpuLedger& gpu) {
  const uint32_t count = internal::SlotsUsed(ledger);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    sum = internal::SaturatingAdd(sum, gpu.memory[i].load(std::memory_order_seq_cst));
    sum = internal::SaturatingAdd(sum, gpu.overhead[i].load(std::memory_order_relaxed));
  }
  return sum;
}

bool Deny(GpuLedger& gpu, uint64_t bytes) {
  gpu.last_denied_bytes.store(bytes, std::memory_order_relaxed);
  gpu.denials.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace

bool Reserve(const View& view, uint64_t bytes) {
  GpuLedger& gpu = view.ledger->gpu[view.gpu];
  const GpuLimits& limits = view.limits->gpu[view.gpu];
  if (view.limits->ended.load(std::memory_order_relaxed) != 0) return Deny(gpu, bytes);
  std::atomic<uint64_t>& mine = gpu.memory[view.slot];
  if (limits.memory_quota.load(std::memory_order_relaxed) == kNoQuota) {
    internal::Raise(mine, bytes);
    return true;
  }
  uint64_t seen = UINT64_MAX;
  bool seen_before = false;
  for (uint32_t attempt = 0; attempt < kScanAttempts; ++attempt) {
    const uint64_t quota = limits.memory_quota.load(std::memory_order_relaxed);  // may change while we wait
    const uint64_t held = Held(*view.ledger, gpu);
    if (bytes > quota) return Deny(gpu, bytes);
    if (held <= quota - bytes) {
      const uint64_t raised = internal::Raise(mine, bytes);
      if (Held(*view.ledger, gpu) <= quota) return true;
      // Somebody asked at the same moment. Both see it, both step back; the one whose pause is shorter goes first.
      internal::Lower(mine, raised);
      seen_before = false;
    } else {
      // Hopeless as it stands, and nobody was disturbed by finding out. If the excess is not moving, it is no passing
      // reservation of a neighbour that will be rolled back.
      if (seen_before && held == seen) return Deny(gpu, bytes);
      seen = held;
      seen_before = true;
    }
    internal::BackOff(attempt, view.slot);
  }
  return Deny(gpu, bytes);
}

void Charge(const View& view, uint64_t bytes) { internal::Raise(view.ledger->gpu[view.gpu].memory[view.slot], bytes); }

void Return(const View& view, uint64_t bytes) { internal::Lower(view.ledger->gpu[view.gpu].memory[view.slot], bytes); }

uint64_t Used(const View& view) { return Held(*view.ledger, view.ledger->gpu[view.gpu]); }

uint64_t UsedBySlot(const View& view) {
  return view.ledger->gpu[view.gpu].memory[view.slot].load(std::memory_order_relaxed);
}

uint64_t HeldBySlot(const LedgerPage& ledger, uint32_t gpu, uint32_t slot) {
  const GpuLedger& words = ledger.gpu[gpu];
  return internal::SaturatingAdd(words.memory[slot].load(std::memory_order_relaxed),
                                 words.overhead[slot].load(std::memory_order_relaxed));
}

void SetOverhead(LedgerPage& ledger, uint32_t gpu, uint32_t slot, uint64_t bytes) {
  ledger.gpu[gpu].overhead[slot].store(bytes, std::memory_order_seq_cst);
}

void Defer(const View& view, uint64_t bytes) { internal::Raise(view.ledger->gpu[view.gpu].deferred[view.slot], bytes); }

// In this order a death in between leaves too much charged.
void ReturnDeferred(const View& view, uint64_t bytes) {
  internal::Lower(view.ledger->gpu[view.gpu].deferred[view.slot], bytes);
  Return(view, bytes);
}

uint64_t Believed(const View& view) {
  const uint32_t count = internal::SlotsUsed(*view.ledger);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum = internal::SaturatingAdd(sum, BelievedBySlot(*view.ledger, view.gpu, i));
  return sum;
}

uint64_t BelievedBySlot(const LedgerPage& ledger, uint32_t gpu, uint32_t slot) {
  const GpuLedger& words = ledger.gpu[gpu];
  return internal::SaturatingSubtract(words.memory[slot].load(std::memory_order_relaxed),
                                      words.deferred[slot].load(std::memory_order_relaxed));
}

void MarkExported(const View& view) {
  view.ledger->gpu[view.gpu].exported[view.slot].store(1, std::memory_order_seq_cst);
}

bool Exported(const LedgerPage& ledger, uint32_t slot) {
  const uint32_t gpus = ledger.gpu_count < kMaxGpus ? ledger.gpu_count : kMaxGpus;
  for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
    if (ledger.gpu[gpu].exported[slot].load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

}  // namespace mete::ledger
