// Faults that users reported of other interceptors' launch paths, by their numbers in the project's list: none of them
// here.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "interceptor/testing/tenant.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/pages.h"
#include "tests/sanitized.h"

namespace mete::interceptor::testing {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr int kCannot = 77;

StandInOptions Counted() {
  StandInOptions options = Options();
  options.tracked = true;
  options.heartbeat_ahead_ns = 3'600'000 * kMs;
  return options;
}
CUresult LaunchAKernel() {
  return CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(0x1000), 10, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
}
void BeginOn(CUdevice device) {
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, device) == CUDA_SUCCESS);
}

// 20: hundreds of processes that start together took a minute.
TENANT(Starts) { BeginOn(0); }
TEST(Fault20, ManyProcessesStartTogether) {
  StandIn broker(Options());
  constexpr uint32_t kProcesses = 64;
  int pids[kProcesses];
  for (int& pid : pids) pid = StartTenant(broker, "Starts");
  for (const int pid : pids) EXPECT_EQ(WaitTenant(pid), 0);
  EXPECT_EQ(broker.Attached(), kProcesses);
  EXPECT_EQ(broker.Ledger().slots_used, kProcesses) << "each with a slot of its own";
}

// 37: graphs were not limited.
TENANT(LaunchesAGraph) {
  BeginOn(0);
  REQUIRE(CU(cuGraphLaunch)(reinterpret_cast<CUgraphExec>(0x3000), nullptr) == CUDA_SUCCESS);
}
TEST(Fault37, AGraphWaitsForItsWindow) {
  StandIn broker(Counted());
  ledger::PublishWindow(broker.Limits(), 0, ledger::kWindowClosed);
  const int pid = StartTenant(broker, "LaunchesAGraph");
  while (broker.Rings() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u);
  ledger::PublishWindow(broker.Limits(), 0, ledger::kWindowOpen);
  ledger::FutexWake(broker.Limits().gpu[0].window_sequence, INT32_MAX);
  EXPECT_EQ(WaitTenant(pid), 0);
}

// 37: one budget for all devices made ranks wait for each other.
TENANT(LaunchesOnTheSecond) {
  BeginOn(1);
  for (int i = 0; i < 100; ++i) REQUIRE(LaunchAKernel() == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
}
TEST(Fault37, OneGpusBudgetHoldsNothingBackOnAnother) {
  StandInOptions options = Counted();
  options.gpus = {NullDeviceUuid(0), NullDeviceUuid(1)};
  options.mode = ledger::ComputeMode::kHard;
  options.share = 5000;
  StandIn broker(options);
  broker.Ledger().gpu[0].tat_ns = ledger::MonotonicNs() + 3'600'000 * kMs;
  EXPECT_EQ(RunTenant(broker, "LaunchesOnTheSecond"), 0);
  EXPECT_GT(broker.Ledger().gpu[1].finished, 0u);
  EXPECT_EQ(broker.Ledger().gpu[0].finished, 0u);
}

// The same kernel in two contexts by turns: each launch belongs to the GPU of the context that is current.
TENANT(TurnsBetweenGpus) {
  BeginOn(0);
  CUcontext first, second;
  REQUIRE(CU(cuCtxGetCurrent)(&first) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 1) == CUDA_SUCCESS);
  for (int i = 0; i < 200; ++i) {
    REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
    REQUIRE(LaunchAKernel() == CUDA_SUCCESS);
    CUcontext popped;
    REQUIRE(CU(cuCtxPushCurrent_v2)(second) == CUDA_SUCCESS);
    for (int k = 0; k < 3; ++k) REQUIRE(LaunchAKernel() == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxPopCurrent_v2)(&popped) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
  }
}
TEST(Fault37, LaunchesFollowTheCurrentContext) {
  StandInOptions options = Counted();
  options.gpus = {NullDeviceUuid(0), NullDeviceUuid(1)};
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "TurnsBetweenGpus"), 0);
  for (uint32_t gpu = 0; gpu < 2; ++gpu) {
    EXPECT_GE(broker.Ledger().gpu[gpu].finished, 200u) << gpu;
    EXPECT_EQ(ledger::InFlight(broker.Ledger(), gpu), 0u) << gpu;
  }
}

// 40: forked workers were never limited.
TENANT(ForksAWorker) {
  const pid_t child = fork();
  if (child == 0) {
    BeginOn(0);
    for (int i = 0; i < 10; ++i) REQUIRE(LaunchAKernel() == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
}
TENANT(ForksAWorkerLate) {
  BeginOn(0);
  for (int i = 0; i < 1000; ++i) REQUIRE(LaunchAKernel() == CUDA_SUCCESS);  // the parent's short way is not the child's
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
  TenantForksAWorker();
}
TEST(Fault40, ForkedWorkersAreLimited) {
  for (const char* tenant : {"ForksAWorker", "ForksAWorkerLate"}) {
    StandIn broker(Counted());
    EXPECT_EQ(RunTenant(broker, tenant), 0);
    EXPECT_GE(broker.Ledger().gpu[0].finished, 1u) << tenant;
    EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u) << tenant;
  }
}

// 41: another GPU's use was counted.
TENANT(HasTheSecondOnly) {
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS);
  TenantLaunchesOnTheSecond();
}
TEST(Fault41, UseIsCountedOnTheGpuOfThatUuid) {
  StandInOptions options = Counted();
  options.gpus = {NullDeviceUuid(1)};
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "HasTheSecondOnly"), 0);
  EXPECT_GT(broker.Ledger().gpu[0].finished, 0u);
}

// 59: every call asked for the time or the environment. From here on this thread is killed if it enters the kernel, but
// for its exit and, where launches are counted, for waking the helper that has gone to sleep.
void NoMoreSystemCalls(bool may_wake) {
  const auto allow = static_cast<uint32_t>(may_wake ? SYS_futex : SYS_exit_group);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allow, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    _exit(kCannot);
  }
}
void LaunchAllocateFree(bool may_wake) {
  BeginOn(0);
  auto* alloc = CU(cuMemAlloc_v2);
  auto* release = CU(cuMemFree_v2);
  auto* info = CU(cuMemGetInfo_v2);
  auto* launch = CU(cuLaunchKernel);
  const auto often = [&] {
    for (int i = 0; i < 5000; ++i) {
      CUdeviceptr p;
      size_t free, total;
      REQUIRE(alloc(&p, 4096) == CUDA_SUCCESS && info(&free, &total) == CUDA_SUCCESS && release(p) == CUDA_SUCCESS);
      REQUIRE(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
    }
  };
  often();
  NoMoreSystemCalls(may_wake);
  often();
  _exit(0);
}
TENANT(CallsUnlimited) { LaunchAllocateFree(false); }
TENANT(CallsLimited) { LaunchAllocateFree(true); }
TEST(Fault59, NoSystemCallToLaunchAllocateOrFree) {
  if (mete::testing::kSanitized)
    GTEST_SKIP() << "a sanitizer makes system calls of its own, so that the library's cannot be told from them; the "
                    "dev and long runs count";
  for (const bool limited : {false, true}) {
    StandInOptions options = limited ? Counted() : Options();
    options.quota = uint64_t{8} << 30;
    StandIn broker(options);
    const int status = RunTenant(broker, limited ? "CallsLimited" : "CallsUnlimited");
    if (status == kCannot) GTEST_SKIP() << "this kernel allows no seccomp filter, with which system calls are counted";
    EXPECT_EQ(status, 0) << limited;
  }
}

}  // namespace
}  // namespace mete::interceptor::testing
