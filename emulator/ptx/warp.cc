#include "emulator/ptx/warp.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "emulator/ptx/block.h"
#include "emulator/ptx/handlers.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint32_t kMaximumDepth = 256;         // nested calls
constexpr uint32_t kMaximumLocal = 512 * 1024;  // bytes of local memory per lane, as the hardware's limit
constexpr uint32_t kPatience = 1024;            // backward branches before a waiting group has its turn
constexpr uint64_t kMaximumFrames = 64u << 20;  // bytes of a warp's frames, all calls together

uint32_t LaneMask(uint32_t lanes) { return lanes >= kLanes ? ~0u : (1u << lanes) - 1; }

template <typename T>
void Fill(uint8_t* slot, uint64_t value) {
  T* lanes = reinterpret_cast<T*>(slot);
  for (uint32_t l = 0; l < kLanes; ++l) lanes[l] = static_cast<T>(value);
}

void FillSlot(uint8_t* slot, uint32_t bytes, uint64_t value) {
  if (bytes == 8)
    Fill<uint64_t>(slot, value);
  else if (bytes == 4)
    Fill<uint32_t>(slot, value);
  else
    Fill<uint16_t>(slot, value);
}

uint64_t SpecialValue(const Warp& w, Special special, uint32_t lane) {
  const Launch& launch = *w.run->launch;
  const uint32_t thread = w.index * kLanes + lane;
  const uint32_t x = launch.block[0], y = launch.block[1];
  const uint32_t warps = (x * y * launch.block[2] + kLanes - 1) / kLanes;
  switch (special) {
    case Special::kTidX: return thread % x;
    case Special::kTidY: return thread / x % y;
    case Special::kTidZ: return thread / x / y;
    case Special::kNtidX: return launch.block[0];
    case Special::kNtidY: return launch.block[1];
    case Special::kNtidZ: return launch.block[2];
    case Special::kCtaidX: return w.block->position[0];
    case Special::kCtaidY: return w.block->position[1];
    case Special::kCtaidZ: return w.block->position[2];
    case Special::kNctaidX: return launch.grid[0];
    case Special::kNctaidY: return launch.grid[1];
    case Special::kNctaidZ: return launch.grid[2];
    case Special::kLaneid: return lane;
    case Special::kWarpid: return w.index;
    case Special::kNwarpid: return warps;
    case Special::kWarpSize: return kLanes;
    case Special::kSmid: return w.block->index % std::max(1u, launch.sm_count);
    case Special::kNsmid: return std::max(1u, launch.sm_count);
    case Special::kLanemaskEq: return 1u << lane;
    case Special::kLanemaskLe: return (2u << lane) - 1;
    case Special::kLanemaskLt: return (1u << lane) - 1;
    case Special::kLanemaskGe: return ~((1u << lane) - 1);
    case Special::kLanemaskGt: return ~((2u << lane) - 1);
    case Special::kDynamicSmemSize: return launch.dynamic_shared_bytes;
    case Special::kTotalSmemSize: return w.block->shared.size();
    case Special::kOne: return 1;
    case Special::kZero:
    case Special::kGridid:
    case Special::kSpecials: break;
  }
  return 0;
}

}  // namespace

void FreeDeleter::operator()(uint8_t* p) const { std::free(p); }

