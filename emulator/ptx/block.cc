#include "emulator/ptx/block.h"

#include <algorithm>

#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

uint32_t ThreadsOf(const Launch& launch) { return launch.block[0] * launch.block[1] * launch.block[2]; }
uint32_t LanesOf(uint32_t threads, uint32_t warp) { return std::min(kLanes, threads - warp * kLanes); }

}  // namespace

void Block::Start(RunState* state, uint64_t block_index, uint32_t shared_bytes) {
  run = state;
  index = block_index;
  const Launch& launch = *state->launch;
  position[0] = static_cast<uint32_t>(index % launch.grid[0]);
  position[1] = static_cast<uint32_t>(index / launch.grid[0] % launch.grid[1]);
  position[2] = static_cast<uint32_t>(index / launch.grid[0] / launch.grid[1]);
  shared.assign(shared_bytes, 0);
  std::fill(std::begin(arrived), std::end(arrived), 0);
  std::fill(std::begin(expected), std::end(expected), 0);
  std::fill(std::begin(votes), std::end(votes), 0);
  live_threads = ThreadsOf(launch);
  released = 0;
  next_ = 0;
  whole = true;
  warps.resize((live_threads + kLanes - 1) / kLanes);
  for (uint32_t i = 0; i < warps.size(); ++i) {
    warps[i].Start(this, state, i, LanesOf(static_cast<uint32_t>(live_threads), i));
  }
}

void Block::StartOneWarp(RunState* state, uint64_t block_index, uint32_t shared_bytes, uint32_t warp) {
  run = state;
  index = block_index;
  const Launch& launch = *state->launch;
  position[0] = static_cast<uint32_t>(index % launch.grid[0]);
  position[1] = static_cast<uint32_t>(index / launch.grid[0] % launch.grid[1]);
  position[2] = static_cast<uint32_t>(index / launch.grid[0] / launch.grid[1]);
  shared.assign(shared_bytes, 0);
  std::fill(std::begin(arrived), std::end(arrived), 0);
  std::fill(std::begin(expected), std::end(expected), 0);
  std::fill(std::begin(votes), std::end(votes), 0);
  const uint32_t threads = ThreadsOf(launch);
  live_threads = LanesOf(threads, warp);
  released = 0;
  next_ = 0;
  whole = false;
  warps.resize(1);
  warps[0].Start(this, state, warp, static_cast<uint32_t>(live_threads));
}

BlockStop Block::Execute(uint64_t quantum) {
  constexpr uint64_t kTurn = 16384;  // warp instructions until the next warp has its turn: a spin on a neighbour ends
  uint64_t executed = 0;
  for (;;) {
    bool any_left = false, progress = false;
    for (size_t n = 0; n < warps.size(); ++n) {
      Warp& warp = warps[next_];
      next_ = next_ + 1 == warps.size() ? 0 : next_ + 1;
      if (warp.done) continue;
      const uint64_t before = warp.instructions, released_before = released;
      const WarpStop stop = warp.Execute(kTurn);
      if (stop == WarpStop::kFault) return BlockStop::kFault;
      progress |= warp.instructions != before || released != released_before || stop == WarpStop::kDone;
      any_left |= stop != WarpStop::kDone;
      // Whether its turn was over or it waits: warps that only ever wait for each other's barriers end no turn.
      executed += warp.instructions - before;
      if (stop != WarpStop::kDone && executed >= quantum) return BlockStop::kYield;
    }
    if (!any_left) return BlockStop::kDone;
    if (!progress) return BlockStop::kDeadlock;
    if (run->cancelled != nullptr && *run->cancelled) return BlockStop::kYield;
  }
}

void Block::Arrive(uint32_t barrier, uint64_t threads, uint64_t expected_threads) {
  arrived[barrier] += threads;
  expected[barrier] = expected_threads;
  CheckRelease(barrier);
}

void Block::ThreadsExit(uint64_t threads) {
  live_threads -= threads;
  for (uint32_t i = 0; i < kBarriers; ++i) {
    if (arrived[i] != 0) CheckRelease(i);
  }
}

void Block::CheckRelease(uint32_t barrier) {
  const uint64_t needed = expected[barrier] != 0 && whole ? expected[barrier] : live_threads;
  if (arrived[barrier] < needed) return;
  const uint64_t all = arrived[barrier], yes = votes[barrier];
  arrived[barrier] = 0;
  expected[barrier] = 0;
  votes[barrier] = 0;
  ++released;
  uint64_t at = 0;
  for (const Warp& warp : warps) at = std::max(at, warp.now);
  for (Warp& warp : warps) warp.ReleaseBarrier(barrier, at, yes, all);
}

uint64_t Block::CriticalCycles() const {
  uint64_t longest = 0;
  for (const Warp& warp : warps) longest = std::max(longest, warp.now);
  return longest;
}

uint64_t Block::Instructions() const {
  uint64_t sum = 0;
  for (const Warp& warp : warps) sum += warp.instructions;
  return sum;
}

}  // namespace mete::emulator::ptx
