// A lock for a few dozen instructions: one locked operation to take it, a plain store to give it up. Whoever finds it
// taken spins for a moment, then sleeps in short steps (its holder may have lost the processor). Not recursive, not
// fair; never held over a call into the driver. Any thread of one process; not across a fork.
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
    for (uint32_t tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries) {
      if (tries < kSpins) {
        ledger::internal::Relax();
      } else {
        const timespec moment{0, 20'000};
        nanosleep(&moment, nullptr);
      }
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr uint32_t kSpins = 100;
  std::atomic<bool> taken_{false};
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_SPIN_LOCK_H_
