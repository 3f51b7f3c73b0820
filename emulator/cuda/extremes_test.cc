// Numbers and lists that no program means: structures with sizes beyond all measure, lists shorter than they are said
// to be, places smaller than they are said to be. The call refuses, and touches nothing. calls_test.cc does the same
// for the numbers among the arguments themselves.
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstring>
#include <functional>
#include <vector>

#include "emulator/cuda/calls_objects.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

constexpr uint64_t kAll = ~0ull;

using ExtremesTest = DriverTest;

// A page with a closed one behind it: what reads or writes past the end of something there faults.
class LastPage {
 public:
  LastPage()
      : base_(static_cast<uint8_t*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(base_ + 4096, 4096, PROT_NONE);
  }
  ~LastPage() { munmap(base_, 8192); }
  LastPage(const LastPage&) = delete;
  LastPage& operator=(const LastPage&) = delete;
  // The values, so that they end with the page.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    T* place = reinterpret_cast<T*>(base_ + 4096) - values.size();
    std::copy(values.begin(), values.end(), place);
    return place;
  }

 private:
  uint8_t* base_;
};

TEST(List, IsRefusedWhereItCannotBe) {
  LastPage page;
  const int* one = page.Put<int>({1});
  EXPECT_TRUE(IsList(one, 1));
  EXPECT_TRUE(IsList<int>(nullptr, 0));
  EXPECT_FALSE(IsList<int>(nullptr, 1));
  EXPECT_FALSE(IsList(one, 4096)) << "it would end beyond the page";
  EXPECT_FALSE(IsList(one, kMostListed + 1));
  EXPECT_FALSE(IsList(one, kAll));
  std::vector<int> many(kMostListed);
  EXPECT_TRUE(IsList(many.data(), many.size()));
  // Reserved addresses are mapped, and cannot be read.
  void* closed = mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_FALSE(IsMapped(closed, 1 << 20));
  munmap(closed, 1 << 20);
  EXPECT_FALSE(IsMapped(reinterpret_cast<void*>(1ull << 46), kAll));
}

// The log of an instantiation is as long as it is, not as its place is said to be.
TEST_F(ExtremesTest, LogPlaces) {
  LastPage page;
  CallObjects objects;
  char* log = page.Put<char>(std::vector<char>(8, 'x'));
  CUgraphExec exec = nullptr;
  CUgraphNode wrong = nullptr;
  const auto graph = reinterpret_cast<CUgraph>(objects.Get("graph2"));
  EXPECT_EQ(::cuGraphInstantiate(&exec, graph, &wrong, log, kAll), CUDA_SUCCESS);
  EXPECT_STREQ(log, "");
  EXPECT_EQ(::cuGraphInstantiate_v2(&exec, graph, &wrong, log, kAll), CUDA_SUCCESS);
}

