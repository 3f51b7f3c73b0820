// Graphs: captured and built by hand, run in dependency order beside each other, changed, and with memory of their own.
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

constexpr char kGraphText[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry inc(.param .u64 p, .param .u32 by)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [by];
  ld.global.u32 %r2, [%rd1];
  add.u32 %r3, %r2, %r1;
  st.global.u32 [%rd1], %r3;
  ret;
}
)";

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(::cuModuleLoadData(&module, kGraphText), CUDA_SUCCESS);
    ASSERT_EQ(::cuModuleGetFunction(&inc, module, "inc"), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemAlloc_v2(&word, 4), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemsetD32_v2(word, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
    fake->TakePosted();
  }
  CUresult Launch(CUdeviceptr at, uint32_t by, CUstream where) {
    void* parameters[] = {&at, &by};
    return ::cuLaunchKernel(inc, 1, 1, 1, 1, 1, 1, 0, where, parameters, nullptr);
  }
  CUDA_KERNEL_NODE_PARAMS Kernel(CUdeviceptr* at, uint32_t* by) {
    pointers[0] = at;
    pointers[1] = by;
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = inc;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = pointers;
    return p;
  }
  uint32_t Word() {
    uint32_t value = 0;
    EXPECT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(::cuMemcpyDtoH_v2(&value, word, 4), CUDA_SUCCESS);
    return value;
  }
  CUgraph EndCapture(CUstream from) {
    CUgraph graph = nullptr;
    EXPECT_EQ(::cuStreamEndCapture(from, &graph), CUDA_SUCCESS);
    return graph;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }
  size_t Nodes(CUgraph graph) {
    size_t count = 0;
    EXPECT_EQ(::cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  CUmodule module = nullptr;
  CUfunction inc = nullptr;
  CUdeviceptr word = 0;
  CUstream stream = nullptr;
  void* pointers[2] = {};
};

TEST_F(GraphTest, WhatIsCapturedIsNotExecuted) {
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  EXPECT_EQ(Launch(word, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(Launch(word, 2, stream), CUDA_SUCCESS);
  uint32_t host = 7;
  EXPECT_EQ(::cuMemcpyDtoHAsync_v2(&host, word, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamGetCaptureInfo(stream, &status, &id), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0u);
  CUgraph graph = EndCapture(stream);
  EXPECT_EQ(Nodes(graph), 3u);
  EXPECT_TRUE(fake->TakePosted().empty());
  EXPECT_EQ(host, 7u);
  EXPECT_EQ(Word(), 0u);
  CUgraphExec exec = Instantiate(graph);
  for (uint32_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(Word(), 3 * i);
    EXPECT_EQ(host, 3 * i);
  }
  EXPECT_EQ(::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, CaptureSpreadsOverEventsAndBranchesRunBeside) {
  CUstream other = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CUdeviceptr second = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&second, 4), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD32_v2(second, 100, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventCreate(&fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventCreate(&join, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventRecord(fork, stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
  ASSERT_EQ(::cuStreamWaitEvent(other, fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(Launch(word, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(Launch(second, 10, other), CUDA_SUCCESS);
  CUgraph none = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(other, &none), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  ASSERT_EQ(::cuEventRecord(join, other), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(::cuStreamEndCapture(stream, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(none, nullptr);

  auto capture = [&](bool joined) {
    ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    ASSERT_EQ(::cuEventRecord(fork, stream), CUDA_SUCCESS);
    ASSERT_EQ(::cuStreamWaitEvent(other, fork, 0), CUDA_SUCCESS);
    ASSERT_EQ(Launch(word, 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(Launch(second, 10, other), CUDA_SUCCESS);
    if (!joined) return;
    ASSERT_EQ(::cuEventRecord(join, other), CUDA_SUCCESS);
    ASSERT_EQ(::cuStreamWaitEvent(stream, join, 0), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemcpyDtoDAsync_v2(word, second, 4, stream), CUDA_SUCCESS);
  };
  capture(false);
  EXPECT_EQ(::cuStreamEndCapture(stream, &none), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  capture(true);
  CUgraph graph = EndCapture(stream);
  size_t edges = 0, roots = 0;
  EXPECT_EQ(::cuGraphGetEdges(graph, nullptr, nullptr, &edges), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphGetRootNodes(graph, nullptr, &roots), CUDA_SUCCESS);
  EXPECT_EQ(edges, 2u);
  EXPECT_EQ(roots, 2u);
  CUgraphExec exec = Instantiate(graph);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  fake->TakePosted();
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 110u);
  std::set<uint32_t> lanes;
  for (const auto& posted : fake->TakePosted()) {
    if (posted.work.kind == WorkKind::kKernel) lanes.insert(posted.stream);
  }
  EXPECT_EQ(lanes.size(), 2u);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 120u);
}

TEST_F(GraphTest, CaptureForbidsWhatItCannotHold) {
  CUgraph graph = nullptr;
  CUdeviceptr p = 0;
  EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(::cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  struct Case {
    const char* what;
    std::function<CUresult()> call;
    CUresult expected;
  };
  CUstream blocking = nullptr;
  CUevent outside = nullptr;
  ASSERT_EQ(::cuStreamCreate(&blocking, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventCreate(&outside, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventRecord(outside, stream), CUDA_SUCCESS);
  const Case cases[] = {
      {"synchronize", [&] { return ::cuStreamSynchronize(blocking); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"query", [&] { return ::cuStreamQuery(blocking); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"context", [&] { return ::cuCtxSynchronize(); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"allocate", [&] { return ::cuMemAlloc_v2(&p, 4); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"legacy", [&] { return Launch(word, 1, nullptr); }, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT},
      {"copy", [&] { return ::cuMemcpyDtoH_v2(&p, word, 4); }, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT},
      {"isolation", [&] { return ::cuStreamWaitEvent(blocking, outside, 0); }, CUDA_ERROR_STREAM_CAPTURE_ISOLATION},
  };
  for (const Case& c : cases) {
    ASSERT_EQ(::cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS) << c.what;
    EXPECT_EQ(::cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(c.call(), c.expected) << c.what;
    EXPECT_EQ(::cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << c.what;
  }
  // In relaxed mode an allocation is no business of the capture's; another thread's capture ends only there.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(::cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(::cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(::cuMemAlloc_v2(&p, 4), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(::cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  ASSERT_EQ(::cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamEndCapture(blocking, &graph), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, BuiltByHand) {
  CUgraph graph = nullptr;
  ASSERT_EQ(::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS fill = {word, 0, 5, 4, 1, 1};
  CUgraphNode set = nullptr, add = nullptr, copy = nullptr, call = nullptr, empty = nullptr;
  ASSERT_EQ(::cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, context), CUDA_SUCCESS);
  uint32_t by = 2;
  const CUDA_KERNEL_NODE_PARAMS kernel = Kernel(&word, &by);
  ASSERT_EQ(::cuGraphAddKernelNode_v2(&add, graph, &set, 1, &kernel), CUDA_SUCCESS);
  uint32_t host = 0;
  CUDA_MEMCPY3D out{};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = word;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = &host;
  out.WidthInBytes = 4;
  out.Height = out.Depth = 1;
  ASSERT_EQ(::cuGraphAddMemcpyNode(&copy, graph, &add, 1, &out, context), CUDA_SUCCESS);
  struct Seen {
    uint32_t* host;
    uint32_t value;
  } seen = {&host, 0};
  const CUDA_HOST_NODE_PARAMS function = {[](void* data) {
                                            auto* s = static_cast<Seen*>(data);
                                            s->value = *s->host;
                                          },
                                          &seen};
  ASSERT_EQ(::cuGraphAddHostNode(&call, graph, &copy, 1, &function), CUDA_SUCCESS);
  ASSERT_EQ(::cuGraphAddEmptyNode(&empty, graph, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphAddDependencies(graph, &call, &empty, 1), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphAddDependencies(graph, &call, &empty, 1), CUDA_ERROR_INVALID_VALUE);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_EQ(::cuGraphNodeGetType(copy, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMCPY);
  // A cycle is found when it is instantiated, and told.
  EXPECT_EQ(::cuGraphAddDependencies(graph, &empty, &set, 1), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  EXPECT_EQ(::cuGraphInstantiateWithParams(&exec, graph, &how), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(how.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
  EXPECT_EQ(::cuGraphRemoveDependencies(graph, &empty, &set, 1), CUDA_SUCCESS);
  exec = Instantiate(graph);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 7u);
  EXPECT_EQ(host, 7u);
  EXPECT_EQ(seen.value, 7u);

  // A node of the executable graph is changed, switched off, and changed back by a whole update.
  uint32_t more = 20;
  const CUDA_KERNEL_NODE_PARAMS changed = Kernel(&word, &more);
  EXPECT_EQ(::cuGraphExecKernelNodeSetParams_v2(exec, add, &changed), CUDA_SUCCESS);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 25u);
  EXPECT_EQ(::cuGraphNodeSetEnabled(exec, add, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 5u);
  EXPECT_EQ(::cuGraphNodeSetEnabled(exec, add, 1), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(::cuGraphExecUpdate_v2(exec, graph, &info), CUDA_SUCCESS);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 7u);
  CUDA_KERNEL_NODE_PARAMS told{};
  EXPECT_EQ(::cuGraphKernelNodeGetParams_v2(add, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.func, inc);
  EXPECT_EQ(*static_cast<uint32_t*>(told.kernelParams[1]), 2u);

  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr;
  EXPECT_EQ(::cuGraphClone(&clone, graph), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphNodeFindInClone(&twin, add, clone), CUDA_SUCCESS);
  EXPECT_NE(twin, add);
  EXPECT_EQ(::cuGraphDestroyNode(twin), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphNodeFindInClone(&twin, add, clone), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGraphExecUpdate_v2(exec, clone, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

  // The graph as a child of another, between an increment before and one after.
  CUgraph parent = nullptr;
  CUgraphNode child = nullptr, after = nullptr;
  ASSERT_EQ(::cuGraphCreate(&parent, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph), CUDA_SUCCESS);
  const CUDA_KERNEL_NODE_PARAMS last = Kernel(&word, &by);
  ASSERT_EQ(::cuGraphAddKernelNode_v2(&after, parent, &child, 1, &last), CUDA_SUCCESS);
  CUgraphExec whole = Instantiate(parent);
  ASSERT_EQ(::cuGraphLaunch(whole, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 9u);
  EXPECT_EQ(seen.value, 7u);
  for (CUgraphExec e : {exec, whole}) EXPECT_EQ(::cuGraphExecDestroy(e), CUDA_SUCCESS);
  for (CUgraph g : {graph, clone, parent}) EXPECT_EQ(::cuGraphDestroy(g), CUDA_SUCCESS);
}

TEST_F(GraphTest, MemoryNodesAllocateAndCount) {
  constexpr size_t kBytes = 8 << 20;
  const uint64_t before = fake->Used(0);
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  ASSERT_EQ(::cuMemAllocAsync(&p, kBytes, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD32Async(p, 41, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(Launch(p, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemcpyDtoDAsync_v2(word, p, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemFreeAsync(p, stream), CUDA_SUCCESS);
  CUgraph graph = EndCapture(stream);
  EXPECT_EQ(Nodes(graph), 5u);
  EXPECT_EQ(fake->Used(0), before);
  CUgraphExec exec = Instantiate(graph), second = nullptr;
  EXPECT_EQ(::cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(Word(), 42u);
    EXPECT_EQ(fake->Used(0) - before, kBytes);
  }
  cuuint64_t reserved = 0, used = 0, high = 0;
  EXPECT_EQ(::cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved), CUDA_SUCCESS);
  EXPECT_EQ(::cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
  EXPECT_EQ(::cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high), CUDA_SUCCESS);
  EXPECT_EQ(reserved, kBytes);
  EXPECT_EQ(used, 0u);
  EXPECT_EQ(high, kBytes);
  EXPECT_EQ(::cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), before);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 42u);
  EXPECT_EQ(::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), before);
}

TEST_F(GraphTest, MemoryThatAGraphLeavesIsFreedByHand) {
  const uint64_t before = fake->Used(0);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  p.bytesize = 1000;
  ASSERT_EQ(::cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &p), CUDA_SUCCESS);
  EXPECT_NE(p.dptr, 0u);
  EXPECT_EQ(::cuMemsetD8_v2(p.dptr, 1, 1000), CUDA_ERROR_INVALID_VALUE);
  CUgraphExec exec = Instantiate(graph);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemsetD8_v2(p.dptr, 1, 1000), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemsetD8_v2(p.dptr, 1, 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemFree_v2(p.dptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFree_v2(p.dptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFreeAsync(p.dptr, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), before);
}

TEST_F(GraphTest, LaunchSaysWhenThereIsNoMemory) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  p.bytesize = fake->Gpus()[0].memory_bytes;
  ASSERT_EQ(::cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &p), CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(graph);
  EXPECT_EQ(::cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, UserObjectsLiveAsLongAsAGraphHoldsThem) {
  static std::atomic<int> gone{0};
  gone = 0;
  CUuserObject object = nullptr;
  int data = 0;
  ASSERT_EQ(::cuUserObjectCreate(
                &object, &data, [](void*) { gone.fetch_add(1); }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  EXPECT_EQ(::cuGraphReleaseUserObject(graph, object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(gone, 0);
  EXPECT_EQ(::cuGraphDestroy(graph), CUDA_SUCCESS);
  while (gone == 0) std::this_thread::yield();
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(::cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, StreamsWaitForWords) {
  CUdeviceptr flag = 0;
  void* host = nullptr;
  ASSERT_EQ(::cuMemHostAlloc(&host, 8, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemHostGetDevicePointer_v2(&flag, host, 0), CUDA_SUCCESS);
  auto* value = static_cast<std::atomic<uint32_t>*>(host);
  value->store(0);
  EXPECT_EQ(::cuStreamWaitValue32_v2(stream, flag + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuStreamWaitValue32_v2(stream, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuStreamWaitValue32_v2(stream, flag, 3, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  ASSERT_EQ(Launch(word, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamWriteValue32_v2(stream, flag + 4, 9, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  CUstream other = nullptr;  // another stream goes on meanwhile
  ASSERT_EQ(::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Launch(word, 10, other), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(value[1].load(), 0u);
  value->store(3);
  EXPECT_EQ(Word(), 11u);
  EXPECT_EQ(value[1].load(), 9u);
}

}  // namespace
}  // namespace mete::emulator::cuda
