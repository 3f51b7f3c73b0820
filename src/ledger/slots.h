// Sums over the slots of a ledger, and saturating steps on one word: what account.cc and gate.cc have in common.
// Header-only, lock-free, any thread of any process. Words of a ledger are hostile: indices are clamped, sums saturate.
#ifndef METE_LEDGER_SLOTS_H_
#define METE_LEDGER_SLOTS_H_

#include <atomic>
#include <cstdint>

#include "ledger/layout.h"

namespace mete::ledger::internal {

inline uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

inline uint64_t SaturatingSubtract(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// value * multiplier / divisor without wrapping; multiplier and divisor are at least 1.
inline uint64_t Scale(uint64_t value, uint32_t multiplier, uint32_t divisor) {
  if (value <= UINT64_MAX / multiplier) return value * multiplier / divisor;
  uint64_t product;
  return __builtin_mul_overflow(value / divisor, uint64_t{multiplier}, &product) ? UINT64_MAX : product;
}

inline uint32_t ClampShare(uint32_t share) { return share < 1 ? 1 : share > kFullShare ? kFullShare : share; }

inline uint32_t SlotsUsed(const LedgerPage& ledger) {
  const uint32_t used = ledger.slots_used.load(std::memory_order_seq_cst);
  return used < kMaxSlots ? used : kMaxSlots;
}

// Sequentially consistent loads: "raise my own word, then sum" relies on it (of two raisers at least one sees both).
template <typename Word>
uint64_t Sum(const LedgerPage& ledger, const std::atomic<Word> (&words)[kMaxSlots]) {
  const uint32_t count = SlotsUsed(ledger);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum = SaturatingAdd(sum, words[i].load(std::memory_order_seq_cst));
  return sum;
}

// Raises a word without wrapping; returns by how much it really rose.
template <typename Word>
Word Raise(std::atomic<Word>& word, Word by) {
  Word old = word.load(std::memory_order_relaxed);
  for (;;) {
    const Word room = static_cast<Word>(~Word{0} - old);
    const Word step = by < room ? by : room;
    if (word.compare_exchange_weak(old, static_cast<Word>(old + step), std::memory_order_seq_cst)) return step;
  }
}

// Lowers a word, at most to zero.
template <typename Word>
void Lower(std::atomic<Word>& word, Word by) {
  Word old = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(old, static_cast<Word>(old > by ? old - by : 0), std::memory_order_seq_cst)) {
  }
}

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// A pause before another try: grows with the attempt and differs by slot, so that two that collided do not meet again.
inline void BackOff(uint32_t attempt, uint32_t slot) {
  const uint32_t shift = attempt < 6 ? attempt : 6;
  const uint32_t jitter = (slot * 2654435761u + attempt * 40503u) >> 27;  // 0..31
  for (uint32_t i = 0; i < ((4 + jitter) << shift); ++i) Relax();
}

}  // namespace mete::ledger::internal

#endif  // METE_LEDGER_SLOTS_H_
