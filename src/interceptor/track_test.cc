#include <gtest/gtest.h>

#include "interceptor/tracker.h"

namespace mete::interceptor {
namespace {

// `launches` of `each` ns in one batch, as Tracker opens, counts and shuts it; fewer if it is full.
uint32_t OneBatch(Track& track, uint64_t each, uint32_t launches) {
  track.admitted = track.Fit(each);
  track.launches_left = track.admitted;
  track.cost_admitted = track.cost_left = each * track.admitted;
  track.open = true;
  while (launches > 0 && track.Admits(each)) {
    track.Count(1, each);
    --launches;
  }
  track.Shut();
  return track.current.launches;
}

TEST(Track, ABatchIsBoundedByNumberAndByPredictedTime) {
  Track track;
  EXPECT_EQ(track.Fit(1), kBatchLaunches);
  EXPECT_EQ(track.Fit(kBatchNs / 10), 10u);
  EXPECT_EQ(track.Fit(kBatchNs), 1u);
  EXPECT_EQ(track.Fit(10 * kBatchNs), 1u);
  track.per_thread = true;
  EXPECT_EQ(track.Fit(1), 1u);
}

// What is let in counts as work in flight until it is shut: for a program that waits after each launch, half a
// millisecond of it each time would keep its siblings out of the end of every window.
TEST(Track, ABatchIsLetInForTwiceWhatTheLastOneHeld) {
  constexpr uint64_t kEach = kBatchNs / 100;
  Track track;
  EXPECT_EQ(OneBatch(track, kEach, 1), 1u);
  EXPECT_EQ(track.Fit(kEach), 2u);
  EXPECT_EQ(OneBatch(track, kEach, 0), 0u);
  EXPECT_EQ(track.Fit(kEach), 2u) << "at least one";
  uint32_t batches = 0, launches = 0;
  while (track.Fit(kEach) < 100) {
    launches += OneBatch(track, kEach, UINT32_MAX);
    ASSERT_LT(++batches, 10u);
  }
  EXPECT_EQ(batches, 6u) << "soon a full one again";
  EXPECT_EQ(launches, 2u + 4 + 8 + 16 + 32 + 64);
}

}  // namespace
}  // namespace mete::interceptor
