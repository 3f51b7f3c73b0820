// The arbiter's thread of one GPU: whose turn it is, and the broker's sign of life. It waits for doorbells and for the
// instant the last decision named, reads every share's ledger, asks ledger::Arbiter and writes the windows into the
// limits pages. At least every 20 ms it renews the heartbeat of each share, so that tenants see when the broker stalls.
//
// Ownership: pages and doorbells belong to the caller and must stay until Remove has returned.
// Thread rule: all methods from any thread; none blocks for longer than one decision.
#ifndef METE_SHARE_WINDOWS_H_
#define METE_SHARE_WINDOWS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "ledger/arbiter.h"
#include "ledger/layout.h"
#include "share/process.h"

namespace mete::share {

class Windows {
 public:
  struct Member {
    ledger::ShareKey key = 0;
    ledger::LimitsPage* limits = nullptr;
    ledger::LedgerPage* ledger = nullptr;
    uint32_t gpu = 0;   // index into both pages' gpu[]
    int doorbell = -1;  // eventfd; may be watched by several Windows
  };

  static StatusOr<std::unique_ptr<Windows>> Start();
  ~Windows();

  Status Add(const Member& member);
  // When it returns, the member's pages are not touched any more. Unknown keys are ignored.
  void Remove(ledger::ShareKey key);
  // A share's limits changed: decide again now.
  void Kick() const;
  // How late the thread woke, lately, in nanoseconds: what a hand-over of the GPU costs here.
  uint64_t hand_over_ns() const { return hand_over_ns_.load(std::memory_order_relaxed); }

 private:
  Windows() = default;
  void Run();
  uint64_t Step(uint64_t now_ns);
  void NoteLateness(uint64_t late_ns);

  std::mutex mutex_;  // guards members_ and arbiter_
  std::vector<Member> members_;
  ledger::Arbiter arbiter_;
  Fd epoll_, kick_, timer_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> hand_over_ns_{100'000};
  std::thread thread_;
};

}  // namespace mete::share

#endif  // METE_SHARE_WINDOWS_H_
