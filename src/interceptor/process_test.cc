// What a process lives through: no broker, a wrong broker, fork, the broker's death and return, descriptors closed
// behind our back; and what it must not notice: system calls on hot paths, changed state of the process.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "interceptor/testing/tenant.h"
#include "ledger/account.h"
#include "ledger/gate.h"
#include "tests/sanitized.h"

namespace mete::interceptor::testing {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

StandInOptions Limited() {
  StandInOptions options = Options();
  options.quota = 4 * kGiB;
  return options;
}
void Begin() {
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
}

TENANT(Unlimited) {
  REQUIRE(CU(cuInit)(0) == CUDA_ERROR_UNKNOWN);
  CUdeviceptr p;
  CUcontext context;
  REQUIRE(CU(cuMemAlloc_v2)(&p, 4096) == CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(CU(cuLaunchKernel)(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(CU(cuInit)(0) == CUDA_ERROR_UNKNOWN);  // once more changes nothing, and says nothing more
}
size_t Lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST(Process, WithoutABrokerThereIsNoGpu) {
  StandIn broker(Limited());
  broker.Stop();
  EXPECT_EQ(RunTenant(broker, "Unlimited"), 0);
  EXPECT_EQ(Lines(LastErrors()), 1u) << LastErrors();
  EXPECT_NE(LastErrors().find("mete: no broker answers at " + broker.Directory()), std::string::npos) << LastErrors();
}
TEST(Process, ARefusalIsPassedOn) {
  StandInOptions options = Limited();
  options.refusal = "share team has no free slot: end one of its processes";
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "Unlimited"), 0);
  EXPECT_EQ(LastErrors(), "mete: share team has no free slot: end one of its processes\n");
}
TEST(Process, PagesOfAnotherVersionAreRefused) {
  StandIn broker(Limited());
  broker.Ledger().version = 99;
  EXPECT_EQ(RunTenant(broker, "Unlimited"), 0);
  EXPECT_NE(LastErrors().find("cannot use the ledger"), std::string::npos) << LastErrors();
}
TENANT(ProxyOnly) { REQUIRE(CU(cuInit)(0) != CUDA_SUCCESS); }
TEST(Process, ADriverLinkThatLeadsBackIsNoDriver) {
  StandInOptions options = Limited();
  options.driver = options.proxy;
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "ProxyOnly"), 0);
}

