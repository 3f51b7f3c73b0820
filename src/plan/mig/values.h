// What a layout is worth: the compute slices of requests that will have to be refused because of it, expected over the
// coming lifetimes, if every choice is made well. Computed exactly on the board's few thousand layouts for a demand
// (which profiles are asked for, how often) by value iteration; a choice is then one look-up.
//
//   const Values values(states, demand);
//   const Values::Best& best = values.BestFor(state, profile);   // best.placement < 0: no place
//
// The model: requests arrive at random, stay for an exponential lifetime (the unit of time) and are never refused when
// there is a place. Costs of different boards are in the same unit, so the GPUs of a node are compared by them.
// Immutable; any thread. `states` must outlive it.
#ifndef METE_PLAN_MIG_VALUES_H_
#define METE_PLAN_MIG_VALUES_H_

#include <vector>

#include "plan/mig/states.h"

namespace mete::plan::mig {

struct Demand {
  std::vector<double> weight;  // one a profile, not negative; only their ratios count
  double load = 1.0;           // compute slices asked for at a time, as a part of the board's
  // Every profile as likely as any other.
  static Demand Uniform(const Geometry& geometry);
};

class Values {
 public:
  struct Best {
    int placement = -1;  // the place that costs the least; -1: none
    float cost = 0;      // compute slices of later requests that it is expected to displace
  };

  // `before`, a solution for a demand near this one, saves sweeps.
  Values(const States& states, const Demand& demand, const Values* before = nullptr);

  const Best& BestFor(uint32_t state, int profile) const {
    return best_[state * profiles_ + static_cast<uint32_t>(profile)];
  }
  double of(uint32_t state) const { return value_[state]; }
  int sweeps() const { return sweeps_; }

 private:
  uint32_t profiles_ = 0;
  std::vector<double> value_;  // [state]
  std::vector<Best> best_;     // [state × profile]
  int sweeps_ = 0;
};

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_VALUES_H_
