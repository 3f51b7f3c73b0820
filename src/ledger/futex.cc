#include "ledger/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace mete::ledger {

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int FutexWaitUntil(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) {
  timespec deadline;
  const timespec* timeout = nullptr;
  if (deadline_ns != UINT64_MAX) {
    deadline.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
    deadline.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
    timeout = &deadline;
  }
  // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time; plain WAIT would take a relative one.
  const int saved = errno;
  const long result = syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAIT_BITSET, expected, timeout,
                              nullptr, FUTEX_BITSET_MATCH_ANY);
  const int error = result == 0 ? 0 : errno;
  errno = saved;
  return error;
}

int FutexWake(const std::atomic<uint32_t>& word, int count) {
  const int saved = errno;
  const long woken =
      syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAKE, count, nullptr, nullptr, 0);
  errno = saved;
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace mete::ledger
