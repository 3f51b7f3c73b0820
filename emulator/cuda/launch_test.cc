// From PTX text to a result: loading, its errors, launching by every route, faults, and what a launch costs.
#include <cstring>
#include <vector>

#include "emulator/cuda/module.h"
#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

constexpr char kText[] = R"(
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 answer = 42;
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd4, %r5, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
DONE:
  ret;
}
.visible .entry stop()
{
  trap;
  ret;
}
)";

class LaunchTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(::cuModuleLoadData(&module, kText), CUDA_SUCCESS);
    ASSERT_EQ(::cuModuleGetFunction(&add, module, "add"), CUDA_SUCCESS);
    for (CUdeviceptr* p : {&a, &b, &c}) ASSERT_EQ(::cuMemAlloc_v2(p, kCount * 4), CUDA_SUCCESS);
    std::vector<float> in(kCount);
    for (uint32_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i);
    ASSERT_EQ(::cuMemcpyHtoD_v2(a, in.data(), kCount * 4), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemcpyHtoD_v2(b, in.data(), kCount * 4), CUDA_SUCCESS);
    fake->TakePosted();
  }
  void ExpectSums() {
    std::vector<float> out(kCount);
    ASSERT_EQ(::cuMemcpyDtoH_v2(out.data(), c, kCount * 4), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i], 2.0f * static_cast<float>(i)) << i;
    ASSERT_EQ(::cuMemsetD8_v2(c, 0, kCount * 4), CUDA_SUCCESS);
  }
  static constexpr uint32_t kCount = 1000;
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0;
  uint32_t n = kCount;
  void* parameters[4] = {&a, &b, &c, &n};
};

