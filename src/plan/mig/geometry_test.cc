// The planner's geometry against an oracle written from the fact tables alone.
#include "plan/mig/geometry.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "plan/mig/states.h"
#include "tests/oracle/mig_oracle.h"

namespace mete::plan::mig {
namespace {

const char* const kFacts = METE_DATA_FOLDER "/mig.yaml";

class EveryBoard : public testing::TestWithParam<std::string> {};

TEST_P(EveryBoard, HasTheProfilesIdsAndPlacementsOfTheFacts) {
  const oracle::MigOracle oracle(kFacts, GetParam());
  const gpu::MigBoard* board = gpu::MigTables::BuiltIn().Find(GetParam());
  ASSERT_NE(board, nullptr);
  ASSERT_EQ(board->profiles.size(), oracle.profiles.size());
  for (size_t i = 0; i < oracle.profiles.size(); ++i) {
    const gpu::MigProfile& profile = board->profiles[i];
    EXPECT_EQ(profile.name, oracle.profiles[i].name);
    EXPECT_EQ(static_cast<int>(profile.id), oracle.profiles[i].id);
    EXPECT_EQ(profile.starts, oracle.profiles[i].starts);
    EXPECT_EQ(profile.memory_slices, oracle.profiles[i].memory);
    EXPECT_EQ(profile.memory.count, static_cast<uint64_t>(oracle.profiles[i].mib) * kMiB);
  }
}

TEST_P(EveryBoard, TenThousandRandomChangesAgreeWithTheFacts) {
  oracle::MigOracle oracle(kFacts, GetParam());
  const Geometry geometry = *Geometry::Of(*gpu::MigTables::BuiltIn().Find(GetParam()));
  const States states = *States::Of(geometry);
  Layout layout = 0;
  uint32_t state = States::empty();
  std::mt19937 random(20261129);
  int made = 0, refused = 0, removed = 0;
  for (int step = 0; step < 10000; ++step) {
    if (random() % 3 == 0 && layout != 0) {
      auto which = random() % oracle.instances.size();
      auto instance = oracle.instances.begin();
      std::advance(instance, which);
      const int profile = static_cast<int>(geometry.board().FindById(static_cast<uint32_t>(instance->profile_id)) -
                                           geometry.board().profiles.data());
      const int placement = geometry.Find(profile, instance->start);
      oracle.instances.erase(instance);
      layout &= ~(Layout{1} << placement);
      state = states.Without(state, placement);
      ++removed;
    } else {
      const int placement = static_cast<int>(random() % static_cast<unsigned>(geometry.placements()));
      const Placement where = geometry.at(placement);
      const gpu::MigProfile& profile = geometry.board().profiles[static_cast<size_t>(where.profile)];
      const bool allowed = oracle.Allows(static_cast<int>(profile.id), where.start);
      ASSERT_EQ(geometry.CanAdd(layout, placement), allowed)
          << profile.name << " at " << where.start << " beside " << geometry.ToString(layout);
      ASSERT_EQ(states.With(state, placement) != States::kNone, allowed);
      ASSERT_EQ(geometry.WhyNot(layout, where.profile, where.start).empty(), allowed);
      if (allowed) {
        const oracle::OracleInstance instance{static_cast<int>(profile.id), where.start};
        oracle.instances.insert(instance);
        EXPECT_EQ(static_cast<int>(geometry.board().InstanceId(profile, where.start)), oracle.InstanceId(instance));
        layout |= Layout{1} << placement;
        state = states.With(state, placement);
        ++made;
      } else {
        ++refused;
      }
    }
    ASSERT_TRUE(geometry.Legal(layout));
    ASSERT_EQ(states.layout(state), layout);
    ASSERT_EQ(static_cast<size_t>(std::popcount(layout)), oracle.instances.size());
    for (const oracle::OracleProfile& profile : oracle.profiles) {
      std::vector<int> starts;
      const int index = geometry.ProfileIndex(profile.name);
      for (Layout free = geometry.Addable(layout) & geometry.OfProfile(index); free != 0; free &= free - 1) {
        starts.push_back(geometry.at(std::countr_zero(free)).start);
      }
      ASSERT_EQ(starts, oracle.PossibleStarts(profile.id)) << profile.name;
      ASSERT_EQ(geometry.WhyNot(layout, index).empty(), !starts.empty()) << profile.name;
    }
  }
  EXPECT_GT(made, 1000);
  EXPECT_GT(refused, 100);
  EXPECT_GT(removed, 1000);
}

INSTANTIATE_TEST_SUITE_P(Mig, EveryBoard, testing::ValuesIn(oracle::MigOracle::Boards(kFacts)), [](const auto& board) {
  std::string name = board.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

TEST(Geometry, SaysWhyNot) {
  const Geometry geometry = *Geometry::Of(*gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb"));
  const auto with = [&](std::initializer_list<std::pair<const char*, int>> instances) {
    Layout layout = 0;
    for (const auto& [name, start] : instances)
      layout |= Layout{1} << geometry.Find(geometry.ProfileIndex(name), start);
    return layout;
  };
  const int one = geometry.ProfileIndex("1g.5gb"), four = geometry.ProfileIndex("4g.20gb");
  const Layout ones =
      with({{"1g.5gb", 0}, {"1g.5gb", 1}, {"1g.5gb", 2}, {"1g.5gb", 3}, {"1g.5gb", 4}, {"1g.5gb", 5}, {"1g.5gb", 6}});
  EXPECT_NE(geometry.WhyNot(ones, one).find("all in use"), std::string::npos) << geometry.WhyNot(ones, one);
  EXPECT_NE(geometry.WhyNot(with({{"1g.5gb", 2}}), four).find("1g.5gb at 2"), std::string::npos);
  EXPECT_NE(geometry.WhyNot(with({{"1g.5gb+me", 0}}), geometry.ProfileIndex("1g.5gb+me")).find("1 of 1g.5gb+me"),
            std::string::npos);
  // 3g at 0 and at 4 leave one compute slice but no memory slice; 1g at 4 to 6 and 4g fill seven compute slices.
  EXPECT_NE(geometry.WhyNot(with({{"4g.20gb", 0}, {"2g.10gb", 4}, {"1g.5gb", 6}}), geometry.ProfileIndex("1g.10gb"))
                .find("in use"),
            std::string::npos);
  EXPECT_EQ(geometry.WhyNot(0, one, 7), "1g.5gb cannot start at memory slice 7");
  EXPECT_EQ(geometry.ToString(0), "nothing");
}

}  // namespace
}  // namespace mete::plan::mig
