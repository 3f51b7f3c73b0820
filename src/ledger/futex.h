// Waiting on a word of shared memory until it changes or an instant has come. libc only; any thread of any process.
// Works on read-only mappings: a tenant can wait for its limits page to change, and wake its own waiters.
// Times are CLOCK_MONOTONIC nanoseconds. Errors are errno values, positive.
#ifndef METE_LEDGER_FUTEX_H_
#define METE_LEDGER_FUTEX_H_

#include <atomic>
#include <cstdint>

namespace mete::ledger {

// Now.
uint64_t MonotonicNs();

// Sleeps while `word` is `expected` until woken or `deadline_ns` (UINT64_MAX: no deadline). 0: woken (perhaps for
// nothing); EAGAIN: the word is not `expected` any more; ETIMEDOUT; EINTR: a signal. The caller looks again in each
// case.
int FutexWaitUntil(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns);

// Wakes at most `count` waiters (INT32_MAX: all); returns how many.
int FutexWake(const std::atomic<uint32_t>& word, int count);

}  // namespace mete::ledger

#endif  // METE_LEDGER_FUTEX_H_
