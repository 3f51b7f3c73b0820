// Every way to find a driver function ends at our wrapper if mete wraps it, and at the driver itself if not.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string.h>

#include <set>

#include "interceptor/driver.h"
#include "interceptor/testing/tenant.h"
#include "tests/sanitized.h"

namespace mete::interceptor::testing {
namespace {

constexpr const char* kWrapped[] = {"cuInit",          "cuMemAlloc_v2",       "cuMemAlloc",
                                    "cuLaunchKernel",  "cuLaunchKernel_ptsz", "cuCtxCreate_v4",
                                    "cuMemGetInfo_v2", "cuGetProcAddress_v2", "cuMemFreeAsync_ptsz"};
constexpr const char* kNotWrapped[] = {"cuModuleLoadData", "cuMemcpyHtoD_v2", "cuDriverGetVersion", "cuStreamCreate",
                                       "cuDeviceGetName"};

std::string FileOf(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}
bool InProxy(void* address) { return FileOf(address) == Directory() + "/libcuda.so.1"; }
bool InDriver(void* address) { return FileOf(address) == Directory() + "/libmete-driver-cuda.so.1"; }

TENANT(Dlsym) {
  for (const char* name : kWrapped) REQUIRE(InProxy(dlsym(Proxy(), name)));
  for (const char* name : kNotWrapped) REQUIRE(InDriver(dlsym(Proxy(), name)));
  REQUIRE(dlsym(Proxy(), "cuNoSuchFunction") == nullptr);
}
TENANT(DlsymDefault) {
  REQUIRE(Proxy() != nullptr);  // opened RTLD_GLOBAL
  for (const char* name : kWrapped) REQUIRE(InProxy(dlsym(RTLD_DEFAULT, name)));
  for (const char* name : kNotWrapped) REQUIRE(InDriver(dlsym(RTLD_DEFAULT, name)));
}
TENANT(DlvsymLooksInTheProxyFirst) {
  // Neither library has versions, and a look-up with one takes the first definition as it comes.
  void* found = dlvsym(Proxy(), "cuInit", "no_such_version");
  REQUIRE(found == nullptr || InProxy(found));
}
TENANT(BySonameAndAgain) {
  REQUIRE(Proxy() != nullptr);
  void* again = dlopen("libcuda.so.1", RTLD_NOW);  // how every runtime asks
  REQUIRE(again != nullptr);
  for (const char* name : kWrapped) REQUIRE(InProxy(dlsym(again, name)));
  void* deep = dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);
  REQUIRE(deep != nullptr);
  for (const char* name : kWrapped) REQUIRE(InProxy(dlsym(deep, name)));
}
TENANT(NameSpace) {
  void* other = dlmopen(LM_ID_NEWLM, (Directory() + "/libcuda.so.1").c_str(), RTLD_NOW);
  if (other == nullptr) fprintf(stderr, "%s\n", dlerror());
  REQUIRE(other != nullptr);
  for (const char* name : kWrapped) REQUIRE(InProxy(dlsym(other, name)));
  for (const char* name : kNotWrapped) REQUIRE(InDriver(dlsym(other, name)));
  auto* init = reinterpret_cast<decltype(&::cuInit)>(dlsym(other, "cuInit"));
  REQUIRE(init(0) == CUDA_SUCCESS);
}

// The driver's own answer for the same question.
using Ask = decltype(&::cuGetProcAddress_v2);
using AskOld = decltype(&::cuGetProcAddress);

TENANT(Matrix) {
  REQUIRE(Proxy() != nullptr);
  void* driver_handle = dlopen((Directory() + "/libmete-driver-cuda.so.1").c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(driver_handle != nullptr);
  auto* bare = reinterpret_cast<Ask>(dlsym(driver_handle, "cuGetProcAddress_v2"));
  auto* ask = CU(cuGetProcAddress_v2);
  auto* ask_old = CU(cuGetProcAddress);
  REQUIRE(reinterpret_cast<void*>(bare) != reinterpret_cast<void*>(ask));
  constexpr const char* kNames[] = {"cuInit",
                                    "cuMemAlloc",
                                    "cuCtxCreate",
                                    "cuMemFree",
                                    "cuMemGetInfo",
                                    "cuLaunchKernel",
                                    "cuLaunchKernelEx",
                                    "cuMemAllocAsync",
                                    "cuGraphLaunch",
                                    "cuStreamSynchronize",
                                    "cuCtxSynchronize",
                                    "cuGetProcAddress",
                                    "cuModuleLoadData",
                                    "cuMemcpyHtoD",
                                    "cuGetExportTable",
                                    "cuNoSuchFunction",
                                    "",
                                    "cuMemAlloc_v2"};
  std::set<void*> wrappers;
  for (const char* name : kNames) {
    for (int version :
         {2000, 3010, 3020, 4000, 6000, 7000, 9000, 10000, 11000, 11020, 11060, 12000, 12050, 13000, 13030}) {
      for (cuuint64_t flags : {0, 1, 2}) {
        void *truth = nullptr, *answer = nullptr, *old_answer = nullptr;
        CUdriverProcAddressQueryResult expected, status;
        const CUresult a = bare(name, &truth, version, flags, &expected);
        const CUresult b = ask(name, &answer, version, flags, &status);
        const CUresult c = ask_old(name, &old_answer, version, flags);
        REQUIRE(a == b && b == c && expected == status);
        REQUIRE(answer == old_answer && (truth == nullptr) == (answer == nullptr));
        if (truth == nullptr) continue;
        // The same ABI: our function of the very symbol that the driver chose, or the driver's own.
        Dl_info of_truth, of_answer;
        REQUIRE(dladdr(truth, &of_truth) != 0 && dladdr(answer, &of_answer) != 0);
        REQUIRE(strcmp(of_truth.dli_sname, of_answer.dli_sname) == 0);
        REQUIRE(InProxy(answer) || answer == truth);
        if (InProxy(answer)) wrappers.insert(answer);
        REQUIRE(InProxy(answer) == (dlsym(Proxy(), of_truth.dli_sname) != truth));
      }
    }
  }
  REQUIRE(wrappers.size() > 15);  // v1, v2 and per-thread forms all occurred
}
TENANT(NullArguments) {
  REQUIRE(CU(cuGetProcAddress_v2)(nullptr, nullptr, 12000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  void* found = nullptr;
  REQUIRE(CU(cuGetProcAddress_v2)("cuInit", &found, 12000, 0, nullptr) == CUDA_SUCCESS && InProxy(found));
}

TEST(Resolver, Dlsym) { EXPECT_EQ(RunTenant(StandIn(Options()), "Dlsym"), 0); }
TEST(Resolver, DlsymDefault) { EXPECT_EQ(RunTenant(StandIn(Options()), "DlsymDefault"), 0); }
TEST(Resolver, Dlvsym) { EXPECT_EQ(RunTenant(StandIn(Options()), "DlvsymLooksInTheProxyFirst"), 0); }
TEST(Resolver, BySonameAlsoDeep) {
  if (mete::testing::kSanitized) GTEST_SKIP() << "a sanitizer's runtime refuses RTLD_DEEPBIND";
  EXPECT_EQ(RunTenant(StandIn(Options()), "BySonameAndAgain"), 0);
}
TEST(Resolver, OwnNameSpace) {
  if (mete::testing::kSanitized) GTEST_SKIP() << "a sanitizer's runtime does not work in a second name space";
  EXPECT_EQ(RunTenant(StandIn(Options()), "NameSpace"), 0);
}
TEST(Resolver, EveryVersionAndFlag) { EXPECT_EQ(RunTenant(StandIn(Options()), "Matrix"), 0); }
TEST(Resolver, NullArguments) { EXPECT_EQ(RunTenant(StandIn(Options()), "NullArguments"), 0); }

}  // namespace
}  // namespace mete::interceptor::testing
