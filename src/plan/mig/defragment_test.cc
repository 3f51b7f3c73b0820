#include "plan/mig/defragment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::plan::mig {
namespace {

using ::testing::HasSubstr;

class Defragment : public testing::Test {
 protected:
  Defragment()
      : states(*States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb")))),
        planner(states, Demand::Uniform(states.geometry())) {}

  int Profile(const char* name) const { return states.geometry().ProfileIndex(name); }
  uint32_t Holding(std::initializer_list<std::pair<const char*, int>> instances) const {
    uint32_t state = States::empty();
    for (const auto& [name, start] : instances) {
      state = states.With(state, states.geometry().Find(Profile(name), start));
    }
    return state;
  }
  // Makes the moves of a proposal and the wanted instance; every step must be legal.
  void Make(std::vector<uint32_t> gpus, const Proposal& proposal) const {
    for (const Move& move : proposal.moves) {
      uint32_t& from = gpus[static_cast<size_t>(move.from_gpu)];
      from = states.Without(from, move.from);
      ASSERT_NE(from, States::kNone);
    }
    uint32_t& target = gpus[static_cast<size_t>(proposal.gpu)];
    target = states.With(target, proposal.placement);
    ASSERT_NE(target, States::kNone);
    for (const Move& move : proposal.moves) {
      uint32_t& to = gpus[static_cast<size_t>(move.to_gpu)];
      to = states.With(to, move.to);
      ASSERT_NE(to, States::kNone);
      EXPECT_EQ(states.geometry().at(move.from).profile, states.geometry().at(move.to).profile);
    }
  }

  States states;
  Planner planner;
};

TEST_F(Defragment, ProposesTheCheapestMove) {
  // Two small ones, one in each half: no half is free although six slices are.
  const std::vector<uint32_t> gpus{Holding({{"1g.5gb", 1}, {"2g.10gb", 4}})};
  const auto proposals = ProposeMoves(planner, gpus, {}, Profile("3g.20gb"));
  ASSERT_FALSE(proposals.empty());
  ASSERT_EQ(proposals[0].moves.size(), 1u);
  EXPECT_EQ(proposals[0].memory.count, 4864 * kMiB);
  Make(gpus, proposals[0]);
  EXPECT_THAT(
      proposals[0].ToString(states.geometry()),
      HasSubstr("stop the tenant of 1g.5gb at 1 of GPU 0 and start it again at 6 of GPU 0; then 3g.20gb fits at 0"));
  for (size_t i = 1; i < proposals.size(); ++i) {
    EXPECT_LE(proposals[i - 1].memory.count, proposals[i].memory.count);
    Make(gpus, proposals[i]);
  }
}

TEST_F(Defragment, TouchesNothingThatIsFixed) {
  const std::vector<uint32_t> gpus{Holding({{"1g.5gb", 1}, {"2g.10gb", 4}})};
  const std::vector<Layout> fixed{states.layout(gpus[0])};
  EXPECT_TRUE(ProposeMoves(planner, gpus, fixed, Profile("3g.20gb")).empty());
}

TEST_F(Defragment, ProposesNothingWhereItFitsOrCannot) {
  const std::vector<uint32_t> free{Holding({{"1g.5gb", 6}})};
  EXPECT_TRUE(ProposeMoves(planner, free, {}, Profile("4g.20gb")).empty());
  const std::vector<uint32_t> full{Holding({{"3g.20gb", 0}, {"3g.20gb", 4}})};
  EXPECT_TRUE(ProposeMoves(planner, full, {}, Profile("1g.5gb")).empty());
}

TEST_F(Defragment, UsesOtherGpus) {
  const std::vector<uint32_t> gpus{Holding({{"1g.5gb", 0}}), Holding({{"3g.20gb", 4}, {"2g.10gb", 0}})};
  const auto proposals = ProposeMoves(planner, gpus, {}, Profile("7g.40gb"));
  ASSERT_FALSE(proposals.empty());
  EXPECT_EQ(proposals[0].gpu, 0);
  EXPECT_EQ(proposals[0].moves[0].to_gpu, 1);
  Make(gpus, proposals[0]);
}

}  // namespace
}  // namespace mete::plan::mig
