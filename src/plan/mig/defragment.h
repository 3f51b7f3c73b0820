// What would have to move so that an instance fits: proposals with their price. Nothing is ever moved by mete on its
// own: a GPU instance cannot move with its tenant running, so each move means that a tenant stops and starts again.
// Pure; any thread.
#ifndef METE_PLAN_MIG_DEFRAGMENT_H_
#define METE_PLAN_MIG_DEFRAGMENT_H_

#include <span>
#include <string>
#include <vector>

#include "plan/mig/planner.h"

namespace mete::plan::mig {

struct Move {
  int from_gpu = 0, from = 0;  // placement numbers
  int to_gpu = 0, to = 0;
};

struct Proposal {
  int gpu = 0, placement = 0;  // where the wanted instance would then stand
  std::vector<Move> moves;     // in an order in which each can be made: all leave before the first arrives
  Bytes memory;                // of the instances moved: what their tenants must load again
  double loss_after = 0;       // Planner::Loss once done
  // "stop the tenants of 1g.5gb at 2 (GPU 0); make them again at 6 (GPU 1); then 4g.20gb fits at 0 of GPU 0"
  std::string ToString(const Geometry& geometry) const;
};

// Cheapest first: fewest bytes moved, then fewest tenants, then what is left for later. `fixed[g]` are the placements
// of GPU g that may not be touched (not of this book, or pinned by their tenant). Empty when nothing helps, and when
// the profile fits as it is: then there is nothing to propose.
std::vector<Proposal> ProposeMoves(const Planner& planner, std::span<const uint32_t> gpus,
                                   std::span<const Layout> fixed, int profile, size_t most = 3);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_DEFRAGMENT_H_
