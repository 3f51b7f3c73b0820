// Threads and processes of one share at the same quota: what their drivers hold together is counted by the drivers
// themselves, in a file that they share, and the first byte over the quota aborts the one that took it. And programs
// that fork while their threads allocate and launch.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "interceptor/testing/quota.h"
#include "tests/sanitized.h"

namespace mete::interceptor::testing {
namespace {

constexpr int kThreads = 4, kRequests = mete::testing::kSanitized ? 10'000 : 100'000;
constexpr uint64_t kMost = 24 * kMiB;  // of one request

struct Held {
  int kind;
  uint64_t handle, bytes;
};

CUresult Ask(int kind, uint64_t bytes, uint64_t* handle) {
  const CUmemAllocationProp on_device = At(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  const CUDA_ARRAY_DESCRIPTOR flat{bytes / 4 / 64 + 1, 64, CU_AD_FORMAT_FLOAT, 1};
  auto* pointer = reinterpret_cast<CUdeviceptr*>(handle);
  size_t pitch = 0;
  switch (kind) {
    case 0: return CU(cuMemAlloc_v2)(pointer, bytes);
    case 1: return CU(cuMemAlloc_v2)(pointer, bytes % kMiB + 1);
    case 2: return CU(cuMemAllocManaged)(pointer, bytes, 1);
    case 3: return CU(cuMemAllocPitch_v2)(pointer, &pitch, 4, bytes / 512 + 1, 4);
    case 4: return CU(cuMemAllocAsync)(pointer, bytes, nullptr);
    case 5: return CU(cuMemCreate)(pointer, (bytes / kGranule + 1) * kGranule, &on_device, 0);
    default: return CU(cuArrayCreate_v2)(reinterpret_cast<CUarray*>(handle), &flat);
  }
}
CUresult GiveBack(const Held& held) {
  switch (held.kind) {
    case 4: return CU(cuMemFreeAsync)(held.handle, nullptr);
    case 5: return CU(cuMemRelease)(held.handle);
    case 6: return CU(cuArrayDestroy)(reinterpret_cast<CUarray>(held.handle));
    default: return CU(cuMemFree_v2)(held.handle);
  }
}

// Takes and gives at random. `at_most`: holds no more than that, so that everything must fit; otherwise takes until it
// is refused. Returns how often it was.
int Work(CUcontext context, uint64_t seed, int requests, uint64_t at_most) {
  REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  std::mt19937_64 dice(seed);
  std::deque<Held> all;
  uint64_t holds = 0;
  int refused = 0;
  const auto give = [&] {
    std::swap(all.front(), all[dice() % all.size()]);
    REQUIRE(GiveBack(all.front()) == CUDA_SUCCESS);
    holds -= all.front().bytes;
    all.pop_front();
  };
  for (int i = 0; i < requests; ++i) {
    // Arrays of less than a megabyte share granules as only an audit can see; random_test has them.
    const int kind = static_cast<int>(dice() % 7);
    const uint64_t bytes = kind == 6 ? 2 * kMiB + dice() % (kMost / 2) : 1 + dice() % (dice() % 4 == 0 ? kMost : kMiB);
    const uint64_t takes = bytes + 2 * kGranule;
    while (!all.empty() && (holds + takes > at_most || dice() % 8 == 0)) give();
    uint64_t handle = 0;
    const CUresult result = Ask(kind, bytes, &handle);
    REQUIRE(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    if (result == CUDA_SUCCESS) {
      all.push_back({kind, handle, takes});
      holds += takes;
      continue;
    }
    ++refused;
    if (at_most != UINT64_MAX)
      fprintf(stderr, "refused %llu of kind %d\n", static_cast<unsigned long long>(bytes), kind);
    for (int n = 0; n < 4 && !all.empty(); ++n) give();
    if (dice() % 16 == 0) REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  }
  while (!all.empty()) give();
  return refused;
}

// This process's part of the race; in the environment: seed, requests, 1 if everything must fit, the threads.
TENANT(Racer) {
  const uint64_t seed = Setting("RACE_SEED") + static_cast<uint64_t>(getpid()), at_most = Setting("RACE_AT_MOST");
  const int requests = static_cast<int>(Setting("RACE_REQUESTS")), threads = static_cast<int>(Setting("RACE_THREADS"));
  // The others may have taken everything already, and will have to give some of it back.
  reinterpret_cast<void (*)(int)>(Symbol("null_driver_track"))(1);
  CUcontext context = nullptr;
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  while (CU(cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS) std::this_thread::yield();
  std::atomic<int> refused{0};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] { refused += Work(context, seed * 31 + static_cast<uint64_t>(i), requests, at_most); });
  }
  for (std::thread& thread : running) thread.join();
  if (at_most != UINT64_MAX) REQUIRE(refused == 0);
  REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS && Truth() == 0);
}

// 4 processes of one thread or 1 of 4: either 4 workers.
class Race : public ::testing::TestWithParam<int> {
 protected:
  void Run(uint64_t at_most, int all_requests) {
    const int processes = GetParam();
    StandInOptions options = Limited();
    SharedTruth truth;
    StandIn broker(options);
    truth->quota[0] = kQuota;
    const uint64_t seed = Seed();
    setenv("RACE_SEED", std::to_string(seed).c_str(), 1);
    setenv("RACE_REQUESTS", std::to_string(all_requests / kThreads).c_str(), 1);
    setenv("RACE_THREADS", std::to_string(kThreads / processes).c_str(), 1);
    setenv("RACE_AT_MOST", std::to_string(at_most).c_str(), 1);
    std::vector<int> pids;
    for (int i = 0; i < processes; ++i) pids.push_back(StartTenant(broker, "Racer"));
    for (const int pid : pids) EXPECT_EQ(WaitTenant(pid), 0) << "METE_SEED=" << seed;
    EXPECT_EQ(truth->used[0], 0u);
    EXPECT_LE(truth->highest[0], kQuota);
    if (at_most == UINT64_MAX) {
      EXPECT_GT(truth->highest[0], kQuota - 2 * kMost) << "it was never tight";
    }
    for (int slot = 0; slot < processes; ++slot) EXPECT_EQ(broker.Ledger().gpu[0].memory[slot], 0u) << slot;
  }
};
TEST_P(Race, NobodyIsRefusedWhilePlentyFits) { Run(kQuota / 8, kRequests); }
TEST_P(Race, TheQuotaIsNeverExceeded) { Run(UINT64_MAX, kRequests); }
INSTANTIATE_TEST_SUITE_P(Processes, Race, ::testing::Values(1, 4));

// Forks while four threads allocate and launch. Of the children one in three starts another program, one works after an
// initialisation of its own, and one only frees what was its parent's, and goes.
TENANT(ForksInTheMiddle) {
  CUcontext context = BeginTracked();
  reinterpret_cast<void (*)(int)>(Symbol("null_driver_track"))(0);  // whose lock would be held in the child
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
      const auto function = reinterpret_cast<CUfunction>(0x1000 + i);
      while (!stop) {
        const CUdeviceptr p = Linear(4096), q = Async(kMiB);
        REQUIRE(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
        REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS && CU(cuMemFreeAsync)(q, nullptr) == CUDA_SUCCESS);
      }
    });
  }
  const CUdeviceptr parents = Linear(64 * kMiB);
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a child that hangs is killed, and seen
      if (i % 3 == 0) {
        execl("/proc/self/exe", "tenant", "--tenant", "Exec", Directory().c_str(), nullptr);
        _Exit(127);
      }
      if (i % 3 == 1) {
        REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
        for (int n = 0; n < 10; ++n) REQUIRE(CU(cuMemFree_v2)(Linear(kMiB)) == CUDA_SUCCESS);
        REQUIRE(CU(cuLaunchKernel)(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
        REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
        _Exit(0);
      }
      CU(cuMemFree_v2)(parents);
      CU(cuMemFreeAsync)(parents, nullptr);
      _Exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "child %d, of kind %d: status %d\n", i, i % 3, status);
    REQUIRE(status == 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
TENANT(Exec) {
  CUcontext context = BeginTracked();
  REQUIRE(CU(cuMemFree_v2)(Linear(kMiB)) == CUDA_SUCCESS && CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
}
class Forks : public ::testing::TestWithParam<bool> {};
TEST_P(Forks, AHundredChildrenEndWell) {
  if (mete::testing::kSanitized)
    GTEST_SKIP() << "a sanitizer's allocator keeps its locks across a fork, held or not, so that a child may wait for "
                    "nobody; the dev and long runs fork";
  StandInOptions options = Limited();
  options.quota = uint64_t{1} << 40;  // this broker clears nobody's slot
  options.tracked = GetParam();
  options.heartbeat_ahead_ns = 3'600'000'000'000;
  StandIn broker(options);
  EXPECT_EQ(RunTenant(broker, "ForksInTheMiddle"), 0);
}
INSTANTIATE_TEST_SUITE_P(Tracked, Forks, ::testing::Bool());

}  // namespace
}  // namespace mete::interceptor::testing
