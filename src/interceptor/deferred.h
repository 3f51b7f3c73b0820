// Memory that this process has given up but that the driver may still hold: memory that was exported lives on while
// another process holds it, and what is freed in small pieces may leave others scattered over as many granules. It
// stays charged until an audit by the broker has begun and ended; whatever of it is still there is by then charged as
// overhead to whoever holds it (ledger/account.h, Defer).
//
// Thread-safe. Nothing here waits but Await. Bytes.
#ifndef METE_INTERCEPTOR_DEFERRED_H_
#define METE_INTERCEPTOR_DEFERRED_H_

#include <atomic>
#include <cstdint>

#include "interceptor/spin_lock.h"
#include "ledger/layout.h"

namespace mete::interceptor {

struct Process;

class Deferred {
 public:
  void Add(Process& p, uint32_t gpu, uint64_t bytes);
  bool Any() const { return entries_used_.load(std::memory_order_relaxed) != 0; }
  // Gives back what an audit has seen. True: something was.
  bool Settle(Process& p);
  // Asks for an audit and waits for it, at most half a second. False: there was none.
  static bool Await(Process& p);

 private:
  // Of one GPU at most three audits can be waited for at once: those that a request at an even and at an odd count wait
  // for, and one that is due and not settled yet.
  static constexpr unsigned kEntries = 3;
  struct Entry {
    uint32_t due;
    uint64_t bytes;  // 0: not used
  };
  SpinLock lock_;
  std::atomic<uint32_t> entries_used_{0};
  Entry entries_[ledger::kMaxGpus][kEntries] = {};
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_DEFERRED_H_
