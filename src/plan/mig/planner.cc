#include "plan/mig/planner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

namespace mete::plan::mig {
namespace {

// How far the chance of having no place looks ahead, in lifetimes. Short: what lies further ahead depends more on what
// arrives than on where things stand. Chosen by mig_experiment, like the two below.
constexpr double kLookAhead = 0.2;
constexpr double kTolerance = 1e-3;
constexpr int kMostSweeps = 100;
// Requests after which a count has faded to 1/e, and the weight of the belief before any request.
constexpr double kMemory = 256;
constexpr double kBelief = 8;
constexpr uint64_t kLookEvery = 128;
constexpr double kMoved = 0.15;

// Four profiles at a time.
constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

}  // namespace

Planner::Planner(const States& states, const Demand& demand, const Planner* before)
    : states_(&states), demand_(demand), values_(states, demand, before == nullptr ? nullptr : &before->values_) {
  const Geometry& geometry = states.geometry();
  const std::vector<gpu::MigProfile>& profiles = geometry.board().profiles;
  const auto count = static_cast<size_t>(geometry.profiles());
  stride_ = (count + 3) / kLanes * kLanes;
  price_.assign(stride_, 0.0F);
  demand_.weight.resize(count, 0.0);
  double asked = 0;
  for (size_t i = 0; i < count; ++i) asked += demand_.weight[i] * profiles[i].compute_slices;
  std::vector<double> rate(count, 0.0);
  for (size_t i = 0; i < count && asked > 0; ++i) {
    price_[i] = static_cast<float>(demand_.weight[i] * profiles[i].compute_slices / asked);
    rate[i] = demand_.weight[i] * demand_.load * geometry.board().compute_slices / asked;
  }

  std::vector<uint32_t> order(states.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int in_a = std::popcount(states.layout(a)), in_b = std::popcount(states.layout(b));
    return in_a != in_b ? in_a < in_b : a < b;
  });
  const bool warm = before != nullptr && before->blocked_.size() == static_cast<size_t>(states.size()) * stride_;
  blocked_ = warm ? before->blocked_ : std::vector<float>(static_cast<size_t>(states.size()) * stride_, 0.0F);
  std::vector<double> sum(count);
  double change = 1;
  for (int sweep = 0; change > kTolerance && sweep < kMostSweeps; ++sweep) {
    change = 0;
    for (const uint32_t state : order) {
      double rates = 1 / kLookAhead;
      for (size_t i = 0; i < count; ++i) {
        sum[i] = values_.BestFor(state, static_cast<int>(i)).placement < 0 ? 1 / kLookAhead : 0;
      }
      const auto add = [&](uint32_t next, double at_rate) {
        const float* row = Row(next);
        for (size_t i = 0; i < count; ++i) sum[i] += at_rate * static_cast<double>(row[i]);
        rates += at_rate;
      };
      for (const States::Step& step : states.Removals(state)) add(step.to, 1);
      for (size_t i = 0; i < count; ++i) {
        const int place = rate[i] > 0 ? values_.BestFor(state, static_cast<int>(i)).placement : -1;
        if (place >= 0) add(states.With(state, place), rate[i]);
      }
      float* row = blocked_.data() + static_cast<size_t>(state) * stride_;
      for (size_t i = 0; i < count; ++i) {
        const double value = sum[i] / rates;
        change = std::max(change, std::abs(value - static_cast<double>(row[i])));
        row[i] = static_cast<float>(value);
      }
    }
  }
}