TEST_F(ExtremesTest, OptionsOfModulesLibrariesAndLinks) {
  LastPage page, values_page;
  auto* text = const_cast<char*>(kCallsText);
  CUjit_option* options = page.Put<CUjit_option>({CU_JIT_OPTIMIZATION_LEVEL});
  auto* library_options = reinterpret_cast<CUlibraryOption*>(options);
  void** values = values_page.Put<void*>({nullptr});
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUlinkState link = nullptr, made = nullptr;
  ASSERT_EQ(::cuLinkCreate_v2(0, nullptr, nullptr, &link), CUDA_SUCCESS);
  for (const unsigned int count : {0xffffffffu, 0x80000000u, 100'000u}) {
    for (const bool lists : {true, false}) {
      CUjit_option* o = lists ? options : nullptr;
      void** v = lists ? values : nullptr;
      CUlibraryOption* l = lists ? library_options : nullptr;
      EXPECT_EQ(::cuModuleLoadDataEx(&module, text, count, o, v), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLibraryLoadData(&library, text, o, v, count, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLibraryLoadData(&library, text, nullptr, nullptr, 0, l, v, count), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLibraryLoadFromFile(&library, "/dev/null", o, v, count, nullptr, nullptr, 0),
                CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLibraryLoadFromFile(&library, "/dev/null", nullptr, nullptr, 0, l, v, count),
                CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLinkCreate_v2(count, o, v, &made), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, sizeof kCallsText, nullptr, count, o, v),
                CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(::cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/dev/null", count, o, v), CUDA_ERROR_INVALID_VALUE);
    }
  }
  // A text ends where it ends, whatever its size is said to be.
  EXPECT_EQ(::cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, kAll, nullptr, 0, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuLinkDestroy(link), CUDA_SUCCESS);
  EXPECT_EQ(::cuModuleLoad(&module, "/dev/zero"), CUDA_ERROR_FILE_NOT_FOUND) << "a file without an end";
}

TEST_F(ExtremesTest, ListsShorterThanTheyAreSaidToBe) {
  CallObjects objects;
  LastPage pages[5];
  const auto graph = reinterpret_cast<CUgraph>(objects.Get("graph"));
  const auto node = reinterpret_cast<CUgraphNode>(objects.Get("node_empty"));
  const auto second = reinterpret_cast<CUgraphNode>(objects.Get("node_empty2"));
  const auto stream = reinterpret_cast<CUstream>(objects.Get("stream"));
  const CUdeviceptr dptr = objects.Get("dptr"), managed = objects.Get("managed"), mapped = objects.Get("mapped");
  CUgraphNode* nodes = pages[0].Put<CUgraphNode>({node});
  CUgraphNode* others = pages[1].Put<CUgraphNode>({second});
  for (const size_t count : {size_t{100'000}, size_t{kAll}, size_t{kAll} / 8}) {
    SCOPED_TRACE(count);
    // Places for nodes and edges: the rest of a list would be filled with null.
    size_t room = count;
    EXPECT_EQ(::cuGraphGetNodes(graph, nodes, &room), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuGraphGetRootNodes(graph, nodes, &room), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuGraphGetEdges(graph, nodes, others, &room), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuGraphNodeGetDependencies(node, nodes, &room), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuGraphNodeGetDependentNodes(node, nodes, &room), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(*nodes, node) << "nothing was written";
    CUgraphNode made = nullptr;
    EXPECT_EQ(::cuGraphAddEmptyNode(&made, graph, nodes, count), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuGraphAddDependencies(graph, nodes, others, count), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuGraphRemoveDependencies(graph, nodes, others, count), CUDA_ERROR_INVALID_VALUE);
    CUgraphEdgeData* edges = pages[2].Put<CUgraphEdgeData>({CUgraphEdgeData{}});
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_EQ(::cuGraphAddNode_v2(&made, graph, nodes, edges, count, &parameters), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuStreamBeginCaptureToGraph(stream, graph, nodes, nullptr, count, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_ERROR_INVALID_VALUE);
    // Batches.
    CUdeviceptr* to = pages[0].Put<CUdeviceptr>({dptr});
    CUdeviceptr* from = pages[1].Put<CUdeviceptr>({objects.Get("dptr2")});
    CUdeviceptr* ranges = pages[2].Put<CUdeviceptr>({managed});
    size_t* sizes = pages[3].Put<size_t>({64});
    size_t zero = 0;
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    EXPECT_EQ(::cuMemcpyBatchAsync_v2(to, from, sizes, count, &attributes, &zero, 1, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuMemPrefetchBatchAsync(ranges, sizes, count, &location, &zero, 1, 0, stream),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuMemDiscardBatchAsync(ranges, sizes, count, 0, stream), CUDA_ERROR_INVALID_VALUE);
    auto* access = pages[4].Put<CUmemAccessDesc>({{location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
    EXPECT_EQ(::cuMemSetAccess(mapped, 2 << 20, access, count), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(::cuMemPoolSetAccess(reinterpret_cast<CUmemoryPool>(objects.Get("pool")), access, count),
              CUDA_ERROR_INVALID_VALUE);
    nodes = pages[0].Put<CUgraphNode>({node});
    others = pages[1].Put<CUgraphNode>({second});
  }
  // Lists among the members of structures.
  CUlaunchConfig config = *reinterpret_cast<CUlaunchConfig*>(objects.Get("&launchconfig"));
  config.attrs = pages[0].Put<CUlaunchAttribute>({CUlaunchAttribute{}});
  CUctxCreateParams context_parameters{};
  CUexecAffinityParam affinity{};
  context_parameters.execAffinityParams = &affinity;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = *reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(objects.Get("&allocparams"));
  allocation.accessDescs = pages[4].Put<CUmemAccessDesc>({CUmemAccessDesc{}});
  for (const unsigned int count : {0xffffffffu, 100'000u}) {
    config.numAttrs = count;
    EXPECT_EQ(::cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(objects.Get("function")),
                                 reinterpret_cast<void**>(objects.Get("&parameters")), nullptr),
              CUDA_ERROR_INVALID_VALUE);
    context_parameters.numExecAffinityParams = static_cast<int>(0xffffffffu);
    CUcontext made = nullptr;
    EXPECT_EQ(::cuCtxCreate_v4(&made, &context_parameters, 0, 0), CUDA_ERROR_INVALID_VALUE);
    allocation.accessDescCount = count;
    CUgraphNode added = nullptr;
    EXPECT_EQ(::cuGraphAddMemAllocNode(&added, graph, nullptr, 0, &allocation), CUDA_ERROR_INVALID_VALUE);
  }
}

// The whole question is looked at before anything is answered.
TEST_F(ExtremesTest, QuestionsAboutPointers) {
  CallObjects objects;
  LastPage attributes_page, data_page;
  uint64_t answer = 77;
  CUpointer_attribute* attributes = attributes_page.Put<CUpointer_attribute>({CU_POINTER_ATTRIBUTE_MEMORY_TYPE});
  void** data = data_page.Put<void*>({&answer});
  const CUdeviceptr dptr = objects.Get("dptr"), managed = objects.Get("managed");
  for (const unsigned int count : {0xffffffffu, 0x7fffffffu, 100'000u})
    EXPECT_EQ(::cuPointerGetAttributes(count, attributes, data, dptr), CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute two[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, static_cast<CUpointer_attribute>(9999)};
  void* places[] = {&answer, reinterpret_cast<void*>(16)};
  EXPECT_EQ(::cuPointerGetAttributes(2, two, places, dptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(answer, 77u);
  int* devices = attributes_page.Put<int>({0, 0, 0, 0});
  EXPECT_EQ(::cuMemRangeGetAttribute(devices, size_t{1} << 40, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, managed, 4096),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemRangeGetAttribute(devices, 16, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, managed, 4096), CUDA_SUCCESS);
}

// Each length, pitch and offset of a copy in turn; none may wrap round to something that fits.
TEST_F(ExtremesTest, CopiesBeyondAllMeasure) {
  CallObjects objects;
  const auto stream = reinterpret_cast<CUstream>(objects.Get("stream"));
  uint8_t host[64] = {};
  CUDA_MEMCPY3D good{};
  good.srcMemoryType = CU_MEMORYTYPE_HOST;
  good.srcHost = host;
  good.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  good.dstDevice = objects.Get("dptr");
  good.WidthInBytes = 4;
  good.Height = good.Depth = 2;
  good.srcPitch = good.dstPitch = 4;
  good.srcHeight = good.dstHeight = 2;
  ASSERT_EQ(::cuMemcpy3D_v2(&good), CUDA_SUCCESS);
  size_t CUDA_MEMCPY3D::*const fields[] = {
      &CUDA_MEMCPY3D::srcXInBytes,  &CUDA_MEMCPY3D::srcY,      &CUDA_MEMCPY3D::srcZ,        &CUDA_MEMCPY3D::srcLOD,
      &CUDA_MEMCPY3D::srcPitch,     &CUDA_MEMCPY3D::srcHeight, &CUDA_MEMCPY3D::dstXInBytes, &CUDA_MEMCPY3D::dstY,
      &CUDA_MEMCPY3D::dstZ,         &CUDA_MEMCPY3D::dstLOD,    &CUDA_MEMCPY3D::dstPitch,    &CUDA_MEMCPY3D::dstHeight,
      &CUDA_MEMCPY3D::WidthInBytes, &CUDA_MEMCPY3D::Height,    &CUDA_MEMCPY3D::Depth};
  for (const bool reverse : {false, true}) {
    CUDA_MEMCPY3D base = good;
    if (reverse) {
      base.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      base.srcDevice = good.dstDevice;
      base.dstMemoryType = CU_MEMORYTYPE_HOST;
      base.dstHost = host;
    }
    for (size_t i = 0; i < std::size(fields); ++i) {
      for (const uint64_t number : {~0ull, 1ull << 63, 1ull << 46}) {
        CUDA_MEMCPY3D copy = base;
        copy.*fields[i] = number;
        EXPECT_EQ(::cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE) << "field " << i << ", " << number;
        EXPECT_EQ(::cuMemcpy3DAsync_v2(&copy, stream), CUDA_ERROR_INVALID_VALUE) << "field " << i << ", " << number;
      }
    }
  }
  // 2^32 rows of 2^32 bytes are 0 bytes where only 64 bits are counted.
  CUDA_MEMCPY3D wraps = good;
  wraps.WidthInBytes = wraps.Height = wraps.srcPitch = wraps.dstPitch = 1ull << 32;
  EXPECT_EQ(::cuMemcpy3D_v2(&wraps), CUDA_ERROR_INVALID_VALUE);
  // Host memory ends where a process's addresses do.
  EXPECT_EQ(::cuMemcpy(reinterpret_cast<CUdeviceptr>(host), kAll - 32, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyHtoD_v2(good.dstDevice, reinterpret_cast<void*>(kAll - 32), 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyDtoH_v2(reinterpret_cast<void*>(kAll - 32), good.dstDevice, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemsetD2D32_v2(good.dstDevice, 1ull << 62, 1, 1, 5), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExtremesTest, ShapesBeyondAllMeasure) {
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR huge{1 << 20, 1 << 20, (1 << 20) - 1, CU_AD_FORMAT_FLOAT, 4, 0};
  EXPECT_NE(::cuArray3DCreate_v2(&array, &huge), CUDA_SUCCESS);
  EXPECT_NE(::cuMipmappedArrayCreate(&mipmap, &huge, 0xffffffffu), CUDA_SUCCESS);
  huge.Width = huge.Height = huge.Depth = kAll;
  EXPECT_EQ(::cuArray3DCreate_v2(&array, &huge), CUDA_ERROR_INVALID_VALUE);
  // Memory that is registered must be there.
  LastPage page;
  char* byte = page.Put<char>({0});
  EXPECT_EQ(::cuMemHostRegister_v2(byte, 1 << 20, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemGenericAllocationHandle physical = 0;
  CallObjects objects;
  const auto* prop = reinterpret_cast<CUmemAllocationProp*>(objects.Get("&prop"));
  EXPECT_EQ(::cuMemCreate(&physical, 0 - (2ull << 20), prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

// A stray host address in a copy faults its caller, or fails the call; nothing hangs.
TEST_F(ExtremesTest, StrayHostAddressesFaultTheirCallerOnly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ended = [](int status) {
    return (WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGABRT)) ||
           (WIFEXITED(status) && WEXITSTATUS(status) != 0);
  };
  const auto copy = [](bool to_device, size_t bytes) {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    if (::cuMemAlloc_v2(&memory, 4 << 20) != CUDA_SUCCESS || ::cuStreamCreate(&stream, 1) != CUDA_SUCCESS) _exit(0);
    auto* stray = reinterpret_cast<void*>(0xdead0000);
    const CUresult result = to_device ? ::cuMemcpyHtoDAsync_v2(memory, stray, bytes, stream)
                                      : ::cuMemcpyDtoHAsync_v2(stray, memory, bytes, stream);
    _exit(result != CUDA_SUCCESS || ::cuStreamSynchronize(stream) != CUDA_SUCCESS ? 3 : 0);
  };
  for (const size_t bytes : {size_t{64}, size_t{4} << 20}) {
    EXPECT_EXIT(copy(true, bytes), ended, "");
    EXPECT_EXIT(copy(false, bytes), ended, "");
  }
}

}  // namespace
}  // namespace mete::emulator::cuda