TEST_F(LaunchTest, EveryRouteGivesTheSums) {
  ASSERT_EQ(::cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  ExpectSums();
  ASSERT_EQ(::cuLaunchKernel_ptsz(add, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  ExpectSums();
  uint8_t buffer[28];
  memcpy(buffer, &a, 8);
  memcpy(buffer + 8, &b, 8);
  memcpy(buffer + 16, &c, 8);
  memcpy(buffer + 24, &n, 4);
  size_t bytes = sizeof buffer;
  void* extra[] = {reinterpret_cast<void*>(1), buffer, reinterpret_cast<void*>(2), &bytes, nullptr};
  ASSERT_EQ(::cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  ExpectSums();
  CUlaunchConfig config{};
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 128;
  ASSERT_EQ(::cuLaunchKernelEx(&config, add, parameters, nullptr), CUDA_SUCCESS);
  ExpectSums();
  ASSERT_EQ(::cuLaunchCooperativeKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters), CUDA_SUCCESS);
  ExpectSums();
  ASSERT_EQ(::cuFuncSetBlockShape(add, 128, 1, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuParamSetSize(add, sizeof buffer), CUDA_SUCCESS);
  ASSERT_EQ(::cuParamSetv(add, 0, buffer, 24), CUDA_SUCCESS);
  ASSERT_EQ(::cuParamSeti(add, 24, n), CUDA_SUCCESS);
  ASSERT_EQ(::cuLaunchGrid(add, 8, 1), CUDA_SUCCESS);
  ExpectSums();
}

TEST_F(LaunchTest, LibrariesLoadIntoTheCurrentContext) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(::cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(::cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
  ASSERT_EQ(::cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  ExpectSums();
  CUfunction function = nullptr;
  ASSERT_EQ(::cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  const char* name = nullptr;
  EXPECT_EQ(::cuFuncGetName(&name, function), CUDA_SUCCESS);
  EXPECT_STREQ(name, "add");
  EXPECT_EQ(::cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(::cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LaunchTest, GlobalsHaveTheirValues) {
  CUdeviceptr global = 0;
  size_t bytes = 0;
  ASSERT_EQ(::cuModuleGetGlobal_v2(&global, &bytes, module, "answer"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4u);
  uint32_t value = 0;
  ASSERT_EQ(::cuMemcpyDtoH_v2(&value, global, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 42u);
  EXPECT_EQ(::cuModuleGetGlobal_v2(&global, &bytes, module, "none"), CUDA_ERROR_NOT_FOUND);
  unsigned count = 0;
  EXPECT_EQ(::cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  size_t offset = 0, size = 0;
  EXPECT_EQ(::cuFuncGetParamInfo(add, 3, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(offset, 24u);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(::cuFuncGetParamInfo(add, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, BadImagesAreTold) {
  CUmodule bad = nullptr;
  EXPECT_EQ(::cuModuleLoadData(&bad,
                               "\x7f"
                               "ELF\2\1\1"),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(::cuModuleLoadData(&bad, "\x50\xed\x55\xba\1\0"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(::cuModuleLoadFatBinary(&bad, "x"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(::cuModuleLoadData(&bad, ""), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(::cuModuleLoadData(&bad, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuModuleLoad(&bad, "/nonexistent.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(::cuModuleLoadData(&bad, ".version 99.0\n.target sm_70\n.address_size 64\n"),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(::cuModuleLoadData(&bad, ".version 7.0\n.target sm_90\n.address_size 64\n"), CUDA_ERROR_INVALID_PTX);
  char log[200] = "untouched";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  const char broken[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f()\n{\n  nonsense.u32;\n}\n";
  EXPECT_EQ(::cuModuleLoadDataEx(&bad, broken, 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(strstr(log, "line 6"), nullptr) << log;
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), strlen(log));
}

TEST_F(LaunchTest, BadLaunchesAreRefused) {
  EXPECT_EQ(::cuLaunchKernel(add, 0, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuLaunchKernel(add, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 49153, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000), CUDA_SUCCESS);
  EXPECT_EQ(::cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 49153, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuLaunchKernel(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuLaunchCooperativeKernel(add, 1000000, 1, 1, 128, 1, 1, 0, nullptr, parameters),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CUcontext other = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuCtxDestroy_v2(other), CUDA_SUCCESS);
}

TEST_F(LaunchTest, AnAccessOutsideAnAllocationFaults) {
  n = kCount + 1024;
  ASSERT_EQ(::cuLaunchKernel(add, 16, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(::cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(LaunchTest, AMisalignedAccessFaults) {
  a += 2;
  n = 10;
  ASSERT_EQ(::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_F(LaunchTest, ATrapFaults) {
  CUfunction stop = nullptr;
  ASSERT_EQ(::cuModuleGetFunction(&stop, module, "stop"), CUDA_SUCCESS);
  ASSERT_EQ(::cuLaunchKernel(stop, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(LaunchTest, BeyondTheBudgetALaunchIsTimedOnlyAndItsCostKept) {
  // A grid far beyond what is executed whole; all but the first blocks leave at once.
  const Counters& counters = Driver::Get()->counters();
  const uint64_t cached = counters.cached, timed = counters.timed_only;
  n = 0;
  ASSERT_EQ(::cuLaunchKernel(add, 1 << 22, 1, 1, 1024, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(counters.timed_only, timed + 1);
  ASSERT_EQ(::cuLaunchKernel(add, 1 << 22, 1, 1, 1024, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  std::swap(a, b);  // another pointer is the same launch, another scalar is not
  ASSERT_EQ(::cuLaunchKernel(add, 1 << 22, 1, 1, 1024, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(counters.cached, cached + 2);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  int kernels = 0;
  for (const auto& posted : fake->TakePosted()) {
    if (posted.work.kind != WorkKind::kKernel) continue;
    ++kernels;
    EXPECT_EQ(posted.work.kernel.blocks, 1u << 22);
  }
  EXPECT_EQ(kernels, 3);
}

TEST_F(LaunchTest, Occupancy) {
  int blocks = 0, grid = 0, block = 0, threads = 0;
  EXPECT_EQ(::cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 1024, 0), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(::cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 0), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 32);
  EXPECT_EQ(::cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 80 << 10), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(::cuOccupancyMaxPotentialBlockSize(&grid, &block, add, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(grid * block, 108 * 2048);
  EXPECT_EQ(::cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add), CUDA_SUCCESS);
  EXPECT_EQ(threads, 1024);
}

TEST_F(LaunchTest, ModulesGoWithTheirContext) {
  ASSERT_EQ(::cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(::cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace mete::emulator::cuda