std::optional<Planner::Choice> Planner::Choose(std::span<const uint32_t> gpus, int profile) const {
  const size_t lanes = stride_ / kLanes;
  const auto row_of = [&](uint32_t state) { return reinterpret_cast<const Lanes*>(Row(state)); };
  // rest: how surely the other GPUs have no place for each profile, times its price. Products of the rows after each
  // GPU stand in `after`, of those before it in `so_far`; a node has few GPUs, so they are on the stack.
  constexpr size_t kOnStack = 256;
  std::array<float, kOnStack> small;
  std::vector<float> large((gpus.size() + 1) * stride_ > kOnStack ? (gpus.size() + 1) * stride_ : 0);
  auto* after = reinterpret_cast<Lanes*>(large.empty() ? small.data() : large.data());
  Lanes* so_far = after + gpus.size() * lanes;
  const auto* price = reinterpret_cast<const Lanes*>(price_.data());
  for (size_t i = 0; i < lanes; ++i) {
    so_far[i] = Lanes{} + 1.0F;
    after[(gpus.size() - 1) * lanes + i] = price[i];
  }
  for (size_t g = gpus.size() - 1; g > 0; --g) {
    const Lanes* row = row_of(gpus[g]);
    for (size_t i = 0; i < lanes; ++i) after[(g - 1) * lanes + i] = after[g * lanes + i] * row[i];
  }

  std::optional<Choice> best;
  float least = 0;
  for (size_t g = 0; g < gpus.size(); ++g) {
    const Lanes* now = row_of(gpus[g]);
    Lanes* rest = after + g * lanes;
    for (size_t i = 0; i < lanes; ++i) rest[i] *= so_far[i];
    for (const States::Step& step : states_->Additions(gpus[g], profile)) {
      const Lanes* then = row_of(step.to);
      Lanes sum{};
      for (size_t i = 0; i < lanes; ++i) sum += rest[i] * (then[i] - now[i]);
      const float cost = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      // Costs that differ by rounding are equal; the first stays.
      if (best && !(cost < least - 1e-4F * std::abs(least) - 1e-9F)) continue;
      least = cost;
      best = Choice{static_cast<int>(g), step.placement, static_cast<double>(cost)};
    }
    for (size_t i = 0; i < lanes; ++i) so_far[i] *= now[i];
  }
  return best;
}

double Planner::Loss(std::span<const uint32_t> gpus) const {
  double loss = 0;
  for (int i = 0; i < states_->geometry().profiles(); ++i) {
    double all = price_[static_cast<size_t>(i)];
    for (const uint32_t state : gpus) all *= Blocked(state, i);
    loss += all;
  }
  return loss;
}

DemandEstimate::DemandEstimate(const Geometry& geometry)
    : counts_(static_cast<size_t>(geometry.profiles()), kBelief / geometry.profiles()) {}

DemandEstimate::DemandEstimate(const Geometry& geometry, const std::vector<double>& counts) : DemandEstimate(geometry) {
  const bool usable = counts.size() == counts_.size() &&
                      std::all_of(counts.begin(), counts.end(), [](double c) { return c >= 0 && c <= 10 * kMemory; }) &&
                      std::any_of(counts.begin(), counts.end(), [](double c) { return c > 0; });
  if (usable) counts_ = counts;
}

void DemandEstimate::Observe(int profile) {
  ++observed_;
  for (double& count : counts_) count *= 1 - 1 / kMemory;
  counts_[static_cast<size_t>(profile)] += 1;
}

Demand DemandEstimate::Now() const { return {counts_, 1.0}; }

double DemandEstimate::Distance(const Demand& a, const Demand& b) {
  const double all_a = std::accumulate(a.weight.begin(), a.weight.end(), 0.0);
  const double all_b = std::accumulate(b.weight.begin(), b.weight.end(), 0.0);
  double distance = 0;
  for (size_t i = 0; i < a.weight.size() && i < b.weight.size(); ++i) {
    distance += std::abs(a.weight[i] / all_a - b.weight[i] / all_b) / 2;
  }
  return distance;
}

LearningPlanner::LearningPlanner(const States& states) : LearningPlanner(states, {}) {}

LearningPlanner::LearningPlanner(const States& states, const std::vector<double>& counts)
    : estimate_(states.geometry(), counts), planner_(std::make_shared<const Planner>(states, estimate_.Now())) {}

void LearningPlanner::Observe(int profile) {
  estimate_.Observe(profile);
  if (estimate_.observed() >= look_again_) {
    const Demand demand = estimate_.Now();
    if (DemandEstimate::Distance(demand, planner_->demand()) > kMoved) {
      planner_ = std::make_shared<const Planner>(planner_->states(), demand, planner_.get());
      ++solutions_;
    }
    look_again_ += std::min(look_again_, kLookEvery);
  }
}

std::optional<Planner::Choice> LearningPlanner::Choose(std::span<const uint32_t> gpus, int profile) {
  Observe(profile);
  return planner_->Choose(gpus, profile);
}

}  // namespace mete::plan::mig
