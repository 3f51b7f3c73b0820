// Launches: what is in flight is counted, completion is noticed by every route, the gate holds launches back.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "interceptor/testing/tenant.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/pages.h"
#include "tests/sanitized.h"

namespace mete::interceptor::testing {
namespace {

constexpr uint64_t kMs = 1'000'000;

StandInOptions Tracked() {
  StandInOptions options = Options();
  options.tracked = true;
  options.heartbeat_ahead_ns = 3'600'000 * kMs;
  return options;
}

void KernelNs(unsigned long long ns) {
  reinterpret_cast<void (*)(unsigned long long)>(Symbol("null_driver_kernel_ns"))(ns);
}
CUresult Launch(CUstream stream = nullptr) {
  return CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(0x1000), 10, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
}
void Begin() {
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
}
int Threads() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}

TENANT(UntrackedNeedsNoThread) {
  Begin();
  const int before = Threads();
  for (int i = 0; i < 1000; ++i) REQUIRE(Launch() == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
  REQUIRE(Threads() == before);
}
TEST(Launch, UntrackedLeavesNoTrace) {
  StandIn broker(Options());
  EXPECT_EQ(RunTenant(broker, "UntrackedNeedsNoThread"), 0);
  EXPECT_EQ(broker.Ledger().gpu[0].used_ns, 0u);
}

TENANT(Synchronised) {
  Begin();
  KernelNs(5 * kMs);
  for (int i = 0; i < 10; ++i) {
    REQUIRE(Launch() == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  }
}
TEST(Launch, SynchroniseCallsFinishWhatTheyWaitedFor) {
  StandIn broker(Tracked());
  EXPECT_EQ(RunTenant(broker, "Synchronised"), 0);
  EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u);
  EXPECT_EQ(ledger::OutstandingNs(broker.Ledger(), 0), 0u);
  EXPECT_GE(broker.Ledger().gpu[0].used_ns, 49 * kMs);  // ten of 5 ms, one after the other
}

TENANT(OnlyTheHelperSees) {
  Begin();
  KernelNs(kMs);
  const int before = Threads();
  CUstream stream;
  REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 20; ++i) REQUIRE(Launch(i % 2 == 0 ? stream : nullptr) == CUDA_SUCCESS);
  REQUIRE(mete::testing::kSanitized || Threads() == before + 1);  // a sanitizer starts a thread of its own as well
  REQUIRE(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
  getchar();  // the test looks at the ledger, then closes standard input
}
TEST(Launch, TheHelperNoticesTheEnd) {
  StandIn broker(Tracked());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(ends[0], STDIN_FILENO);
  const int pid = StartTenant(broker, "OnlyTheHelperSees");
  dup2(saved, STDIN_FILENO);
  close(ends[0]);
  const auto ended = [pid] {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  };
  while ((broker.Ledger().gpu[0].finished < 20 || ledger::InFlight(broker.Ledger(), 0) != 0) && !ended()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(broker.Ledger().gpu[0].used_ns, 17 * kMs);  // completions are dated to an eighth of a kernel
  EXPECT_EQ(ledger::OutstandingNs(broker.Ledger(), 0), 0u);
  close(ends[1]);
  EXPECT_EQ(WaitTenant(pid), 0);
  close(saved);
}

TENANT(LaunchesLessThanABatch) {
  Begin();
  KernelNs(kMs / 100);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(Launch() == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  }
  for (int i = 0; i < 300; ++i) REQUIRE(Launch() == CUDA_SUCCESS);  // batches become full ones
  KernelNs(2000 * kMs);
  CUdeviceptr sign = 0;
  REQUIRE(CU(cuMemAlloc_v2)(&sign, 1) == CUDA_SUCCESS);
  REQUIRE(Launch() == CUDA_SUCCESS);
  REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
}
// A batch was let in for half a millisecond of such kernels. Once it is closed, the next owner of the GPU is not to
// wait for those that never came.
TEST(Launch, WhatWasLetInAndNotLaunchedIsNotWaitedFor) {
  constexpr uint64_t kMuchOfABatch = kMs * 45 / 100;
  StandIn broker(Tracked());
  const int pid = StartTenant(broker, "LaunchesLessThanABatch");
  const ledger::LedgerPage& ledger = broker.Ledger();
  siginfo_t info = {};
  bool closed = false;
  while (!closed && info.si_pid == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    closed = ledger.gpu[0].memory[0] != 0 && ledger::InFlight(ledger, 0) == 1 &&
             ledger::OutstandingNs(ledger, 0) < kMuchOfABatch;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT), 0);
  }
  EXPECT_TRUE(closed);
  EXPECT_EQ(WaitTenant(pid), 0);
}

TENANT(LearnsThenIsStretched) {
  Begin();
  const auto once = [] {
    REQUIRE(Launch() == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  };
  KernelNs(5 * kMs);
  once();
  KernelNs(50 * kMs);
  for (int i = 0; i < 10; ++i) once();
  KernelNs(300 * kMs);
  REQUIRE(Launch() == CUDA_SUCCESS);
  REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
}
// A sibling of the share that keeps finishing work shares the GPU with this one: what takes longer then has not become
// costlier. Believing so would admit too little and leave the GPU idle.
TEST(Launch, CompanyTeachesNothing) {
  StandIn broker(Tracked());
  const int pid = StartTenant(broker, "LearnsThenIsStretched");
  std::thread tenant([pid] { EXPECT_EQ(WaitTenant(pid), 0); });
  ledger::GpuLedger& gpu = broker.Ledger().gpu[0];
  uint64_t last = 0;
  while (gpu.used_ns < 700 * kMs) {
    gpu.finished.fetch_add(1);
    if (gpu.used_ns > 450 * kMs) last = std::max<uint64_t>(last, ledger::OutstandingNs(broker.Ledger(), 0));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  tenant.join();
  EXPECT_GT(last, 4 * kMs);
  EXPECT_LT(last, 10 * kMs);
}

// Every way to launch and every way to see the end of it; without kernels' time, so that nothing waits.
TENANT(EveryRoute) {
  Begin();
  CUstream stream;
  REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
  const auto f = reinterpret_cast<CUfunction>(0x2000);
  CUlaunchConfig config{};
  config.hStream = stream;
  CUDA_LAUNCH_PARAMS multi{};
  CUevent event;
  REQUIRE(CU(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
  const std::function<CUresult()> launches[] = {
      [&] { return CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr); },
      [&] { return CU(cuLaunchKernel_ptsz)(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); },
      [&] { return CU(cuLaunchKernelEx)(&config, f, nullptr, nullptr); },
      [&] { return CU(cuLaunchKernelEx_ptsz)(&config, f, nullptr, nullptr); },
      [&] { return CU(cuLaunchCooperativeKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, nullptr); },
      [&] { return CU(cuLaunchCooperativeKernel_ptsz)(f, 1, 1, 1, 1, 1, 1, 0, stream, nullptr); },
      [&] { return CU(cuLaunchCooperativeKernelMultiDevice)(&multi, 1, 0); },
      [&] { return CU(cuLaunch)(f); },
      [&] { return CU(cuLaunchGrid)(f, 2, 2); },
      [&] { return CU(cuLaunchGridAsync)(f, 2, 2, stream); },
      [&] { return CU(cuGraphLaunch)(reinterpret_cast<CUgraphExec>(0x3000), stream); },
      [&] { return CU(cuGraphLaunch_ptsz)(reinterpret_cast<CUgraphExec>(0x3000), nullptr); },
  };
  const std::function<CUresult()> ends[] = {
      [&] { return CU(cuStreamSynchronize)(stream); }, [&] { return CU(cuStreamSynchronize_ptsz)(nullptr); },
      [&] { return CU(cuCtxSynchronize)(); },          [&] { return CU(cuStreamQuery)(stream); },
      [&] { return CU(cuEventSynchronize)(event); },   [&] { return CU(cuEventQuery)(event); },
  };
  for (int round = 0; round < 50; ++round) {
    for (const auto& launch : launches) {
      REQUIRE(launch() == CUDA_SUCCESS);
      REQUIRE(ends[round % 6]() == CUDA_SUCCESS);
    }
  }
  REQUIRE(CU(cuLaunchKernelEx)(nullptr, f, nullptr, nullptr) == CUDA_SUCCESS);  // the null driver's own answer
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
}
TEST(Launch, EveryRouteBalances) {
  StandIn broker(Tracked());
  EXPECT_EQ(RunTenant(broker, "EveryRoute"), 0);
  EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u);
  EXPECT_EQ(ledger::OutstandingNs(broker.Ledger(), 0), 0u);
}

TENANT(ManyThreadsAndStreams) {
  Begin();
  CUcontext context;
  REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
  KernelNs(2000);
  std::thread threads[4];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
      for (int round = 0; round < 20; ++round) {
        CUstream stream;
        REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
        for (int i = 0; i < 30; ++i) REQUIRE(Launch(i % 3 == 0 ? nullptr : stream) == CUDA_SUCCESS);
        if (round % 2 == 0) REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
        REQUIRE(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);  // and everything that is still in flight with it
}
TEST(Launch, ThreadsStreamsAndTheirEndBalance) {
  StandIn broker(Tracked());
  EXPECT_EQ(RunTenant(broker, "ManyThreadsAndStreams"), 0);
  EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u);
  EXPECT_EQ(ledger::OutstandingNs(broker.Ledger(), 0), 0u);
}

TENANT(Captured) {
  Begin();
  CUstream stream;
  CUgraph graph;
  REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
  REQUIRE(Launch(stream) == CUDA_SUCCESS);
  REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
  REQUIRE(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) REQUIRE(Launch(stream) == CUDA_SUCCESS);
  usleep(2000);
  REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(reinterpret_cast<unsigned long long (*)()>(Symbol("null_driver_events_on_captured_streams"))() == 0);
}
TEST(Launch, NothingIsRecordedOnACapturingStream) {
  StandIn broker(Tracked());
  EXPECT_EQ(RunTenant(broker, "Captured"), 0);
}

TENANT(Capped) {
  Begin();
  KernelNs(kMs);
  for (int i = 0; i < 300; ++i) {
    REQUIRE(Launch() == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  }
}
TEST(Launch, AHardCapHoldsLaunchesBack) {
  StandInOptions options = Tracked();
  options.mode = ledger::ComputeMode::kHard;
  options.share = 5000;
  StandIn broker(options);
  const uint64_t began = ledger::MonotonicNs();
  EXPECT_EQ(RunTenant(broker, "Capped"), 0);
  const uint64_t took = ledger::MonotonicNs() - began;
  // A bound, not a speed: what was used may not exceed half of the time, but for the burst.
  EXPECT_LE(broker.Ledger().gpu[0].used_ns, took / 2 + ledger::kBurstNs + 10 * kMs);
  EXPECT_GT(broker.Ledger().gpu[0].waits, 0u);
}

TENANT(ClosedWindow) {
  Begin();
  REQUIRE(Launch() == CUDA_SUCCESS);
}
TEST(Launch, AClosedWindowRingsAndWaits) {
  StandIn broker(Tracked());
  ledger::PublishWindow(broker.Limits(), 0, ledger::kWindowClosed);
  const int pid = StartTenant(broker, "ClosedWindow");
  while (broker.Rings() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ledger::Waiting(broker.Ledger(), 0), 1u);
  EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u);
  ledger::PublishWindow(broker.Limits(), 0, ledger::kWindowOpen);
  ledger::FutexWake(broker.Limits().gpu[0].window_sequence, INT32_MAX);
  EXPECT_EQ(WaitTenant(pid), 0);
  EXPECT_EQ(ledger::Waiting(broker.Ledger(), 0), 0u);
}

TENANT(Ended) {
  Begin();
  REQUIRE(Launch() == CUDA_SUCCESS);
  CUdeviceptr p;
  REQUIRE(CU(cuMemAlloc_v2)(&p, 2 << 20) == CUDA_SUCCESS);  // tells the test that we are here
  getchar();
  REQUIRE(Launch() == kShareEnded);
  REQUIRE(CU(cuMemAlloc_v2)(&p, 4096) == kOutOfMemory);
}
class EndedShare : public ::testing::TestWithParam<bool> {};
TEST_P(EndedShare, RefusesLaunchesAndMemory) {
  StandInOptions options = Options();
  options.tracked = GetParam();
  StandIn broker(options);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(ends[0], STDIN_FILENO);
  const int pid = StartTenant(broker, "Ended");
  dup2(saved, STDIN_FILENO);
  close(ends[0]);
  while (broker.Ledger().gpu[0].memory[0] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  broker.Limits().ended = 1;
  close(ends[1]);
  EXPECT_EQ(WaitTenant(pid), 0);
  close(saved);
}
INSTANTIATE_TEST_SUITE_P(Launch, EndedShare, ::testing::Bool());

}  // namespace
}  // namespace mete::interceptor::testing
