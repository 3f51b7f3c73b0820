// Look-up by both routes, and that the list of what is implemented is true.
#include <cstring>
#include <map>
#include <set>

#include "emulator/cuda/test_driver.h"
#include "symbols.h"

namespace mete::emulator::cuda {
namespace {

void* Get(const char* name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status = nullptr) {
  void* address = nullptr;
  ::cuGetProcAddress_v2(name, &address, version, flags, status);
  return address;
}

TEST(LookUp, EveryVersionAndStreamKindIsFound) {
  for (int i = 0; i < kSymbolCount; ++i) {
    const Symbol& s = kSymbols[i];
    const cuuint64_t flags = s.stream == StreamKind::kPerThreadStream ? 2 : 1;
    void* address = Get(s.name, s.version, flags);
    // Another symbol may have the same name, version and kind of stream: the later one in the table.
    const Symbol* expected = &s;
    for (int j = i + 1; j < kSymbolCount && strcmp(kSymbols[j].name, s.name) == 0; ++j) {
      if (kSymbols[j].version <= s.version && (kSymbols[j].stream == StreamKind::kPerThreadStream) == (flags == 2))
        expected = &kSymbols[j];
    }
    EXPECT_EQ(address, expected->address) << s.symbol;
  }
}

TEST(LookUp, HonoursVersion) {
  EXPECT_EQ(Get("cuCtxGetDevice", 2000, 0), reinterpret_cast<void*>(&::cuCtxGetDevice));
  EXPECT_EQ(Get("cuCtxGetDevice", 12080, 0), reinterpret_cast<void*>(&::cuCtxGetDevice));
  EXPECT_EQ(Get("cuCtxGetDevice", 13000, 0), reinterpret_cast<void*>(&::cuCtxGetDevice_v2));
  EXPECT_EQ(Get("cuMemAlloc", 3010, 0), reinterpret_cast<void*>(&::cuMemAlloc));
  EXPECT_EQ(Get("cuMemAlloc", 3020, 0), reinterpret_cast<void*>(&::cuMemAlloc_v2));
}

TEST(LookUp, HonoursKindOfDefaultStream) {
  EXPECT_EQ(Get("cuLaunchKernel", 13000, 0), reinterpret_cast<void*>(&::cuLaunchKernel));
  EXPECT_EQ(Get("cuLaunchKernel", 13000, 1), reinterpret_cast<void*>(&::cuLaunchKernel));
  EXPECT_EQ(Get("cuLaunchKernel", 13000, 2), reinterpret_cast<void*>(&::cuLaunchKernel_ptsz));
  EXPECT_EQ(Get("cuMemAlloc", 13000, 2), reinterpret_cast<void*>(&::cuMemAlloc_v2));
}

TEST(LookUp, SaysWhyNot) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  void* address = &status;
  EXPECT_EQ(::cuGetProcAddress_v2("cuNoSuchThing", &address, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(address, nullptr);
  address = &status;
  EXPECT_EQ(::cuGetProcAddress_v2("cuMemAllocAsync", &address, 11000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(::cuGetProcAddress_v2("cuInit", &address, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(::cuGetProcAddress("cuMemAlloc_v2", &address, 13000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(::cuGetProcAddress(nullptr, &address, 13000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGetProcAddress("cuInit", nullptr, 13000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::cuGetProcAddress("cuInit", &address, 13000, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST(LookUp, PrivateTablesAreRefused) {
  const void* table = nullptr;
  const CUuuid id{};
  EXPECT_EQ(::cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

// A call with every argument zero: no implemented function may answer "not supported" to it or crash, and every other
// one must answer exactly that and be counted.
using Call = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t);

TEST_F(DriverTest, TheListOfImplementedFunctionsIsTrue) {
  std::map<std::string, void*> address;
  for (int i = 0; i < kSymbolCount; ++i) address[kSymbols[i].symbol] = kSymbols[i].address;
  std::set<std::string> skipped = {"cuGetExportTable"};
  int implemented = 0;
  for (const ListedSymbol& listed : kListed) {
    if (skipped.count(listed.symbol) != 0) continue;
    ASSERT_NE(address[listed.symbol], nullptr) << listed.symbol;
    if (strncmp(listed.symbol, "cuCtxPopCurrent", 15) == 0 ||
        strncmp(listed.symbol, "cuDevicePrimaryCtxReset", 23) == 0)
      continue;
    auto call = reinterpret_cast<Call>(address[listed.symbol]);
    const CUresult result = call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    ASSERT_EQ(::cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(fake->Unsupported(listed.symbol), listed.implemented ? 0 : 1) << listed.symbol;
    if (!listed.implemented) {
      EXPECT_EQ(result, CUDA_ERROR_NOT_SUPPORTED) << listed.symbol;
    }
    implemented += listed.implemented;
  }
  EXPECT_GT(implemented, 200);
}

TEST(Errors, HaveNamesAndWords) {
  const char* text = nullptr;
  EXPECT_EQ(::cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(::cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(::cuGetErrorString(CUDA_SUCCESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "no error");
  EXPECT_EQ(::cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace mete::emulator::cuda
