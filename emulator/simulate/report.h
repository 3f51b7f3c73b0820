// Runs the cases of a scenario, judges its expectations, and prints what came out, for people and as JSON. Every output
// says that it is simulated. Single-threaded; plain values.
#ifndef METE_EMULATOR_SIMULATE_REPORT_H_
#define METE_EMULATOR_SIMULATE_REPORT_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "emulator/simulate/placement.h"
#include "emulator/simulate/scenario.h"
#include "emulator/simulate/simulation.h"

namespace mete::emulator {

struct Check {
  std::string what;  // "A gets 30 %"
  double measured = 0;
  double least = 0, most = 0;  // held if measured lies between them
  const char* unit = "%";
  bool Held() const { return measured >= least && measured <= most; }
};

struct CaseReport {
  Case asked;                  // with what the plan decided
  std::vector<Placed> placed;  // by share
  RunResult run;               // of all GPUs together
  std::vector<Check> checks;
  bool Held() const;
};

// Runs one case, a simulation for each GPU. `gpu`: the parameters where the scenario names no boards, and which rules
// are left out. Errors as Calibrate and Place.
StatusOr<CaseReport> RunCase(const GpuParameters& gpu, const Case& asked);

// Mean of the requests that ended in [from_ns, to_ns), in ms; 0 with fewer than three.
double MeanLatencyMs(const ShareTimeline& timeline, uint64_t from_ns, uint64_t to_ns);

// GPU time of a share in percent of [from_ns, to_ns).
double SharePercent(const ShareTimeline& timeline, uint64_t from_ns, uint64_t to_ns);

// Kernels that all shares completed in [from_ns, to_ns), each as a part of what its processes complete when they have
// the GPU alone and no gate before them; in percent.
StatusOr<double> WorkPercent(const GpuParameters& gpu, const Scenario& scenario, const RunResult& run, uint64_t from_ns,
                             uint64_t to_ns);

std::string Table(const Scenario& scenario, const std::vector<CaseReport>& reports);
Json ToJson(const Scenario& scenario, const std::vector<CaseReport>& reports);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_REPORT_H_
