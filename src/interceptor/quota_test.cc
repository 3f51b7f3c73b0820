// Every allocating call stops at the quota with error 2, by the driver's own account of its memory, and everything is
// given back by whatever route it is freed.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "interceptor/testing/tenant.h"

namespace mete::interceptor::testing {
namespace {

constexpr uint64_t kQuota = uint64_t{4} << 30, kGranule = uint64_t{2} << 20, kContext = uint64_t{300} << 20;

StandInOptions Limited() {
  StandInOptions options = Options();
  options.quota = kQuota;
  options.context_bytes = kContext;
  return options;
}

uint64_t Truth(int device = 0) {
  return reinterpret_cast<unsigned long long (*)(int)>(Symbol("null_driver_used"))(device);
}
uint64_t Used() {
  size_t free = 0, total = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS);
  REQUIRE(total == kQuota);
  return total - free;
}

CUcontext Begin() {
  reinterpret_cast<void (*)(int)>(Symbol("null_driver_track"))(1);
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext && Truth() == kContext);
  return context;
}

// Takes until refused, checks where it stopped, frees all and checks that nothing is left; twice.
void Exhaust(const std::function<CUresult(uint64_t*)>& take, const std::function<CUresult(uint64_t)>& give,
             uint64_t one) {
  for (int round = 0; round < 2; ++round) {
    std::vector<uint64_t> taken;
    CUresult result;
    for (uint64_t handle = 0; (result = take(&handle)) == CUDA_SUCCESS; handle = 0) {
      taken.push_back(handle);
      REQUIRE(taken.size() < 100'000);
      REQUIRE(Truth() <= kQuota);
    }
    REQUIRE(result == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(Truth() <= kQuota && Used() >= Truth());
    REQUIRE(Used() + one > kQuota);
    // From both ends, so that order does not matter.
    for (size_t i = 0; i < taken.size(); ++i) {
      const uint64_t handle = i % 2 == 0 ? taken[i / 2] : taken[taken.size() - 1 - i / 2];
      REQUIRE(give(handle) == CUDA_SUCCESS);
    }
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    REQUIRE(Truth() == kContext && Used() == kContext);
  }
}

void ExhaustLinear(uint64_t bytes) {
  Exhaust([&](uint64_t* p) { return CU(cuMemAlloc_v2)(reinterpret_cast<CUdeviceptr*>(p), bytes); },
          [](uint64_t p) { return CU(cuMemFree_v2)(p); }, bytes < kGranule ? kGranule : bytes);
}

TENANT(Linear64M) { Begin(), ExhaustLinear(uint64_t{64} << 20); }
TENANT(Linear2M) { Begin(), ExhaustLinear(kGranule); }
TENANT(LinearOdd) {
  Begin();
  // 3 MiB is two granules in the driver.
  Exhaust([&](uint64_t* p) { return CU(cuMemAlloc_v2)(reinterpret_cast<CUdeviceptr*>(p), 3 << 20); },
          [](uint64_t p) { return CU(cuMemFree_v2)(p); }, 2 * kGranule);
}
TENANT(LinearSmall) { Begin(), ExhaustLinear(100'000); }
TENANT(LinearFreedInStreamOrder) {
  Begin();
  Exhaust([&](uint64_t* p) { return CU(cuMemAlloc_v2)(reinterpret_cast<CUdeviceptr*>(p), 32 << 20); },
          [](uint64_t p) { return CU(cuMemFreeAsync)(p, nullptr); }, 32 << 20);
}
TENANT(LinearV1) {
  Begin();
  Exhaust(
      [&](uint64_t* p) {
        CUdeviceptr_v1 narrow = 0;
        const CUresult result = CU(cuMemAlloc)(&narrow, 64 << 20);
        *p = narrow;
        return result;
      },
      [](uint64_t p) { return CU(cuMemFree)(static_cast<CUdeviceptr_v1>(p)); }, 64 << 20);
}
TENANT(Managed) {
  Begin();
  Exhaust([&](uint64_t* p) { return CU(cuMemAllocManaged)(reinterpret_cast<CUdeviceptr*>(p), 64 << 20, 1); },
          [](uint64_t p) { return CU(cuMemFree_v2)(p); }, 64 << 20);
}
TENANT(PitchOfNarrowRows) {
  Begin();
  size_t pitch = 0;
  // 4 bytes a row become 512: what is charged is what the driver takes.
  Exhaust([&](uint64_t* p) { return CU(cuMemAllocPitch_v2)(reinterpret_cast<CUdeviceptr*>(p), &pitch, 4, 1 << 17, 4); },
          [](uint64_t p) { return CU(cuMemFree_v2)(p); }, 64 << 20);
  REQUIRE(pitch == 512);
}
TENANT(Async) {
  Begin();
  Exhaust([&](uint64_t* p) { return CU(cuMemAllocAsync)(reinterpret_cast<CUdeviceptr*>(p), 32 << 20, nullptr); },
          [](uint64_t p) { return CU(cuMemFreeAsync)(p, nullptr); }, 32 << 20);
  Exhaust([&](uint64_t* p) { return CU(cuMemAllocAsync_ptsz)(reinterpret_cast<CUdeviceptr*>(p), 10'000'000, nullptr); },
          [](uint64_t p) { return CU(cuMemFree_v2)(p); }, 10'000'000 + kGranule);
}
TENANT(AsyncFreedMemoryStaysCharged) {
  Begin();
  CUdeviceptr p = 0;
  REQUIRE(CU(cuMemAllocAsync)(&p, uint64_t{2} << 30, nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFreeAsync)(p, nullptr) == CUDA_SUCCESS);
  // The driver's pool still holds it, so a linear block of that size does not fit yet …
  REQUIRE(CU(cuMemAlloc_v2)(&p, uint64_t{2} << 30) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
  // … and does once the driver has trimmed the pool.
  REQUIRE(CU(cuMemAlloc_v2)(&p, uint64_t{2} << 30) == CUDA_SUCCESS);
}
TENANT(OwnPool) {
  Begin();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  REQUIRE(CU(cuMemPoolCreate)(&pool, &properties) == CUDA_SUCCESS);
  std::vector<CUdeviceptr> taken;
  for (CUdeviceptr p = 0; CU(cuMemAllocFromPoolAsync)(&p, 32 << 20, pool, nullptr) == CUDA_SUCCESS;) taken.push_back(p);
  REQUIRE(Truth() <= kQuota && Used() >= Truth() && Used() + (32 << 20) > kQuota);
  for (CUdeviceptr p : taken) REQUIRE(CU(cuMemFreeAsync)(p, nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemPoolTrimTo)(pool, 0) == CUDA_SUCCESS);
  REQUIRE(Truth() == kContext && Used() == kContext);
  REQUIRE(CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
}

CUmemAllocationProp OnDevice(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}
TENANT(VmmHandlesKept) {
  Begin();
  const CUmemAllocationProp properties = OnDevice(0);
  Exhaust(
      [&](uint64_t* h) {
        return CU(cuMemCreate)(reinterpret_cast<CUmemGenericAllocationHandle*>(h), 64 << 20, &properties, 0);
      },
      [](uint64_t h) { return CU(cuMemRelease)(h); }, 64 << 20);
}
TENANT(VmmMappedAndReleased) {
  Begin();
  const CUmemAllocationProp properties = OnDevice(0);
  constexpr size_t kSize = 64 << 20;
  Exhaust(
      [&](uint64_t* p) {
        CUmemGenericAllocationHandle handle = 0;
        const CUresult result = CU(cuMemCreate)(&handle, kSize, &properties, 0);
        if (result != CUDA_SUCCESS) return result;
        CUdeviceptr address = 0;
        REQUIRE(CU(cuMemAddressReserve)(&address, kSize, 0, 0, 0) == CUDA_SUCCESS);
        REQUIRE(CU(cuMemMap)(address, kSize, 0, handle, 0) == CUDA_SUCCESS);
        REQUIRE(CU(cuMemRelease)(handle) == CUDA_SUCCESS);  // the mapping keeps it
        *p = address;
        return CUDA_SUCCESS;
      },
      [&](uint64_t p) { return CU(cuMemUnmap)(p, kSize); }, kSize);
}
TENANT(VmmEveryOrder) {
  Begin();
  const CUmemAllocationProp properties = OnDevice(0);
  const uint64_t before = Used();
  constexpr size_t kSize = 64 << 20;
  for (int order = 0; order < 6; ++order) {
    CUmemGenericAllocationHandle handle = 0, retained = 0;
    CUdeviceptr address = 0;
    REQUIRE(CU(cuMemCreate)(&handle, kSize, &properties, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemAddressReserve)(&address, kSize, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemMap)(address, kSize, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemRetainAllocationHandle)(&retained, reinterpret_cast<void*>(address + 4096)) == CUDA_SUCCESS);
    const std::function<CUresult()> ends[3] = {[&] { return CU(cuMemRelease)(handle); },
                                               [&] { return CU(cuMemRelease)(retained); },
                                               [&] { return CU(cuMemUnmap)(address, kSize); }};
    static constexpr int kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int step = 0; step < 3; ++step) {
      REQUIRE(Used() == before + kSize && Truth() == Used());
      REQUIRE(ends[kOrders[order][step]]() == CUDA_SUCCESS);
    }
    REQUIRE(Used() == before && Truth() == before);
  }
}
TENANT(VmmHostMemoryIsFree) {
  Begin();
  CUmemAllocationProp properties = OnDevice(0);
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(CU(cuMemCreate)(&handle, size_t{8} << 30, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);
}

TENANT(Arrays) {
  Begin();
  const CUDA_ARRAY_DESCRIPTOR flat{4096, 4096, CU_AD_FORMAT_FLOAT, 1};
  Exhaust([&](uint64_t* a) { return CU(cuArrayCreate_v2)(reinterpret_cast<CUarray*>(a), &flat); },
          [](uint64_t a) { return CU(cuArrayDestroy)(reinterpret_cast<CUarray>(a)); }, 64 << 20);
  const CUDA_ARRAY3D_DESCRIPTOR deep{256, 256, 256, CU_AD_FORMAT_FLOAT, 1, 0};
  Exhaust([&](uint64_t* a) { return CU(cuArray3DCreate_v2)(reinterpret_cast<CUarray*>(a), &deep); },
          [](uint64_t a) { return CU(cuArrayDestroy)(reinterpret_cast<CUarray>(a)); }, 64 << 20);
  Exhaust([&](uint64_t* a) { return CU(cuMipmappedArrayCreate)(reinterpret_cast<CUmipmappedArray*>(a), &deep, 5); },
          [](uint64_t a) { return CU(cuMipmappedArrayDestroy)(reinterpret_cast<CUmipmappedArray>(a)); }, 80 << 20);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC external{};
  external.size = 64 << 20;
  Exhaust([&](uint64_t* m) { return CU(cuImportExternalMemory)(reinterpret_cast<CUexternalMemory*>(m), &external); },
          [](uint64_t m) { return CU(cuDestroyExternalMemory)(reinterpret_cast<CUexternalMemory>(m)); }, 64 << 20);
}

TENANT(ContextsAreChargedAndTakeTheirMemoryWithThem) {
  CUcontext first = Begin();
  std::vector<CUcontext> contexts;
  CUcontext context = nullptr;
  while (CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS) contexts.push_back(context);
  REQUIRE(contexts.size() == 12 && Truth() <= kQuota && Used() == Truth());
  for (CUcontext c : contexts) REQUIRE(CU(cuCtxDestroy_v2)(c) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);
  CUcontext second = nullptr;
  REQUIRE(CU(cuCtxCreate_v4)(&second, nullptr, 0, 0) == CUDA_SUCCESS);
  for (size_t size : {size_t{4096}, size_t{100'000}, size_t{64} << 20}) {
    CUdeviceptr p;
    REQUIRE(CU(cuMemAlloc_v2)(&p, size) == CUDA_SUCCESS);
  }
  REQUIRE(Used() == 2 * kContext + kGranule + (64 << 20));
  REQUIRE(CU(cuCtxDestroy_v2)(second) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext && Truth() == kContext);
}
TENANT(PrimaryContextIsChargedOnce) {
  CUcontext first = Begin();
  CUcontext primary = nullptr;
  for (int round = 0; round < 2; ++round) {
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&primary, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&primary, 0) == CUDA_SUCCESS);
    REQUIRE(Used() == 2 * kContext && Truth() == 2 * kContext);
    REQUIRE(CU(cuCtxSetCurrent)(primary) == CUDA_SUCCESS);
    CUdeviceptr p;
    REQUIRE(CU(cuMemAlloc_v2)(&p, 64 << 20) == CUDA_SUCCESS);
    REQUIRE(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
    REQUIRE(Used() == 2 * kContext + (64 << 20));
    REQUIRE((round == 0 ? CU(cuDevicePrimaryCtxRelease_v2) : CU(cuDevicePrimaryCtxReset_v2))(0) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
    REQUIRE(Used() == kContext && Truth() == kContext);
  }
}
TENANT(OtherGpusAreRefused) {
  Begin();
  CUcontext context = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 1) == kNotInShare);
  REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 1) == kNotInShare);
  const CUmemAllocationProp properties = OnDevice(1);
  CUmemGenericAllocationHandle handle;
  REQUIRE(CU(cuMemCreate)(&handle, 64 << 20, &properties, 0) == kNotInShare);
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 7) == CUDA_ERROR_INVALID_VALUE);  // the driver's own answer
  REQUIRE(Truth(1) == 0);
}
TENANT(WhatTheDriverTolerates) {
  Begin();
  size_t bytes = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(nullptr, &bytes) == CUDA_SUCCESS && bytes == kQuota);
  REQUIRE(CU(cuMemGetInfo_v2)(&bytes, nullptr) == CUDA_SUCCESS && bytes == kQuota - kContext);
  REQUIRE(CU(cuMemGetInfo_v2)(nullptr, nullptr) == CUDA_SUCCESS);
  unsigned narrow = 0;
  REQUIRE(CU(cuMemGetInfo)(nullptr, &narrow) == CUDA_SUCCESS && narrow == 0xFFFFFFFFu);
  REQUIRE(CU(cuDeviceTotalMem_v2)(&bytes, 0) == CUDA_SUCCESS && bytes == kQuota);
  REQUIRE(CU(cuDeviceTotalMem)(&narrow, 0) == CUDA_SUCCESS && narrow == 0xFFFFFFFFu);
  REQUIRE(CU(cuDeviceTotalMem_v2)(&bytes, 1) == CUDA_SUCCESS && bytes == uint64_t{40} << 30);
  CUdeviceptr p = 0;
  REQUIRE(CU(cuMemAlloc_v2)(nullptr, 4096) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuMemAlloc_v2)(&p, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuMemAlloc_v2)(&p, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuMemAlloc_v2)(&p, SIZE_MAX - 4096) == CUDA_ERROR_OUT_OF_MEMORY);
  size_t pitch;
  REQUIRE(CU(cuMemAllocPitch_v2)(&p, &pitch, SIZE_MAX / 2, SIZE_MAX / 2, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuMemFree_v2)(0x12345) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuMemAlloc_v2)(&p, 4096) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuArrayCreate_v2)(nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuMemCreate)(nullptr, 0, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CU(cuCtxSetCurrent)(nullptr) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemAlloc_v2)(&p, 4096) == CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(CU(cuMemGetInfo_v2)(&bytes, &bytes) == CUDA_ERROR_INVALID_CONTEXT);
}

class Quota : public ::testing::TestWithParam<const char*> {};
TEST_P(Quota, Holds) {
  StandIn broker(Limited());
  EXPECT_EQ(RunTenant(broker, GetParam()), 0);
}
INSTANTIATE_TEST_SUITE_P(All, Quota,
                         ::testing::Values("Linear64M", "Linear2M", "LinearOdd", "LinearSmall",
                                           "LinearFreedInStreamOrder", "LinearV1", "Managed", "PitchOfNarrowRows",
                                           "Async", "AsyncFreedMemoryStaysCharged", "OwnPool", "VmmHandlesKept",
                                           "VmmMappedAndReleased", "VmmEveryOrder", "VmmHostMemoryIsFree", "Arrays",
                                           "ContextsAreChargedAndTakeTheirMemoryWithThem",
                                           "PrimaryContextIsChargedOnce", "OtherGpusAreRefused",
                                           "WhatTheDriverTolerates"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace mete::interceptor::testing
