#include "emulator/engine/work.h"

#include <algorithm>
#include <cmath>

namespace mete::emulator {

namespace {

constexpr double kMost = 1e18;

double Clean(double value) { return std::isfinite(value) ? std::clamp(value, 0.0, kMost) : 0.0; }

}  // namespace

Work Sanitized(const Work& work) {
  Work clean = work;
  if (static_cast<uint32_t>(clean.kind) > static_cast<uint32_t>(WorkKind::kWaitFor)) clean.kind = WorkKind::kMarker;
  clean.bytes = std::min<uint64_t>(clean.bytes, uint64_t{1} << 50);
  KernelCost& kernel = clean.kernel;
  kernel.blocks = std::clamp<uint64_t>(kernel.blocks, 1, uint64_t{1} << 50);
  kernel.threads_per_block = std::clamp<uint32_t>(kernel.threads_per_block, 1, 1024);
  kernel.registers_per_thread = std::clamp<uint32_t>(kernel.registers_per_thread, 1, 255);
  for (double& count : kernel.warp_instructions) count = Clean(count);
  kernel.memory_bytes = Clean(kernel.memory_bytes);
  kernel.working_set_bytes = Clean(kernel.working_set_bytes);
  kernel.critical_cycles = Clean(kernel.critical_cycles);
  return clean;
}

}  // namespace mete::emulator
