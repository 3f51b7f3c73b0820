// Run: everything when it fits the budget, else a sample; and what became of it as a cost.
//
// Whole: blocks run one after the other; one that does not end soon (it may wait for another block) is set aside while
// the next ones start. Sample: blocks spread over the grid, or, where a single block is already too much, single warps
// of it whose barriers do not hold; counted loops are measured and extrapolated (extrapolate.cc). A warp that exceeds
// warp_limit ends the run as unbounded.
#include <algorithm>
#include <cmath>
#include <memory>

#include "emulator/ptx/block.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint64_t kBlockTurn = 1u << 17;             // warp instructions until the next block has its turn
constexpr size_t kBlocksAtOnce = 4096;                // set aside at most, and
constexpr uint64_t kBytesAtOnce = uint64_t{1} << 30;  // not more than this for them
constexpr uint32_t kMaximumSharedBytes = 256 * 1024;

struct Totals {
  double blocks = 0;  // as many blocks as the sums below stand for
  double critical_cycles = 0;
  double classes[kInstructionClasses] = {};
  double sectors = 0;
};

class Runner {
 public:
  Runner(const Function& f, const Launch& launch, Memory& memory, const Budget& budget)
      : budget_(budget), state_(f, launch, memory) {
    threads_ = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    blocks_ = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    warps_ = (threads_ + kLanes - 1) / kLanes;
    shared_bytes_ = f.static_shared_bytes + launch.dynamic_shared_bytes;
  }

  Outcome Go(bool* ran_whole);
  RunState& state() { return state_; }

 private:
  enum class Stop : uint8_t { kDone, kFault, kUnbounded, kTooMuch, kCancelled };

  uint64_t LaneInstructions() const {
    uint64_t sum = 0;
    for (const uint64_t n : state_.classes) sum += n;
    return sum * kLanes;
  }
  bool Cancelled() const { return state_.cancelled != nullptr && *state_.cancelled; }
  bool ClearlyTooMuch() const;
  Stop RunWhole(Totals* totals);
  Stop RunSample(Totals* totals);
  Stop RunToEnd(Block* block, uint64_t lane_limit);
  void Add(Totals* totals, double blocks, double critical);
  Stop Forgive();
  void Collect(const Block& block);  // what its warps have counted by themselves
  size_t BlocksAtOnce() const;

  const Budget& budget_;
  RunState state_;
  uint64_t threads_ = 0, blocks_ = 0, warps_ = 0;
  uint32_t shared_bytes_ = 0;
};

// Every thread runs at least to the first branch.
bool Runner::ClearlyTooMuch() const {
  uint64_t straight = 1;
  for (const Instruction& in : state_.function->program->code) {
    if (in.kind == Kind::kBranch || in.kind == Kind::kReturn || in.kind == Kind::kExit || in.kind == Kind::kCall) break;
    ++straight;
  }
  const double least =
      static_cast<double>(warps_ * kLanes) * static_cast<double>(blocks_) * static_cast<double>(straight);
  return least > static_cast<double>(budget_.whole_instructions);
}

size_t Runner::BlocksAtOnce() const {
  const Program& program = *state_.function->program;
  const uint64_t warp = program.frame_bytes + program.frame_bytes / kSlotBytes * 8 +
                        (uint64_t{program.area_bytes} + state_.function->local_bytes) * kLanes + sizeof(Warp);
  return static_cast<size_t>(std::clamp<uint64_t>(kBytesAtOnce / (warps_ * warp + shared_bytes_), 1, kBlocksAtOnce));
}

Runner::Stop Runner::RunWhole(Totals* totals) {
  const size_t at_once = BlocksAtOnce();
  std::vector<std::unique_ptr<Block>> running, spare;
  uint64_t next = 0, finished = 0;
  double critical = 0;
  size_t turn = 0;
  while (finished < blocks_) {
    if (Cancelled()) return Stop::kCancelled;
    // A block that was set aside runs again when as many others have been started.
    const bool start = next < blocks_ && (running.empty() || (turn % 2 == 0 && running.size() < at_once));
    ++turn;
    std::unique_ptr<Block> block;
    if (start) {
      if (spare.empty()) {
        block = std::make_unique<Block>();
      } else {
        block = std::move(spare.back());
        spare.pop_back();
      }
      block->Start(&state_, next++, shared_bytes_);
    } else {
      block = std::move(running.front());
      running.erase(running.begin());
    }
    switch (block->Execute(kBlockTurn)) {
      case BlockStop::kFault: return Stop::kFault;
      case BlockStop::kDeadlock: return Stop::kUnbounded;
      case BlockStop::kYield: running.push_back(std::move(block)); break;
      case BlockStop::kDone:
        critical += static_cast<double>(block->CriticalCycles());
        ++finished;
        spare.push_back(std::move(block));
        break;
    }
    const uint64_t so_far = LaneInstructions();
    if (so_far > budget_.whole_instructions) return Stop::kTooMuch;
    if (finished > 0 && running.empty()) {
      const double expected =
          static_cast<double>(so_far) / static_cast<double>(finished) * static_cast<double>(blocks_);
      if (expected > 2.0 * static_cast<double>(budget_.whole_instructions)) return Stop::kTooMuch;
    } else if (finished == 0 && so_far > budget_.sample_instructions &&
               static_cast<double>(so_far) * static_cast<double>(blocks_) / static_cast<double>(next) >
                   8.0 * static_cast<double>(budget_.whole_instructions)) {
      return Stop::kTooMuch;
    }
  }
  Add(totals, static_cast<double>(blocks_), critical);
  return Stop::kDone;
}

