#include "ledger/arbiter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ledger/gate.h"

namespace mete::ledger {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kHandOver = 100'000;

ShareState Idle(ShareKey key, uint32_t weight = 1) {
  ShareState state;
  state.key = key;
  state.weight = weight;
  return state;
}
ShareState Waiting(ShareKey key, uint32_t weight = 1) {
  ShareState state = Idle(key, weight);
  state.waiting = true;
  return state;
}
uint64_t Until(const Turn& turn, ShareKey key) {
  for (const Window& window : turn.windows) {
    if (window.key == key) return window.until_ns;
  }
  ADD_FAILURE() << "no window for " << key;
  return 0;
}

TEST(Arbiter, OneShareAloneIsNeverWindowed) {
  Arbiter arbiter;
  EXPECT_EQ(Until(arbiter.Step(kMillisecond, {Idle(1)}, kHandOver), 1), kWindowOpen);
  const Turn turn = arbiter.Step(2 * kMillisecond, {Waiting(1)}, kHandOver);
  EXPECT_EQ(Until(turn, 1), kWindowOpen);
  EXPECT_EQ(turn.wake_at_ns, UINT64_MAX);
}

TEST(Arbiter, TheOnlyOneThatWantsTheGpuHasIt) {
  Arbiter arbiter;
  arbiter.Step(kMillisecond, {Idle(1), Idle(2)}, kHandOver);
  const Turn turn = arbiter.Step(2 * kMillisecond, {Idle(1), Waiting(2)}, kHandOver);
  EXPECT_EQ(Until(turn, 2), kWindowOpen);
  EXPECT_EQ(Until(turn, 1), kWindowClosed) << "it must ring when it wants one";
  EXPECT_EQ(Until(arbiter.Step(9 * kMillisecond, {Idle(1), Idle(2)}, kHandOver), 2), kWindowOpen)
      << "keeps it while idle";
}

TEST(Arbiter, WindowsFollowTheWeights) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1, 30), Waiting(2, 70)};
  uint64_t now = kMillisecond, held[3] = {};
  for (int i = 0; i < 4000; ++i) {
    const Turn turn = arbiter.Step(now, shares, kHandOver);
    const ShareKey owner = Until(turn, 1) > now ? 1 : 2;
    ASSERT_EQ(Until(turn, 3 - owner), kWindowQueued);
    ASSERT_LE(Until(turn, owner) - now, 20 * kMillisecond);
    ASSERT_GT(turn.wake_at_ns, now);
    shares[owner - 1].used_ns += turn.wake_at_ns - now;
    held[owner] += turn.wake_at_ns - now;
    now = turn.wake_at_ns;
  }
  EXPECT_NEAR(static_cast<double>(held[1]) / static_cast<double>(held[1] + held[2]), 0.30, 0.002);
}

// Hand-overs cost the same however short the windows are.
TEST(Arbiter, ManySharesHaveALongerRound) {
  for (const uint64_t count : {2, 5, 8, 64}) {
    Arbiter arbiter;
    std::vector<ShareState> shares;
    for (ShareKey key = 1; key <= count; ++key) shares.push_back(Waiting(key));
    const Turn turn = arbiter.Step(kMillisecond, shares, kHandOver);
    EXPECT_EQ(Until(turn, 1) - kMillisecond, std::max(kRoundNs / count, kMeanWindowNs)) << count;
  }
}

TEST(Arbiter, OverrunIsDebt) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Waiting(2)};
  uint64_t now = kMillisecond, used[3] = {};
  for (int i = 0; i < 2000; ++i) {
    const Turn turn = arbiter.Step(now, shares, 0);
    const ShareKey owner = Until(turn, 1) > now ? 1 : 2;
    const uint64_t ran = owner == 1 ? 50 * kMillisecond : turn.wake_at_ns - now;  // share 1 launches 50 ms kernels
    shares[owner - 1].used_ns += ran;
    used[owner] += ran;
    now += ran;
  }
  EXPECT_NEAR(static_cast<double>(used[1]) / static_cast<double>(used[2]), 1.0, 0.01);
}

