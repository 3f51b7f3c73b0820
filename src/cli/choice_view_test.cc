#include "cli/choice_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mechanism/gpu_view.h"
#include "share/choice_json.h"

namespace mete::cli {
namespace {

using ::testing::HasSubstr;

plan::GpuView T4() {
  mechanism::GpuFacts facts;
  facts.name = "Tesla T4";
  facts.board = gpu::Catalogue::BuiltIn().ByDeviceName("Tesla T4");
  facts.capability = {7, 5};
  facts.driver_major = 580;
  plan::GpuOccupancy occupancy;
  occupancy.uuid = "GPU-b0000000-0000-0000-0000-000000000000";
  occupancy.name = facts.name;
  occupancy.total = Bytes{15 * kGiB};
  return mechanism::ViewOf(facts, occupancy);
}

TEST(ChoiceView, ShowsEveryMechanismWithItsReason) {
  plan::Ask ask;
  ask.request.share = "a";
  ask.request.memory = Bytes{4 * kGiB};
  const Json granted = share::ToJson(plan::Choose(ask, {T4()}));
  EXPECT_TRUE(ChoiceStatus(granted).ok());
  const std::string text = ChoiceText(granted, 200);
  EXPECT_THAT(text, HasSubstr("would run by intercept on GPU 0: 4 GiB"));
  EXPECT_THAT(text, HasSubstr("memory-quota kept by the book"));
  EXPECT_THAT(text, HasSubstr("it has no MIG"));
  for (const auto& variant : gpu::PromiseTable::BuiltIn().variants()) EXPECT_THAT(text, HasSubstr(variant.name));
  EXPECT_EQ(granted["mechanism"], "intercept");

  ask.need = {gpu::Promise::kFaultContainment};
  const Json refused = share::ToJson(plan::Choose(ask, {T4()}));
  EXPECT_EQ(ExitCodeFor(ChoiceStatus(refused)), ExitCode::kRefused);
  EXPECT_EQ(refused["granted"], false);
  EXPECT_THAT(refused["nearest"].get<std::string>(), HasSubstr("without --need fault-containment"));
  EXPECT_THAT(ChoiceText(refused, 200), HasSubstr("breaks a promise"));
}

TEST(ChoiceView, ShowsWhatCouldBeMoved) {
  const Json choice = *ParseJson(R"({"granted": false, "status": 3, "refusal": "no", "reasons": [],
                                     "proposals": ["stop the tenant of 1g.5gb"]})",
                                 "choice");
  EXPECT_THAT(ChoiceText(choice, 100), HasSubstr("could be made possible: stop the tenant of 1g.5gb"));
}

}  // namespace
}  // namespace mete::cli