FrameMemory AllocateFrame(size_t bytes) {
  const size_t rounded = (bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
  void* memory = std::aligned_alloc(kSlotBytes, rounded);
  if (memory == nullptr) std::abort();
  std::memset(memory, 0, rounded);
  return FrameMemory(static_cast<uint8_t*>(memory));
}

void Warp::PrepareConstants(Frame& f) {
  const Program& program = *f.program;
  const bool again = f.prepared_for == &program;
  for (const Constant& constant : program.constants) {
    uint8_t* slot = f.registers.get() + constant.slot;
    switch (constant.kind) {
      case ConstantKind::kValue:
        if (!again) FillSlot(slot, constant.bytes, constant.value);
        break;
      case ConstantKind::kPredicate:
        if (!again) std::memset(slot, constant.value != 0 ? 0xff : 0, sizeof(uint32_t));
        break;
      case ConstantKind::kGlobal:
        if (!again) FillSlot(slot, constant.bytes, (*run->addresses)[constant.index] + constant.value);
        break;
      case ConstantKind::kShared:
        if (!again) {
          FillSlot(slot, constant.bytes, run->function->program->shared_offsets[constant.index] + constant.value);
        }
        break;
      case ConstantKind::kLocal: FillSlot(slot, constant.bytes, f.local_base + constant.value); break;
      case ConstantKind::kArea:
        FillSlot(slot, constant.bytes, kAreaBit | uint64_t{depth} << kAreaDepthShift | constant.value);
        break;
      case ConstantKind::kSpecial:
        for (uint32_t l = 0; l < kLanes; ++l) {
          const uint64_t value = SpecialValue(*this, static_cast<Special>(constant.index), l);
          std::memcpy(slot + l * constant.bytes, &value, constant.bytes);
        }
        break;
    }
  }
  f.prepared_for = &program;
}

void Warp::Enter(const Program& program, uint32_t lanes) {
  Frame& f = frames[depth];
  if (f.program != &program || f.registers == nullptr) {
    f.program = &program;
    f.prepared_for = nullptr;
    f.registers = AllocateFrame(program.frame_bytes);
  }
  f.ready.assign(program.frame_bytes / kSlotBytes + 1, now);
  f.area_stride = program.area_bytes;
  f.area.assign(size_t{program.area_bytes} * kLanes, 0);
  f.entered = lanes;
  f.group_count = 0;
  f.loops.clear();
  PrepareConstants(f);
  frame = f.registers.get();
  Put(0, lanes);
}

void Warp::Start(Block* owner, RunState* state, uint32_t warp_index, uint32_t lanes) {
  block = owner;
  run = state;
  index = warp_index;
  threads = live = LaneMask(lanes);
  now = 0;
  instructions = 0;
  spin_reads = spin_since = last_clock = 0;
  back_branches = 0;
  done = false;
  classes = state->extrapolate ? own_classes : state->classes;
  std::fill(std::begin(own_classes), std::end(own_classes), 0);
  own_sectors = 0;
  own_lines = 0;
  depth = 0;
  const Program& program = *state->function->program;
  local_stride = std::min(kMaximumLocal, (state->function->local_bytes + 15) / 16 * 16);
  local.assign(size_t{local_stride} * kLanes, 0);
  if (frames.empty()) frames.resize(1);
  frames[0].local_base = 0;
  frames[0].call = nullptr;
  Enter(program, threads);
}

void Warp::Put(uint32_t pc, uint32_t lanes, GroupState state, uint8_t barrier) {
  lanes &= live;
  if (lanes == 0) return;
  Frame& f = Top();
  for (uint32_t i = 0; i < f.group_count; ++i) {
    Group& g = f.groups[i];
    if (g.pc == pc && (g.state == state ? g.barrier == barrier
                                        : g.state != GroupState::kAtBarrier && state != GroupState::kAtBarrier)) {
      // Lanes that come to where others wait for them: all are ready to try again.
      if (g.state != state) g.state = GroupState::kReady;
      g.lanes |= lanes;
      return;
    }
  }
  f.groups[f.group_count++] = Group{pc, lanes, state, barrier};
}

// Picks the next group of the top frame into pc, lanes and limit. False: none is ready.
bool Warp::Schedule(uint32_t* pc, uint32_t* lanes, uint32_t* limit, bool rotate, uint32_t previous, bool* forced) {
  Frame& f = Top();
  *forced = false;
  int best = -1, above = -1, waiting = -1;
  for (uint32_t i = 0; i < f.group_count;) {
    Group& g = f.groups[i];
    g.lanes &= live;
    if (g.lanes == 0) {
      g = f.groups[--f.group_count];
      continue;
    }
    const int n = static_cast<int>(i++);
    if (g.state == GroupState::kAtConverge) waiting = waiting < 0 || f.groups[waiting].pc > g.pc ? n : waiting;
    if (g.state != GroupState::kReady) continue;
    if (best < 0 || f.groups[best].pc > g.pc) best = n;
    if (g.pc > previous && (above < 0 || f.groups[above].pc > g.pc)) above = n;
  }
  if (best < 0 && waiting >= 0) {
    // Nobody else can come: go on with the lanes that are here, as undefined as on hardware, but not for ever.
    best = waiting;
    *forced = true;
  }
  if (best < 0) return false;
  const int chosen = rotate && above >= 0 ? above : best;
  *pc = f.groups[chosen].pc;
  *lanes = f.groups[chosen].lanes;
  f.groups[chosen] = f.groups[--f.group_count];
  for (uint32_t i = 0; i < f.group_count;) {  // released from a barrier beside lanes that were there already
    if (f.groups[i].state == GroupState::kReady && f.groups[i].pc == *pc) {
      *lanes |= f.groups[i].lanes;
      f.groups[i] = f.groups[--f.group_count];
    } else {
      ++i;
    }
  }
  *limit = ~0u;
  if (!rotate) {
    for (uint32_t i = 0; i < f.group_count; ++i) {
      const Group& g = f.groups[i];
      if (g.state != GroupState::kAtBarrier && g.pc > *pc) *limit = std::min(*limit, g.pc);
    }
  }
  return true;
}

void Warp::ReleaseBarrier(uint32_t id, uint64_t at, uint64_t yes, uint64_t all) {
  if (done) return;
  bool held = false;
  for (uint32_t d = 0; d <= depth; ++d) {
    Frame& f = frames[d];
    for (uint32_t i = 0; i < f.group_count; ++i) {
      Group& g = f.groups[i];
      if (g.state != GroupState::kAtBarrier || g.barrier != id) continue;
      g.state = GroupState::kReady;
      held = true;
      const Instruction& in = f.program->code[g.pc - 1];  // the barrier it stands behind
      if (in.count != 0) DeliverReduction(*this, f.registers.get(), in, g.lanes & live, yes, all);
    }
    // Groups that waited at one pc for one barrier were one group; different pcs stay apart until they meet.
  }
  if (held) now = std::max(now, at);
}

bool Warp::PushCall(const Instruction& in, uint32_t function, uint32_t pc, uint32_t lanes) {
  Frame& caller = Top();
  const Call& call = caller.program->calls[in.target];
  const Function& callee = (*run->functions)[function];
  const uint32_t base = caller.local_base + (caller.program->local_bytes + 15) / 16 * 16;
  const uint32_t need = base + (callee.program->local_bytes + 15) / 16 * 16;
  uint64_t frame_bytes = callee.program->frame_bytes;
  for (uint32_t d = 0; d <= depth; ++d) frame_bytes += frames[d].program->frame_bytes;
  if (depth + 1 >= kMaximumDepth || need > kMaximumLocal || frame_bytes > kMaximumFrames) {
    run->Fail(FaultKind::kLaunchFailed, 0, "call of '" + callee.name + "': the thread's stack is full");
    return false;
  }
  if (need > local_stride) {
    std::vector<uint8_t> bigger(size_t{need} * kLanes, 0);
    for (uint32_t l = 0; l < kLanes; ++l) {
      if (local_stride != 0) std::memcpy(&bigger[size_t{l} * need], &local[size_t{l} * local_stride], local_stride);
    }
    local = std::move(bigger);
    local_stride = need;
  }
  if (frames.size() == depth + 1) frames.resize(depth + 2);
  ++depth;
  Frame& from = frames[depth - 1];
  Frame& f = frames[depth];
  f.local_base = base;
  f.call = &call;
  f.return_pc = pc + 1;
  Enter(*callee.program, lanes);
  for (const CallCopy& copy : call.arguments) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      std::memcpy(&f.area[size_t{l} * f.area_stride + copy.to], &from.area[size_t{l} * from.area_stride + copy.from],
                  copy.bytes);
    }
  }
  return true;
}

