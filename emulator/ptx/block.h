// One block while it runs: its warps, its shared memory and its barriers. A single thread uses it; reused for the next
// block of the same launch.
#ifndef METE_EMULATOR_PTX_BLOCK_H_
#define METE_EMULATOR_PTX_BLOCK_H_

#include <cstdint>
#include <vector>

#include "emulator/ptx/warp.h"

namespace mete::emulator::ptx {

inline constexpr uint32_t kBarriers = 16;

enum class BlockStop : uint8_t { kDone, kYield, kFault, kDeadlock };

struct Block {
  RunState* run = nullptr;
  uint64_t index = 0;                // linear
  uint32_t position[3] = {0, 0, 0};  // %ctaid
  std::vector<uint8_t> shared;
  std::vector<Warp> warps;
  uint64_t live_threads = 0;
  uint64_t arrived[kBarriers] = {};
  uint64_t expected[kBarriers] = {};  // 0: every live thread
  uint64_t votes[kBarriers] = {};     // threads that arrived with their predicate set
  uint64_t released = 0;              // barriers released so far: progress
  bool whole = true;                  // false: only some warps run, and barriers do not hold them

  void Start(RunState* state, uint64_t block_index, uint32_t shared_bytes);
  // As Start, but of all its warps only `warp` runs.
  void StartOneWarp(RunState* state, uint64_t block_index, uint32_t shared_bytes, uint32_t warp);
  // Runs until done, or until about `quantum` warp instructions have been issued.
  BlockStop Execute(uint64_t quantum);
  void Arrive(uint32_t barrier, uint64_t threads, uint64_t expected_threads);
  void Vote(uint32_t barrier, uint64_t threads) { votes[barrier] += threads; }  // before Arrive
  void ThreadsExit(uint64_t threads);
  uint64_t CriticalCycles() const;
  uint64_t Instructions() const;  // warp instructions issued

 private:
  void CheckRelease(uint32_t barrier);
  size_t next_ = 0;
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_BLOCK_H_
