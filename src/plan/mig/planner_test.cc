#include "plan/mig/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/mig/experiment/compare.h"
#include "plan/mig/profile_choice.h"

namespace mete::plan::mig {
namespace {

using ::testing::HasSubstr;

const States& StatesOf(const std::string& board) {
  static std::map<std::string, States> known;
  const auto found = known.find(board);
  if (found != known.end()) return found->second;
  return known.emplace(board, *States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find(board)))).first->second;
}

uint32_t Holding(const States& states, std::initializer_list<std::pair<const char*, int>> instances) {
  uint32_t state = States::empty();
  for (const auto& [name, start] : instances) {
    state = states.With(state, states.geometry().Find(states.geometry().ProfileIndex(name), start));
  }
  return state;
}

TEST(Planner, KeepsTheOnlyPlaceOfTheLargeOnes) {
  const States& states = StatesOf("a100-sxm4-40gb");
  const Geometry& geometry = states.geometry();
  const Planner planner(states, Demand::Uniform(geometry));
  // 4g can only start at 0: the first small one stays out of its way.
  const uint32_t empty = States::empty();
  const auto first = planner.Choose({&empty, 1}, geometry.ProfileIndex("1g.5gb"));
  ASSERT_TRUE(first);
  EXPECT_GE(geometry.at(first->placement).start, 4);
  EXPECT_GT(first->cost, 0);
  // A gap beside what is there is filled before the free half is opened.
  const uint32_t gap = Holding(states, {{"1g.5gb", 4}, {"2g.10gb", 0}});
  const auto second = planner.Choose({&gap, 1}, geometry.ProfileIndex("1g.5gb"));
  ASSERT_TRUE(second);
  EXPECT_GE(geometry.at(second->placement).start, 4);
}

TEST(Planner, LeavesWholeGpusWhole) {
  const States& states = StatesOf("a100-sxm4-40gb");
  const Planner planner(states, Demand::Uniform(states.geometry()));
  const std::vector<uint32_t> gpus{States::empty(), Holding(states, {{"1g.5gb", 6}}), States::empty()};
  const auto choice = planner.Choose(gpus, states.geometry().ProfileIndex("2g.10gb"));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->gpu, 1);
}

TEST(Planner, HasNoPlaceWhereThereIsNone) {
  const States& states = StatesOf("a100-sxm4-40gb");
  const Planner planner(states, Demand::Uniform(states.geometry()));
  const std::vector<uint32_t> gpus{Holding(states, {{"3g.20gb", 0}, {"3g.20gb", 4}})};
  for (int profile = 0; profile < states.geometry().profiles(); ++profile) {
    EXPECT_FALSE(planner.Choose(gpus, profile));
    EXPECT_GT(planner.Blocked(gpus[0], profile), planner.Blocked(States::empty(), profile));
  }
}

TEST(Planner, LearnsWhatIsAskedFor) {
  const States& states = StatesOf("a100-sxm4-40gb");
  const Geometry& geometry = states.geometry();
  LearningPlanner planner(states);
  const uint32_t empty = States::empty();
  for (int i = 0; i < 600; ++i) planner.Choose({&empty, 1}, geometry.ProfileIndex("3g.20gb"));
  EXPECT_GT(planner.solutions(), 1);
  const Demand& demand = planner.planner().demand();
  EXPECT_GT(demand.weight[static_cast<size_t>(geometry.ProfileIndex("3g.20gb"))],
            10 * demand.weight[static_cast<size_t>(geometry.ProfileIndex("7g.40gb"))]);
}

TEST(Planner, IsCloseToTheBestThatForesightCouldDo) {
  const States& states = StatesOf("a30");
  for (const Mix& mix : MixesFor(states.geometry())) {
    if (mix.gpus != 1) continue;
    const Stream stream = MakeStream(states.geometry(), mix, 5, 60);
    const double ours = Loss(states, stream, 1, Mete(states).make(0));
    const double serving = ClairvoyantLoss(states, stream, false), refusing = ClairvoyantLoss(states, stream, true);
    EXPECT_LE(refusing, serving + 1e-12) << mix.name;
    EXPECT_LE(serving, ours + 1e-12) << mix.name;
    for (const NamedPolicy& order : Baselines(states, 1)) {
      EXPECT_LE(serving, Loss(states, stream, 1, order.make(0)) + 1e-12) << mix.name << ", " << order.name;
    }
  }
}

Bytes GiB(double count) { return Bytes{static_cast<uint64_t>(count * static_cast<double>(kGiB))}; }

TEST(Profile, IsChosenByRealMemory) {
  const gpu::MigBoard& board = *gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb");
  const auto choose = [&](Bytes memory) { return *ChooseProfile(board, {memory, {}}); };
  const auto name = [&](const ProfileChoice& choice) {
    return board.profiles[static_cast<size_t>(choice.profile)].name;
  };
  EXPECT_EQ(name(choose(Bytes{20'000'000'000})), "3g.20gb");
  EXPECT_EQ(choose(Bytes{20'000'000'000}).hint, "");
  const ProfileChoice twenty = choose(GiB(20));
  EXPECT_EQ(name(twenty), "7g.40gb");
  EXPECT_THAT(twenty.why, HasSubstr("3g.20gb and 4g.20gb hold only 19968 MiB, less than 20 GiB"));
  EXPECT_THAT(twenty.hint, HasSubstr("--memory 19968MiB would get by with 3g.20gb"));
  EXPECT_EQ(name(choose(GiB(4))), "1g.5gb");
  const ProfileChoice five = choose(GiB(5));
  EXPECT_EQ(name(five), "1g.10gb");
  EXPECT_THAT(five.why, HasSubstr("1g.5gb holds only 4864 MiB, less than 5 GiB"));
  const Status status = ChooseProfile(board, {GiB(400), {}}).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kRefused);
  EXPECT_THAT(Message(status), HasSubstr("7g.40gb holds 40192 MiB"));
}

TEST(Profile, HoldsTheComputeAsked) {
  const gpu::MigBoard& board = *gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb");
  const auto choose = [&](double gib, ComputeMode mode, uint32_t percent) {
    return ChooseProfile(board, {GiB(gib), Compute{mode, Percent{percent * 100}}});
  };
  const auto name = [&](const StatusOr<ProfileChoice>& choice) {
    return choice.ok() ? board.profiles[static_cast<size_t>(choice->profile)].name : Message(choice.status());
  };
  EXPECT_EQ(name(choose(4, ComputeMode::kHard, 30)), "2g.10gb");
  EXPECT_EQ(name(choose(4, ComputeMode::kSoft, 30)), "3g.20gb");
  EXPECT_EQ(name(choose(4, ComputeMode::kSoft, 14)), "1g.5gb");
  EXPECT_EQ(name(choose(4, ComputeMode::kHard, 100)), "7g.40gb");
  EXPECT_EQ(name(choose(12, ComputeMode::kSoft, 50)), "4g.20gb");
  EXPECT_THAT(name(choose(12, ComputeMode::kHard, 20)),
              HasSubstr("the smallest such is 3g.20gb (3 of 7 compute slices)"));
}

}  // namespace
}  // namespace mete::plan::mig
