// Order: streams, the default streams, events, host functions, and errors that stick.
#include <atomic>
#include <thread>

#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

using StreamTest = DriverTest;

CUstream Make(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(::cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  return stream;
}

CUevent MakeEvent(unsigned flags = 0) {
  CUevent event = nullptr;
  EXPECT_EQ(::cuEventCreate(&event, flags), CUDA_SUCCESS);
  return event;
}

TEST_F(StreamTest, AnswersAboutItself) {
  CUstream stream = nullptr;
  ASSERT_EQ(::cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100), CUDA_SUCCESS);
  int priority = 0;
  unsigned flags = 0;
  CUcontext owner = nullptr;
  EXPECT_EQ(::cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, -5);
  EXPECT_EQ(::cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(::cuStreamGetCtx(stream, &owner), CUDA_SUCCESS);
  EXPECT_EQ(owner, context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(::cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuStreamDestroy_v2(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, EventsAreReachedInEngineTime) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 3000000), CUDA_SUCCESS);
  CUstream stream = Make(CU_STREAM_NON_BLOCKING);
  CUevent start = MakeEvent(), end = MakeEvent(), never = MakeEvent();
  EXPECT_EQ(::cuEventQuery(never), CUDA_SUCCESS);
  fake->Hold();
  ASSERT_EQ(::cuEventRecord(start, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD8Async(a, 1, 3000000, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventQuery(end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(::cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  float ms = 0;
  EXPECT_EQ(::cuEventElapsedTime_v2(&ms, start, end), CUDA_ERROR_NOT_READY);
  fake->Release();
  EXPECT_EQ(::cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventElapsedTime_v2(&ms, start, end), CUDA_SUCCESS);
  EXPECT_NEAR(ms, 3.0, 0.01);  // the fake takes a nanosecond a byte
  EXPECT_EQ(::cuEventElapsedTime_v2(&ms, never, end), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuEventDestroy_v2(end), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventQuery(end), CUDA_ERROR_INVALID_HANDLE);
}

// The engine streams that something posted waits for.
int Waits(FakeClient* fake) {
  int waits = 0;
  for (const auto& posted : fake->TakePosted()) waits += posted.work.kind == WorkKind::kWaitFor;
  return waits;
}

TEST_F(StreamTest, LegacyDefaultStreamOrdersBlockingStreams) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 4096), CUDA_SUCCESS);
  CUstream blocking = Make(0), free_running = Make(CU_STREAM_NON_BLOCKING);
  fake->Hold();
  ASSERT_EQ(::cuMemsetD8Async(a, 1, 4096, blocking), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD8Async(a, 1, 4096, free_running), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 0);
  ASSERT_EQ(::cuMemsetD8Async(a, 2, 4096, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 1) << "for the blocking stream only";
  ASSERT_EQ(::cuMemsetD8Async(a, 3, 4096, free_running), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 0);
  ASSERT_EQ(::cuMemsetD8Async(a, 3, 4096, blocking), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 1) << "for the legacy stream";
  // A thread's own default stream is a blocking one of its own.
  ASSERT_EQ(::cuMemsetD8Async_ptsz(a, 3, 4096, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 1);
  ASSERT_EQ(::cuMemsetD8Async(a, 3, 4096, CUstream(2)), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 0) << "the same stream by its number";
  fake->Release();
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(StreamTest, AWaitedEventOrdersStreams) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 4096), CUDA_SUCCESS);
  CUstream first = Make(CU_STREAM_NON_BLOCKING), second = Make(CU_STREAM_NON_BLOCKING);
  CUevent event = MakeEvent(CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(::cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS) << "never recorded: no wait";
  EXPECT_EQ(Waits(fake), 0);
  fake->Hold();
  ASSERT_EQ(::cuMemsetD8Async(a, 1, 4096, first), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(Waits(fake), 1);
  fake->Release();
}

struct HostCall {
  std::atomic<int> order{0};
  CUresult inside = CUDA_SUCCESS;
};

TEST_F(StreamTest, HostFunctionsRunWhenTheEngineGetsThere) {
  static HostCall call;
  static CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 4096), CUDA_SUCCESS);
  CUstream stream = Make(CU_STREAM_NON_BLOCKING);
  fake->Hold();
  ASSERT_EQ(::cuMemsetD32Async(a, 7, 1024, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuLaunchHostFunc(
                stream,
                [](void* data) {
                  auto* c = static_cast<HostCall*>(data);
                  CUdeviceptr p = 0;
                  c->inside = ::cuMemAlloc_v2(&p, 1);
                  c->order = 1;
                },
                &call),
            CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD32Async(a, 8, 1024, stream), CUDA_SUCCESS);
  EXPECT_EQ(call.order, 0);
  // Another stream is not held up by it.
  CUstream other = Make(CU_STREAM_NON_BLOCKING);
  CUevent event = MakeEvent();
  ASSERT_EQ(::cuEventRecord(event, other), CUDA_SUCCESS);
  fake->Release();
  EXPECT_EQ(::cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(call.order, 1);
  EXPECT_EQ(call.inside, CUDA_ERROR_NOT_PERMITTED);
  uint32_t word = 0;
  EXPECT_EQ(::cuMemcpyDtoH_v2(&word, a, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 8u);
}

TEST_F(StreamTest, ManyThreadsShareAContext) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 64 * 4096), CUDA_SUCCESS);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([=, this] {
      ASSERT_EQ(::cuCtxSetCurrent(context), CUDA_SUCCESS);
      CUstream stream = nullptr;
      ASSERT_EQ(::cuStreamCreate(&stream, t % 2 == 0 ? 0 : CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      CUevent event = nullptr;
      ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
      for (uint32_t i = 0; i < 200; ++i) {
        const CUdeviceptr mine = a + static_cast<uint64_t>(t) * 16 * 4096;
        ASSERT_EQ(::cuMemsetD32Async(mine, i, 1024, stream), CUDA_SUCCESS);
        ASSERT_EQ(::cuEventRecord(event, stream), CUDA_SUCCESS);
        if (i % 10 == 0) {
          ASSERT_EQ(::cuMemsetD32_v2(mine + 8192, i, 16), CUDA_SUCCESS);
        }
        ASSERT_EQ(::cuEventSynchronize(event), CUDA_SUCCESS);
        uint32_t word = 0;
        ASSERT_EQ(::cuMemcpyDtoH_v2(&word, mine, 4), CUDA_SUCCESS);
        ASSERT_EQ(word, i);
        CUdeviceptr p = 0;
        ASSERT_EQ(::cuMemAllocAsync(&p, 1000 + i, stream), CUDA_SUCCESS);
        ASSERT_EQ(::cuMemFreeAsync(p, stream), CUDA_SUCCESS);
      }
      ASSERT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
      ASSERT_EQ(::cuEventDestroy_v2(event), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(StreamTest, AFaultSticks) {
  CUdeviceptr a = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&a, 4096), CUDA_SUCCESS);
  static std::atomic<int> status{-1};
  fake->Hold();
  ASSERT_EQ(::cuMemsetD8Async(a, 1, 4096, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamAddCallback(
                nullptr, [](CUstream, CUresult result, void*) { status = result; }, nullptr, 0),
            CUDA_SUCCESS);
  // The engine kills the context, as for a board fault.
  fake->FailContext(fake->LastContext(), 31);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(::cuMemAlloc_v2(&a, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(::cuStreamQuery(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdevice device = -1;
  EXPECT_EQ(::cuCtxGetDevice(&device), CUDA_SUCCESS) << "what is not work goes on";
  ASSERT_EQ(::cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(status, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(::cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS) << "a new context is healthy";
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace mete::emulator::cuda
