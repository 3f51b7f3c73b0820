#include "ledger/gate.h"

#include <gtest/gtest.h>

#include "ledger/testing_pages.h"

namespace mete::ledger {
namespace {

using testing::Pages;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000'000'000;

struct Gate : ::testing::Test {
  void SetUp() override { pages.limits->heartbeat_ns = kStart; }
  void Beat(uint64_t now) { pages.limits->heartbeat_ns = now; }
  uint64_t Used() { return UsedNs(*pages.ledger, 0, 0); }
  Pages pages;
};

TEST_F(Gate, ChargesTheUnionAndNotTheSum) {
  const View a = pages.Join(), b = pages.Join();
  ASSERT_EQ(TryStart(a, kMs, kStart).verdict, Verdict::kGo);
  ASSERT_EQ(TryStart(b, kMs, kStart + kMs / 2).verdict, Verdict::kGo);
  Finish(a, 1, kMs, kStart + 2 * kMs);
  EXPECT_EQ(InFlight(*pages.ledger, 0), 1u);
  Finish(b, 1, kMs, kStart + 3 * kMs);
  EXPECT_EQ(Used(), 3 * kMs);
  EXPECT_EQ(InFlight(*pages.ledger, 0), 0u);
  EXPECT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
  ASSERT_EQ(TryStart(a, kMs, kStart + 10 * kMs).verdict, Verdict::kGo);
  Finish(a, 1, kMs, kStart + 11 * kMs);
  EXPECT_EQ(Used(), 4 * kMs) << "the idle time between is nobody's";
}

TEST_F(Gate, ALateClockNeverChargesTwice) {
  const View a = pages.Join();
  ASSERT_EQ(TryStart(a, kMs, kStart).verdict, Verdict::kGo);
  Finish(a, 1, kMs, kStart + 10 * kMs);
  ASSERT_EQ(TryStart(a, kMs, kStart + 5 * kMs).verdict, Verdict::kGo);  // read its clock before the other's Finish
  Finish(a, 1, kMs, kStart + 11 * kMs);
  EXPECT_EQ(Used(), 11 * kMs);
}

TEST_F(Gate, WorkThatEndsEarlyRelievesThoseWhoWait) {
  const View a = pages.Join(), b = pages.Join();
  ASSERT_EQ(TryStart(a, 5 * kMs, kStart).verdict, Verdict::kGo);
  BeginWait(b, kStart);
  const Decision held = TryStart(b, kOpenDepthNs, kStart);
  ASSERT_EQ(held.verdict, Verdict::kWait);
  ASSERT_GT(held.until_ns, kStart + 3 * kMs);
  Finish(a, 1, 5 * kMs, kStart + kMs);
  EXPECT_EQ(Relieved(a, kStart + kMs), kWakeAtOnce);
  EXPECT_EQ(TryStart(b, kOpenDepthNs, kStart + kMs).verdict, Verdict::kGo);
  Finish(b, 1, kOpenDepthNs, kStart + 2 * kMs);
  pages.limits->gpu[0].window_until_ns = kWindowQueued;
  EXPECT_EQ(Relieved(a, kStart + 2 * kMs), 0u) << "the window is closed";
  pages.limits->gpu[0].window_until_ns = kWindowOpen;
  pages.limits->gpu[0].mode = static_cast<uint32_t>(ComputeMode::kHard);
  pages.ledger->gpu[0].tat_ns = kStart + 2 * kMs + 2 * kBurstNs;
  EXPECT_EQ(Relieved(a, kStart + 2 * kMs), 1u) << "the share is out of budget";
  pages.ledger->gpu[0].tat_ns = kStart;
  EXPECT_EQ(Relieved(a, kStart + 2 * kMs), kWakeAtOnce);
  EndWait(b, kStart, kStart + 2 * kMs);
  EXPECT_EQ(Relieved(a, kStart + 2 * kMs), 0u) << "nobody waits";
}

// It may turn out to be a second long: neither siblings nor other shares count on its end before they see it.
TEST_F(Gate, WhatWasNeverMeasuredGoesAlone) {
  const View a = pages.Join(), b = pages.Join();
  const Decision first = TryStart(a, kUnknownNs, kStart);
  ASSERT_EQ(first.verdict, Verdict::kGo);
  EXPECT_GT(RestNs(*pages.ledger, 0, kStart + 100 * kMs), kDepthNs);
  EXPECT_EQ(TryStart(b, kUnknownNs, kStart + 100 * kMs).verdict, Verdict::kWait);
  Finish(a, 1, first.admitted_ns, kStart + 110 * kMs);
  EXPECT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
  EXPECT_EQ(TryStart(b, kUnknownNs, kStart + 110 * kMs).verdict, Verdict::kGo);
}

// Without this every kernel that ends would let one more go at once, and the GPU run dry between any two.
TEST_F(Gate, WhileSomebodySavesUpNobodySpendsWhatWasSaved) {
  const View a = pages.Join(), b = pages.Join();
  pages.SetCompute(ComputeMode::kHard, 9000);
  pages.ledger->gpu[0].tat_ns = kStart + kBurstNs + kMs;
  const Decision held = TryStart(a, kMs, kStart);
  ASSERT_EQ(held.verdict, Verdict::kWait);
  BeginWait(a, kStart);
  EXPECT_EQ(TryStart(b, kMs, kStart + 2 * kMs).verdict, Verdict::kWait);
  EXPECT_EQ(Relieved(b, kStart + 2 * kMs), 1u) << "to find out for how long";
  EXPECT_EQ(TryStart(a, kMs, kStart + 2 * kMs).verdict, Verdict::kWait);
  EXPECT_EQ(TryStart(a, kMs, held.until_ns).verdict, Verdict::kGo);
  EndWait(a, kStart, held.until_ns);
}

// The refill is for all processes of a share: those that do not wait get nothing of it early, and once it is there
// everybody goes on until it is used up, however many wait.
TEST_F(Gate, WhatWasSavedUpIsSpentInOneGo) {
  pages.SetCompute(ComputeMode::kHard, 9000);
  const View waits = pages.Join(), b = pages.Join();
  BeginWait(waits, kStart);
  uint64_t now = kStart, pauses = 0, longest = 0, since = 0;
  while (now < kStart + 1000 * kMs) {
    Beat(now);
    const Decision decision = TryStart(b, kMs, now);
    if (decision.verdict == Verdict::kGo) {
      now += kMs;
      Finish(b, 1, decision.admitted_ns, now);
      since += kMs;
      longest = std::max(longest, since);
    } else {
      EXPECT_EQ(TryStart(b, kMs, decision.until_ns - kMs / 10).verdict, Verdict::kWait);
      now = decision.until_ns;
      ++pauses;
      since = 0;
    }
  }
  EXPECT_LE(pauses, 1000 / (kRefillNs / kMs * 10) + 1);
  EXPECT_GE(longest, 9 * kRefillNs);
  EndWait(waits, kStart, now);
}

TEST_F(Gate, WhatWillNotComeIsNotWaitedFor) {
  constexpr uint64_t kBatch = 3 * kMs;
  const View a = pages.Join(), b = pages.Join();
  PublishWindow(*pages.limits, 0, kStart + 50 * kMs);
  const Decision batch = TryStart(a, kBatch, kStart);
  ASSERT_EQ(batch.verdict, Verdict::kGo);
  ASSERT_EQ(TryStart(b, kBatch, kStart).verdict, Verdict::kWait);
  EXPECT_EQ(Trim(a, batch.admitted_ns, batch.admitted_ns), batch.admitted_ns);
  EXPECT_EQ(Trim(a, batch.admitted_ns, 2 * batch.admitted_ns), batch.admitted_ns) << "it only gives back";
  EXPECT_EQ(RestNs(*pages.ledger, 0, kStart), kBatch);
  const uint64_t left = Trim(a, batch.admitted_ns, kLeadNs);
  EXPECT_EQ(left, kLeadNs);
  EXPECT_EQ(RestNs(*pages.ledger, 0, kStart), kLeadNs);
  EXPECT_EQ(Trim(a, left, 0), 1u) << "something is still in flight";
  const Decision next = TryStart(b, kBatch, kStart);
  EXPECT_EQ(next.verdict, Verdict::kGo);
  Finish(a, 1, 1, kStart + kMs);
  Finish(b, 1, next.admitted_ns, kStart + kMs);
  EXPECT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
}

TEST_F(Gate, AClosedWindowRingsOnceTheWaitIsAnnounced) {
  const View a = pages.Join();
  pages.limits->gpu[0].window_until_ns = kWindowClosed;
  Decision decision = TryStart(a, kMs, kStart);
  EXPECT_EQ(decision.verdict, Verdict::kWait);
  EXPECT_FALSE(decision.ring);
  BeginWait(a, kStart);
  decision = TryStart(a, kMs, kStart);
  EXPECT_TRUE(decision.ring);
  EXPECT_LE(decision.until_ns, kStart + kLongestWaitNs + 1);
  pages.limits->gpu[0].window_until_ns = kWindowQueued;
  EXPECT_FALSE(TryStart(a, kMs, kStart).ring);
  EXPECT_TRUE(PublishWindow(*pages.limits, 0, kStart + kMs));
  EXPECT_NE(pages.limits->gpu[0].window_sequence.load(), decision.window_sequence);
  EXPECT_EQ(TryStart(a, kMs, kStart).verdict, Verdict::kGo);
  EndWait(a, kStart, kStart + 3);
  EXPECT_EQ(pages.ledger->gpu[0].waits.load(), 1u);
  EXPECT_EQ(pages.ledger->gpu[0].waited_ns.load(), 3u);
  EXPECT_TRUE(Finish(a, 1, kMs, kStart + kMs)) << "drained in a bounded window";
}

TEST_F(Gate, AWindowTakesWhatFitsAndOneMoreWhenNothingIsInFlight) {
  const View a = pages.Join();
  PublishWindow(*pages.limits, 0, kStart + 2 * kMs);
  EXPECT_EQ(TryStart(a, 50 * kMs, kStart).verdict, Verdict::kGo) << "longer than every bound, but nothing in flight";
  EXPECT_EQ(TryStart(a, kMs, kStart).verdict, Verdict::kWait);
  Finish(a, 1, 50 * kMs, kStart + kMs);
  EXPECT_EQ(TryStart(a, kMs / 2, kStart + kMs).verdict, Verdict::kGo);
  EXPECT_EQ(TryStart(a, kMs / 2, kStart + kMs).verdict, Verdict::kGo);
  EXPECT_EQ(TryStart(a, kMs / 2, kStart + kMs).verdict, Verdict::kWait);
  EXPECT_EQ(TryStart(a, kMs / 2, kStart + 2 * kMs).verdict, Verdict::kWait) << "over";
}

TEST_F(Gate, DepthIsBoundedByPredictedWorkAndThenByCount) {
  const View a = pages.Join();
  int launched = 0;
  while (TryStart(a, kMs, kStart).verdict == Verdict::kGo) ++launched;
  EXPECT_EQ(launched, 20) << "alone, and no cap counts";
  const Decision decision = TryStart(a, kMs, kStart);
  EXPECT_EQ(decision.until_ns, kStart + 20 * kMs - kLeadNs);
  // Much later than predicted: nothing more goes in until a completion shows up, except after a very long time.
  EXPECT_EQ(TryStart(a, kMs, kStart + 50 * kMs).verdict, Verdict::kWait);
  Beat(kStart + 2 * kHungNs);
  EXPECT_EQ(TryStart(a, kMs, kStart + 2 * kHungNs).verdict, Verdict::kGo);
}

TEST_F(Gate, InAWindowDepthIsSmall) {
  const View a = pages.Join();
  PublishWindow(*pages.limits, 0, kStart + 50 * kMs);
  int launched = 0;
  while (TryStart(a, kMs, kStart).verdict == Verdict::kGo) ++launched;
  EXPECT_EQ(launched, 4);
}

TEST_F(Gate, AHardCapIsExactOverTime) {
  for (const uint32_t share : {100u, 1000u, 3000u, 7000u, 10000u}) {
    Pages own;
    own.SetCompute(ComputeMode::kHard, share);
    const View a = own.Join();
    const uint64_t kernel = 3 * kMs / 2;
    uint64_t now = kStart, done = 0;
    while (now < kStart + 10'000 * kMs) {
      own.limits->heartbeat_ns = now;
      const Decision decision = TryStart(a, kernel, now);
      if (decision.verdict == Verdict::kGo) {
        now += kernel;
        Finish(a, 1, kernel, now);
        done += kernel;
      } else {
        ASSERT_GT(decision.until_ns, now);
        now = decision.until_ns + 50'000;  // woken late
      }
    }
    const double percent = 100.0 * static_cast<double>(done) / (10'000.0 * kMs);
    EXPECT_NEAR(percent, share / 100.0, 0.3) << share;
  }
}

TEST_F(Gate, AStaleHeartbeatOpensWindowsAndCapsEveryMode) {
  pages.SetCompute(ComputeMode::kSoft, 1000);
  const View a = pages.Join();
  pages.limits->gpu[0].window_until_ns = kWindowClosed;
  const Decision decision = TryStart(a, kMs, kStart + 90 * kMs);
  EXPECT_EQ(decision.verdict, Verdict::kWait);
  EXPECT_EQ(decision.until_ns, kStart + kHeartbeatStaleNs + 1) << "looks again as soon as the broker counts as dead";
  uint64_t now = kStart + 101 * kMs, done = 0;
  const uint64_t end = now + 5000 * kMs;
  while (now < end) {
    const Decision next = TryStart(a, 2 * kMs, now);
    if (next.verdict == Verdict::kGo) {
      now += 2 * kMs;
      Finish(a, 1, 2 * kMs, now);
      done += 2 * kMs;
    } else {
      now = next.until_ns;
    }
  }
  EXPECT_NEAR(100.0 * static_cast<double>(done) / (5000.0 * kMs), 10.0, 0.3);
}

TEST_F(Gate, WhatASoftShareUsedWhileFreeIsNoDebtLater) {
  pages.SetCompute(ComputeMode::kSoft, 100);
  const View a = pages.Join();
  ASSERT_EQ(TryStart(a, kMs, kStart).verdict, Verdict::kGo);
  Beat(kStart + 5000 * kMs);
  Finish(a, 1, kMs, kStart + 5000 * kMs);
  EXPECT_LE(pages.ledger->gpu[0].tat_ns.load(), kStart + 5000 * kMs + kBurstNs);
}

TEST_F(Gate, ADebtIsCarriedOverAtTheNewRate) {
  pages.SetCompute(ComputeMode::kHard, 1000);
  const View a = pages.Join();
  ASSERT_EQ(TryStart(a, 100 * kMs, kStart).verdict, Verdict::kGo);
  Finish(a, 1, 100 * kMs, kStart + 100 * kMs);
  const uint64_t now = kStart + 100 * kMs;
  EXPECT_EQ(pages.ledger->gpu[0].tat_ns.load() - now, 900 * kMs);
  PublishCompute(*pages.limits, *pages.ledger, 0, ComputeMode::kHard, 9000, 5, now);
  EXPECT_EQ(pages.ledger->gpu[0].tat_ns.load() - now, 100 * kMs);
}

TEST_F(Gate, ClearingADeadSlotRestoresTheSums) {
  pages.SetCompute(ComputeMode::kHard, 5000);
  const View dead = pages.Join(), alive = pages.Join();
  ASSERT_EQ(TryStart(dead, kMs, kStart).verdict, Verdict::kGo);
  BeginWait(dead, kStart);
  EXPECT_TRUE(ClearSlot(*pages.ledger, *pages.limits, dead.slot, kStart + kMs));
  EXPECT_EQ(InFlight(*pages.ledger, 0), 0u);
  EXPECT_EQ(Waiting(*pages.ledger, 0), 0u);
  EXPECT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
  EXPECT_EQ(UsedNs(*pages.ledger, 0, kStart + 50 * kMs), kMs);
  EXPECT_EQ(TryStart(alive, kMs, kStart + kMs).verdict, Verdict::kGo);
  EXPECT_EQ(pages.Join().slot, dead.slot) << "the slot is free again";
}

TEST_F(Gate, AnEndedShareLaunchesNothing) {
  const View a = pages.Join();
  pages.limits->ended = 1;
  EXPECT_EQ(TryStart(a, kMs, kStart).verdict, Verdict::kEnded);
}

TEST_F(Gate, EveryWaitIsBoundedAndInTheFuture) {
  pages.SetCompute(ComputeMode::kHard, 1);
  const View a = pages.Join();
  pages.ledger->gpu[0].tat_ns = UINT64_MAX;
  const Decision decision = TryStart(a, UINT64_MAX, kStart);
  EXPECT_EQ(decision.verdict, Verdict::kWait);
  EXPECT_EQ(decision.until_ns, kStart + kLongestWaitNs);
}

}  // namespace
}  // namespace mete::ledger
