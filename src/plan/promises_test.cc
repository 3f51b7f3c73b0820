#include "plan/promises.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::plan {
namespace {

using ::testing::HasSubstr;

GpuOccupancy Shared() {
  GpuOccupancy gpu;
  gpu.name = "NVIDIA A100-SXM4-40GB";
  gpu.total = Bytes{40 * kGiB};
  gpu.holdings = {{"a", Bytes{8 * kGiB}, Compute{ComputeMode::kHard, Percent{3000}}, Bytes{kGiB}},
                  {"b", Bytes{20 * kGiB}, Compute{ComputeMode::kSoft, Percent{7000}}, Bytes{kGiB}}};
  return gpu;
}

PromiseState Of(const GpuOccupancy& gpu, size_t which, const std::string& promise, const Enforcement& e = {}) {
  for (const PromiseState& state : PromisesNow(gpu, which, e)) {
    if (state.promise == promise) return state;
  }
  ADD_FAILURE() << "no promise " << promise;
  return {};
}

TEST(PromisesNow, ACapOnEachIsAQuotaForAll) {
  EXPECT_TRUE(Of(Shared(), 0, "memory-quota").kept);
  EXPECT_TRUE(Of(Shared(), 0, "compute-cap").kept);
  EXPECT_TRUE(Of(Shared(), 1, "compute-reservation").kept);
  EXPECT_FALSE(Of(Shared(), 1, "compute-cap").kept);
}

TEST(PromisesNow, AForeignProcessEndsThatAndIsNamed) {
  GpuOccupancy gpu = Shared();
  gpu.foreigners = {{4711, "train", Bytes{kGiB}}};
  EXPECT_FALSE(Of(gpu, 0, "memory-quota").kept);
  EXPECT_THAT(Of(gpu, 0, "memory-quota").because, HasSubstr("process 4711 (train)"));
  EXPECT_FALSE(Of(gpu, 1, "compute-reservation").kept);
  EXPECT_TRUE(Of(gpu, 0, "compute-cap").kept);
}

TEST(PromisesNow, UncappedSharesAmongThemselvesDoNotEndOthersQuota) {
  GpuOccupancy gpu = Shared();
  gpu.holdings.push_back({"c", std::nullopt, std::nullopt, {}});
  gpu.holdings.push_back({"d", std::nullopt, std::nullopt, {}});
  EXPECT_TRUE(Of(gpu, 0, "memory-quota").kept);
  gpu.holdings.back().used = Bytes{11 * kGiB};  // held before its cap shrank
  EXPECT_FALSE(Of(gpu, 0, "memory-quota").kept);
  EXPECT_THAT(Of(gpu, 0, "memory-quota").because, HasSubstr("add up to"));
}

TEST(PromisesNow, NothingIsKeptWhileNothingIsInForce) {
  const Enforcement stalled{false, "the broker is stalled"};
  EXPECT_FALSE(Of(Shared(), 0, "memory-quota", stalled).kept);
  EXPECT_EQ(Of(Shared(), 0, "compute-cap", stalled).because, "the broker is stalled");
}

TEST(PromisesNow, InterceptionIsNeverEnforcedOutside) { EXPECT_FALSE(Of(Shared(), 0, "enforced-outside").kept); }

}  // namespace
}  // namespace mete::plan