// Lanes may hold different functions: those of the first lane go now, the others come back to this instruction.
bool Warp::CallThroughAddress(const Instruction& in, uint32_t pc, uint32_t lanes) {
  const uint64_t* addresses = reinterpret_cast<const uint64_t*>(frame + in.a);
  const uint64_t address = addresses[__builtin_ctz(lanes)];
  uint32_t same = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((lanes >> l & 1) != 0 && addresses[l] == address) same |= 1u << l;
  }
  const uint64_t at = (address - kFunctionWindow) / 16 - 1;
  const bool is_function = (address & kWindowMask) == kFunctionWindow && address % 16 == 0 &&
                           at < run->functions->size() && (*run->functions)[at].program != nullptr &&
                           !(*run->functions)[at].is_entry;
  const Call& call = Top().program->calls[in.target];
  if (!is_function || (*run->functions)[at].program->shape != call.shape) {
    run->Fail(FaultKind::kLaunchFailed, address,
              Where(*this, in, same) + ": call of an address that is no function of the prototype's shape");
    return false;
  }
  Put(pc, lanes & ~same);
  return PushCall(in, static_cast<uint32_t>(at), pc, same);
}

bool Warp::BranchByIndex(const Instruction& in, uint32_t lanes) {
  const uint32_t* indices = reinterpret_cast<const uint32_t*>(frame + in.a);
  const uint32_t* list = &Top().program->lists[in.target];
  while (lanes != 0) {
    const uint32_t at = indices[__builtin_ctz(lanes)];
    uint32_t same = 0;
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((lanes >> l & 1) != 0 && indices[l] == at) same |= 1u << l;
    }
    if (at >= static_cast<uint64_t>(in.offset)) {
      run->Fail(FaultKind::kLaunchFailed, 0,
                Where(*this, in, same) + ": branch target " + std::to_string(at) + " of a list of " +
                    std::to_string(in.offset));
      return false;
    }
    Put(list[at], same);
    lanes &= ~same;
  }
  return true;
}

