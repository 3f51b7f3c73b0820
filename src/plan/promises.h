// Which promises hold on a GPU at this moment, and why or until when. Interception alone only caps; but when every
// tenant of a GPU holds a grant of the book and the quotas fit, a cap on each is a quota for all, and weighted windows
// make a cap a reservation. A process the book does not know ends that. Pure; any thread.
#ifndef METE_PLAN_PROMISES_H_
#define METE_PLAN_PROMISES_H_

#include <string>
#include <vector>

#include "plan/choice.h"
#include "plan/values.h"

namespace mete::plan {

struct PromiseState {
  std::string promise;  // "memory-quota", "compute-cap", "compute-reservation", "enforced-outside"
  bool asked = false;
  bool kept = false;
  std::string because;  // why, or until when
};

// What the interception machinery reports about the share, for promises that rest on it.
struct Enforcement {
  bool in_force = true;
  std::string because;  // when not
};

// The promises of the share gpu.holdings[which]. `which` must be a valid index.
std::vector<PromiseState> PromisesNow(const GpuOccupancy& gpu, size_t which, const Enforcement& enforcement);

// All promises of a share that has the GPU by another mechanism, as the table of promises says for `way`.
std::vector<PromiseState> PromisesByTable(const GpuOccupancy& gpu, const WayView& way,
                                          const std::vector<gpu::Promise>& asked, const Enforcement& enforcement);

}  // namespace mete::plan

#endif  // METE_PLAN_PROMISES_H_
