// What the engine executes: kernels as costs, copies as bytes, markers as instants. Plain values without pointers: they
// cross process boundaries in a ring. The engine never sees tenant code or data.
#ifndef METE_EMULATOR_ENGINE_WORK_H_
#define METE_EMULATOR_ENGINE_WORK_H_

#include <cstdint>

namespace mete::emulator {

// Instruction classes with a throughput of their own.
enum InstructionClass : uint32_t {
  kAlu = 0,
  kFp32,
  kFp64,
  kSpecial,
  kLoadStore,
  kShared,
  kAtomic,
  kControl,
  kInstructionClasses
};

// What one launch costs, per block (an average over its blocks).
struct KernelCost {
  uint64_t blocks = 1;
  uint32_t threads_per_block = 1;
  uint32_t registers_per_thread = 32;
  uint32_t shared_bytes_per_block = 0;
  uint32_t unbounded = 0;                              // runs until killed
  double warp_instructions[kInstructionClasses] = {};  // per block, by class
  double memory_bytes = 0;                             // global memory traffic per block, before the L2
  double working_set_bytes = 0;                        // distinct bytes the whole launch touches
  double critical_cycles = 0;                          // longest chain of one warp: a block takes at least this
};

enum class WorkKind : uint32_t {
  kKernel = 0,
  kCopyHostToDevice,
  kCopyDeviceToHost,
  kCopyDeviceToDevice,  // also memset
  kMarker,              // done when everything before it in its stream is done: events, host functions
  kWaitFor,             // stream order point: waits until (wait_stream, wait_sequence) is done
};

struct Work {
  WorkKind kind = WorkKind::kMarker;
  uint32_t wait_stream = 0;
  uint64_t wait_sequence = 0;
  uint64_t bytes = 0;  // copies
  KernelCost kernel;   // kernels
};

// The same work with every number in its range (finite, not negative, at least one block …): what a stranger wrote into
// a ring may hold anything. An unknown kind becomes a marker.
Work Sanitized(const Work& work);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_WORK_H_
