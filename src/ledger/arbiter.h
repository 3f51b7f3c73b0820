// Whose turn it is on one GPU: exclusive submission windows by weighted deficit. Pure: reads numbers, returns numbers;
// the broker reads them from ledgers and writes the result into limits pages, and the simulation does the same in
// virtual time. Not thread-safe; one per GPU, owned by one thread.
#ifndef METE_LEDGER_ARBITER_H_
#define METE_LEDGER_ARBITER_H_

#include <cstdint>
#include <vector>

#include "ledger/layout.h"

namespace mete::ledger {

using ShareKey = uint64_t;

// What the broker sees of one share on this GPU.
struct ShareState {
  ShareKey key = 0;
  ComputeMode mode = ComputeMode::kWorkConserving;
  uint32_t share = kFullShare;    // hundredths of a percent
  uint32_t weight = 1;
  bool waiting = false;           // some thread waits for a window
  bool in_flight = false;         // some launch is in flight
  uint64_t outstanding_ns = 0;    // predicted rest of what is in flight, at most
  uint64_t used_ns = 0;           // GpuLedger::used_ns
  uint64_t tat_ns = 0;            // GpuLedger::tat_ns
};

struct Window {
  ShareKey key = 0;
  uint64_t until_ns = 0;          // for GpuLimits::window_until_ns
};

struct Turn {
  std::vector<Window> windows;    // one for every share passed in
  uint64_t wake_at_ns = 0;        // call Step again then at the latest; UINT64_MAX: only when a doorbell rings
};

class Arbiter {
 public:
  // Called when a doorbell rings, a share comes or goes or changes, or wake_at_ns has come. Times never go back.
  // `hand_over_ns` is how long a wake-up takes here (measured by the caller): the next window opens while the last
  // work drains if that much or less is left.
  Turn Step(uint64_t now_ns, const std::vector<ShareState>& shares, uint64_t hand_over_ns);

 private:
  struct Account {
    ShareKey key;
    uint64_t seen_used_ns;
    double virtual_time;          // used / weight, lifted on return from idleness
    bool active;
  };
  Account& AccountOf(const ShareState& share);
  std::vector<Account> accounts_;
  ShareKey owner_ = 0;
  uint64_t owner_until_ns_ = 0;
};

}  // namespace mete::ledger

#endif  // METE_LEDGER_ARBITER_H_
