// The library on a real emulated node: loaded as a program would, from the node's driver root, over the engine process.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "mete/cuda.h"
#include "symbols.h"

namespace {

// METE_EMULATOR: the program that brings nodes up. One node for all tests of this file.
class NodeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    if (const char* root = getenv("METE_TEST_NODE")) {
      root_ = root;
      return Load();
    }
    char folder[] = "/tmp/mete-cuda-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    root_ = folder_ + "/node";
    up_ =
        system((std::string(METE_EMULATOR) + " up --gpus A100-SXM4-40GB,T4 --dir " + root_ + " > /dev/null").c_str()) ==
        0;
    ASSERT_TRUE(up_);
    Load();
  }
  static void Load() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      if (entry.path().filename() == "libcuda.so.1") library_ = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  static void TearDownTestSuite() {
    if (up_) {
      EXPECT_EQ(system((std::string(METE_EMULATOR) + " down --dir " + root_ + " > /dev/null").c_str()), 0);
    }
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  template <typename F>
  static F* Get(const char* symbol) {
    void* address = dlsym(library_, symbol);
    EXPECT_NE(address, nullptr) << symbol;
    return reinterpret_cast<F*>(address);
  }
  static inline std::string folder_, root_;
  static inline void* library_ = nullptr;
  static inline bool up_ = false;
};

#define DRIVER(name) Get<decltype(::name)>(#name)

TEST_F(NodeTest, ExportsEveryName) {
  for (const ListedSymbol& listed : kListed) EXPECT_NE(dlsym(library_, listed.symbol), nullptr) << listed.symbol;
  EXPECT_EQ(dlsym(library_, "_ZN4mete8emulator4cuda6Driver4InitEv"), nullptr);
}

// A byte with room for one descriptor beside it.
struct OneDescriptor {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {nullptr, 0, &part, 1, control, sizeof control, 0};
};

