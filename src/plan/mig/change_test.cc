#include "plan/mig/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace mete::plan::mig {
namespace {

using ::testing::HasSubstr;
using Profiles = std::vector<std::pair<std::string, int>>;

class ChangeTest : public testing::Test {
 protected:
  ChangeTest() : states(*States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb")))) {}

  const Geometry& geometry() const { return states.geometry(); }
  PresentInstance At(const char* profile, int start, std::string fixed = "") const {
    return {geometry().Find(geometry().ProfileIndex(profile), start), std::move(fixed)};
  }
  StatusOr<Change> To(const Profiles& profiles, const std::vector<PresentInstance>& present = {}) const {
    return ChangeTo(states, present, profiles);
  }
  static std::string Why(const StatusOr<Change>& change) { return Message(change.status()); }

  States states;
};

TEST_F(ChangeTest, AnEmptyGpuGetsWhatFits) {
  const auto change = To({{"1g.5gb", 2}, {"2g.10gb", 1}, {"3g.20gb", 1}});
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_TRUE(geometry().Legal(change->add));
  EXPECT_EQ(geometry().UsedComputeSlices(change->add), 7);
  EXPECT_TRUE(To({})->Nothing());
  EXPECT_EQ(ExitCodeFor(To({{"1g.5gb", 8}}).status()), ExitCode::kRefused);
  EXPECT_EQ(ExitCodeFor(To({{"1g.5gb+me", 2}}).status()), ExitCode::kRefused);
}

TEST_F(ChangeTest, WhatTheBoardDoesNotHaveIsNamed) {
  EXPECT_EQ(ExitCodeFor(To({{"1g.6gb", 1}}).status()), ExitCode::kUsage);
  EXPECT_THAT(Why(To({{"1g.6gb", 1}})), HasSubstr("1g.5gb"));
  EXPECT_THAT(Why(To({{"1c.3g.20gb", 1}})), HasSubstr("write 3g.20gb"));
}

TEST_F(ChangeTest, AsManyStayAsCan) {
  const auto same = To({{"1g.5gb", 1}, {"3g.20gb", 1}}, {At("1g.5gb", 6), At("3g.20gb", 0)});
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->Nothing()) << "whatever the order and the places";
  const auto more = To({{"1g.5gb", 2}, {"3g.20gb", 1}}, {At("1g.5gb", 6), At("3g.20gb", 0)});
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->remove, 0u);
  EXPECT_EQ(std::popcount(more->add), 1);
  const auto other = To({{"7g.40gb", 1}}, {At("1g.5gb", 6), At("3g.20gb", 0)});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(std::popcount(other->remove), 2);
}

TEST_F(ChangeTest, WhatIsFixedStaysOrNothingIsChanged) {
  const std::vector<PresentInstance> used = {At("1g.5gb", 1, "share team uses it")};
  const auto beside = To({{"1g.5gb", 1}, {"3g.20gb", 1}}, used);
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->keep, Layout{1} << used[0].placement);
  const auto never = To({{"3g.20gb", 2}}, used);
  EXPECT_EQ(ExitCodeFor(never.status()), ExitCode::kRefused);
  EXPECT_THAT(Why(never), HasSubstr("1g.5gb at 1 (share team uses it)"));
  EXPECT_EQ(ExitCodeFor(To({}, used).status()), ExitCode::kRefused);
}

// From any layout to any other: what comes out is legal, is what was wanted, and touches nothing fixed.
TEST_F(ChangeTest, FromAnyLayoutToAnyOther) {
  std::mt19937 random(7);
  int changed = 0;
  for (int i = 0; i < 2000; ++i) {
    const Layout from = states.layout(random() % states.size()), to = states.layout(random() % states.size());
    std::vector<PresentInstance> present;
    Layout fixed = 0;
    for (int p = 0; p < geometry().placements(); ++p) {
      if ((from >> p & 1) == 0) continue;
      const bool stays = random() % 4 == 0;
      if (stays) fixed |= Layout{1} << p;
      present.push_back({p, stays ? "somebody else made it" : ""});
    }
    Profiles wanted;
    for (int p = 0; p < geometry().profiles(); ++p) {
      if (const int count = std::popcount(to & geometry().OfProfile(p)); count != 0)
        wanted.emplace_back(geometry().board().profiles[static_cast<size_t>(p)].name, count);
    }
    const auto change = To(wanted, present);
    if (!change.ok()) {
      EXPECT_NE(fixed & ~to, 0u) << "the layout asked for would have done: " << change.status();
      continue;
    }
    ++changed;
    const Layout after = change->keep | change->add;
    EXPECT_TRUE(geometry().Legal(after));
    EXPECT_EQ(change->keep | change->remove, from);
    EXPECT_EQ(change->remove & fixed, 0u);
    EXPECT_EQ(*Counts(geometry(), wanted), [&] {
      std::vector<int> counts;
      for (int p = 0; p < geometry().profiles(); ++p) counts.push_back(std::popcount(after & geometry().OfProfile(p)));
      return counts;
    }());
  }
  EXPECT_GT(changed, 200);
}

}  // namespace
}  // namespace mete::plan::mig