Runner::Stop Runner::Forgive() {
  state_.fault = FaultKind::kNone;
  state_.fault_address = 0;
  state_.fault_detail.clear();
  return Stop::kDone;
}

void Runner::Collect(const Block& block) {
  for (const Warp& warp : block.warps) {
    for (uint32_t i = 0; i < kInstructionClasses; ++i) state_.classes[i] += warp.own_classes[i];
  }
}

void Runner::Add(Totals* totals, double blocks, double critical) {
  totals->blocks += blocks;
  totals->critical_cycles += critical;
  for (uint32_t i = 0; i < kInstructionClasses; ++i) totals->classes[i] += static_cast<double>(state_.classes[i]);
  totals->sectors += static_cast<double>(state_.sectors);
  std::fill(std::begin(state_.classes), std::end(state_.classes), 0);
  state_.sectors = 0;
}

Runner::Stop Runner::RunToEnd(Block* block, uint64_t lane_limit) {
  for (;;) {
    if (Cancelled()) return Stop::kCancelled;
    switch (block->Execute(kBlockTurn)) {
      case BlockStop::kDone: return Stop::kDone;
      case BlockStop::kFault: return Stop::kFault;
      case BlockStop::kDeadlock: return Stop::kUnbounded;
      case BlockStop::kYield: break;
    }
    for (const Warp& warp : block->warps) {
      if (warp.instructions * kLanes > budget_.warp_limit) return Stop::kUnbounded;
    }
    if (block->Instructions() * kLanes > lane_limit) return Stop::kTooMuch;
  }
}

Runner::Stop Runner::RunSample(Totals* totals) {
  Block block;
  uint64_t spent = 0;
  bool single_warps = false;
  for (uint64_t n = 0;; ++n) {
    // 0, 1/2, 1/4, 3/4, 1/8 … of the grid, so that however far the budget reaches the sample is spread.
    uint64_t index = 0;
    if (n != 0) {
      double at = 0, step = 0.5;
      for (uint64_t bits = n; bits != 0; bits >>= 1, step /= 2) at += static_cast<double>(bits & 1) * step;
      index = std::min(blocks_ - 1, static_cast<uint64_t>(at * static_cast<double>(blocks_)));
    }
    Stop stop = Stop::kTooMuch;
    std::fill(std::begin(state_.classes), std::end(state_.classes), 0);
    state_.sectors = 0;
    state_.skipped = false;
    if (!single_warps) {
      block.Start(&state_, index, shared_bytes_);
      // A block may take the whole budget, and more where its warps wait for each other: apart they mean little.
      stop = RunToEnd(&block, state_.function->program->synchronises_anywhere
                                  ? std::max(budget_.sample_instructions, budget_.warp_limit / 4)
                                  : budget_.sample_instructions);
      Collect(block);
      // Turns that did not run leave registers behind that no whole run would have: what comes of them proves nothing.
      if (stop == Stop::kFault && state_.skipped) stop = Forgive();
      if (stop == Stop::kDone) {
        spent += block.Instructions() * kLanes;
        Add(totals, 1, static_cast<double>(block.CriticalCycles()));
      } else if (stop == Stop::kTooMuch) {
        single_warps = true;
        std::fill(std::begin(state_.classes), std::end(state_.classes), 0);
        state_.sectors = 0;
      }
    }
    if (single_warps) {
      const uint32_t warp = static_cast<uint32_t>(n * 7 % warps_);
      Block alone;
      alone.StartOneWarp(&state_, index, shared_bytes_, warp);
      stop = RunToEnd(&alone, budget_.warp_limit);
      Collect(alone);
      if (stop == Stop::kTooMuch) stop = Stop::kUnbounded;
      // Without its neighbours a warp reads what nobody has written: its fault proves nothing, its cost something.
      if (stop == Stop::kFault && state_.function->program->synchronises_anywhere) stop = Forgive();
      if (stop == Stop::kFault && state_.skipped) stop = Forgive();
      if (stop == Stop::kDone) {
        spent += alone.Instructions() * kLanes;
        Add(totals, 1.0 / static_cast<double>(warps_),
            static_cast<double>(alone.CriticalCycles()) / static_cast<double>(warps_));
      }
    }
    if (stop != Stop::kDone) return stop;
    if (spent >= budget_.sample_instructions || n + 1 >= blocks_ * (single_warps ? warps_ : 1) || n >= 255)
      return Stop::kDone;
  }
}

