#include "interceptor/biased_lock.h"

#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

namespace mete::interceptor {
namespace {

constexpr int kOften = 2000;  // more turns in a row than any thread needs to become the owner

bool KernelHasMembarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) > 0 &&
         (syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
}

void TurnsInARow(BiasedLock& lock, int turns, long* count) {
  OwnRecord();
  for (int i = 0; i < turns; ++i) {
    std::lock_guard guard(lock);
    ++*count;
  }
}

TEST(BiasedLock, BecomesItsOnlyUsersOwn) {
  BiasedLock lock;
  long count = 0;
  TurnsInARow(lock, kOften, &count);
  EXPECT_EQ(count, kOften);
  EXPECT_EQ(lock.Biased(), KernelHasMembarrier());
}

TEST(BiasedLock, AThreadWithoutARecordUsesItAsAnyLock) {
  BiasedLock lock;
  std::thread([&] {
    ASSERT_EQ(own_record, nullptr);
    for (int i = 0; i < kOften; ++i) std::lock_guard guard(lock);
    EXPECT_FALSE(lock.Biased());
  }).join();
}

TEST(BiasedLock, LookingInFindsTheOwnerInsideOrTakesTheBias) {
  if (!KernelHasMembarrier())
    GTEST_SKIP() << "this kernel has no membarrier: the lock is an ordinary one then, as the other tests here see it";
  BiasedLock lock;
  long count = 0;
  TurnsInARow(lock, kOften, &count);
  lock.lock();  // as the owner
  std::thread([&] {
    EXPECT_FALSE(lock.TryTakeOver());
    EXPECT_FALSE(lock.try_lock());
  }).join();
  EXPECT_TRUE(lock.Biased()) << "the owner stays the owner when it could not be driven out";
  lock.unlock();
  std::thread([&] {
    EXPECT_FALSE(lock.try_lock()) << "try_lock leaves the bias where it is";
    ASSERT_TRUE(lock.TryTakeOver());
    EXPECT_FALSE(lock.Biased());
    std::thread([&] { EXPECT_FALSE(lock.TryTakeOver()); }).join();
    lock.unlock();
  }).join();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(BiasedLock, InsideOneTheOwnerTakesAnotherAsAnyThread) {
  BiasedLock outer, inner;
  long count = 0;
  TurnsInARow(outer, kOften, &count);
  TurnsInARow(inner, kOften, &count);
  outer.lock();
  inner.lock();
  std::thread([&] {
    EXPECT_FALSE(outer.TryTakeOver());
    EXPECT_FALSE(inner.TryTakeOver());
  }).join();
  inner.unlock();
  std::thread([&] { EXPECT_FALSE(outer.TryTakeOver()); }).join();
  outer.unlock();
}

// A record passes to a later thread, and with it what its locks are biased to.
TEST(BiasedLock, OutlivesItsOwner) {
  BiasedLock lock;
  long count = 0;
  for (int i = 0; i < 20; ++i) std::thread([&] { TurnsInARow(lock, 300, &count); }).join();
  EXPECT_EQ(count, 20 * 300);
}

// One thread that uses it all the time, others that come now and then by every way in: nobody is ever in it with
// another.
TEST(BiasedLock, Excludes) {
  BiasedLock lock;
  long count = 0, expected = 0;  // plain: only the lock makes this right
  bool inside = false;
  std::atomic<bool> done{false};
  std::atomic<long> others{0};
  const auto turn = [&] {
    EXPECT_FALSE(inside);
    inside = true;
    ++count;
    inside = false;
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] {  // as the helper
    while (!done.load()) {
      if (lock.TryTakeOver()) {
        turn();
        others.fetch_add(1);
        lock.unlock();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  threads.emplace_back([&] {  // as a second user
    OwnRecord();
    while (!done.load()) {
      lock.lock();
      turn();
      lock.unlock();
      if (lock.try_lock()) {
        turn();
        others.fetch_add(1);
        lock.unlock();
      }
      others.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  OwnRecord();
  constexpr long kTurns = 300'000, kVisits = 50;
  while (expected < kTurns || others.load() < kVisits) {
    std::lock_guard guard(lock);
    turn();
    ++expected;
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, expected + others.load());
}

TEST(BiasedLock, TheChildOfAForkBeginsAnew) {
  BiasedLock lock;
  long count = 0;
  TurnsInARow(lock, kOften, &count);
  const pid_t child = fork();
  if (child == 0) {
    BiasedLock::ForgetInChild();
    BiasedLock own;
    long mine = 0;
    TurnsInARow(own, kOften, &mine);
    bool taken = false;
    std::thread([&] { taken = own.TryTakeOver(); }).join();
    _exit(mine == kOften && taken ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace mete::interceptor