TEST(Arbiter, Fault23_WaitsForTheDrainButNotForEver) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Idle(2)};
  arbiter.Step(kMillisecond, shares, kHandOver);
  shares[0].waiting = false;
  shares[0].in_flight = true;
  shares[0].outstanding_ns = 3 * kMillisecond;
  shares[0].used_ns = kMillisecond;
  shares[1] = Waiting(2);
  Turn turn = arbiter.Step(2 * kMillisecond, shares, kHandOver);
  EXPECT_EQ(Until(turn, 1), kWindowQueued);
  EXPECT_EQ(Until(turn, 2), kWindowQueued);
  EXPECT_EQ(turn.wake_at_ns, 2 * kMillisecond + 3 * kMillisecond - kHandOver);
  shares[0].outstanding_ns = 80'000;
  turn = arbiter.Step(turn.wake_at_ns, shares, kHandOver);
  EXPECT_GT(Until(turn, 2), 5 * kMillisecond) << "opens while the last work drains";

  Arbiter stuck;
  shares = {Waiting(1), Idle(2)};
  stuck.Step(kMillisecond, shares, kHandOver);
  shares[0].in_flight = true;
  shares[0].outstanding_ns = UINT64_MAX;  // a hung kernel, or a lie
  shares[1] = Waiting(2);
  uint64_t now = 2 * kMillisecond;
  turn = stuck.Step(now, shares, kHandOver);
  while (Until(turn, 2) <= now && now < 100'000 * kMillisecond) {
    shares[0].used_ns += turn.wake_at_ns - now;
    now = turn.wake_at_ns;
    turn = stuck.Step(now, shares, kHandOver);
  }
  EXPECT_LE(now, 2 * kMillisecond + kLongestDrainNs + kDrainSlackNs);
  EXPECT_GT(Until(turn, 2), now);
}

TEST(Arbiter, AnIdleOwnerLosesItsWindowAfterAGrace) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Waiting(2)};
  Turn turn = arbiter.Step(kMillisecond, shares, kHandOver);
  const ShareKey owner = Until(turn, 1) > kMillisecond ? 1 : 2, other = 3 - owner;
  shares[owner - 1].waiting = false;
  turn = arbiter.Step(2 * kMillisecond, shares, kHandOver);
  EXPECT_GT(Until(turn, owner), 2 * kMillisecond);
  EXPECT_EQ(turn.wake_at_ns, 2 * kMillisecond + kOwnerGraceNs);
  turn = arbiter.Step(turn.wake_at_ns, shares, kHandOver);
  EXPECT_EQ(Until(turn, other), kWindowOpen);
}

// Two that wait for one another after each piece of work, and one that does not wait: it loses nothing by them, and
// they get no grace that would be in vain each time.
TEST(Arbiter, WhoWaitsDoesSoAtItsOwnExpense) {
  constexpr uint64_t kWork = 100'000, kNoticed = 300'000;  // from the end of a piece until the broker knows
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1, 30), Waiting(2, 30), Waiting(3, 40)};
  uint64_t now = kMillisecond, graces = 0, steps = 0;
  while (now < 10'000 * kMillisecond) {
    Turn turn = arbiter.Step(now, shares, kHandOver);
    if (Until(turn, 3) > now) {
      shares[2].used_ns += turn.wake_at_ns - now;
      now = turn.wake_at_ns;
      continue;
    }
    ShareState& rank = shares[Until(turn, 1) > now ? 0 : 1];
    ShareState& other = shares[Until(turn, 1) > now ? 1 : 0];
    ASSERT_GT(Until(turn, rank.key), now);
    if (!rank.waiting) {  // it keeps its window, and has nothing to do
      ++graces;
      now = turn.wake_at_ns;
      continue;
    }
    ++steps;
    rank.used_ns += kWork;
    rank.waiting = false;
    if (!other.waiting) rank.waiting = other.waiting = true;
    now += kWork + kNoticed;
  }
  EXPECT_NEAR(100 * static_cast<double>(shares[2].used_ns) / static_cast<double>(now), 40, 0.5);
  EXPECT_NEAR(100 * static_cast<double>(steps * (kWork + kNoticed)) / static_cast<double>(now), 60, 0.5);
  EXPECT_LE(graces, 4);
}

TEST(Arbiter, IdlenessBanksNoCredit) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Idle(2)};
  uint64_t now = kMillisecond;
  for (int i = 0; i < 100; ++i) {  // share 1 alone for 10 s
    arbiter.Step(now, shares, kHandOver);
    now += 100 * kMillisecond;
    shares[0].used_ns += 100 * kMillisecond;
  }
  shares[1] = Waiting(2);
  uint64_t held[3] = {};
  for (int i = 0; i < 100; ++i) {
    const Turn turn = arbiter.Step(now, shares, kHandOver);
    const ShareKey owner = Until(turn, 1) > now ? 1 : 2;
    shares[owner - 1].used_ns += turn.wake_at_ns - now;
    held[owner] += turn.wake_at_ns - now;
    now = turn.wake_at_ns;
  }
  EXPECT_NEAR(static_cast<double>(held[1]) / static_cast<double>(held[2]), 1.0, 0.05);
}

