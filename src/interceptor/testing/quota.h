// A tenant with a memory quota on the null driver, as tests of the accounting want it: the driver's own count of its
// memory beside what the share is charged. For one translation unit of a test each; not linked into anything that
// ships.
#ifndef METE_INTERCEPTOR_TESTING_QUOTA_H_
#define METE_INTERCEPTOR_TESTING_QUOTA_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "bench/null-driver/truth.h"
#include "interceptor/testing/tenant.h"

namespace mete::interceptor::testing {

inline constexpr uint64_t kQuota = uint64_t{4} << 30, kMiB = uint64_t{1} << 20, kGranule = 2 * kMiB;
inline constexpr uint64_t kContext = 300 * kMiB;  // what the null driver takes for one

inline StandInOptions Limited() {
  StandInOptions options = Options();
  options.quota = kQuota;
  options.context_bytes = kContext;
  return options;
}

// More than the GPU has.
inline StandInOptions MoreThanThereIs() {
  StandInOptions options = Limited();
  options.quota = uint64_t{64} << 30;
  return options;
}

inline uint64_t Truth(int device = 0) {
  return reinterpret_cast<unsigned long long (*)(int)>(Symbol("null_driver_used"))(device);
}
inline uint64_t Charged() {
  size_t free = 0, total = 0;
  REQUIRE(CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS);
  return total - free;
}

inline CUcontext BeginTracked() {
  reinterpret_cast<void (*)(int)>(Symbol("null_driver_track"))(1);
  REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  return context;
}

// All but `kept` can be had, once an audit has given back what was given up; then charge and truth are that.
inline void NothingLeftBut(uint64_t kept) {
  CUdeviceptr all = 0;
  REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
  REQUIRE(Truth() == kept);
  REQUIRE(CU(cuMemAlloc_v2)(&all, kQuota - kept) == CUDA_SUCCESS);
  REQUIRE(CU(cuMemFree_v2)(all) == CUDA_SUCCESS);
  REQUIRE(Charged() == kept && Truth() == kept);
}

// One block, or the test ends.
inline CUdeviceptr Linear(size_t bytes) {
  CUdeviceptr p = 0;
  REQUIRE(CU(cuMemAlloc_v2)(&p, bytes) == CUDA_SUCCESS);
  return p;
}
inline CUdeviceptr Async(size_t bytes) {
  CUdeviceptr p = 0;
  REQUIRE(CU(cuMemAllocAsync)(&p, bytes, nullptr) == CUDA_SUCCESS);
  return p;
}
inline CUmemoryPool OwnPool(int device) {
  CUmemPoolProps properties{};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool pool = nullptr;
  REQUIRE(CU(cuMemPoolCreate)(&pool, &properties) == CUDA_SUCCESS);
  return pool;
}
inline CUmemAllocationProp At(CUmemLocationType type, int id) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {type, id};
  return properties;
}
inline std::string ModuleOf(uint64_t bytes) {
  return ".version 6.0\n.target sm_70\n.visible .global .b8 big[" + std::to_string(bytes) + "];\n";
}

// The file in which the null drivers of all tenants of this test add up what they hold.
class SharedTruth {
 public:
  SharedTruth() {
    char name[] = "/tmp/mete-truth-XXXXXX";
    const int fd = mkstemp(name);
    if (fd < 0 || ftruncate(fd, sizeof(NullTruth)) != 0) abort();
    path_ = name;
    void* page = mmap(nullptr, sizeof(NullTruth), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) abort();
    page_ = new (page) NullTruth;
    setenv("METE_NULL_DRIVER_TRUTH", name, 1);
  }
  ~SharedTruth() {
    unsetenv("METE_NULL_DRIVER_TRUTH");
    munmap(page_, sizeof *page_);
    unlink(path_.c_str());
  }
  SharedTruth(const SharedTruth&) = delete;
  SharedTruth& operator=(const SharedTruth&) = delete;
  NullTruth* operator->() const { return page_; }
  const NullTruth* Get() const { return page_; }

 private:
  std::string path_;
  NullTruth* page_ = nullptr;
};

// A number that a test hands to its tenants in their environment.
inline uint64_t Setting(const char* name) {
  const char* value = getenv(name);
  REQUIRE(value != nullptr);
  return strtoull(value, nullptr, 10);
}

inline bool LongTests() { return getenv("METE_LONG_TESTS") != nullptr; }

// The seed of a random test: METE_SEED if given, and printed, so that a failure can be repeated.
inline uint64_t Seed() {
  const char* given = getenv("METE_SEED");
  const uint64_t seed = given != nullptr ? strtoull(given, nullptr, 10) : std::random_device{}();
  fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace mete::interceptor::testing

// A test of the suite Faults whose body runs in a tenant of a broker with these options.
#define FAULT(name, options)                                                                    \
  static void Body##name();                                                                     \
  static const ::mete::interceptor::testing::RegisterTenant register_##name(#name, Body##name); \
  TEST(Faults, name) {                                                                          \
    StandIn broker(options);                                                                    \
    EXPECT_EQ(RunTenant(broker, #name), 0);                                                     \
  }                                                                                             \
  static void Body##name()

#endif  // METE_INTERCEPTOR_TESTING_QUOTA_H_
