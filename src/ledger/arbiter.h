// Whose turn it is on one GPU: exclusive submission windows, weighted fair by the GPU time that each share has used.
// Pure: reads numbers, returns numbers; the broker reads them from ledgers (Observe) and writes the result into limits
// pages (PublishWindow in pages.h, in the order given), and the simulation does the same in virtual time. Not
// thread-safe; one per GPU, owned by one thread. No errors: every input is clamped, for a ledger is written by tenants.
#ifndef METE_LEDGER_ARBITER_H_
#define METE_LEDGER_ARBITER_H_

#include <cstdint>
#include <vector>

#include "ledger/layout.h"

namespace mete::ledger {

using ShareKey = uint64_t;  // not 0

inline constexpr uint64_t kRoundNs = 20'000'000;      // the windows of all busy shares together, at least;
inline constexpr uint64_t kMeanWindowNs = 4'000'000;  // and of many, so much for each: hand-overs take their part of it
inline constexpr uint64_t kShortestWindowNs = 2'000'000;
inline constexpr uint64_t kOwnerGraceNs = 200'000;          // an idle owner keeps its window so long
inline constexpr uint64_t kForgetIdleNs = 10'000'000;       // after so long without demand credit is forfeited
inline constexpr uint64_t kLongestDrainNs = 1'000'000'000;  // of predicted rest that a hand-over waits for,
inline constexpr uint64_t kDrainSlackNs = 100'000'000;      // and so much beyond it

// What the broker sees of one share on this GPU.
struct ShareState {
  ShareKey key = 0;
  ComputeMode mode = ComputeMode::kWorkConserving;
  uint32_t share = kFullShare;  // hundredths of a percent
  uint32_t weight = 1;
  bool waiting = false;         // some thread waits for a window
  bool in_flight = false;       // some launch is in flight
  uint64_t outstanding_ns = 0;  // predicted rest of what is in flight (RestNs)
  uint64_t used_ns = 0;         // GPU time used, with the open interval (UsedNs)
  uint64_t tat_ns = 0;          // TatNs
};

// Reads a share's pages.
ShareState Observe(ShareKey key, const LimitsPage& limits, const LedgerPage& ledger, uint32_t gpu, uint64_t now_ns);

struct Window {
  ShareKey key = 0;
  uint64_t until_ns = 0;  // for GpuLimits::window_until_ns
};

struct Turn {
  std::vector<Window> windows;  // one for every share passed in; closed ones first, publish them in this order
  uint64_t wake_at_ns = 0;      // call Step again then at the latest; UINT64_MAX: only when a doorbell rings
};

class Arbiter {
 public:
  // Called when a doorbell rings, a share comes or goes or changes, or wake_at_ns has come. Times never go back.
  // `hand_over_ns` is how long a wake-up takes here (measured by the caller): the next window opens while the last
  // work drains if that much or less is left.
  Turn Step(uint64_t now_ns, const std::vector<ShareState>& shares, uint64_t hand_over_ns);

 private:
  struct Account {
    ShareKey key = 0;
    uint64_t seen_used_ns = 0;
    uint64_t allowance_ns = 0;  // how much more can have been used since the share was first seen
    double virtual_time = 0;    // used / weight, lifted on return from idleness
    // A hard share's budget beside others: its own theoretical arrival time, which may lie behind now by as much as the
    // share was kept waiting for the GPU.
    double arrival_ns = 0;
    double kept_waiting_ns = 0;
    bool active = false;         // has or recently had demand
    uint64_t idle_since_ns = 0;  // 0: had demand when last seen
    bool returns_soon = true;    // the last time it was idle it came back while a grace would have lasted
    // This step's view:
    const ShareState* state = nullptr;
    bool demand = false;
    bool eligible = false;
  };
  Account* Find(ShareKey key);
  void Refresh(uint64_t now_ns, const std::vector<ShareState>& shares);
  uint64_t ChargeUse(Account& account, uint64_t elapsed_ns);
  void Returned(Account& account, uint64_t idle_ns) const;
  void ForgiveOverlap(uint64_t used_ns, uint64_t elapsed_ns);
  void ChargeIdleness(uint64_t used_ns, uint64_t elapsed_ns);
  static void Forgive(Account& account, double ns);
  void Budget(Account& account, uint64_t now_ns, uint64_t elapsed_ns);
  bool OthersWant(const Account& account) const;
  void Lift(uint64_t now_ns);
  void MarkEligible(uint64_t now_ns, uint64_t* wake_at_ns);
  Account* Least(const Account* last);
  void Give(Account& account, uint64_t now_ns, uint64_t start_ns);
  bool MayHandOver(uint64_t now_ns, uint64_t hand_over_ns, uint64_t* wake_at_ns);
  void Decide(uint64_t now_ns, uint64_t hand_over_ns, uint64_t* wake_at_ns);

  std::vector<Account> accounts_;
  uint64_t last_step_ns_ = 0;
  double overlap_ns_ = 0;         // used by all since time began to be short for it, beyond the time that passed
  ShareKey drainer_ = 0;          // whose work was in flight at the last hand-over,
  double drain_rest_ns_ = 0;      // and how much of it,
  bool drain_cut_short_ = false;  // and whether it was not waited for any longer
  double floor_ = 0;              // no share that comes back starts below this virtual time
  ShareKey owner_ = 0;            // 0: nobody
  uint64_t owner_until_ns_ = 0;   // kWindowOpen, or the end; kWindowQueued while it drains
  bool contended_ = false;        // somebody but the owner could have used the GPU since the last step
  uint64_t drain_end_ns_ = 0;     // when its work was last predicted to end
  uint64_t drain_limit_ns_ = 0;   // while it drains: then the next window opens anyway
};

}  // namespace mete::ledger

#endif  // METE_LEDGER_ARBITER_H_
