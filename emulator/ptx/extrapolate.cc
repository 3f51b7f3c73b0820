// Counted loops in a sample: some turns are measured, most of the rest is skipped. What the registers of the loop step
// by is added as often, the counters grow by what a turn has cost, and the last turns run again as they are. What else
// a turn computes keeps its value: a sample's results are not believed anyway.
#include <algorithm>
#include <cmath>

#include "emulator/ptx/handlers.h"
#include "emulator/ptx/run_state.h"
#include "emulator/ptx/warp.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint32_t kWarmUp = 4, kMeasured = 64, kMeasuredIrregular = 256;
constexpr uint64_t kWorthwhile = 128, kLastTurns = 4;

__extension__ using Wide = __int128;

uint64_t ReadSlot(const uint8_t* frame, uint32_t slot, uint32_t bytes, uint32_t lane) {
  if (bytes == 8) return reinterpret_cast<const uint64_t*>(frame + slot)[lane];
  return reinterpret_cast<const uint32_t*>(frame + slot)[lane];
}

int64_t AsSigned(uint64_t value, uint32_t bytes) {
  return bytes == 8 ? static_cast<int64_t>(value) : static_cast<int32_t>(static_cast<uint32_t>(value));
}

uint64_t Sum(const uint8_t* frame, const std::vector<std::pair<uint32_t, bool>>& amounts, uint32_t bytes,
             uint32_t lane) {
  uint64_t sum = 0;
  for (const auto& [slot, subtracted] : amounts) {
    const uint64_t amount = ReadSlot(frame, slot, bytes, lane);
    sum = subtracted ? sum - amount : sum + amount;
  }
  return sum;
}

// Turns until the comparison fails; 0 where that is not to be said.
uint64_t TurnsLeft(const uint8_t* frame, const Loop& loop, const LoopExit& exit, uint32_t lane) {
  const uint32_t bytes = SizeOf(exit.type);
  const LoopStep& step = loop.steps[exit.step];
  if (bytes != step.bytes) return 0;
  uint64_t bits = ReadSlot(frame, step.slot, bytes, lane) + Sum(frame, exit.offset, bytes, lane);
  const int64_t by = AsSigned(Sum(frame, step.amounts, bytes, lane), bytes);
  const uint64_t bound_bits = ReadSlot(frame, exit.bound, bytes, lane);
  if (bytes == 4) bits &= 0xffffffffu;
  const bool is_signed = IsSigned(exit.type);
  const Wide value = is_signed ? Wide{AsSigned(bits, bytes)} : Wide{bits};
  const Wide bound = is_signed ? Wide{AsSigned(bound_bits, bytes)} : Wide{bound_bits};
  Wide distance = bound - value;
  switch (static_cast<Compare>(exit.compare)) {
    case Compare::kLt: break;
    case Compare::kLe: distance += 1; break;
    case Compare::kGt:
    case Compare::kGe:
      if (by >= 0) return 0;
      distance = value - bound + (static_cast<Compare>(exit.compare) == Compare::kGe ? 1 : 0);
      break;
    case Compare::kNe:
      if (by == 0) return 0;
      if (!is_signed && bytes == 4 && by < 0 && distance > 0) return 0;
      return distance % by == 0 && distance / by > 0 ? static_cast<uint64_t>(distance / by) : 0;
    default: return 0;
  }
  const Wide each = by < 0 ? -Wide{by} : Wide{by};
  const bool down =
      static_cast<Compare>(exit.compare) == Compare::kGt || static_cast<Compare>(exit.compare) == Compare::kGe;
  if (each == 0 || (by < 0) != down || distance <= 0) return 0;
  return static_cast<uint64_t>((distance + each - 1) / each);
}

}  // namespace

void Warp::AtBackBranch(uint32_t which, uint32_t lanes) {
  Frame& f = Top();
  const Loop& loop = f.program->loops[which];
  if (f.loops.size() < f.program->loops.size()) f.loops.resize(f.program->loops.size());
  LoopRun& here = f.loops[which];
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(lanes));
  const LoopStep& step = loop.steps[loop.exits[0].step];
  const uint64_t value = ReadSlot(frame, step.slot, step.bytes, first);
  const uint64_t next = value + Sum(frame, step.amounts, step.bytes, first);
  const bool goes_on =
      here.lanes == lanes && (step.bytes == 4 ? static_cast<uint32_t>(here.expected) == value : here.expected == value);
  here.expected = next;
  here.lanes = lanes;
  here.turns = goes_on ? here.turns + 1 : 0;
  if (here.turns <= kWarmUp) {
    here.now = now;
    std::copy(std::begin(own_classes), std::end(own_classes), here.classes);
    here.sectors = own_sectors;
    here.lines = own_lines;
    return;
  }
  const uint32_t measured = here.turns - kWarmUp;
  if (measured < (loop.irregular ? kMeasuredIrregular : kMeasured)) return;
  uint64_t left = ~uint64_t{0};
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((lanes >> l & 1) == 0) continue;
    for (const LoopExit& exit : loop.exits) left = std::min(left, TurnsLeft(frame, loop, exit, l));
  }
  here.lanes = 0;  // measured anew if there is more to come
  if (left < kWorthwhile) return;
  const uint64_t skipped = left - kLastTurns;
  run->skipped = true;
  const double times = static_cast<double>(skipped) / measured;
  const auto more = [times](uint64_t grown) {
    return static_cast<uint64_t>(std::llround(static_cast<double>(grown) * times));
  };
  for (uint32_t i = 0; i < kInstructionClasses; ++i) own_classes[i] += more(own_classes[i] - here.classes[i]);
  const uint64_t sectors = more(own_sectors - here.sectors);
  own_sectors += sectors;
  run->sectors += sectors;
  const double lines = (own_lines - here.lines) * times;
  own_lines += lines;
  run->lines.AddUnseen(lines);
  const uint64_t cycles = more(now - here.now);
  for (uint64_t& at : f.ready) at = at > now ? at + cycles : at;
  now += cycles;
  for (const LoopStep& s : loop.steps) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((lanes >> l & 1) == 0) continue;
      const uint64_t by = Sum(frame, s.amounts, s.bytes, l) * skipped;
      if (s.bytes == 8)
        reinterpret_cast<uint64_t*>(frame + s.slot)[l] += by;
      else
        reinterpret_cast<uint32_t*>(frame + s.slot)[l] += static_cast<uint32_t>(by);
    }
  }
}

}  // namespace mete::emulator::ptx
