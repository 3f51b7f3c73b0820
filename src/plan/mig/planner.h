// Where to put the next GPU instance, so that the most of what will be asked later can still be given.
//
//   const Planner planner(states, demand);
//   const std::optional<Planner::Choice> choice = planner.Choose(layouts_of_the_gpus, profile);
//
// For each layout and profile the planner knows the part of the near future in which the layout would have no place for
// the profile (Values plays the coming arrivals and departures out on a GPU of its own). A request is lost when no GPU
// of the node has a place, so the price of a choice is, summed over profiles by demand, how much it raises the product
// of those parts over the GPUs. That keeps whole GPUs empty while a whole one may be asked for, and closes gaps first.
//
// Decisions are look-ups: well under a microsecond for one GPU. Ties go to the lowest GPU and placement. Immutable; any
// thread. `states` must outlive it. The unit of cost is compute slices that will be refused.
#ifndef METE_PLAN_MIG_PLANNER_H_
#define METE_PLAN_MIG_PLANNER_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/mig/states.h"
#include "plan/mig/values.h"

namespace mete::plan::mig {

class Planner {
 public:
  struct Choice {
    int gpu = 0;  // index into the states given
    int placement = 0;
    double cost = 0;
  };

  // `before` saves time when the demand is near its own.
  Planner(const States& states, const Demand& demand, const Planner* before = nullptr);

  const States& states() const { return *states_; }
  const Demand& demand() const { return demand_; }

  // Nothing if no GPU has a place. `gpus` holds a state for each GPU of this board; it may not be empty or hold kNone.
  std::optional<Choice> Choose(std::span<const uint32_t> gpus, int profile) const;
  // How much is lost at a node in these states, relative to an empty one: what defragmentation lowers.
  double Loss(std::span<const uint32_t> gpus) const;
  // The part of the near future in which `state` has no place for `profile`, 0 to 1.
  double Blocked(uint32_t state, int profile) const {
    return blocked_[static_cast<size_t>(state) * stride_ + static_cast<size_t>(profile)];
  }

 private:
  const float* Row(uint32_t state) const { return blocked_.data() + static_cast<size_t>(state) * stride_; }

  const States* states_;
  Demand demand_;
  Values values_;
  size_t stride_ = 0;           // profiles, padded to whole vectors
  std::vector<float> blocked_;  // [state × stride]
  std::vector<float> price_;    // [stride]: compute slices asked for as this profile, as a part of all
};

// What is asked for, learnt from what was asked: counts that fade, on top of a uniform belief. A value; not
// thread-safe while written to.
class DemandEstimate {
 public:
  explicit DemandEstimate(const Geometry& geometry);
  // With counts that an earlier one had; those that do not belong to the board are left out.
  DemandEstimate(const Geometry& geometry, const std::vector<double>& counts);
  void Observe(int profile);
  Demand Now() const;
  // Half the sum of differences between the mixes, 0 to 1.
  static double Distance(const Demand& a, const Demand& b);
  uint64_t observed() const { return observed_; }
  const std::vector<double>& counts() const { return counts_; }

 private:
  std::vector<double> counts_;
  uint64_t observed_ = 0;
};

// A planner that follows the demand it sees. It solves anew after 32, 64, 128 … requests and later when the demand has
// moved; between that, decisions are look-ups. Not thread-safe.
class LearningPlanner {
 public:
  explicit LearningPlanner(const States& states);
  // Goes on from what an earlier one had learnt.
  LearningPlanner(const States& states, const std::vector<double>& counts);
  // Somebody asked for this profile, whether there was a place or not.
  void Observe(int profile);
  // Observes and chooses.
  std::optional<Planner::Choice> Choose(std::span<const uint32_t> gpus, int profile);
  const Planner& planner() const { return *planner_; }
  const std::vector<double>& counts() const { return estimate_.counts(); }
  int solutions() const { return solutions_; }

 private:
  DemandEstimate estimate_;
  std::shared_ptr<const Planner> planner_;  // shared by copies until the next solution
  uint64_t look_again_ = 32;
  int solutions_ = 1;
};

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_PLANNER_H_
