#include "plan/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::plan {
namespace {

using ::testing::HasSubstr;

GpuOccupancy Ampere() {
  GpuOccupancy gpu;
  gpu.index = 0;
  gpu.uuid = "GPU-a0000000-0000-0000-0000-000000000000";
  gpu.name = "NVIDIA A100-SXM4-40GB";
  gpu.total = Bytes{40 * kGiB};
  gpu.reserved = Bytes{kGiB / 2};
  return gpu;
}

GpuOccupancy Turing() {
  GpuOccupancy gpu;
  gpu.index = 1;
  gpu.uuid = "GPU-b0000000-0000-0000-0000-000000000000";
  gpu.name = "Tesla T4";
  gpu.total = Bytes{15 * kGiB};
  return gpu;
}

Compute Hard(uint32_t percent) { return {ComputeMode::kHard, Percent{percent * 100}}; }

Request Ask(const std::string& share) {
  Request request;
  request.share = share;
  return request;
}

TEST(Resolve, GivesWhatIsAsked) {
  Request request = Ask("a");
  request.gpu = "0";
  request.memory = Bytes{8 * kGiB};
  request.compute = Hard(30);
  const StatusOr<Grant> grant = Resolve(request, {{Ampere(), Turing()}});
  ASSERT_TRUE(grant.ok()) << Message(grant.status());
  ASSERT_EQ(grant->gpus.size(), 1u);
  EXPECT_EQ(grant->gpus[0].uuid, Ampere().uuid);
  EXPECT_EQ(grant->gpus[0].allotment, (Allotment{Bytes{8 * kGiB}, ComputeMode::kHard, 3000, 3000}));
}

TEST(Resolve, WithoutMemoryOrComputeTakesWhatOthersWereNotPromised) {
  GpuOccupancy gpu = Ampere();
  gpu.holdings = {{"a", Bytes{8 * kGiB}, Hard(30), {}}};
  const StatusOr<Grant> grant = Resolve(Ask("b"), {{gpu}});
  ASSERT_TRUE(grant.ok()) << Message(grant.status());
  EXPECT_EQ(grant->gpus[0].allotment.quota.count, 40 * kGiB - kGiB / 2 - 8 * kGiB);
  EXPECT_EQ(grant->gpus[0].allotment.mode, ComputeMode::kWorkConserving);
  EXPECT_EQ(grant->gpus[0].allotment.weight, 7000u);
}

TEST(Resolve, RefusesMemoryAboveTheCardAndNamesWhoHoldsWhatAndWhatFits) {
  GpuOccupancy gpu = Ampere();
  gpu.holdings = {{"a", Bytes{8 * kGiB}, std::nullopt, {}}, {"b", std::nullopt, std::nullopt, Bytes{2 * kGiB}}};
  gpu.foreigners = {{71, "python3", Bytes{kGiB}}};
  Request request = Ask("c");
  request.memory = Bytes{30 * kGiB};
  const StatusOr<Grant> grant = Resolve(request, {{gpu}});
  ASSERT_EQ(ExitCodeFor(grant.status()), ExitCode::kRefused);
  EXPECT_THAT(Message(grant.status()), HasSubstr("a holds a quota of 8 GiB"));
  EXPECT_THAT(Message(grant.status()), HasSubstr("b holds 2 GiB without a quota"));
  EXPECT_THAT(Message(grant.status()), HasSubstr("process 71 (python3), of no share, holds 1 GiB"));
  EXPECT_THAT(Message(grant.status()), HasSubstr("the largest quota that fits is 28.5 GiB"));
  request.memory = LargestQuota(gpu);
  EXPECT_TRUE(Resolve(request, {{gpu}}).ok());
  request.memory->count += 1;
  EXPECT_FALSE(Resolve(request, {{gpu}}).ok());
}

TEST(Resolve, RefusesComputeAboveAHundredPercent) {
  GpuOccupancy gpu = Ampere();
  gpu.holdings = {{"a", std::nullopt, Hard(70), {}}};
  Request request = Ask("b");
  request.compute = Hard(31);
  const Status status = Resolve(request, {{gpu}}).status();
  ASSERT_EQ(ExitCodeFor(status), ExitCode::kRefused);
  EXPECT_THAT(Message(status), HasSubstr("a holds 70 % hard"));
  EXPECT_THAT(Message(status), HasSubstr("the largest that fits is 30 %"));
  request.compute = Hard(30);
  EXPECT_TRUE(Resolve(request, {{gpu}}).ok());
}

TEST(Resolve, ChoosesTheGpuWithTheLeastToSpareForAQuotaAndTheMostWithout) {
  Request request = Ask("a");
  request.memory = Bytes{4 * kGiB};
  EXPECT_EQ(Resolve(request, {{Ampere(), Turing()}})->gpus[0].index, 1u);
  request.memory = Bytes{20 * kGiB};
  EXPECT_EQ(Resolve(request, {{Ampere(), Turing()}})->gpus[0].index, 0u);
  EXPECT_EQ(Resolve(Ask("b"), {{Ampere(), Turing()}})->gpus[0].index, 0u);
}

TEST(Resolve, SeveralGpusEachGiveThatMuch) {
  Request request = Ask("a");
  request.gpus = 2;
  request.gpus_given = true;
  request.memory = Bytes{4 * kGiB};
  EXPECT_EQ(Resolve(request, {{Ampere(), Turing()}})->gpus.size(), 2u);
  request.memory = Bytes{20 * kGiB};
  EXPECT_EQ(ExitCodeFor(Resolve(request, {{Ampere(), Turing()}}).status()), ExitCode::kRefused);
  request.memory.reset();
  EXPECT_THAT(Message(Resolve(request, {{Ampere(), Turing()}}).status()), HasSubstr("exclusive"));
}

TEST(Resolve, NamesWhatDoesNotExist) {
  Request request = Ask("a");
  for (const char* name : {"2", "7", "GPU-ffff", "nonsense", "00"}) {
    request.gpu = name;
    EXPECT_EQ(ExitCodeFor(Resolve(request, {{Ampere(), Turing()}}).status()), ExitCode::kUsage) << name;
  }
  request.gpu = "gpu-B0000000-0000-0000-0000-000000000000";
  EXPECT_EQ(Resolve(request, {{Ampere(), Turing()}})->gpus[0].index, 1u);
  request.gpu.clear();
  request.via = "mps";
  EXPECT_EQ(ExitCodeFor(Resolve(request, {{Ampere()}}).status()), ExitCode::kRefused);
  request.via = "magic";
  EXPECT_EQ(ExitCodeFor(Resolve(request, {{Ampere()}}).status()), ExitCode::kUsage);
  request.via.clear();
  EXPECT_EQ(ExitCodeFor(Resolve(request, {}).status()), ExitCode::kLacks);
}

TEST(Resolve, NoShareOnAGpuInMigMode) {
  GpuOccupancy gpu = Ampere();
  gpu.mig_enabled = true;
  EXPECT_THAT(Message(Resolve(Ask("a"), {{gpu}}).status()), HasSubstr("MIG mode"));
}

TEST(Names, AreChecked) {
  for (const char* good : {"a", "team", "job-1.2_x", "0", "abcdefghijklmnopqrstuvwxyz012345"}) {
    EXPECT_TRUE(CheckShareName(good).ok()) << good;
  }
  for (const char* bad : {"", "-a", ".a", "A", "a b", "a/b", "../a", "\x1b[2J", "abcdefghijklmnopqrstuvwxyz0123456"}) {
    EXPECT_EQ(ExitCodeFor(CheckShareName(bad)), ExitCode::kUsage) << bad;
  }
}

TEST(Computes, AreRead) {
  EXPECT_EQ(*ParseCompute("30%"), Hard(30));
  EXPECT_EQ(*ParseCompute("30%,hard"), Hard(30));
  EXPECT_EQ(ParseCompute("12.5,soft")->mode, ComputeMode::kSoft);
  for (const char* bad : {"", "0", "101%", "30%,", "30%,firm", ",soft", "-1%"}) {
    EXPECT_EQ(ExitCodeFor(ParseCompute(bad).status()), ExitCode::kUsage) << bad;
  }
}

}  // namespace
}  // namespace mete::plan
