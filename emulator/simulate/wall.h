// The shares of a scenario as real processes on an emulated node that is up, by the wall clock: what virtual time
// decides is confirmed here. Each process is a child with a connection of its own to the node's engine and submits the
// costs that the scenario's workload describes. Not for gates: mechanism time-slicing or exclusive, workloads, closed
// arrivals.
#ifndef METE_EMULATOR_SIMULATE_WALL_H_
#define METE_EMULATOR_SIMULATE_WALL_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "emulator/simulate/placement.h"
#include "emulator/simulate/scenario.h"
#include "emulator/simulate/simulation.h"

namespace mete::emulator {

struct WallReport {
  std::vector<ShareTimeline> shares;  // requests only
  double timer_late_p99_ms = 0;
  // The machine's own 5 ms timer was later than 3 ms at the 99th percentile: the figures say nothing.
  bool Void() const { return timer_late_p99_ms > 3; }
};

// For `seconds` on the node in `root`, whose first GPUs must be the scenario's boards. Usage or Lacks otherwise.
StatusOr<WallReport> RunOnNode(const Scenario& scenario, const std::vector<Placed>& placed,
                               const std::vector<EngineSettings::Gpu>& boards, const std::string& root, double seconds);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_WALL_H_
