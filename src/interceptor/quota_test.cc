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

// All but the context can be had, once an audit has given back what was given up.
void AwaitAudit() {
  CUdeviceptr p = 0;
  REQUIRE(CU(cuMemAlloc_v2)(&p, kQuota - kContext) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
}

// Pieces that share granules are charged by what they take together, and what they leave scattered stays charged until
// the broker has seen how much the driver still holds.
TENANT(SmallArraysShareGranules) {
  Begin();
  for (const size_t width : {size_t{64}, size_t{100}, size_t{4000}, size_t{40'000}, size_t{90'000}, size_t{180'000}}) {
    const CUDA_ARRAY_DESCRIPTOR line{width, 0, CU_AD_FORMAT_FLOAT, 1};
    const size_t bytes = (width * 4 + 511) / 512 * 512, count = (uint64_t{40} << 20) / bytes;
    std::vector<CUarray> arrays(count);
    for (CUarray& array : arrays) {
      REQUIRE(CU(cuArrayCreate_v2)(&array, &line) == CUDA_SUCCESS);
      REQUIRE(Used() >= Truth());
    }
    REQUIRE(Used() - kContext < (uint64_t{40} << 20) * 3 / 2);
    for (CUarray array : arrays) {
      REQUIRE(CU(cuArrayDestroy)(array) == CUDA_SUCCESS);
      REQUIRE(Used() >= Truth());
    }
    AwaitAudit();
    REQUIRE(Truth() == kContext && Used() == kContext);
  }
}

std::string ModuleOf(uint64_t bytes) {
  return ".version 6.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 big[" + std::to_string(bytes) +
         "];\n.visible .entry empty() { ret; }\n";
}
TENANT(Modules) {
  Begin();
  const std::string text = ModuleOf(64 << 20), none = ".version 6.0\n.target sm_70\n.visible .entry empty() { ret; }\n";
  Exhaust([&](uint64_t* m) { return CU(cuModuleLoadData)(reinterpret_cast<CUmodule*>(m), text.c_str()); },
          [](uint64_t m) { return CU(cuModuleUnload)(reinterpret_cast<CUmodule>(m)); }, 64 << 20);
  Exhaust(
      [&](uint64_t* m) {
        return CU(cuModuleLoadDataEx)(reinterpret_cast<CUmodule*>(m), text.c_str(), 0, nullptr, nullptr);
      },
      [](uint64_t m) { return CU(cuModuleUnload)(reinterpret_cast<CUmodule>(m)); }, 64 << 20);
  CUmodule module = nullptr;
  REQUIRE(CU(cuModuleLoadData)(&module, none.c_str()) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);
  REQUIRE(CU(cuModuleLoadData)(&module, ModuleOf(uint64_t{1} << 60).c_str()) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuModuleLoadData)(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
}
TENANT(LibrariesAreChargedInEveryContext) {
  CUcontext first = Begin();
  const std::string text = ModuleOf(64 << 20);
  CUlibrary library = nullptr;
  const auto load = [&] {
    return CU(cuLibraryLoadData)(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  REQUIRE(load() == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + (64 << 20));
  CUcontext second = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
  REQUIRE(Used() == 2 * (kContext + (64 << 20)));
  REQUIRE(CU(cuCtxDestroy_v2)(second) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + (64 << 20));
  REQUIRE(CU(cuLibraryUnload)(library) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);
  size_t loaded = 0;
  while (load() == CUDA_SUCCESS) ++loaded;
  REQUIRE(loaded == (kQuota - kContext) >> 26);
}
TENANT(LimitsOfContexts) {
  CUcontext first = Begin();
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t{8} << 20) + (size_t{1} << 30)) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + (uint64_t{1} << 30));
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{4} << 30) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{8} << 20) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 0) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);  // the estimate stays
  // Stacks for all threads that the GPU holds at once: 108 × 2048 here.
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024 + 4096) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + uint64_t{108} * 2048 * 4096);
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 512 << 10) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(CU(cuCtxSetLimit)(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + uint64_t{108} * 2048 * 4096);
  CUcontext second = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
  REQUIRE(CU(cuCtxDestroy_v2)(first) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext);
}
// Memory that others may hold stays charged until the broker has found out; memory that they cannot is back at once.
TENANT(ExportedMemoryIsGivenBackByTheAudit) {
  Begin();
  CUmemAllocationProp properties = OnDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  int descriptor = -1;
  REQUIRE(CU(cuMemCreate)(&handle, 64 << 20, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemExportToShareableHandle)(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_SUCCESS);
  REQUIRE(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
  REQUIRE(Truth() == kContext + (64 << 20));
  REQUIRE(Used() == kContext + (64 << 20));
  AwaitAudit();
  REQUIRE(Used() == kContext);  // this broker finds nothing
  CUdeviceptr large = 0, small = 0;
  CUipcMemHandle name;
  REQUIRE(CU(cuMemAlloc_v2)(&large, 64 << 20) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemAlloc_v2)(&small, 4096) == CUDA_SUCCESS);
  REQUIRE(CU(cuIpcGetMemHandle)(&name, large + 12345) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(small) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + (64 << 20));
  REQUIRE(CU(cuMemFree_v2)(large) == CUDA_SUCCESS);
  REQUIRE(Used() == kContext + (64 << 20));
  AwaitAudit();
  REQUIRE(Used() == kContext);
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
INSTANTIATE_TEST_SUITE_P(
    All, Quota,
    ::testing::Values("Linear64M", "Linear2M", "LinearOdd", "LinearSmall", "LinearFreedInStreamOrder", "LinearV1",
                      "Managed", "PitchOfNarrowRows", "Async", "AsyncFreedMemoryStaysCharged", "OwnPool",
                      "VmmHandlesKept", "VmmMappedAndReleased", "VmmEveryOrder", "VmmHostMemoryIsFree", "Arrays",
                      "SmallArraysShareGranules", "Modules", "LibrariesAreChargedInEveryContext", "LimitsOfContexts",
                      "ExportedMemoryIsGivenBackByTheAudit", "ContextsAreChargedAndTakeTheirMemoryWithThem",
                      "PrimaryContextIsChargedOnce", "OtherGpusAreRefused", "WhatTheDriverTolerates"),
    [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace mete::interceptor::testing
