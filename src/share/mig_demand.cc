#include "share/mig_demand.h"

#include <set>

#include "base/log.h"
#include "plan/mig/profile_choice.h"

namespace mete::share {

MigDemand::Board* MigDemand::BoardOf(const gpu::MigBoard& board) {
  std::unique_ptr<Board>& known = boards_[board.id];
  if (known) return known.get();
  StatusOr<plan::mig::Geometry> geometry = plan::mig::Geometry::Of(board);
  if (!geometry.ok()) return nullptr;
  StatusOr<plan::mig::States> states = plan::mig::States::Of(*std::move(geometry));
  if (!states.ok()) return nullptr;
  std::vector<double> counts;
  if (const auto kept = book_.Demand(board.id); kept.ok() && !kept->empty()) {
    for (const gpu::MigProfile& profile : board.profiles) {
      const auto weight = kept->find(profile.name);
      counts.push_back(weight == kept->end() ? 0 : weight->second);
    }
  }
  known = std::make_unique<Board>(*std::move(states), counts);
  return known.get();
}

const plan::mig::Planner* MigDemand::PlannerOf(const gpu::MigBoard& board) {
  Board* known = BoardOf(board);
  return known == nullptr ? nullptr : &known->planner.planner();
}

Status MigDemand::Observe(const plan::Ask& ask, const std::vector<plan::GpuView>& gpus) {
  std::set<const gpu::MigBoard*> told;
  for (const plan::GpuView& gpu : gpus) {
    if (gpu.mig == nullptr || gpu.device || !told.insert(gpu.mig).second) continue;
    const auto profile = plan::mig::ChooseProfile(*gpu.mig, {ask.request.memory, ask.request.compute});
    Board* board = profile.ok() ? BoardOf(*gpu.mig) : nullptr;
    if (board == nullptr) continue;
    board->planner.Observe(profile->profile);
    std::map<std::string, double> weights;
    for (size_t i = 0; i < gpu.mig->profiles.size(); ++i) {
      weights[gpu.mig->profiles[i].name] = board->planner.counts()[i];
    }
    METE_RETURN_IF_ERROR(book_.SetDemand(gpu.mig->id, weights));
  }
  return OkStatus();
}

}  // namespace mete::share
