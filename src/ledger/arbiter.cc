#include "ledger/arbiter.h"

#include <algorithm>
#include <limits>

#include "ledger/gate.h"
#include "ledger/slots.h"

namespace mete::ledger {
namespace {

// A time that was worked out in floating point, from words that may be anything.
uint64_t InNs(double ns) { return ns >= 0x1p64 ? UINT64_MAX : ns > 0 ? static_cast<uint64_t>(ns) : 0; }

constexpr uint64_t kLongestHandOverNs = 2'000'000;
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

constexpr double kLongestCreditNs = 10e9;

// The share as a fraction of one.
double Part(const ShareState& share) { return static_cast<double>(share.share) / kFullShare; }
double Weight(const ShareState& share) { return static_cast<double>(internal::ClampShare(share.weight)); }

void Earlier(uint64_t* at, uint64_t candidate) { *at = std::min(*at, candidate); }

}  // namespace

ShareState Observe(ShareKey key, const LimitsPage& limits, const LedgerPage& ledger, uint32_t gpu, uint64_t now_ns) {
  const GpuLimits& asked = limits.gpu[gpu];
  ShareState state;
  state.key = key;
  const uint32_t mode = asked.mode.load(std::memory_order_relaxed);
  state.mode =
      mode <= static_cast<uint32_t>(ComputeMode::kSoft) ? static_cast<ComputeMode>(mode) : ComputeMode::kWorkConserving;
  state.share = internal::ClampShare(asked.share.load(std::memory_order_relaxed));
  state.weight = internal::ClampShare(asked.weight.load(std::memory_order_relaxed));
  state.waiting = Waiting(ledger, gpu) != 0;
  state.in_flight = InFlight(ledger, gpu) != 0;
  state.outstanding_ns = RestNs(ledger, gpu, now_ns);
  state.used_ns = UsedNs(ledger, gpu, now_ns);
  state.tat_ns = TatNs(ledger, gpu, state.share, now_ns);
  return state;
}

Arbiter::Account* Arbiter::Find(ShareKey key) {
  if (key == 0) return nullptr;
  for (Account& account : accounts_) {
    if (account.key == key) return &account;
  }
  return nullptr;
}

// Adds what a share has used since the last step. A ledger is written by its tenants: nobody can have used more than
// the time that has passed, and a count that falls back by more than that was rewritten and is taken as full use.
uint64_t Arbiter::ChargeUse(Account& account, uint64_t elapsed_ns) {
  const uint64_t used = account.state->used_ns;
  account.allowance_ns = internal::SaturatingAdd(account.allowance_ns, elapsed_ns);
  uint64_t step = 0;
  if (used >= account.seen_used_ns) {
    step = used - account.seen_used_ns;
    account.seen_used_ns = used;
  } else if (account.seen_used_ns - used > elapsed_ns) {
    step = elapsed_ns;
    account.seen_used_ns = used;
  }
  step = std::min(step, account.allowance_ns);
  account.allowance_ns -= step;
  account.virtual_time += static_cast<double>(step) / Weight(*account.state);
  account.arrival_ns += static_cast<double>(step) / Part(*account.state);
  if (step > 0 && account.idle_since_ns != 0) {
    Returned(account, internal::SaturatingSubtract(last_step_ns_ - account.idle_since_ns, step));
    account.idle_since_ns = 0;
  }
  return step;
}

// Whether a grace is worth its time: not with a program that waits for somebody else after each piece of work.
void Arbiter::Returned(Account& account, uint64_t idle_ns) const {
  // Who lost the GPU meanwhile was away for longer than it would have been.
  account.returns_soon = idle_ns < (account.key == owner_ ? kOwnerGraceNs : kOwnerGraceNs / 2);
}

// The next owner launches while the last one's work still drains, so both were charged for the same stretch. What was
// left to drain is the last owner's and the rest is the next one's, whichever of them the GPU let go first; where the
// last owner was not waited for, they had the GPU by turns.
void Arbiter::ForgiveOverlap(uint64_t used_ns, uint64_t elapsed_ns) {
  overlap_ns_ = std::max(0.0, overlap_ns_ + static_cast<double>(used_ns) - static_cast<double>(elapsed_ns));
  Account* owner = Find(owner_);
  if (owner == nullptr || overlap_ns_ == 0) return;
  Account* last = drainer_ == owner_ ? nullptr : Find(drainer_);
  double owners = overlap_ns_;
  if (last != nullptr) owners = drain_cut_short_ ? overlap_ns_ / 2 : std::min(overlap_ns_, drain_rest_ns_);
  drain_rest_ns_ -= std::min(drain_rest_ns_, owners);
  Forgive(*owner, owners);
  if (last != nullptr) Forgive(*last, overlap_ns_ - owners);
  overlap_ns_ = 0;
}

// While others could use it, the GPU stands idle at the expense of whose window it is: or programs that wait for each
// kernel, or for one another, would make everybody wait with them. A cap is of use, and does not count it.
void Arbiter::ChargeIdleness(uint64_t used_ns, uint64_t elapsed_ns) {
  Account* owner = Find(owner_);
  if (owner == nullptr || !contended_ || used_ns >= elapsed_ns) return;
  owner->virtual_time += static_cast<double>(elapsed_ns - used_ns) / Weight(*owner->state);
}

void Arbiter::Forgive(Account& account, double ns) {
  account.virtual_time -= ns / Weight(*account.state);
  account.arrival_ns -= ns / Part(*account.state);
}

// A budget is not lost while others keep its share waiting, only while it does not want the GPU or does not use it.
void Arbiter::Budget(Account& account, uint64_t now_ns, uint64_t elapsed_ns) {
  const auto now = static_cast<double>(now_ns);
  const bool kept = account.demand && account.key != owner_;
  if (kept) account.kept_waiting_ns += static_cast<double>(elapsed_ns);
  if (!account.demand) account.kept_waiting_ns = 0;
  account.kept_waiting_ns = std::min(account.kept_waiting_ns, kLongestCreditNs);
  const double behind = now - account.arrival_ns;
  if (behind > account.kept_waiting_ns) {
    account.arrival_ns = now - account.kept_waiting_ns;
  } else if (!kept) {
    account.kept_waiting_ns = std::max(0.0, behind);
  }
}

void Arbiter::Refresh(uint64_t now_ns, const std::vector<ShareState>& shares) {
  const uint64_t elapsed = last_step_ns_ == 0 ? 0 : internal::SaturatingSubtract(now_ns, last_step_ns_);
  last_step_ns_ = now_ns;
  for (Account& account : accounts_) account.state = nullptr;
  uint64_t used = 0;
  for (const ShareState& share : shares) {
    Account* account = Find(share.key);
    if (account == nullptr) {
      Account fresh;
      fresh.key = share.key;
      fresh.seen_used_ns = share.used_ns;
      fresh.virtual_time = floor_;
      fresh.arrival_ns = static_cast<double>(std::max(share.tat_ns, now_ns));
      accounts_.push_back(fresh);
      account = &accounts_.back();
      account->state = &share;
    } else {
      account->state = &share;
      used += ChargeUse(*account, elapsed);
    }
    account->demand = share.waiting || share.in_flight;
    account->eligible = false;
  }
  std::erase_if(accounts_, [](const Account& account) { return account.state == nullptr; });
  ForgiveOverlap(used, elapsed);
  ChargeIdleness(used, elapsed);
  for (Account& account : accounts_) Budget(account, now_ns, elapsed);
  if (Find(owner_) == nullptr) owner_ = 0;
}

// Start-time fairness: whoever comes back from idleness starts level with the least of those who were busy meanwhile.
void Arbiter::Lift(uint64_t now_ns) {
  double least = std::numeric_limits<double>::max();
  double most = floor_;
  for (Account& account : accounts_) {
    if (account.active && account.idle_since_ns != 0 && now_ns - account.idle_since_ns >= kForgetIdleNs) {
      account.active = false;
    }
    if (account.active) least = std::min(least, account.virtual_time);
    most = std::max(most, account.virtual_time);
  }
  floor_ = std::max(floor_, least == std::numeric_limits<double>::max() ? most : least);
  for (Account& account : accounts_) {
    if (account.demand) {
      if (!account.active) account.virtual_time = std::max(account.virtual_time, floor_);
      account.active = true;
      if (account.idle_since_ns != 0) Returned(account, now_ns - account.idle_since_ns);
      account.idle_since_ns = 0;
    } else if (account.idle_since_ns == 0) {
      account.idle_since_ns = now_ns;
    }
  }
}

// Who can use a window now. The owner counts for a short while after its last work: a program that waits for each
// kernel before it launches the next is idle for an instant after each.
void Arbiter::MarkEligible(uint64_t now_ns, uint64_t* wake_at_ns) {
  for (Account& account : accounts_) {
    bool wants = account.demand;
    if (!wants && account.key == owner_ && account.returns_soon && owner_until_ns_ != kWindowQueued) {
      wants = now_ns - account.idle_since_ns < kOwnerGraceNs;
      if (wants) Earlier(wake_at_ns, account.idle_since_ns + kOwnerGraceNs);
    }
    if (!wants) continue;
    const ShareState& state = *account.state;
    const double ahead = account.arrival_ns - static_cast<double>(now_ns);
    // Out of budget, it is passed over until a window is worth the hand-over. An owner with nothing in flight that
    // waits is saving up already (the gate made it).
    const bool using_it = account.key == owner_ && (state.in_flight || !state.waiting);
    const uint64_t most = using_it ? kBurstNs : kBurstNs - RefillNs(state.share);
    account.eligible = state.mode != ComputeMode::kHard || ahead <= static_cast<double>(most);
    if (!account.eligible) Earlier(wake_at_ns, InNs(account.arrival_ns) - most);
  }
}

// The eligible share that has had least; of equals not the one that had the last window.
Arbiter::Account* Arbiter::Least(const Account* last) {
  Account* least = nullptr;
  for (Account& account : accounts_) {
    if (!account.eligible) continue;
    if (least == nullptr || account.virtual_time < least->virtual_time ||
        (account.virtual_time == least->virtual_time && least == last)) {
      least = &account;
    }
  }
  return least;
}

// Somebody else would take the GPU, now or when its budget allows.
bool Arbiter::OthersWant(const Account& account) const {
  return std::any_of(accounts_.begin(), accounts_.end(),
                     [&](const Account& other) { return &other != &account && (other.eligible || other.demand); });
}

void Arbiter::Give(Account& account, uint64_t now_ns, uint64_t start_ns) {
  double weights = 0;
  uint64_t eligible = 0;
  for (const Account& other : accounts_) {
    if (!other.eligible) continue;
    weights += Weight(*other.state);
    ++eligible;
  }
  owner_ = account.key;
  drain_limit_ns_ = 0;
  if (!OthersWant(account)) {
    owner_until_ns_ = kWindowOpen;
    return;
  }
  const uint64_t round = std::max(kRoundNs, eligible * kMeanWindowNs);
  auto length = static_cast<uint64_t>(static_cast<double>(round) * Weight(*account.state) / weights);
  length = std::clamp(length, kShortestWindowNs, round);
  if (account.state->mode == ComputeMode::kHard && account.state->share < kFullShare) {  // until its budget is used up
    const double room = static_cast<double>(kBurstNs) - (account.arrival_ns - static_cast<double>(now_ns));
    const double lasts = std::max(room, 0.0) / (1 / Part(*account.state) - 1);
    if (lasts < static_cast<double>(length)) length = std::max(static_cast<uint64_t>(lasts), kShortestWindowNs);
  }
  owner_until_ns_ = std::max(now_ns, start_ns) + length;
}

// May somebody else's window open: the owner's work is done, or will be by the time the next one has woken up, or
// should have been just now. Much later than predicted, the prediction was wrong: then wait for the owner's doorbell,
// but not for ever.
bool Arbiter::MayHandOver(uint64_t now_ns, uint64_t hand_over_ns, uint64_t* wake_at_ns) {
  const Account* owner = Find(owner_);
  if (owner == nullptr || !owner->state->in_flight) return true;
  const uint64_t rest = owner->state->outstanding_ns;
  if (rest > 0) drain_end_ns_ = internal::SaturatingAdd(now_ns, rest);
  if (rest <= hand_over_ns && internal::SaturatingSubtract(now_ns, drain_end_ns_) <= 2 * hand_over_ns) return true;
  if (owner_until_ns_ != kWindowQueued) {
    owner_until_ns_ = kWindowQueued;
    drain_limit_ns_ = now_ns + std::min(rest, kLongestDrainNs) + kDrainSlackNs;
  }
  if (now_ns >= drain_limit_ns_) return true;
  Earlier(wake_at_ns, drain_limit_ns_);
  if (rest > hand_over_ns) Earlier(wake_at_ns, internal::SaturatingAdd(now_ns, rest - hand_over_ns));
  return false;
}

void Arbiter::Decide(uint64_t now_ns, uint64_t hand_over_ns, uint64_t* wake_at_ns) {
  Account* owner = Find(owner_);
  Account* next = Least(owner);
  if (next == nullptr) {
    // Nobody wants the GPU or may use it. The last owner keeps it, so that the usual single tenant never has to ask.
    if (owner == nullptr && accounts_.size() == 1) owner_ = accounts_[0].key;
    owner_until_ns_ = kWindowOpen;
    return;
  }
  const bool contended = owner != nullptr && OthersWant(*owner);
  const bool running = owner != nullptr && owner->eligible && owner_until_ns_ != kWindowQueued;
  if (running && contended && owner_until_ns_ != kWindowOpen && now_ns + hand_over_ns < owner_until_ns_) {
    Earlier(wake_at_ns, owner_until_ns_ - hand_over_ns);
    return;
  }
  uint64_t start = now_ns;
  if (next != owner) {
    if (!MayHandOver(now_ns, hand_over_ns, wake_at_ns)) return;
    if (owner != nullptr && owner->state->in_flight) {
      drainer_ = owner_;
      drain_rest_ns_ = static_cast<double>(owner->state->outstanding_ns);
      drain_cut_short_ = drain_limit_ns_ != 0 && now_ns >= drain_limit_ns_;
    }
    if (owner != nullptr && owner->state->in_flight) start += std::min(owner->state->outstanding_ns, hand_over_ns);
  }
  Give(*next, now_ns, start);
  if (owner_until_ns_ != kWindowOpen) Earlier(wake_at_ns, owner_until_ns_ - hand_over_ns);
}

Turn Arbiter::Step(uint64_t now_ns, const std::vector<ShareState>& shares, uint64_t hand_over_ns) {
  now_ns = std::max(now_ns, last_step_ns_);
  hand_over_ns = std::min(hand_over_ns, kLongestHandOverNs);
  Turn turn;
  turn.wake_at_ns = kNever;
  Refresh(now_ns, shares);
  Lift(now_ns);
  MarkEligible(now_ns, &turn.wake_at_ns);
  Decide(now_ns, hand_over_ns, &turn.wake_at_ns);
  contended_ = std::any_of(accounts_.begin(), accounts_.end(),
                           [this](const Account& account) { return account.eligible && account.key != owner_; });
  if (turn.wake_at_ns <= now_ns) turn.wake_at_ns = now_ns + 1;
  turn.windows.reserve(shares.size());
  for (const ShareState& share : shares) {
    const Account* account = Find(share.key);
    const uint64_t other = account->demand ? kWindowQueued : kWindowClosed;
    turn.windows.push_back({share.key, share.key == owner_ ? owner_until_ns_ : other});
  }
  std::stable_partition(turn.windows.begin(), turn.windows.end(),
                        [now_ns](const Window& window) { return window.until_ns <= now_ns; });
  return turn;
}

}  // namespace mete::ledger
