// The faults of library interception that users have reported, each as a check that fails where the fault is: here the
// sizes that drifted, and what was counted twice or not at all. faults_after_test has deaths, codes and what is
// reported. Numbers are those of a list of such reports: 1–15 accounting, 16–24 locks and deaths, 25–26 codes, 27–36
// look-ups, 48–50 what is shown. Tests elsewhere carry theirs in their names too: 18 and 22 concurrency_test, 21
// pages_test, 23 arbiter_test, 24 single_step_test (all of the ledger), 27–36 resolver_test.
//
// What cannot occur here by construction, so that a test only shows that it is so:
//   19  tenants that wait for a lock file of all of them: there is none, and nothing else that two shares have open.
//   22, 24  two writers of one sequence lock, and one that dies in it: every word of the ledger is written by itself.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <limits.h>

#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "interceptor/testing/quota.h"

namespace mete::interceptor::testing {
namespace {

StandInOptions On(std::vector<Uuid> gpus) {
  StandInOptions options = Limited();
  options.gpus = std::move(gpus);
  return options;
}

FAULT(Fault01_ManyAsyncAllocationsDoNotDrift, Limited()) {
  BeginTracked();
  for (int i = 0; i < 5000; ++i) {
    const CUdeviceptr a = Async(1 + static_cast<size_t>(i) * 1000), b = Async(64 * kMiB);
    REQUIRE(CU(cuMemFreeAsync)(a, nullptr) == CUDA_SUCCESS && CU(cuMemFreeAsync)(b, nullptr) == CUDA_SUCCESS);
    if (i % 7 == 0) REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
    REQUIRE(Charged() >= Truth() && Charged() <= kContext + 80 * kMiB);
  }
  NothingLeftBut(kContext);
}

FAULT(Fault02_EveryFreeReachesTheDriver, Limited()) {
  BeginTracked();
  const CUmemoryPool pool = OwnPool(0);
  CUdeviceptr pooled = 0;
  REQUIRE(CU(cuMemAllocFromPoolAsync)(&pooled, 64 * kMiB, pool, nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(pooled) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(pooled) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuMemPoolTrimTo)(pool, 0) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(Async(64 * kMiB)) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFreeAsync)(Linear(64 * kMiB), nullptr) == CUDA_SUCCESS);
  NothingLeftBut(kContext);
}

FAULT(Fault02_BlocksOutliveTheirPool, Limited()) {
  BeginTracked();
  const CUmemoryPool pool = OwnPool(0);
  std::vector<CUdeviceptr> blocks(30'000);
  for (CUdeviceptr& p : blocks) REQUIRE(CU(cuMemAllocFromPoolAsync)(&p, 1, pool, nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
  // The least piece of a pool is 512 bytes: 16 MiB are still there, and an audit would not change that.
  CUdeviceptr too_much = 0;
  REQUIRE(CU(cuMemAlloc_v2)(&too_much, kQuota - kContext - 14 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  for (CUdeviceptr p : blocks) {
    REQUIRE(Charged() >= Truth());
    REQUIRE(CU(cuMemFreeAsync)(p, nullptr) == CUDA_SUCCESS);
  }
  NothingLeftBut(kContext);
}

FAULT(Fault03_WhatFailsAfterTheReservationIsGivenBack, Limited()) {
  BeginTracked();
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUarray array = nullptr;
  const CUmemAllocationProp properties = At(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  const CUDA_ARRAY3D_DESCRIPTOR three_channels{1024, 1024, 64, CU_AD_FORMAT_FLOAT, 3, 0};
  for (int i = 0; i < 200; ++i) {  // each would be 256 MiB of the quota
    REQUIRE(CU(cuMemAllocPitch_v2)(&p, nullptr, 1 << 20, 256, 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuMemCreate)(&handle, 256 * kMiB - 1, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuArray3DCreate_v2)(&array, &three_channels) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuModuleLoadData)(nullptr, ModuleOf(256 * kMiB).c_str()) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(nullptr, 0) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(CU(cuCtxCreate_v2)(nullptr, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  }
  REQUIRE(Charged() == kContext);
}

FAULT(Fault04_AFreeIsCreditedToTheDeviceOfTheBlock, On({NullDeviceUuid(0), NullDeviceUuid(1)})) {
  CUcontext first = BeginTracked(), second = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 1) == CUDA_SUCCESS);
  const CUdeviceptr linear = Linear(512 * kMiB), async = Async(512 * kMiB);
  REQUIRE(Charged() == kContext + 1024 * kMiB && Truth(1) == Charged());
  REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS && Charged() == kContext);
  REQUIRE(CU(cuMemFreeAsync)(async, nullptr) == CUDA_SUCCESS && CU(cuMemFreeAsync)(linear, nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
  REQUIRE(Charged() == kContext && Truth(0) == kContext);
  REQUIRE(CU(cuCtxSetCurrent)(second) == CUDA_SUCCESS && Charged() == kContext && Truth(1) == kContext);
}

FAULT(Fault05_ALocationThatIsNoDeviceIsNotAnIndex, Limited()) {
  BeginTracked();
  CUmemGenericAllocationHandle handle = 0;
  CUmemoryPool pool = nullptr;
  for (const int id : {850725928, -1, 2, 64, 127, 128, INT_MAX, INT_MIN}) {
    const CUmemAllocationProp device = At(CU_MEM_LOCATION_TYPE_DEVICE, id);
    REQUIRE(CU(cuMemCreate)(&handle, kGranule, &device, 0) == CUDA_ERROR_INVALID_DEVICE);
    const CUmemAllocationProp host = At(CU_MEM_LOCATION_TYPE_HOST, id), invalid = At(CU_MEM_LOCATION_TYPE_INVALID, id);
    REQUIRE(CU(cuMemCreate)(&handle, kGranule, &host, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemCreate)(&handle, kGranule, &invalid, 0) == CUDA_SUCCESS);
    CUmemPoolProps properties{};
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, id};
    REQUIRE(CU(cuMemPoolCreate)(&pool, &properties) == CUDA_ERROR_INVALID_VALUE);
    CUcontext context = nullptr;
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, id) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, id) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(Charged() == kContext);
  }
}

FAULT(Fault06_NothingUnderflows, Limited()) {
  CUcontext first = BeginTracked();
  for (int i = 0; i < 100; ++i) {
    CUcontext second = nullptr;
    REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
    const CUdeviceptr p = Linear(64 * kMiB), q = Linear(100), a = Async(1000);
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS && CU(cuMemFree_v2)(p) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuMemFreeAsync)(p, nullptr) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuCtxDestroy_v2)(second) == CUDA_SUCCESS && CU(cuCtxDestroy_v2)(second) != CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemFree_v2)(q) == CUDA_ERROR_INVALID_VALUE && CU(cuMemFree_v2)(a) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemFree_v2)(a) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuDevicePrimaryCtxRelease_v2)(0) != CUDA_SUCCESS);
    REQUIRE(Charged() >= kContext && Charged() <= kContext + kGranule);
  }
  NothingLeftBut(kContext);
}

