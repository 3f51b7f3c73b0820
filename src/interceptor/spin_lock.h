// A lock that is cheap where it is rarely contended: one locked operation to take it, a plain store to give it up.
// Whoever finds it taken spins for a moment, then sleeps in steps (its holder may have lost the processor, or be in a
// launch that the driver holds back). Not recursive, not fair. Any thread of one process; not across a fork.
#ifndef METE_INTERCEPTOR_SPIN_LOCK_H_
#define METE_INTERCEPTOR_SPIN_LOCK_H_

#include <time.h>

#include <atomic>
#include <cstdint>

#include "ledger/slots.h"

namespace mete::interceptor {

class SpinLock {
 public:
  void lock() {
    for (uint32_t tries = 0; !try_lock(); ++tries) {
      if (tries < kSpins) {
        ledger::internal::Relax();
      } else {
        const timespec moment{0, tries < 2 * kSpins ? kShortNs : kLongNs};
        nanosleep(&moment, nullptr);
      }
    }
  }
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr uint32_t kSpins = 100;
  static constexpr long kShortNs = 20'000, kLongNs = 200'000;
  std::atomic<bool> taken_{false};
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_SPIN_LOCK_H_
