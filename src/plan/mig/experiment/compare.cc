#include "plan/mig/experiment/compare.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>
#include <random>
#include <tuple>
#include <unordered_map>

namespace mete::plan::mig {
namespace {

// The first free placement of a profile on a GPU, from below or from above.
int FirstFree(const States& states, uint32_t state, int profile, bool downwards) {
  Layout places = states.geometry().OfProfile(profile);
  while (places != 0) {
    const int placement = downwards ? 63 - std::countl_zero(places) : std::countr_zero(places);
    if (states.With(state, placement) != States::kNone) return placement;
    places &= ~(Layout{1} << placement);
  }
  return -1;
}

Policy InOrder(const States& states, std::vector<int> gpu_order, std::vector<bool> downwards) {
  return [&states, gpu_order, downwards](std::span<const uint32_t> gpus, int profile) {
    for (const int gpu : gpu_order) {
      const auto g = static_cast<size_t>(gpu);
      const int place = FirstFree(states, gpus[g], profile, downwards[static_cast<size_t>(profile)]);
      if (place >= 0) return Place{gpu, place};
    }
    return Place{};
  };
}

Spread SpreadOf(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()), *low, *high};
}

}  // namespace

std::vector<NamedPolicy> Baselines(const States& states, int gpus) {
  const std::vector<gpu::MigProfile>& profiles = states.geometry().board().profiles;
  std::vector<int> by_index(static_cast<size_t>(gpus));
  std::iota(by_index.begin(), by_index.end(), 0);
  std::vector<int> by_name = by_index;
  std::sort(by_name.begin(), by_name.end(), [](int a, int b) { return std::to_string(a) < std::to_string(b); });
  std::vector<size_t> movable;
  for (size_t i = 0; i < profiles.size(); ++i) {
    if (profiles[i].starts.size() > 1) movable.push_back(i);
  }
  std::vector<NamedPolicy> policies;
  const std::vector<bool> upwards(profiles.size(), false);
  policies.push_back(
      {"first fit", false, [&states, by_index, upwards](uint64_t) { return InOrder(states, by_index, upwards); }});
  policies.push_back(
      {"by name", false, [&states, by_name, upwards](uint64_t) { return InOrder(states, by_name, upwards); }});
  policies.push_back({"by name, GPUs unsorted", false, [&states, by_index, upwards](uint64_t seed) -> Policy {
                        auto random = std::make_shared<std::mt19937_64>(seed);
                        return [&states, by_index, upwards, random](std::span<const uint32_t> at, int profile) {
                          std::vector<int> order = by_index;
                          std::shuffle(order.begin(), order.end(), *random);
                          return InOrder(states, order, upwards)(at, profile);
                        };
                      }});
  for (uint32_t order = 0; order < uint32_t{1} << movable.size(); ++order) {
    std::vector<bool> downwards = upwards;
    std::string name = "down:";
    for (size_t i = 0; i < movable.size(); ++i) {
      if ((order >> i & 1) == 0) continue;
      downwards[movable[i]] = true;
      name += " " + profiles[movable[i]].name;
    }
    policies.push_back({order == 0 ? "all up" : name, true,
                        [&states, by_index, downwards](uint64_t) { return InOrder(states, by_index, downwards); }});
  }
  return policies;
}

NamedPolicy Mete(const States& states) {
  auto fresh = std::make_shared<const LearningPlanner>(states);
  return {"mete", false, [fresh](uint64_t) -> Policy {
            auto planner = std::make_shared<LearningPlanner>(*fresh);
            return [planner](std::span<const uint32_t> gpus, int profile) {
              const auto choice = planner->Choose(gpus, profile);
              return choice ? Place{choice->gpu, choice->placement} : Place{};
            };
          }};
}

double Loss(const States& states, const Stream& stream, int gpus, const Policy& policy) {
  std::vector<uint32_t> at(static_cast<size_t>(gpus), States::empty());
  using Departure = std::tuple<double, int, int>;
  std::priority_queue<Departure, std::vector<Departure>, std::greater<>> leaving;
  double lost = 0, asked = 0;
  for (const Arrival& arrival : stream) {
    for (; !leaving.empty() && std::get<0>(leaving.top()) <= arrival.time; leaving.pop()) {
      const auto [time, gpu, placement] = leaving.top();
      at[static_cast<size_t>(gpu)] = states.Without(at[static_cast<size_t>(gpu)], placement);
    }
    const double slices = states.geometry().board().profiles[static_cast<size_t>(arrival.profile)].compute_slices;
    asked += slices;
    const Place place = policy(at, arrival.profile);
    if (place.gpu < 0) {
      for (const uint32_t state : at) {
        if (FirstFree(states, state, arrival.profile, false) >= 0) return 2;
      }
      lost += slices;
      continue;
    }
    uint32_t& state = at[static_cast<size_t>(place.gpu)];
    if (states.With(state, place.placement) == States::kNone) return 2;
    state = states.With(state, place.placement);
    leaving.emplace(arrival.time + arrival.stay, place.gpu, place.placement);
  }
  return asked > 0 ? lost / asked : 0;
}