// The quota is lowered below what is held: nothing is free, and asking is no error.
TENANT(Fault07) {
  BeginTracked();
  const CUdeviceptr p = Linear(2048 * kMiB);
  size_t free = 1, total = 0;
  while (total != 1024 * kMiB) {
    REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS);
    REQUIRE(free <= total);
  }
  REQUIRE(free == 0);
  CUdeviceptr q = 0;
  REQUIRE(CU(cuMemAlloc_v2)(&q, 1) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && free == 1024 * kMiB - kContext);
}
TEST(Faults, Fault07_MoreUsedThanTheLimitIsNothingFreeAndNoError) {
  StandIn broker(Limited());
  const int pid = StartTenant(broker, "Fault07");
  while (broker.Ledger().gpu[0].memory[0] < 2048 * kMiB) std::this_thread::yield();
  broker.Limits().gpu[0].memory_quota = 1024 * kMiB;
  EXPECT_EQ(WaitTenant(pid), 0);
}

FAULT(Fault08_ContextsModulesPoolsAndGraphsAreCounted, Limited()) {
  BeginTracked();
  CUmodule module = nullptr;
  REQUIRE(CU(cuModuleLoadData)(&module, ModuleOf(64 * kMiB).c_str()) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFreeAsync)(Async(64 * kMiB), nullptr) == CUDA_SUCCESS);  // stays with the pool
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  parameters.bytesize = 64 * kMiB;
  REQUIRE(CU(cuGraphCreate)(&graph, 0) == CUDA_SUCCESS);
  REQUIRE(CU(cuGraphAddMemAllocNode)(&node, graph, nullptr, 0, &parameters) == CUDA_SUCCESS);
  REQUIRE(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
  REQUIRE(CU(cuGraphLaunch)(exec, nullptr) == CUDA_SUCCESS && CU(cuGraphLaunch)(exec, nullptr) == CUDA_SUCCESS);
  REQUIRE(Truth() == kContext + 192 * kMiB && Charged() == Truth());
  REQUIRE(CU(cuGraphExecDestroy)(exec) == CUDA_SUCCESS && CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
  REQUIRE(Charged() == Truth() && CU(cuDeviceGraphMemTrim)(0) == CUDA_SUCCESS);
  REQUIRE(CU(cuModuleUnload)(module) == CUDA_SUCCESS);
  NothingLeftBut(kContext);
}

FAULT(Fault09_ContextsCountAgainstTheLimit, Limited()) {
  BeginTracked();
  CUcontext context = nullptr;
  const CUdeviceptr p = Linear(kQuota - 2 * kContext + kGranule);
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
  Linear(kQuota - 2 * kContext);
  REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS && Truth() == kQuota && Charged() == kQuota);
  CUgreenCtx green = nullptr;
  REQUIRE(CU(cuGreenCtxCreate)(&green, nullptr, 0, 1) == CUDA_ERROR_OUT_OF_MEMORY);
}

