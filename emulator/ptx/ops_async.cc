// Asynchronous copies, whose bytes are there at once (PTX allows any time before the wait), and mbarrier objects.
//
// An mbarrier is a 64-bit word in shared memory: bits 0-19 arrivals still missing, 20-39 arrivals of a phase, 40-61
// bytes still expected, 63 the phase's parity. The state that arrive returns is the word as it was. The layout is ours:
// PTX leaves it open.
#include <cstring>

#include "emulator/ptx/lanes.h"
#include "emulator/ptx/resolve.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint64_t kParity = uint64_t{1} << 63;
constexpr uint32_t kCountMask = (1u << 20) - 1, kBytesMask = (1u << 22) - 1;

struct Barrier {
  uint32_t missing, all, bytes;
  bool odd;
};
Barrier Read(const uint8_t* host) {
  uint64_t word;
  std::memcpy(&word, host, sizeof word);
  return {static_cast<uint32_t>(word) & kCountMask, static_cast<uint32_t>(word >> 20) & kCountMask,
          static_cast<uint32_t>(word >> 40) & kBytesMask, (word & kParity) != 0};
}
void Write(uint8_t* host, Barrier b) {
  if (b.missing == 0 && b.bytes == 0 && b.all != 0) b.missing = b.all, b.odd = !b.odd;  // the phase is complete
  const uint64_t word =
      b.missing | static_cast<uint64_t>(b.all) << 20 | static_cast<uint64_t>(b.bytes) << 40 | (b.odd ? kParity : 0);
  std::memcpy(host, &word, sizeof word);
}

bool Hosts(Warp& w, const Instruction& in, uint32_t mask, uint8_t* (&host)[kLanes]) {
  return in.space == Space::kShared ? Resolve<Space::kShared>(w, in, mask, 8, true, host)
                                    : Resolve<Space::kGeneric>(w, in, mask, 8, true, host);
}

// b: a count (or bytes) where the instruction has one, else ones from a constant slot; d: the state.
template <BarrierWord Operation>
void RunBarrierWord(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Hosts(w, in, mask, host)) return;
  const uint32_t* count = LanesOf<uint32_t>(w, in.b);
  uint64_t* d = LanesOf<uint64_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    uint64_t before;
    std::memcpy(&before, host[l], sizeof before);
    Barrier b = Read(host[l]);
    const uint32_t n = count[l];
    const auto arrive = [&](uint32_t arrivals) { b.missing = arrivals > b.missing ? 0 : b.missing - arrivals; };
    switch (Operation) {
      case BarrierWord::kInit: b = {n & kCountMask, n & kCountMask, 0, false}; break;
      case BarrierWord::kInvalidate: b = {0, 0, 0, false}; break;
      case BarrierWord::kArrive: arrive(n); break;
      case BarrierWord::kArriveDrop:
        arrive(n);
        b.all = n > b.all ? 0 : b.all - n;
        break;
      case BarrierWord::kArriveExpect:
        b.bytes = (b.bytes + n) & kBytesMask;
        arrive(1);
        break;
      case BarrierWord::kExpect: b.bytes = (b.bytes + n) & kBytesMask; break;
      case BarrierWord::kComplete: b.bytes = n > b.bytes ? 0 : b.bytes - n; break;
    }
    Write(host[l], b);
    d[l] = before;
  }
}

// d: whether the phase of the state in b (or of the parity in b) is over.
template <bool ByParity>
void RunBarrierTest(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Hosts(w, in, mask, host)) return;
  uint32_t over = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const bool odd =
        ByParity ? (LanesOf<uint32_t>(w, in.b)[l] & 1) != 0 : (LanesOf<uint64_t>(w, in.b)[l] & kParity) != 0;
    if (Read(host[l]).odd != odd) over |= kLaneBit[l];
  }
  SetPredicate(w, in.d, over, mask);
}

void RunPendingCount(Warp& w, const Instruction& in, uint32_t mask) {
  Map1<uint32_t, uint64_t>(w, in, mask, [](uint64_t state) { return static_cast<uint32_t>(state) & kCountMask; });
}

// From global memory at a to shared memory at b: count bytes, of which c come from there and the rest is zero.
void RunCopy(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t *from[kLanes], *to[kLanes];
  Instruction write = in;
  write.a = in.b;
  write.offset = static_cast<int32_t>(in.target);
  write.wide_address = (in.flags & 1) != 0;
  const uint32_t* valid = LanesOf<uint32_t>(w, in.c);
  uint32_t reading = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) != 0 && valid[l] != 0) reading |= kLaneBit[l];
  }
  if (reading != 0 && !Resolve<Space::kGlobal>(w, in, reading, in.count, false, from)) return;
  if (!Resolve<Space::kShared>(w, write, mask, in.count, true, to)) return;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t bytes = valid[l] < in.count ? valid[l] : in.count;
    if (bytes != 0) std::memcpy(to[l], from[l], bytes);
    std::memset(to[l] + bytes, 0, in.count - bytes);
  }
}

}  // namespace

Handler AsyncCopy() { return &RunCopy; }

Handler BarrierWordOperation(BarrierWord operation) {
  switch (operation) {
    case BarrierWord::kInit: return &RunBarrierWord<BarrierWord::kInit>;
    case BarrierWord::kInvalidate: return &RunBarrierWord<BarrierWord::kInvalidate>;
    case BarrierWord::kArrive: return &RunBarrierWord<BarrierWord::kArrive>;
    case BarrierWord::kArriveDrop: return &RunBarrierWord<BarrierWord::kArriveDrop>;
    case BarrierWord::kArriveExpect: return &RunBarrierWord<BarrierWord::kArriveExpect>;
    case BarrierWord::kExpect: return &RunBarrierWord<BarrierWord::kExpect>;
    case BarrierWord::kComplete: return &RunBarrierWord<BarrierWord::kComplete>;
  }
  return nullptr;
}
Handler BarrierWordTest(bool parity) { return parity ? &RunBarrierTest<true> : &RunBarrierTest<false>; }
Handler BarrierPendingCount() { return &RunPendingCount; }

}  // namespace mete::emulator::ptx
