#include "base/clock.h"

#include <ctime>

namespace mete {
namespace {

class SystemClock final : public Clock {
 public:
  std::chrono::nanoseconds Now() const override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
};

}  // namespace

const Clock& Clock::System() {
  static const SystemClock clock;
  return clock;
}

}  // namespace mete
