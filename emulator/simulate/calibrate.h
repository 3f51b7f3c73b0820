// Finds a kernel that takes a given time: the time of a cost is asked of the model, by running it alone, never assumed.
// Pure; any thread. Errors: Usage when no cost makes such a kernel (shorter than the model's launch overhead and the
// time that so many blocks need at least).
#ifndef METE_EMULATOR_SIMULATE_CALIBRATE_H_
#define METE_EMULATOR_SIMULATE_CALIBRATE_H_

#include <cstdint>

#include "base/status.h"
#include "emulator/engine/model.h"

namespace mete::emulator {

struct Calibrated {
  KernelCost cost;
  double length_ns;  // of one kernel when many of one stream follow each other
};

// How long a kernel of this cost takes in a queue of its own kind, alone on the GPU.
double MeasureNs(const GpuParameters& gpu, const KernelCost& cost);

// Within one part in a thousand of `length_ns`.
StatusOr<Calibrated> Calibrate(const GpuParameters& gpu, double length_ns, uint64_t blocks);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_CALIBRATE_H_