Outcome Runner::Go(bool* ran_whole) {
  Outcome out;
  Totals totals;
  Stop stop = ClearlyTooMuch() ? Stop::kTooMuch : RunWhole(&totals);
  *ran_whole = stop != Stop::kTooMuch;
  if (stop == Stop::kTooMuch) {
    totals = Totals();
    state_.lines = LineSet();
    state_.extrapolate = true;
    out.fidelity = Fidelity::kExtrapolated;
    stop = RunSample(&totals);
  }
  out.effect = *ran_whole && stop == Stop::kDone;
  out.fault = state_.fault;
  out.fault_address = state_.fault_address;
  out.fault_detail = state_.fault_detail;
  KernelCost& cost = out.cost;
  cost.blocks = blocks_;
  cost.threads_per_block = static_cast<uint32_t>(threads_);
  cost.registers_per_thread = state_.function->registers;
  cost.shared_bytes_per_block = shared_bytes_;
  if (stop == Stop::kUnbounded || stop == Stop::kCancelled) {
    cost.unbounded = 1;
    out.fidelity = Fidelity::kUnbounded;
  }
  if (totals.blocks == 0) {
    // Ended early by a fault, an endless warp or a wish: what was done stands for what is known.
    Add(&totals, 1, 0);
  }
  for (uint32_t i = 0; i < kInstructionClasses; ++i) cost.warp_instructions[i] = totals.classes[i] / totals.blocks;
  cost.memory_bytes = totals.sectors * 32.0 / totals.blocks;
  cost.critical_cycles = totals.critical_cycles / totals.blocks;
  double working_set = state_.lines.DistinctBytes();
  if (!*ran_whole && totals.sectors > 0) {
    // Blocks of a sample are far apart: their lines are taken to be different, within what the launch can move.
    working_set = std::min(working_set * static_cast<double>(blocks_) / std::max(totals.blocks, 1e-9),
                           cost.memory_bytes * static_cast<double>(blocks_) * 4);
  }
  cost.working_set_bytes = working_set;
  return out;
}

}  // namespace

class Interpreter {
 public:
  static Outcome Run(const Module& module, const Function& function, const Launch& launch, Memory& memory,
                     const Budget& budget, const bool volatile* cancelled) {
    Outcome out;
    const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    const double blocks = static_cast<double>(launch.grid[0]) * launch.grid[1] * launch.grid[2];
    if (function.program == nullptr || !function.is_entry || threads == 0 || threads > 1024 || blocks == 0 ||
        !(launch.clock_hz > 0) || blocks > 9e18 ||
        uint64_t{function.static_shared_bytes} + launch.dynamic_shared_bytes > kMaximumSharedBytes) {
      out.fault = FaultKind::kLaunchFailed;
      out.fault_detail =
          "function '" + function.name + "': not a kernel, or a grid, block, shared size or clock that no GPU has";
      return out;
    }
    Runner runner(function, launch, memory, budget);
    runner.state().functions = &module.functions_;
    runner.state().addresses = module.addresses_.get();
    runner.state().cancelled = cancelled;
    bool whole = false;
    return runner.Go(&whole);
  }
};

Outcome Run(const Module& module, const Function& function, const Launch& launch, Memory& memory, const Budget& budget,
            const bool volatile* cancelled) {
  return Interpreter::Run(module, function, launch, memory, budget, cancelled);
}

std::string CostKey(const Function& function, const Launch& launch) {
  std::string key;
  const auto add = [&key](const void* bytes, size_t size) { key.append(static_cast<const char*>(bytes), size); };
  const void* identity = function.program.get();
  add(&identity, sizeof identity);
  add(launch.grid, sizeof launch.grid);
  add(launch.block, sizeof launch.block);
  add(&launch.dynamic_shared_bytes, sizeof launch.dynamic_shared_bytes);
  if (launch.parameters == nullptr) return key;
  for (const Parameter& p : function.parameters) {
    if (!p.address_only) add(launch.parameters + p.offset, p.size);
  }
  return key;
}

}  // namespace mete::emulator::ptx
