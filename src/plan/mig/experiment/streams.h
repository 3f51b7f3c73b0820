// Streams of MIG requests for comparing placement policies: drawn at random from a mix of profiles, or made to hurt.
// The same name, seed and node give the same stream. Pure; any thread. Times are in mean lifetimes.
#ifndef METE_PLAN_MIG_EXPERIMENT_STREAMS_H_
#define METE_PLAN_MIG_EXPERIMENT_STREAMS_H_

#include <string>
#include <vector>

#include "plan/mig/geometry.h"

namespace mete::plan::mig {

struct Arrival {
  double time = 0;
  int profile = 0;
  double stay = 0;
};
using Stream = std::vector<Arrival>;

struct Mix {
  std::string name;  // "1g8 4g1 7g0.5"
  bool adversarial = false;
  int gpus = 1;
  double load = 1;             // compute slices asked for at a time, as a part of the node's
  std::vector<double> weight;  // by profile; a second one where demand swings
  std::vector<double> other;
  enum class Shape { kPoisson, kSwing, kComb, kHeavyTail, kByMemory } shape = Shape::kPoisson;
};

// All mixes for a board: random ones at several loads on one GPU and on eight, and the adversarial ones.
std::vector<Mix> MixesFor(const Geometry& geometry);
Stream MakeStream(const Geometry& geometry, const Mix& mix, uint64_t seed, size_t arrivals);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_EXPERIMENT_STREAMS_H_
