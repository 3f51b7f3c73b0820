// When work of a stream was really complete: the GPU's own time stamps, put on the host's clock.
//
// A completion is noticed late, by as much as a thread takes to wake up; charged until then, a share would pay for the
// host's delays. Two events of a context are an exact distance apart on the GPU, so one event whose host time is known
// dates all others. Its host time is bounded from above by every notice (nothing is noticed before it happened), and
// the least bound is kept; it may rise again by a little as the clocks drift.
//
// One per track, used under the track's lock; the origin's event belongs to it. ns of CLOCK_MONOTONIC.
#ifndef METE_INTERCEPTOR_TIMELINE_H_
#define METE_INTERCEPTOR_TIMELINE_H_

#include <cstdint>

#include "interceptor/cuda_api.h"

namespace mete::interceptor {

class Timeline {
 public:
  bool Started() const { return origin_ != nullptr; }
  // `event` was recorded on the idle stream just after `recorded_ns`; it is the timeline's now.
  void Start(CUevent event, uint64_t recorded_ns);

  // When `event`, complete and noticed at `noticed_ns`, happened: at most noticed_ns; noticed_ns where the driver
  // cannot tell. `*spare` is an event to be used again: this one, the former origin, or null if this one was kept.
  uint64_t Date(CUevent event, uint64_t least_ns, uint64_t noticed_ns, CUevent* spare);

  // The context and its events are gone.
  void Forget() { origin_ = nullptr; }

 private:
  CUevent origin_ = nullptr;
  uint64_t origin_ns_ = 0;
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_TIMELINE_H_
