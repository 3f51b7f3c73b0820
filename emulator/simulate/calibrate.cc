#include "emulator/simulate/calibrate.h"

#include <cmath>

namespace mete::emulator {
namespace {

constexpr int kKernels = 8;  // measured back to back; the first one is left out
constexpr double kTolerance = 5e-4;

KernelCost CostOf(uint64_t blocks, double instructions) {
  KernelCost cost;
  cost.blocks = blocks;
  // Many blocks in a short time fit only when they are small.
  cost.threads_per_block = blocks > 5000 ? 32 : 128;
  cost.warp_instructions[kFp32] = instructions;
  return cost;
}

}  // namespace

double MeasureNs(const GpuParameters& gpu, const KernelCost& cost) {
  GpuModel model(gpu);
  const StreamId stream = model.AddStream(model.AddContext(0));
  Work work;
  work.kind = WorkKind::kKernel;
  work.kernel = cost;
  for (int i = 0; i < kKernels; ++i) model.Submit(0, stream, work);
  uint64_t first = 0, last = 0;
  for (std::optional<uint64_t> next = model.NextEventNs(); next.has_value(); next = model.NextEventNs()) {
    model.AdvanceTo(*next, [&](const Completion& done) {
      if (done.sequence == 1) first = done.at_ns;
      if (done.sequence == kKernels) last = done.at_ns;
    });
    if (last != 0) break;
  }
  return static_cast<double>(last - first) / (kKernels - 1);
}

StatusOr<Calibrated> Calibrate(const GpuParameters& gpu, double length_ns, uint64_t blocks) {
  double low = 0, high = 1;
  const double shortest = MeasureNs(gpu, CostOf(blocks, low));
  if (shortest > length_ns * (1 + kTolerance)) {
    return Usage("a kernel of {} blocks takes at least {:.4f} ms on this GPU; {:.4f} ms asked", blocks, shortest / 1e6,
                 length_ns / 1e6);
  }
  while (MeasureNs(gpu, CostOf(blocks, high)) < length_ns) high *= 2;
  Calibrated found = {CostOf(blocks, high), 0};
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    found = {CostOf(blocks, middle), MeasureNs(gpu, CostOf(blocks, middle))};
    if (std::abs(found.length_ns - length_ns) <= kTolerance * length_ns) break;
    (found.length_ns < length_ns ? low : high) = middle;
  }
  return found;
}

}  // namespace mete::emulator
