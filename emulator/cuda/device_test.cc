// Devices, which of them are visible, contexts and their stack, and a forked child.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

using DeviceTest = DriverTest;

TEST_F(DeviceTest, SaysWhatTheBoardIs) {
  int count = 0, value = 0, major = 0, minor = 0;
  EXPECT_EQ(::cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  CUdevice device = -1;
  EXPECT_EQ(::cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(::cuDeviceGet(&device, 1), CUDA_SUCCESS);
  char name[64];
  EXPECT_EQ(::cuDeviceGetName(name, 7, device), CUDA_SUCCESS);
  EXPECT_STREQ(name, "NVIDIA");
  EXPECT_EQ(::cuDeviceGetPCIBusId(name, sizeof name, device), CUDA_SUCCESS);
  EXPECT_STREQ(name, "0000:08:00.0");
  EXPECT_EQ(::cuDeviceGetByPCIBusId(&value, "0000:08:00.0"), CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(::cuDeviceGetByPCIBusId(&value, "0000:99:00.0"), CUDA_ERROR_INVALID_DEVICE);
  CUuuid uuid;
  EXPECT_EQ(::cuDeviceGetUuid_v2(&uuid, device), CUDA_SUCCESS);
  EXPECT_EQ(uuid.bytes[0], 16);
  EXPECT_EQ(::cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), CUDA_SUCCESS);
  EXPECT_EQ(value, 108);
  EXPECT_EQ(::cuDeviceComputeCapability(&major, &minor, device), CUDA_SUCCESS);
  EXPECT_EQ(major, 8);
  EXPECT_EQ(::cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device), CUDA_ERROR_INVALID_VALUE);
  size_t bytes = 0;
  EXPECT_EQ(::cuDeviceTotalMem_v2(&bytes, device), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 1ull << 30);
  EXPECT_EQ(::cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, EveryDocumentedAttributeIsAnswered) {
  int value = 0;
  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
    EXPECT_EQ(::cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), 0), CUDA_SUCCESS) << attribute;
  }
  EXPECT_EQ(::cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 2097120);
  EXPECT_EQ(::cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(::cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 0);
}

TEST_F(DeviceTest, PrimaryContextIsCounted) {
  CUcontext first = nullptr, second = nullptr;
  unsigned flags = 9;
  int active = 9;
  EXPECT_EQ(::cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&first, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_EQ(fake->Used(1), fake->Gpus()[1].context_bytes);
  EXPECT_EQ(::cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(::cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  EXPECT_EQ(::cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  ASSERT_EQ(::cuCtxPushCurrent_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(::cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(1), 0u);
  EXPECT_EQ(::cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
  CUdeviceptr p = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(::cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
}

// The list of handles grows far beyond its first size; what was never a handle and what is none any more is not one.
TEST(Handles, AreLookedUpBeforeTheyAreRead) {
  std::vector<uint64_t> words(20000);
  for (uint64_t& word : words) ListHandle(&word);
  for (uint64_t& word : words) ASSERT_TRUE(IsListedHandle(&word));
  for (size_t i = 0; i < words.size(); i += 2) UnlistHandle(&words[i]);
  for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(IsListedHandle(&words[i]), i % 2 == 1);
  for (size_t i = 1; i < words.size(); i += 2) UnlistHandle(&words[i]);
  for (uintptr_t address : {uintptr_t{0}, uintptr_t{1}, uintptr_t{8}, uintptr_t{0xdead0000beef0}})
    EXPECT_FALSE(IsListedHandle(reinterpret_cast<void*>(address)));
}

TEST_F(DeviceTest, ContextStack) {
  CUcontext current = nullptr, second = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&second, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, second);
  CUdevice device = -1;
  EXPECT_EQ(::cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(::cuCtxGetDevice_v2(&device, context), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  unsigned version = 0;
  EXPECT_EQ(::cuCtxGetApiVersion(second, &version), CUDA_SUCCESS);
  EXPECT_EQ(version, 3020u);
  unsigned long long a = 0, b = 0;
  EXPECT_EQ(::cuCtxGetId(context, &a), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxGetId(second, &b), CUDA_SUCCESS);
  EXPECT_NE(a, b);
  EXPECT_EQ(::cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxDestroy_v2(second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(::cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context);
  EXPECT_EQ(::cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(::cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
  size_t limit = 0;
  EXPECT_EQ(::cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(limit, 4096u);
  EXPECT_EQ(::cuCtxGetLimit(&limit, CU_LIMIT_MAX), CUDA_ERROR_UNSUPPORTED_LIMIT);
}

TEST_F(DeviceTest, AForkedChildIsNotInitialised) {
  const uint64_t used = fake->Used(0);
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    CUdeviceptr p = 0;
    const bool refused =
        ::cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && ::cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
        ::cuMemAlloc_v2(&p, 1) == CUDA_ERROR_NOT_INITIALIZED && ::cuMemFree_v2(4096) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(fake->Used(0), used);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace mete::emulator::cuda