// Not a test by itself, and so disabled: the next test starts it in a process of its own. It makes memory, sends its
// descriptor, and is gone.
TEST_F(NodeTest, DISABLED_MakesMemoryAndDies) {
  ASSERT_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(DRIVER(cuCtxCreate_v4)(&context, nullptr, 0, 0), CUDA_SUCCESS);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle made = 0;
  ASSERT_EQ(DRIVER(cuMemCreate)(&made, 64 << 20, &prop, 0), CUDA_SUCCESS);
  int file = -1;
  ASSERT_EQ(DRIVER(cuMemExportToShareableHandle)(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  OneDescriptor packet;
  cmsghdr* c = CMSG_FIRSTHDR(&packet.message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(c), &file, sizeof file);
  ASSERT_EQ(sendmsg(atoi(getenv("METE_TEST_SOCKET")), &packet.message, 0), 1);
  kill(getpid(), SIGKILL);
}

TEST_F(NodeTest, MemoryOutlivesItsMakerWhileADescriptorIsOpen) {
  ASSERT_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(DRIVER(cuCtxCreate_v4)(&context, nullptr, 0, 0), CUDA_SUCCESS);
  const auto free_bytes = [] {
    size_t free_now = 0, total = 0;
    EXPECT_EQ(DRIVER(cuMemGetInfo_v2)(&free_now, &total), CUDA_SUCCESS);
    return free_now;
  };
  const size_t before = free_bytes();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    setenv("METE_TEST_NODE", root_.c_str(), 1);
    setenv("METE_TEST_SOCKET", std::to_string(ends[1]).c_str(), 1);
    execl("/proc/self/exe", "maker", "--gtest_filter=*DISABLED_MakesMemoryAndDies", "--gtest_also_run_disabled_tests",
          nullptr);
    _exit(127);
  }
  close(ends[1]);
  OneDescriptor packet;
  ASSERT_EQ(recvmsg(ends[0], &packet.message, MSG_CMSG_CLOEXEC), 1);
  int file = -1;
  ASSERT_NE(CMSG_FIRSTHDR(&packet.message), nullptr);
  memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&packet.message)), sizeof file);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(maker, &status, 0), maker);
  while (before - free_bytes() > 64u << 20) usleep(1000);  // until the maker's context is taken back
  EXPECT_EQ(before - free_bytes(), 64u << 20) << "a descriptor is open";
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_EQ(DRIVER(cuMemImportFromShareableHandle)(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(file);
  EXPECT_EQ(before - free_bytes(), 64u << 20) << "it is held here";
  EXPECT_EQ(DRIVER(cuMemRelease)(memory), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(DRIVER(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
}

TEST_F(NodeTest, AddsVectorsFromText) {
  static const char kText[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry twice(.param .u64 p)\n{\n .reg .b32 %r<6>;\n .reg .b64 %rd<4>;\n"
      " ld.param.u64 %rd1, [p];\n mov.u32 %r1, %ctaid.x;\n mov.u32 %r2, %ntid.x;\n mov.u32 %r3, %tid.x;\n"
      " mad.lo.s32 %r4, %r1, %r2, %r3;\n mul.wide.u32 %rd2, %r4, 4;\n add.s64 %rd3, %rd1, %rd2;\n"
      " ld.global.u32 %r5, [%rd3];\n add.u32 %r5, %r5, %r5;\n st.global.u32 [%rd3], %r5;\n ret;\n}\n";
  ASSERT_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
  int devices = 0;
  ASSERT_EQ(DRIVER(cuDeviceGetCount)(&devices), CUDA_SUCCESS);
  EXPECT_EQ(devices, 2);
  size_t before = 0, with_context = 0, with_memory = 0, total = 0;
  CUcontext context = nullptr;
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuCtxPushCurrent_v2)(context), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemGetInfo_v2)(&with_context, &total), CUDA_SUCCESS);
  EXPECT_LT(with_context, total);
  CUdeviceptr p = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc_v2)(&p, 64 << 20), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemGetInfo_v2)(&with_memory, &total), CUDA_SUCCESS);
  EXPECT_EQ(with_context - with_memory, 64u << 20);
  CUmodule module = nullptr;
  CUfunction twice = nullptr;
  ASSERT_EQ(DRIVER(cuModuleLoadData)(&module, kText), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuModuleGetFunction)(&twice, module, "twice"), CUDA_SUCCESS);
  std::vector<uint32_t> values(4096);
  for (uint32_t i = 0; i < values.size(); ++i) values[i] = i;
  CUstream stream = nullptr;
  CUevent start = nullptr, end = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuEventCreate)(&start, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuEventCreate)(&end, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync_v2)(p, values.data(), values.size() * 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuEventRecord)(start, stream), CUDA_SUCCESS);
  void* parameters[] = {&p};
  ASSERT_EQ(DRIVER(cuLaunchKernel)(twice, 16, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuEventRecord)(end, stream), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyDtoHAsync_v2)(values.data(), p, values.size() * 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  for (uint32_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 2 * i);
  float ms = 0;
  ASSERT_EQ(DRIVER(cuEventElapsedTime_v2)(&ms, start, end), CUDA_SUCCESS);
  EXPECT_GT(ms, 0.0f);
  EXPECT_EQ(DRIVER(cuMemFree_v2)(p), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemGetInfo_v2)(&before, &total), CUDA_SUCCESS);
  EXPECT_EQ(before, with_context);
  CUcontext popped = nullptr;
  EXPECT_EQ(DRIVER(cuCtxPopCurrent_v2)(&popped), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
}

TEST_F(NodeTest, MemoryRunsOutAtTheBoardsSize) {
  ASSERT_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(DRIVER(cuCtxCreate_v4)(&context, nullptr, 0, 1), CUDA_SUCCESS);
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(DRIVER(cuMemGetInfo_v2)(&free_bytes, &total), CUDA_SUCCESS);
  size_t held = 0;
  CUdeviceptr p = 0;
  CUresult error = CUDA_SUCCESS;
  while ((error = DRIVER(cuMemAlloc_v2)(&p, 256 << 20)) == CUDA_SUCCESS) held += 256 << 20;
  EXPECT_EQ(error, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_LE(held, free_bytes);
  EXPECT_LT(free_bytes - held, 256u << 20);
  EXPECT_EQ(DRIVER(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
}

}  // namespace