FAULT(Fault09_GreenContextsToo, Limited()) {
  CUcontext first = BeginTracked();
  for (int round = 0; round < 20; ++round) {
    CUgreenCtx green = nullptr;
    CUcontext context = nullptr;
    REQUIRE(CU(cuGreenCtxCreate)(&green, nullptr, 0, 1) == CUDA_SUCCESS);
    REQUIRE(Charged() == 2 * kContext && Truth() == 2 * kContext);
    REQUIRE(CU(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    const CUdeviceptr p = Linear(64 * kMiB);
    REQUIRE(Charged() == Truth() && CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS && CU(cuGreenCtxDestroy)(green) == CUDA_SUCCESS);
    REQUIRE(CU(cuGreenCtxDestroy)(green) != CUDA_SUCCESS);
    NothingLeftBut(kContext);
  }
}

FAULT(Fault10_APrimaryContextIsChargedOnceAndOnlyIfItIsThere, Limited()) {
  BeginTracked();
  for (int round = 0; round < 20; ++round) {
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(nullptr, 0) != CUDA_SUCCESS && Charged() == kContext);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([] {
        CUcontext context = nullptr;
        REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(Charged() == 2 * kContext && Truth() == 2 * kContext);
    for (int i = 0; i < 8; ++i) REQUIRE(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
    REQUIRE(Charged() == kContext && Truth() == kContext);
  }
}

// The share has the second GPU, which is the first of its list; the program's device 0 is somebody else's.
FAULT(Fault11_TheGpusAreTheShares, On({NullDeviceUuid(1)})) {
  reinterpret_cast<void (*)(int)>(Symbol("null_driver_track"))(1);
  CUcontext context = nullptr;
  size_t total = 0;
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == kNotInShare);
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 1) == CUDA_SUCCESS);
  REQUIRE(CU(cuDeviceTotalMem_v2)(&total, 1) == CUDA_SUCCESS && total == kQuota);
  CUdeviceptr p = 0;
  while (CU(cuMemAlloc_v2)(&p, 64 * kMiB) == CUDA_SUCCESS) REQUIRE(Truth(1) <= kQuota);
  REQUIRE(Truth(0) == 0 && Truth(1) > kQuota - 64 * kMiB && Charged() == Truth(1));
}

TENANT(Fault12) {
  reinterpret_cast<void (*)(int)>(Symbol("null_driver_track"))(1);
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  for (int device = 0; device < 2; ++device) {
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, device) == CUDA_SUCCESS);
    Linear((device == 0 ? 512 : 1024) * kMiB);
  }
}
TEST(Faults, Fault12_ChargesFollowTheUuidInWhateverOrder) {
  StandIn broker(On({NullDeviceUuid(1), NullDeviceUuid(0)}));
  EXPECT_EQ(RunTenant(broker, "Fault12"), 0);
  EXPECT_EQ(broker.Ledger().gpu[0].memory[0], kContext + 1024 * kMiB);
  EXPECT_EQ(broker.Ledger().gpu[1].memory[0], kContext + 512 * kMiB);
}