// The top frame has no group left. False: it was the last frame.
bool Warp::PopCall() {
  if (depth == 0) return false;
  const Frame& f = frames[depth];
  Frame& to = frames[depth - 1];
  const uint32_t lanes = f.entered & live;
  for (const CallCopy& copy : f.call->results) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((lanes >> l & 1) == 0) continue;
      std::memcpy(&to.area[size_t{l} * to.area_stride + copy.to], &f.area[size_t{l} * f.area_stride + copy.from],
                  copy.bytes);
    }
  }
  const uint32_t pc = f.return_pc;
  --depth;
  frame = to.registers.get();
  Put(pc, lanes);
  return true;
}

// A spin on the clock should cost the interpreter a few thousand steps, not one per modelled loop: reads that follow
// each other closely take longer and longer, up to 1/256 of the time the spin has lasted.
uint64_t Warp::ReadClock() {
  const uint64_t gap = now - last_clock;
  if (spin_reads != 0 && gap > 4096 + (last_clock - spin_since) / 64) {
    spin_reads = 0;
  }
  if (spin_reads == 0) spin_since = now;
  if (++spin_reads > 64) now += (now - spin_since) / 256;
  last_clock = now;
  return now;
}

WarpStop Warp::Execute(uint64_t quantum) {
  if (done) return WarpStop::kDone;
  uint32_t pc = 0, lanes = 0, limit = 0, previous = 0;
  bool rotate = false, forced = false;
  const uint64_t until = instructions + quantum;
  for (;;) {  // one group after the other
    if (!Schedule(&pc, &lanes, &limit, rotate, previous, &forced)) {
      if (Top().group_count != 0) return WarpStop::kBlocked;
      if (PopCall()) continue;
      done = true;
      return WarpStop::kDone;
    }
    rotate = false;
    Frame& f = Top();
    const Instruction* code = f.program->code.data();
    uint64_t* ready = f.ready.data();
    uint64_t cycle = now;
    uint64_t* counts = classes;
    bool group_here = true;
    while (group_here) {
      if (pc >= limit || instructions >= until) {
        Put(pc, lanes);
        break;
      }
      const Instruction& in = code[pc];
      uint32_t mask = lanes;
      if (in.guard != kZeroSlot) {
        const uint32_t guard = *reinterpret_cast<const uint32_t*>(frame + in.guard);
        mask &= in.guard_negated ? ~guard : guard;
      }
      ++instructions;
      ++counts[in.instruction_class];
      // In-order issue: an instruction waits for its operands; its result is there `latency` later.
      uint64_t issue = cycle + 1;
      issue = std::max(issue, ready[in.a / kSlotBytes]);
      issue = std::max(issue, ready[in.b / kSlotBytes]);
      issue = std::max(issue, ready[in.c / kSlotBytes]);
      issue = std::max(issue, ready[in.guard / kSlotBytes]);
      cycle = issue;
      ready[in.d / kSlotBytes] = issue + in.latency;
      ready[in.d2 / kSlotBytes] = issue + in.latency;
      switch (in.kind) {
        case Kind::kPlain:
          if (mask != 0) {
            now = cycle;
            in.handler(*this, in, mask);
            cycle = now;
          }
          ++pc;
          break;
        case Kind::kMemory:
          if (mask != 0) {
            now = cycle;
            in.handler(*this, in, mask);
            if (run->fault != FaultKind::kNone) return WarpStop::kFault;
          }
          ++pc;
          break;
        case Kind::kBranch: {
          const uint32_t stay = lanes & ~mask;
          if (mask == 0) {
            ++pc;
          } else if (stay == 0) {
            if (run->extrapolate && in.offset != 0) {
              now = cycle;
              AtBackBranch(static_cast<uint32_t>(in.offset - 1), mask);
              cycle = now;
            }
            if (in.target <= pc && ++back_branches >= kPatience) {
              back_branches = 0;
              previous = pc;
              rotate = true;
              pc = in.target;
              Put(pc, lanes);
              group_here = false;
              break;
            }
            pc = in.target;
          } else {
            Put(in.target, mask);
            Put(pc + 1, stay);
            if (in.target <= pc) back_branches += kPatience / 64;
            group_here = false;
            if (back_branches >= kPatience) {
              back_branches = 0;
              previous = pc;
              rotate = true;
            }
          }
          break;
        }
        case Kind::kConverge: {
          now = cycle;
          const uint32_t missing = MissingMembers(*this, in, mask);
          if (missing != 0 && !forced) {
            --instructions;
            --counts[in.instruction_class];
            Put(pc, lanes, GroupState::kAtConverge);
            group_here = false;
            break;
          }
          forced = false;
          if (mask != 0 && in.handler != nullptr) in.handler(*this, in, mask);
          if (run->fault != FaultKind::kNone) return WarpStop::kFault;
          ++pc;
          break;
        }
        case Kind::kBarrier: {
          if (mask == 0) {
            ++pc;
            break;
          }
          const BarrierRequest request = ReadBarrier(*this, in, mask);
          if (run->fault != FaultKind::kNone) return WarpStop::kFault;
          now = cycle;
          if (in.count != 0) {
            const uint32_t p = *reinterpret_cast<const uint32_t*>(frame + in.c);
            const uint32_t holds = ((in.flags & kNegated) != 0 ? ~p : p) & mask;
            block->Vote(request.barrier, static_cast<uint64_t>(__builtin_popcount(holds)));
          }
          if (request.only_arrives) {
            Put(pc + 1, lanes);
          } else {
            Put(pc + 1, mask, GroupState::kAtBarrier, static_cast<uint8_t>(request.barrier));
            Put(pc + 1, lanes & ~mask);
          }
          block->Arrive(request.barrier, static_cast<uint64_t>(__builtin_popcount(mask)), request.expected);
          cycle = now;
          group_here = false;
          break;
        }
        case Kind::kCall:
          if (mask == 0) {
            ++pc;
            break;
          }
          Put(pc + 1, lanes & ~mask);
          now = cycle;
          if (!PushCall(in, f.program->calls[in.target].function, pc, mask)) return WarpStop::kFault;
          group_here = false;
          break;
        case Kind::kCallIndirect:
        case Kind::kBranchIndexed:
          if (mask == 0) {
            ++pc;
            break;
          }
          Put(pc + 1, lanes & ~mask);
          now = cycle;
          if (in.kind == Kind::kBranchIndexed ? !BranchByIndex(in, mask) : !CallThroughAddress(in, pc, mask))
            return WarpStop::kFault;
          group_here = false;
          break;
        case Kind::kReturn:
          Put(pc + 1, lanes & ~mask);
          if (depth == 0 && mask != 0) {
            live &= ~mask;
            now = cycle;
            block->ThreadsExit(static_cast<uint64_t>(__builtin_popcount(mask)));
            cycle = now;
          }
          group_here = false;
          break;
        case Kind::kExit:
          Put(pc + 1, lanes & ~mask);
          if (mask != 0) {
            live &= ~mask;
            now = cycle;
            block->ThreadsExit(static_cast<uint64_t>(__builtin_popcount(mask)));
            cycle = now;
          }
          group_here = false;
          break;
        case Kind::kTrap:
          if (mask != 0) {
            run->Fail(FaultKind::kLaunchFailed, 0, Where(*this, in, mask) + ": trap");
            return WarpStop::kFault;
          }
          ++pc;
          break;
      }
    }
    now = std::max(now, cycle);
    if (instructions >= until) return WarpStop::kYield;
  }
}

}  // namespace mete::emulator::ptx
