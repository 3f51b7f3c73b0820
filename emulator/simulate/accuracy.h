// How exactly limits are kept, over many situations: rows of generated cases, each run in virtual time, and the worst
// that came out of each row beside what was promised. What the closing figures for compute are quoted from.
//
// The promise (p the share, L a kernel, W the stretch looked at): ± 1 point + 100·L(1−p)/W over 10 s, ± 2 points + the
// same over any 1 s; a step answered within 200 ms and one kernel; shares together at least 97 % of the work that they
// do alone, a share without limits alone 99.5 %. Of several shares the greatest L(1−p) counts for each; over any 1 s
// its own with p·(the longest L of a neighbour), if that is more. A figure here is what was used of the promise, so
// that cases with different kernels compare: 1 is all of it, more is broken.
//
// Pure but for the time it takes; a row depends on its seed only. Errors: as Calibrate.
#ifndef METE_EMULATOR_SIMULATE_ACCURACY_H_
#define METE_EMULATOR_SIMULATE_ACCURACY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "emulator/simulate/scenario.h"

namespace mete::emulator {

// The worst of something, and the case in which it happened.
struct Worst {
  double value = 0;  // points, percent, or ms
  double bound = 0;  // what was promised in that case
  double used = 0;   // how much of the promise: 1 is all
  std::string where;
};

struct AccuracyRow {
  std::string name, what;
  uint64_t cases = 0;
  Worst over_10_s, over_1_s;  // points off
  Worst total;                // percent of the work done alone; bound 0: not looked at
  Worst pause;                // ms between two completions; bound 0: not looked at
  bool Held() const;
};

// `rows`: only those whose name contains it. `cases`: of each generated row.
StatusOr<std::vector<AccuracyRow>> MeasureAccuracy(std::string_view rows, uint64_t cases, uint64_t seed);

std::string AccuracyTable(const std::vector<AccuracyRow>& rows, uint64_t seed);
Json AccuracyJson(const std::vector<AccuracyRow>& rows, uint64_t seed);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_ACCURACY_H_