double ClairvoyantLoss(const States& states, const Stream& stream, bool may_refuse) {
  // A world is where each request still here was placed (0: refused), in the order of arrival, and its layout.
  struct World {
    uint32_t state = States::empty();
    double lost = 0;
  };
  std::unordered_map<std::string, World> worlds{{"", {}}}, next;
  std::vector<double> until;  // departure of each request still here
  double asked = 0;
  for (const Arrival& arrival : stream) {
    const double slices = states.geometry().board().profiles[static_cast<size_t>(arrival.profile)].compute_slices;
    asked += slices;
    next.clear();
    std::vector<double> still;
    for (const double time : until) {
      if (time > arrival.time) still.push_back(time);
    }
    const auto keep = [&next](std::string key, const World& world) {
      const auto [found, fresh] = next.emplace(std::move(key), world);
      if (!fresh && world.lost < found->second.lost) found->second = world;
    };
    for (const auto& [key, world] : worlds) {
      World now = world;
      std::string here;
      for (size_t i = 0; i < until.size(); ++i) {
        if (until[i] > arrival.time) {
          here += key[i];
        } else if (key[i] != 0) {
          now.state = states.Without(now.state, key[i] - 1);
        }
      }
      bool fits = false;
      for (Layout places = states.geometry().OfProfile(arrival.profile); places != 0; places &= places - 1) {
        const int placement = std::countr_zero(places);
        const uint32_t with = states.With(now.state, placement);
        if (with == States::kNone) continue;
        fits = true;
        keep(here + static_cast<char>(placement + 1), {with, now.lost});
      }
      if (!fits || may_refuse) keep(here + '\0', {now.state, now.lost + slices});
    }
    still.push_back(arrival.time + arrival.stay);
    until = std::move(still);
    worlds.swap(next);
  }
  double least = asked;
  for (const auto& [key, world] : worlds) least = std::min(least, world.lost);
  return asked > 0 ? least / asked : 0;
}

Comparison Compare(const States& states, int seeds, size_t arrivals) {
  Comparison comparison;
  const NamedPolicy mete = Mete(states);
  std::vector<std::pair<std::string, double>> sums;
  for (const Mix& mix : MixesFor(states.geometry())) {
    std::vector<NamedPolicy> policies = Baselines(states, mix.gpus);
    policies.insert(policies.begin(), mete);
    std::vector<std::vector<double>> losses(policies.size());
    for (int seed = 0; seed < seeds; ++seed) {
      const Stream stream = MakeStream(states.geometry(), mix, static_cast<uint64_t>(seed), arrivals);
      for (size_t i = 0; i < policies.size(); ++i) {
        losses[i].push_back(Loss(states, stream, mix.gpus, policies[i].make(static_cast<uint64_t>(seed))));
      }
    }
    Row row;
    row.mix = mix;
    sums.resize(policies.size());
    for (size_t i = 0; i < policies.size(); ++i) {
      const Spread spread = SpreadOf(losses[i]);
      sums[i].first = policies[i].name;
      sums[i].second += spread.mean;
      if (policies[i].name == "mete") row.mete = spread;
      if (policies[i].name == "first fit") row.first_fit = spread;
      if (policies[i].name == "by name") row.by_name = spread;
      if (policies[i].name == "by name, GPUs unsorted") row.unsorted = spread;
      if (!policies[i].is_static_order) continue;
      if (row.best_order.empty() || spread.mean < row.best.mean) {
        row.best = spread;
        row.best_order = policies[i].name;
      }
      if (spread.mean > row.worst.mean) row.worst = spread;
    }
    row.worse_than_best = row.best.mean > 0 ? row.mete.mean / row.best.mean - 1 : row.mete.mean > 0 ? 1 : 0;
    comparison.rows.push_back(std::move(row));
  }
  for (auto& [name, sum] : sums) sum /= static_cast<double>(comparison.rows.size());
  comparison.means = std::move(sums);
  return comparison;
}

}  // namespace mete::plan::mig
