// Memory from the program's side: every kind of allocation, its count at the engine, its content, its end.
#include <cstring>
#include <vector>

#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

using MemoryTest = DriverTest;

CUmemAllocationProp OnDevice(int dev) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
  return prop;
}

TEST_F(MemoryTest, SmallAllocationsShareChunks) {
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 1), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 2 * kMiB);
  ASSERT_EQ(::cuMemAlloc_v2(&b, 1000), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 2 * kMiB);
  EXPECT_EQ(a % 256, 0u);
  EXPECT_EQ(b % 256, 0u);
  EXPECT_EQ(::cuMemFree_v2(a), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFree_v2(b), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

TEST_F(MemoryTest, LargeAllocationsAreWholeChunks) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  EXPECT_EQ(::cuMemGetAddressRange_v2(&base, &bytes, a + 100), CUDA_SUCCESS);
  EXPECT_EQ(base, a);
  EXPECT_EQ(bytes, 3 * kMiB);
  EXPECT_EQ(::cuMemGetAddressRange_v2(&base, &bytes, a + 3 * kMiB), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(::cuMemFree_v2(a), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
}

// Each way of allocating, until it is refused: error 2, nothing leaked, and no more than one chunk left over.
template <typename Allocate>
void FillUp(FakeClient* fake, Allocate allocate) {
  const uint64_t before = fake->Used(0);
  CUresult error = CUDA_SUCCESS;
  int count = 0;
  while ((error = allocate()) == CUDA_SUCCESS) ASSERT_LT(++count, 10000);
  EXPECT_EQ(error, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GT(count, 0);
  EXPECT_GE(fake->Used(0), before);
  EXPECT_LE(fake->Gpus()[0].memory_bytes - fake->Used(0), 32 * kMiB);
}

TEST_F(MemoryTest, EveryAllocatingCallStopsWithOutOfMemory) {
  CUcontext own = nullptr;
  auto fresh = [&] {
    if (own != nullptr) {
      ASSERT_EQ(::cuCtxDestroy_v2(own), CUDA_SUCCESS);
    }
    ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  };
  CUdeviceptr p = 0;
  size_t pitch = 0;
  fresh();
  FillUp(fake, [&] { return ::cuMemAlloc_v2(&p, 16 * kMiB); });
  fresh();
  CUdeviceptr_v1 low = 0;
  FillUp(fake, [&] { return ::cuMemAlloc(&low, 16 * kMiB); });
  fresh();
  FillUp(fake, [&] { return ::cuMemAllocPitch_v2(&p, &pitch, 1000, 16000, 4); });
  fresh();
  FillUp(fake, [&] { return ::cuMemAllocManaged(&p, 16 * kMiB, CU_MEM_ATTACH_GLOBAL); });
  fresh();
  FillUp(fake, [&] { return ::cuMemAllocAsync(&p, 16 * kMiB, nullptr); });
  fresh();
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASSERT_EQ(::cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  FillUp(fake, [&] { return ::cuMemAllocFromPoolAsync(&p, 16 * kMiB, pool, nullptr); });
  fresh();
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR flat = {4096, 1024, CU_AD_FORMAT_FLOAT, 1};
  FillUp(fake, [&] { return ::cuArrayCreate_v2(&array, &flat); });
  fresh();
  const CUDA_ARRAY3D_DESCRIPTOR deep = {256, 256, 64, CU_AD_FORMAT_FLOAT, 1, 0};
  FillUp(fake, [&] { return ::cuArray3DCreate_v2(&array, &deep); });
  fresh();
  CUmipmappedArray mipmap = nullptr;
  FillUp(fake, [&] { return ::cuMipmappedArrayCreate(&mipmap, &deep, 4); });
  fresh();
  const CUmemAllocationProp prop = OnDevice(0);
  std::vector<CUmemGenericAllocationHandle> handles;
  FillUp(fake, [&] {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = ::cuMemCreate(&handle, 16 * kMiB, &prop, 0);
    if (result == CUDA_SUCCESS) handles.push_back(handle);
    return result;
  });
  for (CUmemGenericAllocationHandle handle : handles) EXPECT_EQ(::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

TEST_F(MemoryTest, ContentComesBack) {
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 5 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&b, 5 * kMiB), CUDA_SUCCESS);
  std::vector<uint8_t> in(5 * kMiB - 7), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 999);
  ASSERT_EQ(::cuMemcpyHtoD_v2(a + 3, in.data(), in.size()), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoD_v2(b + 5, a + 3, in.size()), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoH_v2(out.data(), b + 5, out.size()), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
}

TEST_F(MemoryTest, FillsAreKeptAsPatterns) {
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 64 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&b, 64 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD32_v2(a, 0x01020304, 16 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoD_v2(b, a, 64 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_LE(fake->BackingTaken(), 4 * kMiB);
  uint32_t word = 0;
  ASSERT_EQ(::cuMemcpyDtoH_v2(&word, b + 10 * kMiB + 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 0x01020304u);
  ASSERT_EQ(::cuMemcpyDtoH_v2(&word, b + 10 * kMiB + 5, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 0x04010203u);
  // A piece of another content in the middle, and zeroes over it.
  ASSERT_EQ(::cuMemsetD8_v2(b + 10 * kMiB, 0xee, 3), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoH_v2(&word, b + 10 * kMiB, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 0x01eeeeeeu);
  ASSERT_EQ(::cuMemsetD16_v2(b, 0, 32 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoH_v2(&word, b + 10 * kMiB, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 0u);
}

TEST_F(MemoryTest, ContentBeyondTheBackingIsDroppedAndCounted) {
  fake->SetBacking(8 * kMiB);
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 32 * kMiB), CUDA_SUCCESS);
  std::vector<uint8_t> in(32 * kMiB, 0x5a), out(32 * kMiB);
  const uint64_t before = Driver::Get()->content().counters().dropped_bytes;
  ASSERT_EQ(::cuMemcpyHtoD_v2(a, in.data(), in.size()), CUDA_SUCCESS);
  EXPECT_LE(fake->BackingTaken(), 8 * kMiB);
  EXPECT_GE(Driver::Get()->content().counters().dropped_bytes - before, 22 * kMiB);
  const uint64_t undefined = Driver::Get()->content().counters().undefined_reads;
  ASSERT_EQ(::cuMemcpyDtoH_v2(out.data(), a, out.size()), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 0x5a);
  EXPECT_EQ(out.back(), 0);
  EXPECT_GT(Driver::Get()->content().counters().undefined_reads, undefined);
  EXPECT_EQ(::cuMemFree_v2(a), CUDA_SUCCESS);
  EXPECT_LE(fake->BackingTaken(), 4 * kMiB);
  fake->SetBacking(256 * kMiB);
}

TEST_F(MemoryTest, CopiesStayInsideTheirAllocation) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 100), CUDA_SUCCESS);
  uint8_t bytes[200] = {};
  EXPECT_EQ(::cuMemcpyHtoD_v2(a, bytes, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyHtoD_v2(a + 99, bytes, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyHtoD_v2(0, bytes, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemsetD8_v2(a, 1, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemsetD32_v2(a + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyDtoH_v2(bytes, reinterpret_cast<CUdeviceptr>(bytes), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyHtoD_v2(a, bytes, 100), CUDA_SUCCESS);
}

TEST_F(MemoryTest, RowsWithPitch) {
  CUdeviceptr a = 0;
  size_t pitch = 0;
  ASSERT_EQ(::cuMemAllocPitch_v2(&a, &pitch, 10, 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 512u);
  EXPECT_EQ(::cuMemAllocPitch_v2(&a, &pitch, 10, 4, 3), CUDA_ERROR_INVALID_VALUE);
  uint8_t in[40], out[40] = {};
  for (int i = 0; i < 40; ++i) in[i] = static_cast<uint8_t>(i);
  CUDA_MEMCPY2D d{};
  d.srcMemoryType = CU_MEMORYTYPE_HOST;
  d.srcHost = in;
  d.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  d.dstDevice = a;
  d.dstPitch = pitch;
  d.WidthInBytes = 10;
  d.Height = 4;
  ASSERT_EQ(::cuMemcpy2D_v2(&d), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD2D8_v2(a + 1, pitch, 0x77, 2, 3), CUDA_SUCCESS);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  back.srcDevice = a;
  back.srcPitch = pitch;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out;
  back.WidthInBytes = 10;
  back.Height = 4;
  ASSERT_EQ(::cuMemcpy2D_v2(&back), CUDA_SUCCESS);
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 10; ++x) EXPECT_EQ(out[y * 10 + x], y < 3 && (x == 1 || x == 2) ? 0x77 : y * 10 + x);
  }
}

TEST_F(MemoryTest, MappedMemoryLivesUntilHandlesAndMappingsAreGone) {
  const CUmemAllocationProp prop = OnDevice(0);
  size_t granularity = 0;
  ASSERT_EQ(::cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
  EXPECT_EQ(granularity, 2 * kMiB);
  CUdeviceptr p = 0;
  ASSERT_EQ(::cuMemAddressReserve(&p, 8 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(::cuMemCreate(&handle, kMiB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuMemCreate(&handle, 4 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB);
  ASSERT_EQ(::cuMemMap(p, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemMap(p + 4 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemMap(p, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  uint32_t word = 42;
  EXPECT_EQ(::cuMemcpyHtoD_v2(p, &word, 4), CUDA_ERROR_INVALID_VALUE) << "no access yet";
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(::cuMemSetAccess(p, 8 * kMiB, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyHtoD_v2(p + 12, &word, 4), CUDA_SUCCESS);
  word = 0;
  ASSERT_EQ(::cuMemcpyDtoH_v2(&word, p + 4 * kMiB + 12, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 42u) << "the same memory at both addresses";
  ASSERT_EQ(::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB) << "still mapped";
  EXPECT_EQ(::cuMemAddressFree(p, 8 * kMiB), CUDA_ERROR_INVALID_VALUE);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(::cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(p + 100)), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemUnmap(p, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB) << "a handle is left";
  ASSERT_EQ(::cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
  EXPECT_EQ(::cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemAddressFree(p, 8 * kMiB), CUDA_SUCCESS);
}

TEST_F(MemoryTest, MappedMemoryOutlivesItsContext) {
  CUcontext other = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  const CUmemAllocationProp prop = OnDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(::cuMemCreate(&handle, 4 * kMiB, &prop, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB);
  EXPECT_EQ(::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

TEST_F(MemoryTest, PoolsKeepUntilASynchronisation) {
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(::cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAllocAsync(&a, 8 * kMiB, nullptr), CUDA_SUCCESS);
  cuuint64_t reserved = 0, used = 0;
  ::cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  ::cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
  EXPECT_EQ(reserved, 8 * kMiB);
  EXPECT_EQ(used, 8 * kMiB);
  ASSERT_EQ(::cuMemFreeAsync(a, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFreeAsync(a, nullptr), CUDA_ERROR_INVALID_VALUE);
  ::cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
  EXPECT_EQ(used, 0u);
  EXPECT_EQ(fake->Used(0) - used_at_start, 8 * kMiB);
  ASSERT_EQ(::cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
  cuuint64_t keep = ~0ull;
  ASSERT_EQ(::cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocAsync(&a, 8 * kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemFree_v2(a), CUDA_SUCCESS) << "a synchronous free of pool memory is allowed";
  EXPECT_EQ(fake->Used(0) - used_at_start, 8 * kMiB);
  ASSERT_EQ(::cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
  keep = 0;
  ::cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
}

TEST_F(MemoryTest, PointersTellWhatTheyAre) {
  CUdeviceptr a = 0, managed = 0;
  void* host = nullptr;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemHostAlloc(&host, 1000, 0), CUDA_SUCCESS);
  unsigned int type = 0, is_managed = 9;
  EXPECT_EQ(::cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 10), CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(::cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(host)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(::cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), CUDA_SUCCESS);
  EXPECT_EQ(is_managed, 1u);
  int local = 0;
  EXPECT_EQ(::cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  int ordinal = 0;
  void* data[] = {&type, &ordinal};
  EXPECT_EQ(::cuPointerGetAttributes(2, which, data, reinterpret_cast<CUdeviceptr>(&local)), CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, -2);
  *reinterpret_cast<int*>(managed) = 5;  // both sides
  int five = 0;
  EXPECT_EQ(::cuMemcpyDtoH_v2(&five, managed, 4), CUDA_SUCCESS);
  EXPECT_EQ(five, 5);
  EXPECT_EQ(::cuMemFreeHost(host), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemHostRegister_v2(&local, sizeof local, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemHostRegister_v2(&local, sizeof local, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(::cuMemHostUnregister(&local), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemHostUnregister(&local), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(MemoryTest, ManyLiveBlocks) {
  std::vector<CUdeviceptr> blocks(20000);
  for (CUdeviceptr& block : blocks) ASSERT_EQ(::cuMemAlloc_v2(&block, 4096), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, (20000 * 4096 + 2 * kMiB - 1) / (2 * kMiB) * 2 * kMiB);
  for (CUdeviceptr block : blocks) ASSERT_EQ(::cuMemFree_v2(block), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

}  // namespace
}  // namespace mete::emulator::cuda
