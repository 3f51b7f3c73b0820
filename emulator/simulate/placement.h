// Where the shares of a scenario run and under which limits. With mechanism intercept it is mete's own plan that
// chooses the GPU, grants or refuses, and sets mode, share and weight; the others are as simple as they are on a node.
// Pure.
#ifndef METE_EMULATOR_SIMULATE_PLACEMENT_H_
#define METE_EMULATOR_SIMULATE_PLACEMENT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "emulator/engine/engine.h"
#include "emulator/simulate/scenario.h"

namespace mete::emulator {

struct Placed {
  uint32_t gpu = 0;
  std::string refused;  // why it runs nowhere; empty: it runs
};

// The GPUs of the scenario; one like an A100, with `fallback` as parameters, when it names no boards.
StatusOr<std::vector<EngineSettings::Gpu>> NodeOf(const Scenario& scenario, const GpuParameters& fallback);

// By share. Fills in what the plan decides (mode, share, weight) in `scenario`. Usage for requests that cannot be read.
StatusOr<std::vector<Placed>> Place(const std::vector<EngineSettings::Gpu>& node, Scenario* scenario);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_PLACEMENT_H_
