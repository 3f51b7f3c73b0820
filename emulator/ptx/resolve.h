// From a warp's addresses to host pointers, one per active lane: bounds, alignment, faults, and the traffic they cause.
#ifndef METE_EMULATOR_PTX_RESOLVE_H_
#define METE_EMULATOR_PTX_RESOLVE_H_

#include <cstdint>

#include "emulator/ptx/warp.h"

namespace mete::emulator::ptx {

// Fills host[lane] for every lane of the mask. `bytes` is a power of two: the access must be a multiple of it. False:
// the run has faulted, with the address of the first offending lane.
template <Space S>
bool Resolve(Warp& w, const Instruction& in, uint32_t mask, uint32_t bytes, bool write, uint8_t* (&host)[kLanes]);

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_RESOLVE_H_
