// Random operations on the accounts and the gate against a plain model of what they promise.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "ledger/account.h"
#include "ledger/gate.h"
#include "ledger/testing_pages.h"

namespace mete::ledger {
namespace {

using testing::Pages;

RC_GTEST_PROP(AccountProperty, SumsAreTheTruthAndTheQuotaIsExact, ()) {
  Pages pages;
  const uint64_t quota = *rc::gen::inRange<uint64_t>(0, 1000);
  pages.limits->gpu[0].memory_quota = quota;
  std::vector<View> views;
  std::vector<uint64_t> truth;
  for (int i = 0; i < 5; ++i) {
    views.push_back(pages.Join());
    truth.push_back(0);
  }
  const auto total = [&] {
    uint64_t sum = 0;
    for (const uint64_t held : truth) sum += held;
    return sum;
  };
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    const auto who = *rc::gen::inRange<size_t>(0, views.size());
    const auto bytes = *rc::gen::inRange<uint64_t>(0, 400);
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
      case 1: {
        const bool fits = total() + bytes <= quota;
        RC_ASSERT(Reserve(views[who], bytes) == fits);
        if (fits) truth[who] += bytes;
        break;
      }
      case 2: {
        const uint64_t back = std::min(bytes, truth[who]);
        Return(views[who], back);
        truth[who] -= back;
        break;
      }
      case 3:
        Charge(views[who], bytes);
        truth[who] += bytes;
        break;
      default:  // it dies, and another process takes its slot
        ClearSlot(*pages.ledger, *pages.limits, views[who].slot, 1);
        truth[who] = 0;
        views[who] = pages.Join();
        break;
    }
    RC_ASSERT(Used(views[0]) == total());
    RC_ASSERT(UsedBySlot(views[who]) == truth[who]);
  }
}

// The charge is the measure of the union of all intervals in which anything was in flight, whatever the processes do
// and whoever dies; and TAT follows from it.
RC_GTEST_PROP(GateProperty, TheChargeIsTheUnion, ()) {
  Pages pages;
  const auto share = *rc::gen::inRange<uint32_t>(1, kFullShare + 1);
  pages.SetCompute(ComputeMode::kHard, share);
  std::vector<View> views;
  std::vector<std::vector<uint64_t>> flying(4);  // predictions of what each process has in flight
  for (int i = 0; i < 4; ++i) views.push_back(pages.Join());
  uint64_t now = 1'000'000'000'000, charged = 0, busy_from = 0;
  const auto count = [&] {
    size_t sum = 0;
    for (const auto& mine : flying) sum += mine.size();
    return sum;
  };
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    now += 2 * *rc::gen::inRange<uint64_t>(0, 20'000'000);
    pages.limits->heartbeat_ns = now;
    const auto who = *rc::gen::inRange<size_t>(0, views.size());
    const size_t before = count();
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
      case 1: {
        const auto predicted = *rc::gen::inRange<uint64_t>(1, 30'000'000);
        const Decision decision = TryStart(views[who], predicted, now);
        if (decision.verdict == Verdict::kGo) {
          if (before == 0) busy_from = now;
          flying[who].push_back(predicted);
        } else {
          RC_ASSERT(decision.until_ns > now);
          RC_ASSERT(decision.until_ns <= now + kLongestWaitNs);
          // Nothing in flight and no debt beyond what is saved up for: then it must have gone.
          RC_ASSERT(before > 0 || TatNs(*pages.ledger, 0, share, now) > now + kBurstNs - RefillNs(share));
        }
        break;
      }
      case 3:
        if (!flying[who].empty()) {
          const auto left = *rc::gen::inRange<uint64_t>(0, 40'000'000);
          const uint64_t old = flying[who].back();
          flying[who].back() = Trim(views[who], old, left);
          RC_ASSERT(flying[who].back() == std::clamp<uint64_t>(left, 1, old));
        }
        break;
      case 2:
        if (!flying[who].empty()) {
          Finish(views[who], 1, flying[who].back(), now);
          flying[who].pop_back();
        }
        break;
      default:
        ClearSlot(*pages.ledger, *pages.limits, views[who].slot, now);
        flying[who].clear();
        views[who] = pages.Join();
        break;
    }
    if (before > 0 && count() == 0) charged += now - busy_from;
    const uint64_t open = count() > 0 ? now - busy_from : 0;
    RC_ASSERT(UsedNs(*pages.ledger, 0, now) == charged + open);
    RC_ASSERT(InFlight(*pages.ledger, 0) == count());
    uint64_t outstanding = 0;
    for (const auto& mine : flying) {
      for (const uint64_t predicted : mine) outstanding += predicted;
    }
    RC_ASSERT(OutstandingNs(*pages.ledger, 0) == outstanding);
  }
}

// A share under a hard cap that always wants the GPU gets exactly its part, whatever its kernels take, whatever is
// predicted for them, and however late it wakes up (within the burst).
RC_GTEST_PROP(GateProperty, AHardCapIsKeptAndUsed, ()) {
  Pages pages;
  const auto share = *rc::gen::inRange<uint32_t>(500, kFullShare + 1);
  pages.SetCompute(ComputeMode::kHard, share);
  const View view = pages.Join();
  const auto longest = *rc::gen::inRange<uint64_t>(10'000, 20'000'000);
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  const uint64_t start = 1'000'000'000'000, window = 20'000'000'000;
  uint64_t now = start, done = 0;
  while (now < start + window) {
    pages.limits->heartbeat_ns = now;
    const uint64_t predicted = 1 + longest / 2;
    const Decision decision = TryStart(view, predicted, now);
    if (decision.verdict == Verdict::kGo) {
      const uint64_t took = 2 * (2'500 + random() % (longest / 2 - 2'500 + 1));
      now += took;
      done += took;
      Finish(view, 1, predicted, now);
    } else {
      now = decision.until_ns + 100'000;
    }
    if (longest < 1'000'000 && now > start + window / 20) break;  // short kernels: a second is enough
  }
  const double elapsed = static_cast<double>(now - start), part = share / double{kFullShare};
  const double slack = static_cast<double>(kBurstNs) * part + static_cast<double>(longest);
  RC_ASSERT(static_cast<double>(done) <= elapsed * part + slack);
  RC_ASSERT(static_cast<double>(done) >= elapsed * part - slack - 200'000);
}

}  // namespace
}  // namespace mete::ledger
