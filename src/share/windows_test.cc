// Two busy tenants under a real arbiter thread: both get their turns, the heavier one more.
#include "share/windows.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/pages.h"

namespace mete::share {
namespace {

// A share with one process that launches one kernel after the other on a GPU that runs one at a time.
class Busy {
 public:
  Busy(Windows& windows, ledger::ShareKey key, uint32_t percent) : windows_(windows), key_(key) {
    const uint8_t id[16] = {static_cast<uint8_t>(key)};
    limits_fd_.Reset(ledger::CreateLimits(id, 1, 1, &limits_));
    ledger_fd_.Reset(ledger::CreateLedger(1, &ledger_));
    doorbell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    ledger::PublishCompute(*limits_, *ledger_, 0, ledger::ComputeMode::kSoft, percent * 100, percent * 100,
                           ledger::MonotonicNs());
    limits_->gpu[0].flags.store(ledger::kTracked);
    slot_ = static_cast<uint32_t>(ledger::TakeSlot(*ledger_, 1, 1, 1));
    EXPECT_TRUE(windows_.Add({key_, limits_, ledger_, 0, doorbell_.get()}).ok());
  }
  ~Busy() {
    windows_.Remove(key_);
    ledger::Unmap(static_cast<const ledger::LimitsPage*>(limits_));
    ledger::Unmap(ledger_);
  }

  void Run(std::mutex& gpu, const std::atomic<bool>& stop) {
    const ledger::View view{limits_, ledger_, 0, slot_};
    constexpr uint64_t kKernelNs = 500'000;
    while (!stop.load()) {
      if (!Start(view, kKernelNs, stop)) return;
      {
        const std::lock_guard<std::mutex> running(gpu);
        std::this_thread::sleep_for(std::chrono::nanoseconds(kKernelNs));
      }
      if (ledger::Finish(view, 1, kKernelNs, ledger::MonotonicNs())) Ring();
      launches.fetch_add(1);
    }
  }
  uint64_t heartbeat() const { return limits_->heartbeat_ns.load(); }

  std::atomic<uint64_t> launches{0};

 private:
  bool Start(const ledger::View& view, uint64_t predicted, const std::atomic<bool>& stop) {
    ledger::Decision decision = ledger::TryStart(view, predicted, ledger::MonotonicNs());
    if (decision.verdict == ledger::Verdict::kGo) return true;
    const uint64_t began = ledger::MonotonicNs();
    ledger::BeginWait(view, began);
    for (;;) {
      decision = ledger::TryStart(view, predicted, ledger::MonotonicNs());
      if (decision.verdict != ledger::Verdict::kWait || stop.load()) break;
      if (decision.ring) Ring();
      ledger::FutexWaitUntil(limits_->gpu[0].window_sequence, decision.window_sequence, decision.until_ns);
    }
    ledger::EndWait(view, began, ledger::MonotonicNs());
    return decision.verdict == ledger::Verdict::kGo;
  }
  void Ring() const {
    const uint64_t one = 1;
    EXPECT_EQ(write(doorbell_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  Windows& windows_;
  ledger::ShareKey key_;
  ledger::LimitsPage* limits_ = nullptr;
  ledger::LedgerPage* ledger_ = nullptr;
  Fd limits_fd_, ledger_fd_, doorbell_;
  uint32_t slot_ = 0;
};

TEST(Windows, TwoBusySharesTakeTurnsByWeight) {
  auto windows = Windows::Start();
  ASSERT_TRUE(windows.ok());
  Busy light(**windows, 1, 10), heavy(**windows, 2, 90);
  std::mutex gpu;
  std::atomic<bool> stop{false};
  std::thread first([&] { light.Run(gpu, stop); }), second([&] { heavy.Run(gpu, stop); });
  // Ends when the light one has had its turns, however slow the machine is; a lost wake-up would hang here.
  while (light.launches.load() < 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(heavy.launches.load(), light.launches.load());
  stop.store(true);
  first.join();
  second.join();
}

TEST(Windows, TheHeartbeatGoesOnWithoutAnyDemand) {
  auto windows = Windows::Start();
  ASSERT_TRUE(windows.ok());
  Busy idle(**windows, 1, 50);
  for (int beat = 0; beat < 3; ++beat) {
    const uint64_t before = idle.heartbeat();
    while (idle.heartbeat() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Windows, ARemovedShareIsNotTouched) {
  auto windows = Windows::Start();
  ASSERT_TRUE(windows.ok());
  for (int i = 0; i < 50; ++i) {
    Busy brief(**windows, static_cast<ledger::ShareKey>(i + 1), 50);  // unmaps its pages at once: a touch would crash
  }
}

}  // namespace
}  // namespace mete::share
