// Plays a stream of requests against a placement policy on a node of like GPUs, and the best that anyone could have
// done. Pure; any thread.
#ifndef METE_PLAN_MIG_EXPERIMENT_COMPARE_H_
#define METE_PLAN_MIG_EXPERIMENT_COMPARE_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/mig/experiment/streams.h"
#include "plan/mig/planner.h"

namespace mete::plan::mig {

struct Place {
  int gpu = -1;  // -1: none
  int placement = -1;
};
using Policy = std::function<Place(std::span<const uint32_t> gpus, int profile)>;
struct NamedPolicy {
  std::string name;
  bool is_static_order = false;
  std::function<Policy(uint64_t seed)> make;  // a fresh one for each stream
};

// Every order that takes the starts of each profile upwards or downwards and the GPUs by index, first-fit, and the
// order of NVIDIA's resource driver: by device name where the scheduler sorts, any GPU first where it does not.
std::vector<NamedPolicy> Baselines(const States& states, int gpus);
// The planner with the demand it learns on the way, starting from a uniform belief.
NamedPolicy Mete(const States& states);

// Compute slices refused, as a part of those asked for. A policy that refuses although it has a place, or names a place
// that is not free, is a fault of the policy: 2.
double Loss(const States& states, const Stream& stream, int gpus, const Policy& policy);

// The least loss on one GPU for one who knows the whole stream, by enumerating every layout reachable. With
// `may_refuse` it may turn away what would fit; without, it places with foresight but serves whatever has a place.
double ClairvoyantLoss(const States& states, const Stream& stream, bool may_refuse);

struct Spread {
  double mean = 0, low = 0, high = 0;
};
struct Row {
  Mix mix;
  Spread mete, first_fit, by_name, unsorted, best, worst;
  std::string best_order;
  double worse_than_best = 0;  // relative: 0.05 is 5 % above the best order of the mix
};
struct Comparison {
  std::vector<Row> rows;
  std::vector<std::pair<std::string, double>> means;  // over all mixes, mete first
};
Comparison Compare(const States& states, int seeds, size_t arrivals);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_EXPERIMENT_COMPARE_H_
