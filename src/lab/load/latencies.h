// Percentiles of latencies, and when there are enough samples to state one. Pure functions; any thread. Milliseconds.
#ifndef METE_LAB_LOAD_LATENCIES_H_
#define METE_LAB_LOAD_LATENCIES_H_

#include <cstddef>
#include <vector>

#include "base/json.h"

namespace mete::lab {

// A percentile is stated only if at least ten samples lie beyond it: p50 from 20 samples, p95 from 200, p99 from 1000.
bool Enough(size_t samples, double percentile);

// The sample at that rank (nearest rank, no interpolation) of sorted samples; not for an empty list.
double PercentileOf(const std::vector<double>& sorted, double percentile);

// {"samples", "mean", "p50", "p95", "p99", "max"}; a percentile without enough samples is null.
Json Summary(std::vector<double> samples);

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_LATENCIES_H_
