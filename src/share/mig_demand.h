// What is asked of each MIG board of the node, learnt from every request and kept in the book, and the planner that
// follows it (plan/mig/planner.h).
//
// Ownership: owns the planners; views may point to one until the next Observe. Thread rule: one thread. Errors: as the
// book's; what cannot be kept is not learnt for the next broker, and nothing else.
#ifndef METE_SHARE_MIG_DEMAND_H_
#define METE_SHARE_MIG_DEMAND_H_

#include <map>
#include <memory>

#include "gpu/mig.h"
#include "plan/choice.h"
#include "plan/mig/planner.h"
#include "share/book.h"

namespace mete::share {

class MigDemand {
 public:
  explicit MigDemand(Book& book) : book_(book) {}

  // Null: the table of the board cannot be planned with.
  const plan::mig::Planner* PlannerOf(const gpu::MigBoard& board);
  // The request would be met by an instance: of which profile, on each of these boards.
  Status Observe(const plan::Ask& ask, const std::vector<plan::GpuView>& gpus);

 private:
  struct Board {
    plan::mig::States states;
    plan::mig::LearningPlanner planner;
    Board(plan::mig::States all, const std::vector<double>& counts) : states(std::move(all)), planner(states, counts) {}
  };
  Board* BoardOf(const gpu::MigBoard& board);

  Book& book_;
  std::map<std::string, std::unique_ptr<Board>> boards_;  // by id
};

}  // namespace mete::share

#endif  // METE_SHARE_MIG_DEMAND_H_
