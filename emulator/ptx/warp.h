// One warp while it runs: call frames, diverged groups of lanes, the scoreboard and the path to memory. Belongs to one
// Block of one Run; a single thread uses it.
//
// Divergence: every frame holds groups (pc, lanes). The group with the lowest pc runs until it reaches or passes the
// next group's pc; equal pcs merge. Compilers lay joins behind both branches, so that groups meet there; a group that
// loops for long while others wait is set aside for a while, so that a lock held by another lane is freed in the end.
#ifndef METE_EMULATOR_PTX_WARP_H_
#define METE_EMULATOR_PTX_WARP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/ptx/program.h"

namespace mete::emulator::ptx {

struct Block;
struct RunState;

enum class GroupState : uint8_t { kReady, kAtBarrier, kAtConverge };

struct Group {
  uint32_t pc = 0, lanes = 0;
  GroupState state = GroupState::kReady;
  uint8_t barrier = 0;
};

struct FreeDeleter {
  void operator()(uint8_t* p) const;
};
using FrameMemory = std::unique_ptr<uint8_t[], FreeDeleter>;
FrameMemory AllocateFrame(size_t bytes);  // 64-byte aligned, zeroed

// A counted loop while a sample runs it: what has been counted when its turns began to be measured.
struct LoopRun {
  uint32_t lanes = 0, turns = 0;
  uint64_t expected = 0;  // of the register it counts with, in its first lane, at the next turn
  uint64_t now = 0, sectors = 0;
  double lines = 0;
  uint64_t classes[kInstructionClasses] = {};
};

struct Frame {
  const Program* program = nullptr;
  const Program* prepared_for = nullptr;  // constants in `registers` are this program's
  FrameMemory registers;
  std::vector<uint64_t> ready;  // scoreboard: cycle at which a slot's value is there
  std::vector<uint8_t> area;    // per-lane parameters, lane-major
  uint32_t area_stride = 0;
  uint32_t local_base = 0;
  const Call* call = nullptr;  // how this frame was entered
  uint32_t entered = 0;        // lanes that came in
  uint32_t return_pc = 0;
  Group groups[kLanes];
  uint32_t group_count = 0;
  std::vector<LoopRun> loops;  // by the program's loops, in samples only
};

enum class WarpStop : uint8_t { kDone, kBlocked, kYield, kFault };

struct Warp {
  // What handlers use.
  uint8_t* frame = nullptr;
  uint64_t now = 0;  // cycle of the instruction being issued, from the block's start
  RunState* run = nullptr;
  Block* block = nullptr;
  uint32_t index = 0;          // in its block
  uint32_t live = 0;           // lanes that have not exited
  uint32_t threads = 0;        // lanes that exist
  std::vector<uint8_t> local;  // lane-major, local_stride each
  uint32_t local_stride = 0;
  std::vector<Frame> frames;  // [0, depth]
  uint32_t depth = 0;
  uint64_t instructions = 0;                                // warp instructions issued
  uint64_t spin_reads = 0, spin_since = 0, last_clock = 0;  // clock spins: see ReadClock
  uint32_t back_branches = 0;
  bool done = false;
  // What this warp alone has done. In a sample `classes` is its own, for loops to measure, and the block collects it;
  // else the run's.
  uint64_t* classes = nullptr;
  uint64_t own_classes[kInstructionClasses] = {};
  uint64_t own_sectors = 0;
  double own_lines = 0;

  void Start(Block* owner, RunState* state, uint32_t warp_index, uint32_t lanes);
  WarpStop Execute(uint64_t quantum);
  // yes of all: what a reduction at the barrier gives.
  void ReleaseBarrier(uint32_t id, uint64_t at, uint64_t yes, uint64_t all);
  Frame& Top() { return frames[depth]; }
  uint64_t ReadClock();

 private:
  void Enter(const Program& program, uint32_t lanes);
  bool Schedule(uint32_t* pc, uint32_t* lanes, uint32_t* limit, bool rotate, uint32_t previous, bool* forced);
  void Put(uint32_t pc, uint32_t lanes, GroupState state = GroupState::kReady, uint8_t barrier = 0);
  void PrepareConstants(Frame& f);
  bool PushCall(const Instruction& in, uint32_t function, uint32_t pc, uint32_t lanes);
  bool CallThroughAddress(const Instruction& in, uint32_t pc, uint32_t lanes);
  bool BranchByIndex(const Instruction& in, uint32_t lanes);
  void AtBackBranch(uint32_t loop, uint32_t lanes);  // extrapolate.cc
  bool PopCall();
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_WARP_H_
