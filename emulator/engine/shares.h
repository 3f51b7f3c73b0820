// How the kernels and copies that are resident at one moment share a GPU: occupancy, L2 hits, issue slots, DRAM
// bandwidth. Pure functions of values; any thread. Rates are per nanosecond.
#ifndef METE_EMULATOR_ENGINE_SHARES_H_
#define METE_EMULATOR_ENGINE_SHARES_H_

#include <cstdint>
#include <vector>

#include "emulator/engine/model.h"

namespace mete::emulator {

// Blocks of this kernel that fit on one SM, by threads, registers, shared memory and block slots. At least 1.
uint32_t ResidentBlocksPerSm(const GpuParameters& gpu, const KernelCost& kernel);
// SM cycles that one block needs when it has an SM's issue slots and L2 port for itself.
double IssueCycles(const GpuParameters& gpu, const KernelCost& kernel);
// Bytes of one block that a context switch has to save or restore.
double StateBytes(const KernelCost& kernel);

// One consumer of a shared resource.
struct Demand {
  double weight = 1;
  double most = 0;   // it cannot use more
  double share = 0;  // result
};
// Weighted max-min: nobody gets more than it can use, what one leaves goes to the others by weight.
void WaterFill(double capacity, std::vector<Demand>& demands);

struct KernelLoad {
  const KernelCost* cost = nullptr;
  double issue_cycles = 0;  // of IssueCycles
  double blocks = 0;        // resident now
  bool cold = false;        // its working set is not in the L2 yet: every access misses
  double sms = 0;           // that it may use; 0: the GPU's
  uint32_t partition = 0;   // kernels of one share its SMs; they follow each other in the list
  // Results.
  double rate = 0;       // of each block, in blocks per ns: a block takes 1 / rate
  double dram_rate = 0;  // bytes per ns, of all its blocks
  double sm_use = 0;     // SMs' worth of issue slots in use
};
struct CopyLoad {
  double most = 0;     // bytes per ns its engine can move
  double traffic = 1;  // DRAM bytes per byte copied
  double rate = 0;     // result: bytes per ns
};
// Fills in the results. `gpu`: with the bandwidth and the L2 of the instance that all of them are in.
void ShareOut(const GpuParameters& gpu, std::vector<KernelLoad>& kernels, std::vector<CopyLoad>& copies);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_SHARES_H_