FAULT(Fault13_WhatPointersAreIsTheDriversToSay, Limited()) {
  Dl_info driver_file{}, found{};
  REQUIRE(dladdr(Symbol("null_driver_used"), &driver_file) != 0);
  for (const char* name : {"cuPointerGetAttribute", "cuPointerGetAttributes", "cuDeviceGetAttribute"}) {
    REQUIRE(dladdr(Symbol(name), &found) != 0 && found.dli_fbase == driver_file.dli_fbase);
  }
}

FAULT(Fault14_TheTotalIsAtMostWhatIsThere, MoreThanThereIs()) {
  BeginTracked();
  size_t free = 0, total = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && total == uint64_t{40} << 30);
  REQUIRE(CU(cuDeviceTotalMem_v2)(&total, 0) == CUDA_SUCCESS && total == uint64_t{40} << 30);
}

// A name that allocates and that nobody wrapped would be the whole GPU to whoever calls it.
TEST(Faults, Fault15_EveryFunctionThatAllocatesIsWrapped) {
  std::set<std::string> wrapped;
  std::ifstream list(METE_WRAPPED), functions(METE_FUNCTIONS);
  for (std::string line; std::getline(list, line);) wrapped.insert(line.substr(0, line.find(' ')));
  // Host memory, questions, a description.
  const std::set<std::string> no_device_memory = {"cuMemAllocHost",
                                                  "cuMemAllocHost_v2",
                                                  "cuMemHostAlloc",
                                                  "cuGraphMemAllocNodeGetParams",
                                                  "cuGraphAddMemAllocNode",
                                                  "cuMemGetAllocationGranularity",
                                                  "cuMemGetAllocationPropertiesFromHandle"};
  int seen = 0;
  for (std::string line; std::getline(functions, line);) {
    const std::string name = line.substr(0, line.find('\t'));
    if (line.empty() || line[0] == '#') continue;
    for (const char* word : {"Alloc", "ArrayCreate", "Array3DCreate", "MemCreate", "CtxCreate", "ModuleLoad",
                             "LibraryLoad", "PoolCreate", "ImportExternalMemory", "GraphLaunch", "GraphInstantiate"}) {
      if (name.find(word) == std::string::npos || no_device_memory.contains(name)) continue;
      ++seen;
      EXPECT_TRUE(wrapped.contains(name)) << name;
    }
  }
  EXPECT_GT(seen, 30);
}

}  // namespace
}  // namespace mete::interceptor::testing
