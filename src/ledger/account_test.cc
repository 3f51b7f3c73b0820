#include "ledger/account.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "ledger/gate.h"
#include "ledger/testing_pages.h"

namespace mete::ledger {
namespace {

using testing::Pages;

TEST(Account, StopsExactlyAtTheQuota) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = 100;
  const View a = pages.Join(), b = pages.Join();
  EXPECT_TRUE(Reserve(a, 60));
  EXPECT_TRUE(Reserve(b, 40));
  EXPECT_FALSE(Reserve(a, 1));
  EXPECT_EQ(Used(a), 100u);
  EXPECT_EQ(UsedBySlot(b), 40u);
  EXPECT_EQ(pages.ledger->gpu[0].denials.load(), 1u);
  EXPECT_EQ(pages.ledger->gpu[0].last_denied_bytes.load(), 1u);
  Return(a, 60);
  EXPECT_TRUE(Reserve(b, 60));
}

TEST(Account, WhatTheDriverSaysBeyondTheChargeCounts) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = 100;
  const View a = pages.Join(), b = pages.Join();
  EXPECT_TRUE(Reserve(a, 50));
  SetOverhead(*pages.ledger, 0, b.slot, 30);
  EXPECT_EQ(Used(a), 80u);
  EXPECT_EQ(UsedBySlot(b), 0u);
  EXPECT_EQ(HeldBySlot(*pages.ledger, 0, b.slot), 30u);
  EXPECT_FALSE(Reserve(a, 21));
  EXPECT_TRUE(Reserve(a, 20));
  SetOverhead(*pages.ledger, 0, b.slot, UINT64_MAX);
  EXPECT_EQ(Used(a), UINT64_MAX);
  Return(a, 70);
  EXPECT_FALSE(Reserve(a, 1));
  ClearSlot(*pages.ledger, *pages.limits, b.slot, 1);
  EXPECT_EQ(Used(a), 0u);
}

TEST(Account, MemoryThatOthersMayHoldOutlivesTheWork) {
  Pages pages;
  const View a = pages.Join();
  EXPECT_TRUE(Reserve(a, 50));
  EXPECT_FALSE(Exported(*pages.ledger, a.slot));
  MarkExported(a);
  EXPECT_TRUE(Exported(*pages.ledger, a.slot));
  ClearWork(*pages.ledger, *pages.limits, a.slot, 1);
  EXPECT_EQ(Used(a), 50u);
  ClearSlot(*pages.ledger, *pages.limits, a.slot, 1);
  EXPECT_EQ(Used(a), 0u);
  EXPECT_FALSE(Exported(*pages.ledger, a.slot));
}

TEST(Account, NothingWrapsAround) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = UINT64_MAX - 1;
  const View a = pages.Join(), b = pages.Join();
  Charge(a, UINT64_MAX);
  Charge(a, UINT64_MAX);
  EXPECT_EQ(Used(a), UINT64_MAX);
  EXPECT_FALSE(Reserve(b, 1));
  EXPECT_FALSE(Reserve(b, UINT64_MAX));
  Return(a, UINT64_MAX);
  Return(a, 5);
  EXPECT_EQ(Used(a), 0u);
  EXPECT_TRUE(Reserve(b, 1));
}

TEST(Account, NoQuotaOnlyCounts) {
  Pages pages;
  const View a = pages.Join();
  EXPECT_TRUE(Reserve(a, uint64_t{1} << 60));
  EXPECT_EQ(Used(a), uint64_t{1} << 60);
}

TEST(Account, AnEndedShareGetsNothing) {
  Pages pages;
  const View a = pages.Join();
  pages.limits->ended = 1;
  EXPECT_FALSE(Reserve(a, 1));
  EXPECT_EQ(Used(a), 0u);
}

TEST(Account, ALoweredQuotaRefusesUntilEnoughIsGivenBack) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = 100;
  const View a = pages.Join();
  ASSERT_TRUE(Reserve(a, 90));
  pages.limits->gpu[0].memory_quota = 50;
  EXPECT_FALSE(Reserve(a, 1));
  Return(a, 41);
  EXPECT_TRUE(Reserve(a, 1));
}

TEST(Account, ScribbledSlotCountIsClamped) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = 100;
  const View a = pages.Join();
  pages.ledger->slots_used = UINT32_MAX;
  EXPECT_TRUE(Reserve(a, 100));
  EXPECT_FALSE(Reserve(a, 1));
}

// Of requests of which only one fits at a time, exactly one is granted however they meet; never two, never none.
TEST(Account, OfRacingRequestsExactlyOneFits) {
  constexpr int kThreads = 4, kRounds = 400;
  Pages pages;
  pages.limits->gpu[0].memory_quota = 10;
  std::vector<View> views;
  for (int i = 0; i < kThreads; ++i) views.push_back(pages.Join());
  std::atomic<int> granted = 0;
  int bad_rounds = 0;
  std::barrier start(kThreads);
  std::barrier settled(kThreads, [&]() noexcept {
    if (granted != 1) ++bad_rounds;
    granted = 0;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        start.arrive_and_wait();
        const bool mine = Reserve(views[i], 6);
        granted += mine ? 1 : 0;
        settled.arrive_and_wait();
        if (mine) Return(views[i], 6);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad_rounds, 0);
  EXPECT_EQ(Used(views[0]), 0u);
}

}  // namespace
}  // namespace mete::ledger
