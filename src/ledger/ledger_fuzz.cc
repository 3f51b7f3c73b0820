// Bytes from strangers: pages, messages, and ledgers that were scribbled over. Nothing may crash, no wait may be
// without bound, and the arbiter must still hand out at most one window.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ledger/account.h"
#include "ledger/arbiter.h"
#include "ledger/gate.h"
#include "ledger/pages.h"
#include "ledger/wire.h"

namespace mete::ledger {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void DecodeAll(const uint8_t* data, size_t size) {
  Describe(CheckLimits(data, size));
  Describe(CheckLedger(data, size));
  AttachRequest attach;
  if (Decode(data, size, &attach)) Require(std::memchr(attach.program, 0, sizeof(attach.program)) != nullptr);
  ReattachRequest reattach;
  if (Decode(data, size, &reattach)) Require(std::memchr(reattach.program, 0, sizeof(reattach.program)) != nullptr);
  AttachReply reply;
  if (Decode(data, size, &reply)) Require(std::memchr(reply.message, 0, sizeof(reply.message)) != nullptr);
}

// Writes words of the input all over a ledger.
void Scribble(LedgerPage& ledger, const uint8_t* data, size_t size) {
  auto* bytes = reinterpret_cast<uint8_t*>(&ledger);
  constexpr size_t kFirst = offsetof(LedgerPage, slots_used);
  for (size_t i = 0; i + 12 <= size; i += 12) {
    uint32_t at;
    std::memcpy(&at, data + i, sizeof(at));
    const size_t offset = kFirst + at % (sizeof(LedgerPage) - kFirst - 8);
    std::memcpy(bytes + (offset & ~size_t{7}), data + i + 4, 8);
  }
  // The words that matter are few among many: aim at them as well.
  if (size >= 32) {
    std::memcpy(bytes + offsetof(LedgerPage, gpu), data, 32);
    std::memcpy(bytes + kFirst, data, 4);
  }
}

void PlayOn(const uint8_t* data, size_t size) {
  static const auto ledger = std::make_unique<LedgerPage>();
  static const auto limits = std::make_unique<LimitsPage>();
  static bool wild = false;
  const uint8_t id[16] = {};
  if (!wild) {
    InitLimits(*limits, id, 1, 1);
    limits->gpu[0].memory_quota = 1000;
    limits->gpu[0].share = 3000;
    limits->gpu[0].mode = static_cast<uint32_t>(ComputeMode::kHard);
    limits->gpu[0].window_until_ns = kWindowOpen;
    wild = true;
  }
  constexpr uint64_t kNow = 1'000'000'000'000;
  limits->heartbeat_ns = kNow;
  limits->gpu[0].mode = size > 0 ? data[0] % 3 : 0;
  Scribble(*ledger, data, size);
  const View view = {limits.get(), ledger.get(), 0, size > 1 ? data[1] : 0u};
  const uint64_t predicted = size > 2 ? uint64_t{1} << (data[2] % 64) : 1;
  if (Reserve(view, predicted)) Return(view, predicted);
  BeginWait(view, kNow);
  const Decision decision = TryStart(view, predicted, kNow);
  if (decision.verdict == Verdict::kWait) {
    Require(decision.until_ns > kNow && decision.until_ns <= kNow + kLongestWaitNs);
  } else {
    Finish(view, 1, Trim(view, decision.admitted_ns, predicted / 2), kNow + 1000);
  }
  EndWait(view, kNow, kNow + 1);
  Arbiter arbiter;
  for (uint64_t now = kNow; now < kNow + 50'000'000; now += 9'000'000) {
    const ShareState state = Observe(1, *limits, *ledger, 0, now);
    ShareState other = state;
    other.key = 2;
    other.weight = 3;
    const Turn turn = arbiter.Step(now, {state, other}, predicted);
    Require(turn.windows.size() == 2 && turn.wake_at_ns > now);
    Require(turn.windows[0].until_ns <= now || turn.windows[1].until_ns <= now);
  }
  ClearSlot(*ledger, *limits, view.slot, kNow + 2000);
}

}  // namespace
}  // namespace mete::ledger

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mete::ledger::DecodeAll(data, size);
  mete::ledger::PlayOn(data, size);
  return 0;
}
