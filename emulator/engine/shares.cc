#include "emulator/engine/shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mete::emulator {

namespace {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kRegisterGranule = 256;  // registers are handed out to a warp in units of 256
constexpr int kPasses = 2;                  // what a bandwidth-bound kernel leaves of the SMs goes round once more

uint32_t Warps(const KernelCost& kernel) { return (kernel.threads_per_block + kWarp - 1) / kWarp; }

uint32_t RegistersPerBlock(const KernelCost& kernel) {
  const uint32_t per_warp = (kernel.registers_per_thread * kWarp + kRegisterGranule - 1) / kRegisterGranule;
  return Warps(kernel) * per_warp * kRegisterGranule;
}

// Share of the accesses that hit once the L2 is warm. `held`: the part of its working set that the L2 can hold. A set
// that fits hits always; of one that does not, only repeated accesses can.
double WarmHitRatio(const KernelCost& kernel, double held) {
  const double traffic = kernel.memory_bytes * static_cast<double>(kernel.blocks);
  if (held >= 1 || traffic <= 0) return 1;
  return std::max(0.0, 1 - kernel.working_set_bytes / traffic) * held;
}

}  // namespace

uint32_t ResidentBlocksPerSm(const GpuParameters& gpu, const KernelCost& kernel) {
  uint32_t fit = std::min(gpu.blocks_per_sm, gpu.threads_per_sm / (Warps(kernel) * kWarp));
  fit = std::min(fit, gpu.registers_per_sm / RegistersPerBlock(kernel));
  if (kernel.shared_bytes_per_block > 0) fit = std::min(fit, gpu.shared_bytes_per_sm / kernel.shared_bytes_per_block);
  return std::max<uint32_t>(fit, 1);
}

double IssueCycles(const GpuParameters& gpu, const KernelCost& kernel) {
  double cycles = kernel.memory_bytes / gpu.l2_bytes_per_cycle;
  double total = 0;
  for (uint32_t i = 0; i < kInstructionClasses; ++i) {
    total += kernel.warp_instructions[i];
    cycles = std::max(cycles, kernel.warp_instructions[i] / gpu.warp_throughput[i]);
  }
  return std::max(cycles, total / gpu.issue_per_cycle);
}

double StateBytes(const KernelCost& kernel) { return 4.0 * RegistersPerBlock(kernel) + kernel.shared_bytes_per_block; }

void WaterFill(double capacity, std::vector<Demand>& demands) {
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return demands[a].most * demands[b].weight < demands[b].most * demands[a].weight;
  });
  double weight = 0;
  for (const Demand& demand : demands) weight += demand.weight;
  for (const size_t i : order) {
    Demand& demand = demands[i];
    demand.share = weight > 0 ? std::min(demand.most, capacity * demand.weight / weight) : 0;
    capacity -= demand.share;
    weight -= demand.weight;
  }
}

namespace {

double SmsOf(const GpuParameters& gpu, const KernelLoad& kernel) { return kernel.sms > 0 ? kernel.sms : gpu.sm_count; }

// The issue slots of each partition among its kernels.
void FillPartitions(const GpuParameters& gpu, const std::vector<KernelLoad>& kernels, std::vector<Demand>& issue) {
  if (kernels.empty()) return;
  if (kernels.front().partition == kernels.back().partition) return WaterFill(SmsOf(gpu, kernels.front()), issue);
  for (size_t from = 0, to = 0; from < kernels.size(); from = to) {
    while (to < kernels.size() && kernels[to].partition == kernels[from].partition) ++to;
    std::vector<Demand> part(issue.begin() + static_cast<std::ptrdiff_t>(from),
                             issue.begin() + static_cast<std::ptrdiff_t>(to));
    WaterFill(SmsOf(gpu, kernels[from]), part);
    std::copy(part.begin(), part.end(), issue.begin() + static_cast<std::ptrdiff_t>(from));
  }
}

}  // namespace

void ShareOut(const GpuParameters& gpu, std::vector<KernelLoad>& kernels, std::vector<CopyLoad>& copies) {
  const double cycles_per_ns = gpu.clock_hz * 1e-9;
  const double floor_cycles = cycles_per_ns * static_cast<double>(gpu.block_floor_ns);
  const double dram = gpu.memory_bytes_per_s * 1e-9;

  double working_sets = 0;
  for (const KernelLoad& kernel : kernels) working_sets += kernel.cost->working_set_bytes;
  const double held = working_sets > gpu.l2_bytes ? gpu.l2_bytes / working_sets : 1;

  std::vector<double> most(kernels.size()), misses(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    KernelLoad& kernel = kernels[i];
    // The fullest SM decides when a wave ends.
    const double per_sm = std::ceil(kernel.blocks / SmsOf(gpu, kernel));
    most[i] = cycles_per_ns / std::max({kernel.issue_cycles * per_sm, kernel.cost->critical_cycles, floor_cycles});
    misses[i] = kernel.cost->memory_bytes * (kernel.cold ? 1 : 1 - WarmHitRatio(*kernel.cost, held));
  }

  std::vector<Demand> issue(kernels.size()), bandwidth(kernels.size() + copies.size());
  const int passes = kernels.size() > 1 ? kPasses : 1;
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t i = 0; i < kernels.size(); ++i) {
      const KernelLoad& kernel = kernels[i];
      issue[i] = {kernel.blocks * Warps(*kernel.cost), kernel.blocks * kernel.issue_cycles * most[i] / cycles_per_ns};
    }
    FillPartitions(gpu, kernels, issue);
    for (size_t i = 0; i < kernels.size(); ++i) {
      KernelLoad& kernel = kernels[i];
      const double work = kernel.blocks * kernel.issue_cycles;
      kernel.rate = work > 0 ? std::min(most[i], issue[i].share * cycles_per_ns / work) : most[i];
      bandwidth[i] = {1, kernel.blocks * kernel.rate * misses[i]};
    }
    for (size_t i = 0; i < copies.size(); ++i) bandwidth[kernels.size() + i] = {1, copies[i].most * copies[i].traffic};
    if (gpu.without_bandwidth) {
      for (Demand& demand : bandwidth) demand.share = std::min(demand.most, dram);
    } else {
      WaterFill(dram, bandwidth);
    }
    for (size_t i = 0; i < kernels.size(); ++i) {
      KernelLoad& kernel = kernels[i];
      const double need = kernel.blocks * misses[i];
      if (need > 0) kernel.rate = std::min(kernel.rate, bandwidth[i].share / need);
      most[i] = need > 0 && bandwidth[i].share < bandwidth[i].most ? kernel.rate : most[i];
      kernel.dram_rate = kernel.rate * need;
      kernel.sm_use = kernel.blocks * kernel.issue_cycles * kernel.rate / cycles_per_ns;
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].rate = std::min(copies[i].most, bandwidth[kernels.size() + i].share / copies[i].traffic);
    }
  }
}

}  // namespace mete::emulator
