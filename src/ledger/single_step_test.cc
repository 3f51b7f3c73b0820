// Death at every instruction: a child is stepped one instruction at a time through an operation and killed after the
// n-th, for every n until the operation is through. After each death a survivor must be able to go on at once, and
// clearing the dead slot must leave exactly what the survivor holds.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "ledger/account.h"
#include "ledger/gate.h"
#include "ledger/testing_pages.h"
#include "tests/sanitized.h"

namespace mete::ledger {
namespace {

using testing::Pages;

constexpr uint64_t kQuota = 1000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000'000'000;
constexpr long kMostSteps = 20'000;

enum class End { kKilled, kThrough, kNoTracing };

// Runs `operation` in a child and kills it after `steps` instructions. kThrough: it ended before.
End KillAfter(long steps, const std::function<void()>& operation) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
    raise(SIGSTOP);
    operation();
    raise(SIGUSR1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return End::kNoTracing;
  End end = End::kKilled;
  for (long i = 0; i < steps && end == End::kKilled; ++i) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) end = End::kNoTracing;
    if (waitpid(child, &status, 0) != child) end = End::kNoTracing;
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR1) end = End::kThrough;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return end;
}

// Prepares fresh pages, kills `operation` of the victim after each (by default: each third) number of steps, and looks
// at the survivor.
void AtEveryInstruction(const std::function<void(Pages&, const View&)>& prepare,
                        const std::function<void(const View&)>& operation) {
  if (mete::testing::kSanitized)
    GTEST_SKIP() << "a sanitizer adds instructions that do not ship; the release build is stepped through";
  // Every third instruction, beginning with another for each operation; all where time is no matter.
  static long first = 0;
  const long stride = std::getenv("METE_LONG_TESTS") != nullptr ? 1 : 3;
  long deaths = 0;
  for (long steps = first++ % stride; steps < kMostSteps; steps += stride) {
    Pages pages;
    pages.limits->gpu[0].memory_quota = kQuota;
    pages.limits->heartbeat_ns = kStart;
    const View victim = pages.Join(), survivor = pages.Join();  // slot 0 makes the shortest pauses
    ASSERT_TRUE(Reserve(survivor, 300));
    prepare(pages, victim);
    const End end = KillAfter(steps, [&] { operation(victim); });
    if (end == End::kNoTracing)
      GTEST_SKIP() << "ptrace is not allowed here, and without it no process can be stopped after an instruction";
    ++deaths;

    // Before anybody has cleared up: the survivor's calls return, and a victim can hold back what it asked for at most.
    ASSERT_TRUE(Reserve(survivor, 100)) << "after " << steps << " instructions";
    Return(survivor, 100);
    const Decision decision = TryStart(survivor, kMs / 10, kStart + kMs);
    ASSERT_EQ(decision.verdict, Verdict::kGo) << "after " << steps << " instructions";
    Finish(survivor, 1, kMs / 10, kStart + 2 * kMs);

    ClearSlot(*pages.ledger, *pages.limits, victim.slot, kStart + 3 * kMs);
    ASSERT_EQ(Used(survivor), 300u) << "after " << steps << " instructions";
    ASSERT_EQ(InFlight(*pages.ledger, 0), 0u);
    ASSERT_EQ(Waiting(*pages.ledger, 0), 0u);
    ASSERT_EQ(OutstandingNs(*pages.ledger, 0), 0u);
    ASSERT_EQ(pages.ledger->gpu[0].busy_since_ns.load() & 1, 0u) << "nothing is in flight";
    ASSERT_LE(UsedNs(*pages.ledger, 0, kStart + 3 * kMs), 3 * kMs) << "no time is charged twice";
    ASSERT_EQ(pages.Join().slot, victim.slot);
    if (end == End::kThrough) break;
  }
  EXPECT_GT(deaths, 20) << "the operation has more instructions than that";
  ::testing::Test::RecordProperty("deaths", static_cast<int>(deaths));
}

const auto kNothing = [](Pages&, const View&) {};

TEST(SingleStep, Reserve) {
  AtEveryInstruction(kNothing, [](const View& view) { Reserve(view, 200); });
}

TEST(SingleStep, AReservationThatIsRefused) {
  AtEveryInstruction([](Pages&, const View& view) { Charge(view, 600); }, [](const View& view) { Reserve(view, 150); });
}

TEST(SingleStep, Return) {
  AtEveryInstruction([](Pages&, const View& view) { Charge(view, 200); }, [](const View& view) { Return(view, 200); });
}

TEST(SingleStep, TryStart) {
  AtEveryInstruction(kNothing, [](const View& view) { TryStart(view, kMs / 10, kStart); });
}

TEST(SingleStep, TryStartUnderAHardCap) {
  AtEveryInstruction([](Pages& pages, const View&) { pages.SetCompute(ComputeMode::kHard, 5000); },
                     [](const View& view) { TryStart(view, kMs / 10, kStart); });
}

TEST(SingleStep, Finish) {
  AtEveryInstruction([](Pages&, const View& view) { TryStart(view, kMs / 10, kStart); },
                     [](const View& view) { Finish(view, 1, kMs / 10, kStart + kMs / 2); });
}

TEST(SingleStep, Fault24_AWholeLife) {
  AtEveryInstruction(kNothing, [](const View& view) {
    Reserve(view, 100);
    BeginWait(view, kStart);
    TryStart(view, kMs / 10, kStart);
    EndWait(view, kStart, kStart);
    Finish(view, 1, Trim(view, kMs / 10, kMs / 20), kStart + kMs / 4);
    Return(view, 100);
  });
}

}  // namespace
}  // namespace mete::ledger
