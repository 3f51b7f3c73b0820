// The time seam: code that waits or measures takes a Clock, so that tests decide what time it is.
// Implementations are thread-safe. Times are nanoseconds of CLOCK_MONOTONIC or of the test's own count.
#ifndef METE_BASE_CLOCK_H_
#define METE_BASE_CLOCK_H_

#include <atomic>
#include <chrono>

namespace mete {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds Now() const = 0;

  // The machine's monotonic clock; lives as long as the program.
  static const Clock& System();
};

// Stands still until a test moves it.
class ManualClock final : public Clock {
 public:
  std::chrono::nanoseconds Now() const override { return std::chrono::nanoseconds(now_.load()); }
  void Advance(std::chrono::nanoseconds by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<std::chrono::nanoseconds::rep> now_{0};
};

}  // namespace mete

#endif  // METE_BASE_CLOCK_H_