TENANT(Forks) {
  Begin();
  CUdeviceptr p;
  REQUIRE(CU(cuMemAlloc_v2)(&p, kGiB) == CUDA_SUCCESS);
  std::atomic<bool> stop{false};
  std::thread busy([&] {  // so that locks are held when we fork
    CUdeviceptr q;
    CUcontext context;
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    while (!stop) {
      REQUIRE(CU(cuMemAlloc_v2)(&q, 4096) == CUDA_SUCCESS);
      REQUIRE(CU(cuMemFree_v2)(q) == CUDA_SUCCESS);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      // The null driver works in a child without cuInit; its quota must be kept from the first call on.
      CUdeviceptr mine;
      REQUIRE(CU(cuMemAlloc_v2)(&mine, kGiB) == CUDA_SUCCESS);
      size_t free = 0, total = 0;
      REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS);
      REQUIRE(free <= 2 * kGiB && total == 4 * kGiB);
      REQUIRE(CU(cuMemAlloc_v2)(&mine, 2 * kGiB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
      REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);  // the parent's block: not ours to give back
      REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && free <= 2 * kGiB);
      REQUIRE(CU(cuMemFree_v2)(mine) == CUDA_SUCCESS);
      _Exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
  }
  stop = true;
  busy.join();
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
}
TEST(Process, AForkedChildHasItsOwnSlot) {
  StandIn broker(Limited());
  EXPECT_EQ(RunTenant(broker, "Forks"), 0);
  EXPECT_EQ(broker.Attached(), 21u);
  for (uint32_t slot = 0; slot < 21; ++slot) EXPECT_EQ(broker.Ledger().gpu[0].memory[slot], 0u) << slot;
}

TENANT(Outlives) {
  Begin();
  CUdeviceptr p;
  REQUIRE(CU(cuMemAlloc_v2)(&p, kGiB) == CUDA_SUCCESS);
  const auto f = reinterpret_cast<CUfunction>(0x1000);
  for (;;) {  // allocates and launches until the new broker's quota of 1.5 GiB is in force
    CUdeviceptr q;
    REQUIRE(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
    const CUresult result = CU(cuMemAlloc_v2)(&q, kGiB);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    REQUIRE(result == CUDA_SUCCESS && CU(cuMemFree_v2)(q) == CUDA_SUCCESS);
    usleep(1000);
  }
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
}
class BrokerDies : public ::testing::TestWithParam<bool> {};
TEST_P(BrokerDies, ItsTenantsGoOnAndComeBack) {
  StandInOptions options = Limited();
  options.tracked = GetParam();
  StandIn broker(options);
  const int pid = StartTenant(broker, "Outlives");
  while (broker.Ledger().gpu[0].memory[0] < kGiB) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  broker.Stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // alone for a while: the old pages hold
  broker.Start();
  while (broker.Reattached() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  broker.Limits().gpu[0].memory_quota = kGiB + kGiB / 2;
  EXPECT_EQ(WaitTenant(pid), 0);
  EXPECT_EQ(broker.Attached(), 1u);
  EXPECT_EQ(broker.Ledger().gpu[0].memory[0], 0u);
  EXPECT_EQ(ledger::InFlight(broker.Ledger(), 0), 0u);
}
INSTANTIATE_TEST_SUITE_P(Process, BrokerDies, ::testing::Bool());

TENANT(Closefrom) {
  Begin();
  close_range(3, ~0u, 0);
  int ours[2];
  REQUIRE(pipe(ours) == 0);  // takes numbers that may have been mete's
  CUdeviceptr p;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(CU(cuMemAlloc_v2)(&p, kGiB) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
  }
  const pid_t child = fork();
  if (child == 0) {
    char byte = 7;
    _Exit(write(ours[1], &byte, 1) == 1 ? 0 : 1);  // still open in the child
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}
TEST(Process, DescriptorsMayBeClosedBehindOurBack) {
  StandIn broker(Limited());
  EXPECT_EQ(RunTenant(broker, "Closefrom"), 0);
}

TENANT(Hygiene) {
  umask(027);
  struct sigaction before[32] = {}, after[32] = {};
  for (int i = 1; i < 32; ++i) sigaction(i, nullptr, &before[i]);
  const std::string environment = getenv("PATH") != nullptr ? getenv("PATH") : "";
  Begin();
  CUdeviceptr p;
  REQUIRE(CU(cuMemAlloc_v2)(&p, 4096) == CUDA_SUCCESS);
  REQUIRE(CU(cuLaunchKernel)(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
  for (int i = 1; i < 32; ++i) {
    sigaction(i, nullptr, &after[i]);
    REQUIRE(before[i].sa_handler == after[i].sa_handler);
  }
  REQUIRE(umask(022) == 027);
  REQUIRE(environment == (getenv("PATH") != nullptr ? getenv("PATH") : ""));
}
TEST(Process, NothingElseChanges) {
  StandInOptions options = Limited();
  options.tracked = true;
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "Hygiene"), 0);
  EXPECT_EQ(LastErrors(), "");
}

// In strict mode the kernel kills a thread at any system call but read, write and exit.
TENANT(HotPaths) {
  Begin();
  const auto alloc = CU(cuMemAlloc_v2);
  const auto release = CU(cuMemFree_v2);
  const auto launch = CU(cuLaunchKernel);
  const auto info = CU(cuMemGetInfo_v2);
  const auto look_up = CU(cuGetProcAddress_v2);
  const auto work = [&] {
    for (size_t bytes : {size_t{4096}, size_t{64} << 20}) {
      for (int i = 0; i < 1000; ++i) {
        CUdeviceptr p = 0;
        size_t free, total;
        void* found;
        CUdriverProcAddressQueryResult status;
        if (alloc(&p, bytes) != CUDA_SUCCESS || info(&free, &total) != CUDA_SUCCESS ||
            launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS ||
            look_up("cuMemAlloc", &found, 12000, 0, &status) != CUDA_SUCCESS || release(p) != CUDA_SUCCESS) {
          syscall(SYS_exit, 1);
        }
      }
    }
  };
  work();
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
  work();
  syscall(SYS_exit, 0);
}
TEST(Process, HotPathsMakeNoSystemCall) {
  if (mete::testing::kSanitized)
    GTEST_SKIP() << "a sanitizer makes system calls of its own, so that the library's cannot be told from them; the "
                    "dev and long runs count";
  StandInOptions options = Limited();
  options.heartbeat_ahead_ns = 3'600'000'000'000;  // a late broker would be looked after, which takes system calls
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "HotPaths"), 0);
}

}  // namespace
}  // namespace mete::interceptor::testing
