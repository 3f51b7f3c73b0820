#include "lab/load/latencies.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mete::lab {

bool Enough(size_t samples, double percentile) {
  // Rounded, because 1000 * (1 - 0.99) is a little less than ten in binary.
  return std::llround(static_cast<double>(samples) * (100 - percentile) / 100 * 1e6) >= 10'000'000;
}

double PercentileOf(const std::vector<double>& sorted, double percentile) {
  auto rank = static_cast<size_t>(std::ceil(static_cast<double>(sorted.size()) * percentile / 100 - 1e-9));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

Json Summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  Json summary;
  summary["samples"] = samples.size();
  summary["mean"] =
      samples.empty()
          ? Json(nullptr)
          : Json(std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size()));
  for (int percentile : {50, 95, 99}) {
    summary["p" + std::to_string(percentile)] =
        Enough(samples.size(), percentile) ? Json(PercentileOf(samples, percentile)) : Json(nullptr);
  }
  summary["max"] = samples.empty() ? Json(nullptr) : Json(samples.back());
  return summary;
}

}  // namespace mete::lab
