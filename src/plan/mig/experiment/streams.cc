#include "plan/mig/experiment/streams.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "plan/mig/profile_choice.h"

namespace mete::plan::mig {
namespace {

// Memory that served models and notebooks take, in GiB: many small, some large. The shape of such demand, not a
// measurement of anybody's.
constexpr std::pair<double, double> kMemoryAsked[] = {{2, 5},  {4, 6},  {6, 4},  {8, 4},   {12, 3},
                                                      {16, 3}, {18, 2}, {38, 1}, {76, 0.5}};

std::vector<double> Weights(const Geometry& geometry, const std::map<std::string, double>& by_slices) {
  std::vector<double> weight(static_cast<size_t>(geometry.profiles()), 0.0);
  for (size_t i = 0; i < weight.size(); ++i) {
    const gpu::MigProfile& profile = geometry.board().profiles[i];
    // "1g", "1g+me", "1g*2" (one compute slice with twice the memory)
    std::string kind = std::to_string(profile.compute_slices) + "g";
    if (const size_t plus = profile.name.find_first_of("+-"); plus != std::string::npos)
      kind += profile.name.substr(plus);
    const int plain = geometry.board().profiles[0].memory_slices;
    if (profile.compute_slices == 1 && profile.memory_slices == 2 * plain) kind += "*2";
    if (const auto found = by_slices.find(kind); found != by_slices.end()) weight[i] = found->second;
  }
  return weight;
}

// The profile a memory request resolves to, and with what weight.
std::vector<double> MemoryWeights(const Geometry& geometry) {
  std::vector<double> weight(static_cast<size_t>(geometry.profiles()), 0.0);
  for (const auto& [gib, often] : kMemoryAsked) {
    const Bytes bytes{static_cast<uint64_t>(gib * static_cast<double>(kGiB))};
    const auto choice = ChooseProfile(geometry.board(), {bytes, {}});
    if (choice.ok()) weight[static_cast<size_t>(choice->profile)] += often;
  }
  return weight;
}

}  // namespace

std::vector<Mix> MixesFor(const Geometry& geometry) {
  using Shape = Mix::Shape;
  const bool seven = geometry.board().compute_slices == 7;
  std::vector<std::pair<std::string, std::map<std::string, double>>> kinds;
  if (seven) {
    kinds = {{"1g5 2g2 3g2", {{"1g", 5}, {"2g", 2}, {"3g", 2}}},
             {"1g4 1g*2 2g2 3g1.5 4g.7 7g.3", {{"1g", 4}, {"1g*2", 1}, {"2g", 2}, {"3g", 1.5}, {"4g", .7}, {"7g", .3}}},
             {"1g8 4g1 7g.5", {{"1g", 8}, {"4g", 1}, {"7g", .5}}},
             {"1g2 1g*2:3 2g3 3g1", {{"1g", 2}, {"1g*2", 3}, {"2g", 3}, {"3g", 1}}},
             {"1g*2:2 3g2 4g1", {{"1g*2", 2}, {"3g", 2}, {"4g", 1}}}};
  } else {
    kinds = {{"1g5 2g2", {{"1g", 5}, {"2g", 2}}},
             {"1g4 2g2 4g1", {{"1g", 4}, {"2g", 2}, {"4g", 1}}},
             {"1g8 4g1", {{"1g", 8}, {"4g", 1}}}};
  }
  std::vector<std::pair<std::string, std::vector<double>>> random;
  for (const auto& [name, map] : kinds) random.emplace_back(name, Weights(geometry, map));
  random.emplace_back("every profile", std::vector<double>(static_cast<size_t>(geometry.profiles()), 1.0));

  std::vector<Mix> mixes;
  for (const int gpus : {1, 8}) {
    for (const double load : {0.5, 0.8, 1.2}) {
      for (const auto& [name, weight] : random) mixes.push_back({name, false, gpus, load, weight, {}, Shape::kPoisson});
      mixes.push_back({"by memory", false, gpus, load, MemoryWeights(geometry), {}, Shape::kByMemory});
    }
    const std::vector<double> small = Weights(geometry, {{"1g", 1}});
    const std::vector<double> large =
        Weights(geometry, seven ? std::map<std::string, double>{{"3g", 2}, {"4g", 1}, {"7g", .5}}
                                : std::map<std::string, double>{{"2g", 2}, {"4g", 1}});
    mixes.push_back({"swing small/large", true, gpus, 0.8, small, large, Shape::kSwing});
    mixes.push_back({"comb", true, gpus, 1.0, small, large, Shape::kComb});
    mixes.push_back({"long small, short large", true, gpus, 0.8, small, large, Shape::kHeavyTail});
  }
  return mixes;
}

Stream MakeStream(const Geometry& geometry, const Mix& mix, uint64_t seed, size_t arrivals) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15U + 12345);
  const auto mean = [&](const std::vector<double>& weight) {
    double all = 0, slices = 0;
    for (size_t i = 0; i < weight.size(); ++i) {
      all += weight[i];
      slices += weight[i] * geometry.board().profiles[i].compute_slices;
    }
    return slices / all;
  };
  std::discrete_distribution<int> pick(mix.weight.begin(), mix.weight.end());
  std::discrete_distribution<int> pick_other(mix.other.begin(), mix.other.end());
  std::exponential_distribution<double> exponential(1.0);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  const double capacity = mix.gpus * geometry.board().compute_slices;
  Stream stream;
  double time = 0;
  while (stream.size() < arrivals) {
    switch (mix.shape) {
      case Mix::Shape::kPoisson:
      case Mix::Shape::kByMemory: {
        time += exponential(random) * mean(mix.weight) / (mix.load * capacity);
        stream.push_back({time, pick(random), exponential(random)});
        break;
      }
      case Mix::Shape::kSwing: {
        // Five lifetimes of one kind of demand, then five of the other.
        const bool other = static_cast<int64_t>(time / 5) % 2 == 1;
        time += exponential(random) * mean(other ? mix.other : mix.weight) / (mix.load * capacity);
        stream.push_back({time, other ? pick_other(random) : pick(random), exponential(random)});
        break;
      }
      case Mix::Shape::kComb: {
        // Fills the node with small instances, lets a random half of them go, and then asks for large ones: what the
        // survivors leave between them is what the policy's order made of it.
        time += 1;
        for (int i = 0; i < static_cast<int>(capacity); ++i) {
          stream.push_back({time + 1e-3 * i, pick(random), uniform(random) < 0.5 ? 0.4 : 1.8});
        }
        for (int i = 0; i < mix.gpus; ++i) stream.push_back({time + 0.5 + 1e-3 * i, pick_other(random), 0.4});
        time += 1;
        break;
      }
      case Mix::Shape::kHeavyTail: {
        // A tenth of the small ones stay forty times as long and stand in the way of large ones that come and go.
        const bool other = uniform(random) < 0.3;
        const double both = 0.3 * 0.5 * mean(mix.other) + 0.7 * mean(mix.weight) * (0.9 * 0.4 + 0.1 * 16);
        time += exponential(random) * both / (mix.load * capacity);
        const double scale = other ? 0.5 : uniform(random) < 0.1 ? 16 : 0.4;
        stream.push_back({time, other ? pick_other(random) : pick(random), scale * exponential(random)});
        break;
      }
    }
  }
  return stream;
}

}  // namespace mete::plan::mig
