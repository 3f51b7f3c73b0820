// Reported faults, as in faults_test.cc: what is left after a death, what codes a refusal has, what is reported.
#include <dirent.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "interceptor/testing/quota.h"

namespace mete::interceptor::testing {
namespace {

// ---- B: after a death

TENANT(Endless) {
  CUcontext context = nullptr;
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  for (;;) {
    const CUdeviceptr p = Linear(4096), q = Async(4096);
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS && CU(cuMemFreeAsync)(q, nullptr) == CUDA_SUCCESS);
  }
}
TENANT(Survivor) {
  CUcontext context = nullptr;
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 1000; ++i) REQUIRE(CU(cuMemFree_v2)(Linear(kMiB)) == CUDA_SUCCESS && Charged() <= kQuota);
}
void KillsInTheMiddle(uint32_t shots) {
  StandInOptions options = Limited();
  options.quota = ledger::kNoQuota - 1;  // this broker clears nobody's slot
  StandIn broker(options);
  for (uint32_t shot = 0; shot < shots; ++shot) {
    const uint32_t before = broker.Attached();
    const int victim = StartTenant(broker, "Endless");
    while (broker.Attached() == before || broker.Ledger().gpu[0].memory[before] == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(shot * 137));
    kill(victim, SIGKILL);
    EXPECT_EQ(WaitTenant(victim), 128 + SIGKILL);
  }
  EXPECT_EQ(RunTenant(broker, "Survivor"), 0);
}
TEST(Faults, Fault16_NoLockIsLeftByTheDead) { KillsInTheMiddle(30); }

// One is killed while another waits for nothing but its own calls.
TEST(Faults, Fault17_AKillStopsNobodyElse) {
  StandInOptions options = Limited();
  options.quota = ledger::kNoQuota - 1;
  StandIn broker(options);
  for (uint32_t round = 0; round < 10; ++round) {
    const uint32_t slot = broker.Attached();
    const int victim = StartTenant(broker, "Endless");
    while (broker.Attached() == slot || broker.Ledger().gpu[0].memory[slot] == 0) std::this_thread::yield();
    const int survivor = StartTenant(broker, "Survivor");
    while (broker.Attached() == slot + 1) std::this_thread::yield();
    kill(victim, SIGKILL);
    EXPECT_EQ(WaitTenant(victim), 128 + SIGKILL);
    EXPECT_EQ(WaitTenant(survivor), 0);
  }
}

// No file that another share could also have: sockets, pages without a name, what was open before.
// What is open, by its number.
std::map<int, std::string> OpenFiles() {
  std::map<int, std::string> files;
  DIR* open = opendir("/proc/self/fd");
  REQUIRE(open != nullptr);
  while (const dirent* entry = readdir(open)) {
    char target[PATH_MAX] = {};
    if (readlinkat(dirfd(open), entry->d_name, target, sizeof target - 1) > 0) files[atoi(entry->d_name)] = target;
  }
  closedir(open);
  return files;
}
FAULT(Fault19_NothingIsSharedWithOtherTenants, Limited()) {
  const std::map<int, std::string> before = OpenFiles();
  BeginTracked();
  Linear(kMiB);
  for (const auto& [number, path] : OpenFiles()) {
    const bool harmless = before.count(number) != 0 || !path.starts_with("/") || path.starts_with("/memfd:") ||
                          path.starts_with("/dev/") || path.starts_with("/proc/");
    if (!harmless) fprintf(stderr, "open: %s\n", path.c_str());
    REQUIRE(harmless);
  }
}

TENANT(StartsOfMany) {
  BeginTracked();
  size_t free = 0, total = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && total == uint64_t{40} << 30);
}
TEST(Faults, Fault20_ManyMayStartAtOnce) {
  StandInOptions options = Limited();
  options.quota = uint64_t{1} << 40;
  StandIn broker(options);
  std::vector<int> pids;
  for (int i = 0; i < 64; ++i) pids.push_back(StartTenant(broker, "StartsOfMany"));
  for (const int pid : pids) EXPECT_EQ(WaitTenant(pid), 0);
  EXPECT_EQ(broker.Attached(), 64u);
}
// ---- C: codes

