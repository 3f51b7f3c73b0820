#include "interceptor/timeline.h"

#include "interceptor/driver.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kRenewNs = 1'000'000'000;  // elapsed times are floats of milliseconds: keep them short
constexpr uint64_t kDriftNs = 20'000;         // what the clocks may part in that time

}  // namespace

void Timeline::Start(CUevent event, uint64_t recorded_ns) {
  origin_ = event;
  origin_ns_ = recorded_ns;
}

uint64_t Timeline::Date(CUevent event, uint64_t least_ns, uint64_t noticed_ns, CUevent* spare) {
  *spare = event;
  float ms = 0;
  if (origin_ == nullptr || driver.cuEventElapsedTime == nullptr ||
      driver.cuEventElapsedTime(&ms, origin_, event) != CUDA_SUCCESS || !(ms >= 0)) {
    if (driver.cuEventElapsedTime == nullptr) return noticed_ns;
    *spare = origin_;
    origin_ = event;
    origin_ns_ = noticed_ns;
    return noticed_ns;
  }
  const auto elapsed = static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
  uint64_t happened = origin_ns_ + elapsed;
  if (happened < least_ns && least_ns <= noticed_ns) {
    origin_ns_ += least_ns - happened;
    happened = least_ns;
  }
  if (happened > noticed_ns) {
    origin_ns_ -= happened - noticed_ns < origin_ns_ ? happened - noticed_ns : origin_ns_;
    happened = noticed_ns;
  }
  if (elapsed > kRenewNs) {
    *spare = origin_;
    origin_ = event;
    origin_ns_ = happened + kDriftNs;
  }
  return happened;
}

}  // namespace mete::interceptor
