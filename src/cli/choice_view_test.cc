#include "cli/choice_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::cli {
namespace {

using ::testing::HasSubstr;

Inventory Node() {
  Inventory inventory;
  InventoryGpu gpu;
  gpu.index = 0;
  gpu.uuid = "GPU-b0000000-0000-0000-0000-000000000000";
  gpu.facts.name = "Tesla T4";
  gpu.facts.board = gpu::Catalogue::BuiltIn().ByDeviceName("Tesla T4");
  gpu.facts.capability = {7, 5};
  gpu.facts.driver_major = 580;
  gpu.memory = nvml::MemoryUse{};
  gpu.memory->total = Bytes{15 * kGiB};
  gpu.variants = mechanism::ProbeGpu(gpu.facts);
  inventory.gpus.push_back(gpu);
  return inventory;
}

Json Shares() {
  return *ParseJson(R"({"shares": [{"name": "team", "gpus": [{"uuid": "GPU-b0000000-0000-0000-0000-000000000000",
      "quota_asked": true, "quota_bytes": 8589934592, "used_bytes": 5, "compute": {"mode": "soft", "percent": 25.5}}]}],
      "foreign": []})",
                    "shares");
}

TEST(ChoiceView, HoldsWhatNvmlAndTheBrokerSay) {
  const auto views = ViewsOf(Node(), Shares());
  ASSERT_EQ(views.size(), 1u);
  ASSERT_EQ(views[0].occupancy.holdings.size(), 1u);
  EXPECT_EQ(views[0].occupancy.holdings[0].memory->count, 8 * kGiB);
  EXPECT_EQ(views[0].occupancy.holdings[0].compute->percent.hundredths, 2550u);
  EXPECT_EQ(views[0].ways.size(), gpu::PromiseTable::BuiltIn().variants().size());
  EXPECT_EQ(views[0].mig, nullptr);
}

TEST(ChoiceView, ShowsEveryMechanismWithItsReason) {
  plan::Ask ask;
  ask.request.share = "a";
  ask.request.memory = Bytes{4 * kGiB};
  const plan::Choice choice = plan::Choose(ask, ViewsOf(Node(), Shares()));
  ASSERT_TRUE(choice.status.ok()) << choice.status;
  const std::string text = ChoiceText(choice, 200);
  EXPECT_THAT(text, HasSubstr("would run by intercept on GPU 0: 4 GiB"));
  EXPECT_THAT(text, HasSubstr("memory-quota kept by the book"));
  EXPECT_THAT(text, HasSubstr("it has no MIG"));
  for (const auto& variant : gpu::PromiseTable::BuiltIn().variants()) EXPECT_THAT(text, HasSubstr(variant.name));
  const Json json = ChoiceJson(choice);
  EXPECT_EQ(json["mechanism"], "intercept");
  EXPECT_EQ(json["reasons"].size(), choice.reasons.size());

  ask.need = {gpu::Promise::kFaultContainment};
  const plan::Choice refused = plan::Choose(ask, ViewsOf(Node(), Shares()));
  EXPECT_EQ(ExitCodeFor(refused.status), ExitCode::kRefused);
  EXPECT_EQ(ChoiceJson(refused)["granted"], false);
  EXPECT_THAT(ChoiceJson(refused)["nearest"].get<std::string>(), HasSubstr("without --need fault-containment"));
}

}  // namespace
}  // namespace mete::cli
