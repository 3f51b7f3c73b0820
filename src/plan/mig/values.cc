#include "plan/mig/values.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace mete::plan::mig {
namespace {

// What lies further ahead than this many lifetimes hardly counts; it also makes the iteration contract.
constexpr double kHorizon = 5;
constexpr double kValueTolerance = 5e-3;  // compute slices
constexpr int kMostValueSweeps = 200;

}  // namespace

Demand Demand::Uniform(const Geometry& geometry) {
  return {std::vector<double>(static_cast<size_t>(geometry.profiles()), 1.0), 1.0};
}

Values::Values(const States& states, const Demand& demand, const Values* before)
    : profiles_(static_cast<uint32_t>(states.geometry().profiles())) {
  const Geometry& geometry = states.geometry();
  const std::vector<gpu::MigProfile>& profiles = geometry.board().profiles;
  // Arrivals of each profile in a lifetime.
  std::vector<double> rate(profiles_, 0.0);
  double asked = 0;
  for (uint32_t i = 0; i < profiles_ && i < demand.weight.size(); ++i)
    asked += demand.weight[i] * profiles[i].compute_slices;
  for (uint32_t i = 0; i < profiles_ && i < demand.weight.size(); ++i) {
    rate[i] = asked > 0 ? demand.weight[i] * demand.load * geometry.board().compute_slices / asked : 0;
  }

  value_.assign(states.size(), 0.0);
  if (before != nullptr && before->value_.size() == value_.size()) value_ = before->value_;
  // Full layouts first: they refuse, and what that costs spreads to the emptier ones.
  std::vector<uint32_t> order(states.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int in_a = std::popcount(states.layout(a)), in_b = std::popcount(states.layout(b));
    return in_a != in_b ? in_a > in_b : a < b;
  });
  const auto cheapest = [&](uint32_t state, int profile) {
    Best best;
    double least = 0;
    for (const States::Step& step : states.Additions(state, profile)) {
      if (best.placement >= 0 && value_[step.to] >= least) continue;
      best.placement = step.placement;
      least = value_[step.to];
    }
    best.cost = static_cast<float>(least - value_[state]);
    return best;
  };
  // Only differences between layouts matter, and they settle long before what all have in common.
  for (double spread = 1; spread > kValueTolerance && sweeps_ < kMostValueSweeps; ++sweeps_) {
    double least_change = 1e300, most_change = -1e300;
    for (const uint32_t state : order) {
      double sum = 0, rates = 1 / kHorizon;
      for (uint32_t i = 0; i < profiles_; ++i) {
        if (rate[i] == 0) continue;
        double least = -1;
        for (const States::Step& step : states.Additions(state, static_cast<int>(i))) {
          if (least < 0 || value_[step.to] < least) least = value_[step.to];
        }
        if (least < 0) {
          sum += rate[i] * profiles[i].compute_slices;  // refused; the layout stays
        } else {
          sum += rate[i] * least;
          rates += rate[i];
        }
      }
      for (const States::Step& step : states.Removals(state)) sum += value_[step.to];
      rates += static_cast<double>(states.Removals(state).size());
      const double value = sum / rates;
      least_change = std::min(least_change, value - value_[state]);
      most_change = std::max(most_change, value - value_[state]);
      value_[state] = value;
    }
    spread = most_change - least_change;
  }
  best_.resize(static_cast<size_t>(states.size()) * profiles_);
  for (uint32_t state = 0; state < states.size(); ++state) {
    for (uint32_t i = 0; i < profiles_; ++i) best_[state * profiles_ + i] = cheapest(state, static_cast<int>(i));
  }
}

}  // namespace mete::plan::mig
