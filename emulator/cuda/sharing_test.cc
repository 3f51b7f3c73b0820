// What crosses boundaries: between GPUs, and between processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emulator/cuda/share_file.h"
#include "emulator/cuda/test_driver.h"

namespace mete::emulator::cuda {
namespace {

std::string Hex(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", static_cast<const uint8_t*>(data)[i]);
    text += digits;
  }
  return text;
}

void FromHex(const char* text, void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
    static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(strtoul(digits, nullptr, 16));
  }
}

class SharingTest : public DriverTest {
 protected:
  // Runs the named test of this binary in a process of its own, with the handle in its environment.
  static int RunOther(const char* test, const std::string& handle) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("METE_TEST_HANDLE", handle.c_str(), 1);
      const std::string filter = std::string("--gtest_filter=") + test;
      execl("/proc/self/exe", "sharing", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }
};

// The second process of the tests below, which start this program again for one of these; on their own they test
// nothing, hence the name that gtest leaves out.
using DISABLED_OtherProcess = DriverTest;

TEST_F(DISABLED_OtherProcess, OpensMemory) {
  const char* text = getenv("METE_TEST_HANDLE");
  ASSERT_NE(text, nullptr);
  CUipcMemHandle handle;
  FromHex(text, &handle, sizeof handle);
  CUdeviceptr p = 0, again = 0;
  ASSERT_EQ(::cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);  // it is counted at its maker
  ASSERT_EQ(::cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
  EXPECT_EQ(again, p);
  uint32_t words[2] = {};
  ASSERT_EQ(::cuMemcpyDtoH_v2(words, p, 8), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 11u);
  EXPECT_EQ(words[1], 22u);
  EXPECT_EQ(::cuMemcpyDtoH_v2(words, p + 997, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuMemsetD32_v2(p, 33, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(::cuIpcCloseMemHandle(p), CUDA_SUCCESS);
  EXPECT_EQ(::cuIpcCloseMemHandle(p), CUDA_SUCCESS);
  EXPECT_EQ(::cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DISABLED_OtherProcess, WaitsForAnEvent) {
  const char* text = getenv("METE_TEST_HANDLE");
  ASSERT_NE(text, nullptr);
  CUipcEventHandle handle;
  FromHex(text, &handle, sizeof handle);
  CUevent event = nullptr;
  ASSERT_EQ(::cuIpcOpenEventHandle(&event, handle), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamWaitEvent(nullptr, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(SharingTest, MemoryOfAnotherProcess) {
  CUdeviceptr neighbour = 0, p = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&neighbour, 512), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&p, 1000), CUDA_SUCCESS);
  const uint32_t words[2] = {11, 22};
  ASSERT_EQ(::cuMemcpyHtoD_v2(p, words, 8), CUDA_SUCCESS);
  CUipcMemHandle handle;
  EXPECT_EQ(::cuIpcGetMemHandle(&handle, 4096), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuIpcGetMemHandle(&handle, p), CUDA_SUCCESS);
  CUdeviceptr own = 0;
  EXPECT_EQ(::cuIpcOpenMemHandle_v2(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(RunOther("DISABLED_OtherProcess.OpensMemory", Hex(&handle, sizeof handle)), 0);
  uint32_t value = 0;
  ASSERT_EQ(::cuMemcpyDtoH_v2(&value, p, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 33u);
  EXPECT_EQ(::cuMemFree_v2(p), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFree_v2(neighbour), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

TEST_F(SharingTest, HandlesOfStrangersAreNotBelieved) {
  CUdeviceptr p = 0;
  CUipcMemHandle handle{};
  EXPECT_EQ(::cuIpcOpenMemHandle_v2(&p, handle, 1), CUDA_ERROR_INVALID_HANDLE);
  for (int i = 0; i < 64; ++i) handle.reserved[i] = static_cast<char>(i * 37);
  EXPECT_EQ(::cuIpcOpenMemHandle_v2(&p, handle, 1), CUDA_ERROR_INVALID_HANDLE);
  CUevent event = nullptr;
  CUipcEventHandle other{};
  EXPECT_EQ(::cuIpcOpenEventHandle(&event, other), CUDA_ERROR_INVALID_HANDLE);
  CUmemGenericAllocationHandle memory = 0;
  for (int file : {-1, 0, memfd_create("short", 0), open("/dev/zero", O_RDWR)}) {
    EXPECT_EQ(::cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_ERROR_INVALID_VALUE);
    if (file > 0) close(file);
  }
}

TEST_F(SharingTest, EventsOfAnotherProcess) {
  CUevent event = nullptr, plain = nullptr;
  EXPECT_EQ(::cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(::cuEventCreate(&plain, 0), CUDA_SUCCESS);
  CUipcEventHandle handle;
  EXPECT_EQ(::cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
  fake->Hold();
  ASSERT_EQ(::cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuEventQuery(event), CUDA_ERROR_NOT_READY);
  fake->Release();
  EXPECT_EQ(RunOther("DISABLED_OtherProcess.WaitsForAnEvent", Hex(&handle, sizeof handle)), 0);
  EXPECT_EQ(::cuEventSynchronize(event), CUDA_SUCCESS);
}

TEST_F(SharingTest, MappableMemoryByDescriptor) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle plain = 0, made = 0, imported = 0;
  int file = -1;
  ASSERT_EQ(::cuMemCreate(&plain, 2 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemExportToShareableHandle(&file, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemRelease(plain), CUDA_SUCCESS);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_EQ(::cuMemCreate(&made, 4 * kMiB, &prop, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemExportToShareableHandle(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(file);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB);
  CUdeviceptr first = 0, second = 0;
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (auto [at, handle] : {std::pair{&first, made}, std::pair{&second, imported}}) {
    ASSERT_EQ(::cuMemAddressReserve(at, 4 * kMiB, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemMap(*at, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemSetAccess(*at, 4 * kMiB, &access, 1), CUDA_SUCCESS);
  }
  ASSERT_EQ(::cuMemsetD32_v2(first, 77, kMiB), CUDA_SUCCESS);
  uint32_t value = 0;
  ASSERT_EQ(::cuMemcpyDtoH_v2(&value, second + 3 * kMiB, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 77u);
  for (CUdeviceptr at : {first, second}) {
    EXPECT_EQ(::cuMemUnmap(at, 4 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(::cuMemAddressFree(at, 4 * kMiB), CUDA_SUCCESS);
  }
  EXPECT_EQ(::cuMemRelease(made), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemRelease(imported), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
  EXPECT_LE(fake->BackingTaken(), 4 * kMiB);
}

// What is done with memory, a letter a step; the last one ends what kept it.
//   e export  i import  r release the maker's handle  q release the import's  m, n map the one, the other  u, v unmap
//   c close the descriptor  x end the context
TEST_F(SharingTest, MemoryIsCountedWhileAnythingKeepsIt) {
  static const char* const kOrders[] = {
      "r",       "xr",      "mru",     "mur",       "ecr",       "erc",    "eicrq",    "eircq",
      "eirqc",   "eicqr",   "eiqcr",   "ericq",     "eriqc",     "emrcu",  "emcru",    "merxcu",
      "eincrqv", "einrcqv", "erincqv", "eminrcquv", "eminrcqvu", "exricq", "einxcrqv",
  };
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  constexpr size_t kBytes = 4 * kMiB;
  for (const char* const order : kOrders) {
    SCOPED_TRACE(order);
    CUcontext own = nullptr;
    ASSERT_EQ(::cuCtxCreate_v4(&own, nullptr, 0, 0), CUDA_SUCCESS);
    CUmemGenericAllocationHandle made = 0, imported = 0;
    int file = -1;
    CUdeviceptr first = 0, second = 0;
    ASSERT_EQ(::cuMemAddressReserve(&first, kBytes, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemAddressReserve(&second, kBytes, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemCreate(&made, kBytes, &prop, 0), CUDA_SUCCESS);
    bool ended = false;
    for (const char* step = order; *step != '\0'; ++step) {
      CUresult result = CUDA_SUCCESS;
      switch (*step) {
        case 'e':
          result = ::cuMemExportToShareableHandle(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
          break;
        case 'i':
          result = ::cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
          break;
        case 'r': result = ::cuMemRelease(made); break;
        case 'q': result = ::cuMemRelease(imported); break;
        case 'm': result = ::cuMemMap(first, kBytes, 0, made, 0); break;
        case 'n': result = ::cuMemMap(second, kBytes, 0, imported, 0); break;
        case 'u': result = ::cuMemUnmap(first, kBytes); break;
        case 'v': result = ::cuMemUnmap(second, kBytes); break;
        case 'c': close(file); break;
        case 'x':
          result = ::cuCtxDestroy_v2(own);
          ended = true;
          break;
        default: FAIL() << *step;
      }
      ASSERT_EQ(result, CUDA_SUCCESS) << *step;
      EXPECT_EQ(fake->Used(0),
                used_at_start + (ended ? 0 : fake->Gpus()[0].context_bytes) + (step[1] != '\0' ? kBytes : 0))
          << "after " << *step;
    }
    EXPECT_EQ(::cuMemAddressFree(first, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(::cuMemAddressFree(second, kBytes), CUDA_SUCCESS);
    if (!ended) {
      EXPECT_EQ(::cuCtxDestroy_v2(own), CUDA_SUCCESS);
    }
  }
}

TEST_F(SharingTest, PoolsByDescriptor) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr, imported = nullptr;
  ASSERT_EQ(::cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  int file = -1;
  ASSERT_EQ(::cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  close(file);
  CUdeviceptr p = 0, q = 0;
  EXPECT_EQ(::cuMemAllocFromPoolAsync(&p, 100, imported, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuMemAllocFromPoolAsync(&p, 5 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemsetD8_v2(p, 5, 5 * kMiB), CUDA_SUCCESS);
  CUmemPoolPtrExportData data{};
  ASSERT_EQ(::cuMemPoolExportPointer(&data, p), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemPoolImportPointer(&q, pool, &data), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuMemPoolImportPointer(&q, imported, &data), CUDA_SUCCESS);
  EXPECT_NE(p, q);
  uint8_t byte = 0;
  ASSERT_EQ(::cuMemcpyDtoH_v2(&byte, q + 4 * kMiB, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 5);
  EXPECT_EQ(::cuMemFreeAsync(q, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemPoolDestroy(imported), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

TEST_F(SharingTest, ExternalMemoryIsCountedAndMapped) {
  const int file = memfd_create("of another API", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 3 * kMiB), 0);
  ASSERT_EQ(pwrite(file, "hello", 5, kMiB), 5);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC d{};
  d.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  d.handle.fd = file;
  d.size = 4 * kMiB;
  CUexternalMemory memory = nullptr;
  EXPECT_EQ(::cuImportExternalMemory(&memory, &d), CUDA_ERROR_INVALID_HANDLE);  // larger than the file
  d.size = 3 * kMiB;
  ASSERT_EQ(::cuImportExternalMemory(&memory, &d), CUDA_SUCCESS);
  EXPECT_EQ(fake->Used(0) - used_at_start, 4 * kMiB);
  EXPECT_NE(ftruncate(file, 0), 0);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC b{};
  b.offset = kMiB;
  b.size = 2 * kMiB;
  CUdeviceptr p = 0;
  ASSERT_EQ(::cuExternalMemoryGetMappedBuffer(&p, memory, &b), CUDA_SUCCESS);
  char text[6] = {};
  ASSERT_EQ(::cuMemcpyDtoH_v2(text, p, 5), CUDA_SUCCESS);
  EXPECT_STREQ(text, "hello");
  b.size = 3 * kMiB;
  EXPECT_EQ(::cuExternalMemoryGetMappedBuffer(&p, memory, &b), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemFree_v2(p), CUDA_SUCCESS);
  EXPECT_EQ(::cuDestroyExternalMemory(memory), CUDA_SUCCESS);
  EXPECT_EQ(::cuDestroyExternalMemory(memory), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(fake->Used(0), used_at_start);
}

TEST_F(SharingTest, ExternalSemaphoresOrderStreams) {
  const int file = memfd_create("semaphore", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 8), 0);
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC d{};
  d.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  d.handle.fd = file;
  CUexternalSemaphore semaphore = nullptr;
  ASSERT_EQ(::cuImportExternalSemaphore(&semaphore, &d), CUDA_SUCCESS);
  CUstream waiting = nullptr, signalling = nullptr;
  ASSERT_EQ(::cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamCreate(&signalling, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  wait.params.fence.value = 5;
  ASSERT_EQ(::cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, waiting), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  signal.params.fence.value = 5;
  ASSERT_EQ(::cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, signalling), CUDA_SUCCESS);
  EXPECT_EQ(::cuStreamSynchronize(waiting), CUDA_SUCCESS);
  EXPECT_EQ(::cuDestroyExternalSemaphore(semaphore), CUDA_SUCCESS);
}

TEST_F(SharingTest, PeerAccessIsAskedFor) {
  static const char kPut[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry put(.param .u64 p)\n{\n .reg .b64 %rd<2>;\n .reg .b32 %r<2>;\n ld.param.u64 %rd1, [p];\n"
      " mov.u32 %r1, 6;\n st.global.u32 [%rd1], %r1;\n ret;\n}\n";
  CUcontext peer = nullptr;
  CUdeviceptr there = 0;
  ASSERT_EQ(::cuCtxCreate_v4(&peer, nullptr, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&there, 4), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(context), CUDA_SUCCESS);
  int can = 0;
  ASSERT_EQ(::cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(::cuDeviceCanAccessPeer(&can, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  CUmodule module = nullptr;
  CUfunction put = nullptr;
  ASSERT_EQ(::cuModuleLoadData(&module, kPut), CUDA_SUCCESS);
  ASSERT_EQ(::cuModuleGetFunction(&put, module, "put"), CUDA_SUCCESS);
  void* parameters[] = {&there};
  EXPECT_EQ(::cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(::cuCtxEnablePeerAccess(peer, 0), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ASSERT_EQ(::cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  uint32_t value = 0;
  CUdeviceptr here = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&here, 4), CUDA_SUCCESS);
  fake->TakePosted();
  ASSERT_EQ(::cuMemcpyPeer(here, context, there, peer, 4), CUDA_SUCCESS);
  EXPECT_EQ(fake->TakePosted().at(0).work.kind, WorkKind::kCopyHostToDevice);  // it comes over the bus
  ASSERT_EQ(::cuMemcpyDtoH_v2(&value, here, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 6u);
  EXPECT_EQ(::cuCtxDisablePeerAccess(peer), CUDA_SUCCESS);
  ASSERT_EQ(::cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(::cuCtxDestroy_v2(peer), CUDA_SUCCESS);
}

TEST_F(SharingTest, ArraysHoldWhatIsCopiedIn) {
  CUarray flat = nullptr, deep = nullptr;
  const CUDA_ARRAY_DESCRIPTOR line = {100, 0, CU_AD_FORMAT_FLOAT, 1};
  const CUDA_ARRAY3D_DESCRIPTOR box = {10, 6, 3, CU_AD_FORMAT_UNSIGNED_INT8, 2, 0};
  ASSERT_EQ(::cuArrayCreate_v2(&flat, &line), CUDA_SUCCESS);
  ASSERT_EQ(::cuArray3DCreate_v2(&deep, &box), CUDA_SUCCESS);
  std::vector<float> in(100), out(100);
  for (int i = 0; i < 100; ++i) in[static_cast<size_t>(i)] = static_cast<float>(i);
  ASSERT_EQ(::cuMemcpyHtoA_v2(flat, 0, in.data(), 400), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemcpyHtoA_v2(flat, 4, in.data(), 400), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuMemcpyHtoA_v2(deep, 0, in.data(), 4), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::cuMemcpyAtoH_v2(out.data(), flat, 40, 360), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 10.0f);
  EXPECT_EQ(out[89], 99.0f);
  std::vector<uint8_t> bytes(20 * 6 * 3), back(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  CUDA_MEMCPY3D d{};
  d.srcMemoryType = CU_MEMORYTYPE_HOST;
  d.srcHost = bytes.data();
  d.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  d.dstArray = deep;
  d.WidthInBytes = 20;
  d.Height = 6;
  d.Depth = 3;
  ASSERT_EQ(::cuMemcpy3D_v2(&d), CUDA_SUCCESS);
  d.dstXInBytes = 1;
  EXPECT_EQ(::cuMemcpy3D_v2(&d), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D r{};
  r.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  r.srcArray = deep;
  r.srcY = 1;
  r.srcZ = 2;
  r.dstMemoryType = CU_MEMORYTYPE_HOST;
  r.dstHost = back.data();
  r.WidthInBytes = 20;
  r.Height = 2;
  r.Depth = 1;
  ASSERT_EQ(::cuMemcpy3D_v2(&r), CUDA_SUCCESS);
  EXPECT_EQ(back[0], static_cast<uint8_t>(2 * 120 + 20));
  EXPECT_EQ(::cuArrayDestroy(flat), CUDA_SUCCESS);
  EXPECT_EQ(::cuMemcpyAtoH_v2(out.data(), flat, 0, 4), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(::cuArrayDestroy(deep), CUDA_SUCCESS);
}

}  // namespace
}  // namespace mete::emulator::cuda
