#include "plan/mig/defragment.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace mete::plan::mig {

std::string Proposal::ToString(const Geometry& geometry) const {
  const auto name = [&](int number) -> const std::string& {
    return geometry.board().profiles[static_cast<size_t>(geometry.at(number).profile)].name;
  };
  std::string text;
  for (const Move& move : moves) {
    text += fmt::format("stop the tenant of {} at {} of GPU {} and start it again at {} of GPU {}; ", name(move.from),
                        geometry.at(move.from).start, move.from_gpu, geometry.at(move.to).start, move.to_gpu);
  }
  return text + fmt::format("then {} fits at {} of GPU {} ({} of instances to fill again)", name(placement),
                            geometry.at(placement).start, gpu, mete::ToString(memory));
}

std::vector<Proposal> ProposeMoves(const Planner& planner, std::span<const uint32_t> gpus,
                                   std::span<const Layout> fixed, int profile, size_t most) {
  const States& states = planner.states();
  const Geometry& geometry = states.geometry();
  std::vector<Proposal> proposals;
  if (planner.Choose(gpus, profile)) return proposals;
  for (size_t g = 0; g < gpus.size(); ++g) {
    const Layout layout = states.layout(gpus[g]);
    const Layout stay = layout & (g < fixed.size() ? fixed[g] : 0);
    // Every choice of instances to move away, of at most seven on a GPU.
    const Layout loose = layout & ~stay;
    for (Layout leave = loose; leave != 0; leave = (leave - 1) & loose) {
      const uint32_t left = states.Find(layout & ~leave);
      for (Layout places = geometry.OfProfile(profile); places != 0; places &= places - 1) {
        const int placement = std::countr_zero(places);
        const uint32_t with = states.With(left, placement);
        if (with == States::kNone) continue;
        std::vector<uint32_t> after(gpus.begin(), gpus.end());
        after[g] = with;
        std::vector<int> movers;
        for (Layout rest = leave; rest != 0; rest &= rest - 1) movers.push_back(std::countr_zero(rest));
        std::sort(movers.begin(), movers.end(),
                  [&](int a, int b) { return geometry.at(a).size > geometry.at(b).size; });
        Proposal proposal{static_cast<int>(g), placement, {}, {}, 0};
        for (const int mover : movers) {
          const int its_profile = geometry.at(mover).profile;
          const auto choice = planner.Choose(after, its_profile);
          if (!choice) break;
          uint32_t& target = after[static_cast<size_t>(choice->gpu)];
          target = states.With(target, choice->placement);
          proposal.moves.push_back({static_cast<int>(g), mover, choice->gpu, choice->placement});
          proposal.memory.count += geometry.board().profiles[static_cast<size_t>(its_profile)].memory.count;
        }
        if (proposal.moves.size() != movers.size()) continue;
        // Whoever would come back to its own place need not have moved: a smaller choice covers that.
        const bool idle = std::any_of(proposal.moves.begin(), proposal.moves.end(), [](const Move& move) {
          return move.from_gpu == move.to_gpu && move.from == move.to;
        });
        if (idle) continue;
        proposal.loss_after = planner.Loss(after);
        proposals.push_back(std::move(proposal));
      }
    }
  }
  const auto price = [](const Proposal& proposal) {
    return std::tuple(proposal.memory.count, proposal.moves.size(), proposal.loss_after);
  };
  std::stable_sort(proposals.begin(), proposals.end(),
                   [&](const Proposal& a, const Proposal& b) { return price(a) < price(b); });
  if (proposals.size() > most) proposals.resize(most);
  return proposals;
}

}  // namespace mete::plan::mig