FAULT(Fault25_ARefusalIsOutOfMemory, Limited()) {
  BeginTracked();
  CUdeviceptr p = 0;
  size_t pitch = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUmodule module = nullptr;
  CUexternalMemory external = nullptr;
  const CUmemAllocationProp properties = At(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  const CUDA_ARRAY3D_DESCRIPTOR deep{1024, 1024, 1024, CU_AD_FORMAT_FLOAT, 1, 0};
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC imported{};
  imported.size = kQuota;
  const CUmemoryPool pool = OwnPool(0);
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return CU(cuMemAlloc_v2)(&p, kQuota); },
      [&] { return CU(cuMemAllocManaged)(&p, kQuota, 1); },
      [&] { return CU(cuMemAllocPitch_v2)(&p, &pitch, 1 << 20, 1 << 12, 4); },
      [&] { return CU(cuMemAllocAsync)(&p, kQuota, nullptr); },
      [&] { return CU(cuMemAllocAsync_ptsz)(&p, kQuota, nullptr); },
      [&] { return CU(cuMemAllocFromPoolAsync)(&p, kQuota, pool, nullptr); },
      [&] { return CU(cuMemCreate)(&handle, kQuota, &properties, 0); },
      [&] { return CU(cuArray3DCreate_v2)(&array, &deep); },
      [&] { return CU(cuMipmappedArrayCreate)(&mipmap, &deep, 3); },
      [&] { return CU(cuModuleLoadData)(&module, ModuleOf(kQuota).c_str()); },
      [&] { return CU(cuImportExternalMemory)(&external, &imported); }};
  for (const auto& call : calls) REQUIRE(call() == CUDA_ERROR_OUT_OF_MEMORY && Charged() == kContext);
}

FAULT(Fault26_AnUnknownAddressIsTheDriversToRefuse, Limited()) {
  BeginTracked();
  for (const CUdeviceptr p : {CUdeviceptr{0}, CUdeviceptr{1}, CUdeviceptr{0x700000000000}, ~CUdeviceptr{0}}) {
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuMemFreeAsync)(p, nullptr) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuMemFreeAsync_ptsz)(p, nullptr) == CUDA_ERROR_INVALID_VALUE);
  }
}

// ---- F: what is reported

FAULT(Fault48_TotalsAgreeWhereverTheyAreAsked, Limited()) {
  CUcontext first = BeginTracked(), second = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
  for (CUcontext context : {first, second}) {
    size_t free = 0, total = 0, of_device = 0;
    REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS);
    REQUIRE(CU(cuDeviceTotalMem_v2)(&of_device, 0) == CUDA_SUCCESS);
    REQUIRE(total == kQuota && of_device == kQuota && total - free == 2 * kContext);
  }
}

FAULT(Fault49_WhatIsFreeCanBeHad, Limited()) {
  BeginTracked();
  const CUdeviceptr kept = Linear(100'000);
  for (int i = 0; i < 10; ++i) {
    size_t free = 0, total = 0;
    CUdeviceptr p = 0, q = 0;
    REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemAlloc_v2)(&p, free) == CUDA_SUCCESS && CU(cuMemAlloc_v2)(&q, kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && free == 0);
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
  }
  REQUIRE(CU(cuMemFree_v2)(kept) == CUDA_SUCCESS);
}
FAULT(Fault49_WhatIsNotThereIsNotFree, MoreThanThereIs()) {
  BeginTracked();
  Linear(uint64_t{39} << 30);
  size_t free = 0, total = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && free == 1024 * kMiB - kContext);
}

FAULT(Fault50_NothingIsRefusedThatFits, Limited()) {
  BeginTracked();
  for (int i = 0; i < 300; ++i) {  // to the last granule, by every family in turn
    const uint64_t room = kQuota - kContext;
    const CUmemAllocationProp properties = At(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr p = i % 3 == 0 ? Linear(room / 2) : Async(room / 2);
    REQUIRE(CU(cuMemCreate)(&handle, room / 2, &properties, 0) == CUDA_SUCCESS && Truth() == kQuota);
    REQUIRE(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
    REQUIRE((i % 2 == 0 ? CU(cuMemFree_v2)(p) : CU(cuMemFreeAsync)(p, nullptr)) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);  // until then the pool has it
  }
}

}  // namespace
}  // namespace mete::interceptor::testing
