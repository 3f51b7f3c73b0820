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
constexpr const char* kNotWrapped[] = {"cuModuleGetFunction", "cuMemcpyHtoD_v2", "cuDriverGetVersion", "cuStreamCreate",
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

// A driver as of CUDA 11.5: it has the first cuGetProcAddress and not the second.
TENANT(OlderDriver) {
  REQUIRE(dlsym(Proxy(), "cuGetProcAddress_v2") == nullptr && dlerror() != nullptr);
  REQUIRE(dlsym(Proxy(), "cuCtxCreate_v4") == nullptr && dlsym(Proxy(), "cuLaunchKernelEx") == nullptr);
  for (const char* name : {"cuInit", "cuMemAllocAsync", "cuGetProcAddress", "cuCtxCreate_v3"})
    REQUIRE(InProxy(dlsym(Proxy(), name)));
  // The same look-ups through it: what it has not is not there at any version.
  auto* ask = CU(cuGetProcAddress);
  void* found = nullptr;
  REQUIRE(ask("cuMemAlloc", &found, 12000, 0) == CUDA_SUCCESS && InProxy(found));
  REQUIRE(ask("cuGetProcAddress", &found, 12000, 0) == CUDA_SUCCESS && found == dlsym(Proxy(), "cuGetProcAddress"));
  REQUIRE(ask("cuLaunchKernelEx", &found, 12000, 0) != CUDA_SUCCESS && found == nullptr);
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
}
// As of CUDA 11.1: no look-ups through the driver at all, and no stream-ordered memory.
TENANT(OldDriver) {
  for (const char* name : {"cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"})
    REQUIRE(dlsym(Proxy(), name) == nullptr);
  for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuCtxCreate_v2", "cuMemCreate"})
    REQUIRE(InProxy(dlsym(Proxy(), name)));
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  CUdeviceptr p;
  REQUIRE(CU(cuMemAlloc_v2)(&p, 4096) == CUDA_SUCCESS && CU(cuMemFree_v2)(p) == CUDA_SUCCESS);
}
// One base name, two shapes of function: CUDA 13 gave these an argument more.
TENANT(SameNameOtherShape) {
  auto* ask = CU(cuGetProcAddress_v2);
  const auto at = [&](const char* name, int version) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status;
    REQUIRE(ask(name, &found, version, 0, &status) == CUDA_SUCCESS);
    Dl_info info;
    REQUIRE(dladdr(found, &info) != 0 && info.dli_saddr == found);
    return std::string(info.dli_sname);
  };
  REQUIRE(at("cuCtxSynchronize", 12090) == "cuCtxSynchronize" &&
          at("cuCtxSynchronize", 13000) == "cuCtxSynchronize_v2");
  REQUIRE(at("cuCtxGetDevice", 12090) == "cuCtxGetDevice" && at("cuCtxGetDevice", 13000) == "cuCtxGetDevice_v2");
  REQUIRE(at("cuCtxCreate", 3020) == "cuCtxCreate_v2" && at("cuCtxCreate", 2000) == "cuCtxCreate");
  REQUIRE(at("cuCtxCreate", 12000) == "cuCtxCreate_v3" && at("cuCtxCreate", 12050) == "cuCtxCreate_v4");
  REQUIRE(at("cuGraphInstantiate", 10000) != at("cuGraphInstantiate", 11000));
}
TENANT(NullForMemGetInfo) {
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  size_t free = 0, total = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(nullptr, &total) == CUDA_SUCCESS && total != 0);
  REQUIRE(CU(cuMemGetInfo_v2)(&free, nullptr) == CUDA_SUCCESS && free != 0);
  REQUIRE(CU(cuMemGetInfo_v2)(nullptr, nullptr) == CUDA_SUCCESS);
  unsigned old_total = 0;
  REQUIRE(CU(cuMemGetInfo)(nullptr, &old_total) == CUDA_SUCCESS && old_total != 0);
}

StandInOptions OnDriver(const char* path) {
  StandInOptions options = Options();
  options.driver = path;
  options.quota = uint64_t{4} << 30;
  return options;
}
TEST(Resolver, Fault27_ADriverWithoutTheSecondLookUpOffersNone) {
  EXPECT_EQ(RunTenant(StandIn(OnDriver(METE_NULL_DRIVER_11050_PATH)), "OlderDriver"), 0);
}
TEST(Resolver, Fault33_ADriverWithoutStreamOrderedMemoryOffersNone) {
  EXPECT_EQ(RunTenant(StandIn(OnDriver(METE_NULL_DRIVER_11010_PATH)), "OldDriver"), 0);
}
TEST(Resolver, Fault29_TheVersionDecidesOnTheShapeOfAFunction) {
  EXPECT_EQ(RunTenant(StandIn(Options()), "SameNameOtherShape"), 0);
}
TEST(Resolver, Fault35_NullIsTakenWhereTheDriverTakesIt) {
  EXPECT_EQ(RunTenant(StandIn(OnDriver(METE_NULL_DRIVER_PATH)), "NullForMemGetInfo"), 0);
}
TEST(Resolver, Dlsym) { EXPECT_EQ(RunTenant(StandIn(Options()), "Dlsym"), 0); }
TEST(Resolver, DlsymDefault) { EXPECT_EQ(RunTenant(StandIn(Options()), "DlsymDefault"), 0); }
TEST(Resolver, Dlvsym) { EXPECT_EQ(RunTenant(StandIn(Options()), "DlvsymLooksInTheProxyFirst"), 0); }
TEST(Resolver, BySonameAlsoDeep) {
  if (mete::testing::kSanitized)
    GTEST_SKIP() << "a sanitizer's runtime refuses RTLD_DEEPBIND; e2e_resolver takes this route as it ships";
  EXPECT_EQ(RunTenant(StandIn(Options()), "BySonameAndAgain"), 0);
}
TEST(Resolver, OwnNameSpace) {
  if (mete::testing::kSanitized)
    GTEST_SKIP() << "a sanitizer's runtime is no use in a second name space; e2e_resolver goes there as it ships";
  EXPECT_EQ(RunTenant(StandIn(Options()), "NameSpace"), 0);
}
TEST(Resolver, Fault28_EveryVersionAndFlagIsAnsweredAsByTheDriver) {
  EXPECT_EQ(RunTenant(StandIn(Options()), "Matrix"), 0);
}
TEST(Resolver, NullArguments) { EXPECT_EQ(RunTenant(StandIn(Options()), "NullArguments"), 0); }

}  // namespace
}  // namespace mete::interceptor::testing