TEST(Arbiter, AHardShareBeyondItsBudgetIsPassedOver) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Waiting(2)};
  shares[0].mode = ComputeMode::kHard;
  shares[0].tat_ns = 500 * kMillisecond;
  const uint64_t due = 500 * kMillisecond - kBurstNs + RefillNs(kFullShare);
  uint64_t now = kMillisecond;
  Turn turn = arbiter.Step(now, shares, kHandOver);
  while (Until(turn, 1) <= now) {
    ASSERT_GT(Until(turn, 2), now);
    ASSERT_LE(now, due + kRoundNs);
    shares[1].used_ns += turn.wake_at_ns - now;
    now = turn.wake_at_ns;
    turn = arbiter.Step(now, shares, kHandOver);
  }
  EXPECT_GE(now, due);
}

// What a neighbour's long kernel took away is made up for: waiting is no reason to lose a budget.
TEST(Arbiter, AHardShareThatWasKeptWaitingGetsItsPartAllTheSame) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Waiting(2)};
  shares[0].mode = ComputeMode::kHard;
  shares[0].share = shares[0].weight = 7500;
  shares[1].weight = 2500;
  constexpr uint64_t kKernel = 300 * kMillisecond;
  uint64_t now = kMillisecond, used[3] = {};
  while (now < 20'000 * kMillisecond) {
    const Turn turn = arbiter.Step(now, shares, kHandOver);
    const ShareKey owner = Until(turn, 1) > now ? 1 : Until(turn, 2) > now ? 2 : 0;
    // The second's every kernel overruns its window, and nobody can take the GPU from it.
    const uint64_t runs = owner == 2 ? kKernel : std::min(turn.wake_at_ns - now, kRoundNs);
    if (owner != 0) {
      used[owner] += runs;
      shares[owner - 1].used_ns += runs;
    }
    now += runs;
  }
  EXPECT_NEAR(static_cast<double>(used[1]) / static_cast<double>(now), 0.75, 0.02);
}

// The next owner's time counts from its launch, while the last one's work still runs: both are charged for that
// stretch.
TEST(Arbiter, NobodyPaysForWaitingUntilTheLastOwnerHasDrained) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Waiting(2)};
  uint64_t now = kMillisecond, truly[3] = {};
  ShareKey last = 0;
  for (int i = 0; i < 4000; ++i) {
    const Turn turn = arbiter.Step(now, shares, kHandOver);
    const ShareKey owner = Until(turn, 1) > now ? 1 : 2;
    const uint64_t runs = turn.wake_at_ns - now;
    // Only the first launches while the other drains.
    const uint64_t drains = owner == 1 && last == 2 ? std::min<uint64_t>(kHandOver, runs) : 0;
    truly[owner] += runs - drains;
    truly[3 - owner] += drains;
    shares[owner - 1].used_ns += runs;
    shares[2 - owner].used_ns += drains;
    for (ShareState& share : shares) share.in_flight = share.key == owner, share.outstanding_ns = 0;
    shares[owner - 1].outstanding_ns = owner == 2 ? kHandOver : 0;
    shares[owner - 1].in_flight = owner == 2;
    last = owner;
    now = turn.wake_at_ns;
  }
  EXPECT_NEAR(static_cast<double>(truly[1]) / static_cast<double>(truly[2]), 1.0, 0.01);
}

TEST(Arbiter, ARewrittenCounterGainsNothing) {
  Arbiter arbiter;
  std::vector<ShareState> shares = {Waiting(1), Waiting(2)};
  uint64_t now = kMillisecond, held[3] = {};
  for (int i = 0; i < 1000; ++i) {
    shares[0].used_ns = i % 2 == 0 ? 0 : UINT64_MAX;
    const Turn turn = arbiter.Step(now, shares, kHandOver);
    const ShareKey owner = Until(turn, 1) > now ? 1 : 2;
    held[owner] += turn.wake_at_ns - now;
    if (owner == 2) shares[1].used_ns += turn.wake_at_ns - now;
    now = turn.wake_at_ns;
  }
  EXPECT_LE(held[1], held[2] + 40 * kMillisecond);
}

TEST(Arbiter, SharesComeAndGo) {
  Arbiter arbiter;
  arbiter.Step(kMillisecond, {Waiting(1), Waiting(2), Waiting(3)}, kHandOver);
  const Turn turn = arbiter.Step(2 * kMillisecond, {Waiting(3)}, kHandOver);
  EXPECT_EQ(Until(turn, 3), kWindowOpen);
  EXPECT_TRUE(arbiter.Step(3 * kMillisecond, {}, kHandOver).windows.empty());
}

}  // namespace
}  // namespace mete::ledger
