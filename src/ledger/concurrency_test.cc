// Threads and forked processes on the same pages at once. Run under ThreadSanitizer and AddressSanitizer too.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/slots.h"
#include "ledger/testing_pages.h"

namespace mete::ledger {
namespace {

using testing::Pages;

constexpr uint64_t kQuota = 1000;

// Shared with forked children: what was granted and not yet given back, as counted by those who hold it.
struct Truth {
  std::atomic<uint64_t> granted{0};
  std::atomic<uint64_t> above_quota{0};
  std::atomic<uint64_t> refused{0};
};

void AllocateAndFree(const View& view, Truth& truth, uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < rounds; ++i) {
    const uint64_t bytes = 1 + random() % 400;
    if (!Reserve(view, bytes)) {
      truth.refused.fetch_add(1);
      continue;
    }
    if (truth.granted.fetch_add(bytes) + bytes > kQuota) truth.above_quota.fetch_add(1);
    truth.granted.fetch_sub(bytes);
    Return(view, bytes);
  }
}

TEST(Concurrency, Fault22_ThreadsNeverHoldMoreThanTheQuota) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = kQuota;
  Truth truth;
  std::vector<std::thread> threads;
  const View one = pages.Join(), two = pages.Join();
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { AllocateAndFree(i % 2 == 0 ? one : two, truth, i, 20'000); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(truth.above_quota.load(), 0u);
  EXPECT_EQ(Used(one), 0u);
}

TEST(Concurrency, ProcessesNeverHoldMoreThanTheQuota) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = kQuota;
  void* shared = mmap(nullptr, sizeof(Truth), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Truth& truth = *new (shared) Truth;
  std::vector<pid_t> children;
  for (uint64_t i = 0; i < 6; ++i) {
    const View view = pages.Join();
    const pid_t child = fork();
    if (child == 0) {
      AllocateAndFree(view, truth, i, 20'000);
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(truth.above_quota.load(), 0u);
  EXPECT_EQ(internal::Sum(*pages.ledger, pages.ledger->gpu[0].memory), 0u);
  munmap(shared, sizeof(Truth));
}

// Launches from many threads: the counts balance and the charge never exceeds the time that passed.
TEST(Concurrency, LaunchesBalanceAndTheChargeIsAtMostTheTime) {
  Pages pages;
  std::vector<View> views = {pages.Join(), pages.Join(), pages.Join()};
  std::atomic<uint64_t> clock{1'000'000'000'000};
  const uint64_t start = clock.load();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const View& view = views[i % views.size()];
      for (int round = 0; round < 20'000; ++round) {
        const uint64_t now = clock.fetch_add(50);
        pages.limits->heartbeat_ns.store(now, std::memory_order_relaxed);
        if (TryStart(view, 500, now).verdict != Verdict::kGo) continue;
        Finish(view, 1, 500, clock.fetch_add(300));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(InFlight(*pages.ledger, 0), 0u);
  EXPECT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
  EXPECT_EQ(pages.ledger->gpu[0].busy_since_ns.load() & 1, 0u) << "idle";
  EXPECT_LE(UsedNs(*pages.ledger, 0, clock.load()), clock.load() - start);
  EXPECT_GT(UsedNs(*pages.ledger, 0, clock.load()), 0u);
}

TEST(Concurrency, AWaiterWakesWhenItsWindowOpens) {
  Pages pages;
  const View view = pages.Join();
  pages.limits->heartbeat_ns = MonotonicNs() + 3'600'000'000'000;  // a broker that lives through the test
  PublishWindow(*pages.limits, 0, kWindowQueued);
  std::atomic<bool> gone{false};
  std::thread waiter([&] {
    BeginWait(view, MonotonicNs());
    for (;;) {
      const Decision decision = TryStart(view, 1000, MonotonicNs());
      if (decision.verdict == Verdict::kGo) break;
      FutexWaitUntil(view.limits->gpu[0].window_sequence, decision.window_sequence, UINT64_MAX);  // only a wake ends it
    }
    gone = true;
  });
  while (Waiting(*pages.ledger, 0) == 0) std::this_thread::yield();
  EXPECT_FALSE(gone.load());
  PublishWindow(*pages.limits, 0, kWindowOpen);
  FutexWake(pages.limits->gpu[0].window_sequence, INT32_MAX);
  waiter.join();
  EXPECT_TRUE(gone.load());
}

// Processes die by SIGKILL at random moments of a busy life. The survivor is never held up, and once a slot is cleared
// the sums are what the living hold.
TEST(Concurrency, Fault18_SurvivorsOutliveRandomKills) {
  Pages pages;
  pages.limits->gpu[0].memory_quota = kQuota;
  pages.limits->heartbeat_ns = MonotonicNs() + 3'600'000'000'000;
  const View survivor = pages.Join();
  std::mt19937_64 random(20261129);
  const int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    const View view = pages.Join();
    const pid_t child = fork();
    if (child == 0) {
      for (;;) {
        if (Reserve(view, 100)) Return(view, 100);
        if (TryStart(view, 1000, MonotonicNs()).verdict == Verdict::kGo) Finish(view, 1, 1000, MonotonicNs());
        BeginWait(view, MonotonicNs());
        EndWait(view, MonotonicNs(), MonotonicNs());
      }
    }
    const uint64_t until = MonotonicNs() + random() % 2'000'000;
    while (MonotonicNs() < until) {
      ASSERT_TRUE(Reserve(survivor, 100)) << "one neighbour can hold 100 of 1000 at most";
      Return(survivor, 100);
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(Reserve(survivor, kQuota - 100)) << "before the slot is cleared";
    Return(survivor, kQuota - 100);
    ClearSlot(*pages.ledger, *pages.limits, view.slot, MonotonicNs());
    ASSERT_EQ(Used(survivor), 0u);
    ASSERT_EQ(InFlight(*pages.ledger, 0), 0u);
    ASSERT_EQ(Waiting(*pages.ledger, 0), 0u);
    ASSERT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
    ASSERT_EQ(pages.ledger->gpu[0].busy_since_ns.load() & 1, 0u);
    ASSERT_EQ(TryStart(survivor, 1000, MonotonicNs()).verdict, Verdict::kGo);
    Finish(survivor, 1, 1000, MonotonicNs());
  }
}

}  // namespace
}  // namespace mete::ledger
