// What lanes do together, and what they read of time: shuffles, votes, matches, barriers, clocks.
#include <cstdio>

#include "emulator/ptx/block.h"
#include "emulator/ptx/lanes.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

enum class ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

// a value, b lane or distance, c clamp and segment; d result, d2 whether the source was in range.
template <ShuffleMode Mode>
void RunShuffle(Warp& w, const Instruction& in, uint32_t mask) {
  const uint32_t* a = LanesOf<uint32_t>(w, in.a);
  const uint32_t* b = LanesOf<uint32_t>(w, in.b);
  const uint32_t* c = LanesOf<uint32_t>(w, in.c);
  uint32_t result[kLanes] = {}, in_range = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t distance = b[l] & 31, clamp = c[l] & 31, segment = c[l] >> 8 & 31;
    const uint32_t highest = (l & segment) | (clamp & ~segment), lowest = l & segment;
    uint32_t from = 0;
    bool there = false;
    switch (Mode) {
      case ShuffleMode::kUp:
        from = l - distance;
        there = static_cast<int32_t>(from) >= static_cast<int32_t>(highest);
        break;
      case ShuffleMode::kDown:
        from = l + distance;
        there = from <= highest;
        break;
      case ShuffleMode::kButterfly:
        from = l ^ distance;
        there = from <= highest;
        break;
      case ShuffleMode::kIndex:
        from = lowest | (distance & ~segment);
        there = from <= highest;
        break;
    }
    if (!there) from = l;
    result[l] = a[from & 31];
    if (there) in_range |= kLaneBit[l];
  }
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? result[l] : d[l];
  SetPredicate(w, in.d2, in_range, mask);
}

// a predicate (negated by flags & 1), target the slot of the member mask or zero.
uint32_t Voters(Warp& w, const Instruction& in, uint32_t mask, uint32_t lane) {
  return in.target == kZeroSlot ? mask : mask & LanesOf<uint32_t>(w, in.target)[lane];
}

enum class VoteMode : uint8_t { kAll, kAny, kUniform, kBallot };
template <VoteMode Mode>
void RunVote(Warp& w, const Instruction& in, uint32_t mask) {
  const uint32_t p = (in.flags & 1) != 0 ? ~PredicateOf(w, in.a) : PredicateOf(w, in.a);
  uint32_t answer = 0;
  uint32_t ballot[kLanes] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t voters = Voters(w, in, mask, l), yes = p & voters;
    bool holds = false;
    switch (Mode) {
      case VoteMode::kAll: holds = yes == voters; break;
      case VoteMode::kAny: holds = yes != 0; break;
      case VoteMode::kUniform: holds = yes == 0 || yes == voters; break;
      case VoteMode::kBallot: ballot[l] = yes; break;
    }
    if (holds) answer |= kLaneBit[l];
  }
  if (Mode != VoteMode::kBallot) return SetPredicate(w, in.d, answer, mask);
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? ballot[l] : d[l];
}

template <typename T>
void RunMatchAny(Warp& w, const Instruction& in, uint32_t mask) {
  const T* a = LanesOf<T>(w, in.a);
  uint32_t result[kLanes] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t voters = Voters(w, in, mask, l);
    for (uint32_t other = 0; other < kLanes; ++other) {
      if ((voters & kLaneBit[other]) != 0 && a[other] == a[l]) result[l] |= kLaneBit[other];
    }
  }
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? result[l] : d[l];
}

// All voters' lanes where they hold the same value, else none; d2: whether they do.
template <typename T>
void RunMatchAll(Warp& w, const Instruction& in, uint32_t mask) {
  const T* a = LanesOf<T>(w, in.a);
  uint32_t result[kLanes] = {}, same = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t voters = Voters(w, in, mask, l);
    bool equal = true;
    for (uint32_t other = 0; other < kLanes; ++other) equal &= (voters & kLaneBit[other]) == 0 || a[other] == a[l];
    if (!equal) continue;
    result[l] = voters;
    same |= kLaneBit[l];
  }
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? result[l] : d[l];
  SetPredicate(w, in.d2, same, mask);
}

// The lowest lane of the members leads.
void RunElect(Warp& w, const Instruction& in, uint32_t mask) {
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  uint32_t leaders = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t members = Voters(w, in, mask, l);
    const uint32_t leader = members == 0 ? l : static_cast<uint32_t>(__builtin_ctz(members));
    d[l] = leader;
    if (leader == l) leaders |= kLaneBit[l];
  }
  SetPredicate(w, in.d2, leaders, mask);
}

template <typename T, typename F>
void RunReduce(Warp& w, const Instruction& in, uint32_t mask) {
  const T* a = LanesOf<T>(w, in.a);
  T result[kLanes] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint32_t voters = Voters(w, in, mask, l);
    bool first = true;
    for (uint32_t other = 0; other < kLanes; ++other) {
      if ((voters & kLaneBit[other]) == 0) continue;
      result[l] = first ? a[other] : F()(result[l], a[other]);
      first = false;
    }
  }
  T* d = LanesOf<T>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? result[l] : d[l];
}
struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};

uint64_t WallNs(const Warp& w, uint64_t cycles) {
  return w.run->launch->start_ns + static_cast<uint64_t>(static_cast<double>(cycles) * 1e9 / w.run->launch->clock_hz);
}

template <typename T, bool Wall>
void RunClock(Warp& w, const Instruction& in, uint32_t mask) {
  const uint64_t cycles = w.ReadClock();
  const double start = static_cast<double>(w.run->launch->start_ns) * w.run->launch->clock_hz / 1e9;
  const uint64_t value = Wall ? WallNs(w, cycles) : static_cast<uint64_t>(start) + cycles;
  const T narrow = static_cast<T>(in.flags == 1 ? value >> 32 : value);
  T* d = LanesOf<T>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? narrow : d[l];
}

void RunSleep(Warp& w, const Instruction& in, uint32_t mask) {
  const uint32_t* a = LanesOf<uint32_t>(w, in.a);
  uint32_t longest = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) != 0 && a[l] > longest) longest = a[l];
  }
  w.now += static_cast<uint64_t>(static_cast<double>(longest) * w.run->launch->clock_hz / 1e9);
}

void RunActiveMask(Warp& w, const Instruction& in, uint32_t mask) {
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? mask : d[l];
}

}  // namespace

Handler Shuffle(std::string_view mode) {
  if (mode == ".up") return &RunShuffle<ShuffleMode::kUp>;
  if (mode == ".down") return &RunShuffle<ShuffleMode::kDown>;
  if (mode == ".bfly") return &RunShuffle<ShuffleMode::kButterfly>;
  if (mode == ".idx") return &RunShuffle<ShuffleMode::kIndex>;
  return nullptr;
}

Handler Vote(std::string_view mode) {
  if (mode == ".all") return &RunVote<VoteMode::kAll>;
  if (mode == ".any") return &RunVote<VoteMode::kAny>;
  if (mode == ".uni") return &RunVote<VoteMode::kUniform>;
  if (mode == ".ballot") return &RunVote<VoteMode::kBallot>;
  return nullptr;
}

Handler MatchAny(Type t) {
  return t == Type::kB32 ? &RunMatchAny<uint32_t> : t == Type::kB64 ? &RunMatchAny<uint64_t> : nullptr;
}

Handler MatchAll(Type t) {
  return t == Type::kB32 ? &RunMatchAll<uint32_t> : t == Type::kB64 ? &RunMatchAll<uint64_t> : nullptr;
}
Handler Elect() { return &RunElect; }

Handler Reduce(std::string_view op, Type t) {
  if (t == Type::kB32) {
    return op == ".and"   ? &RunReduce<uint32_t, And>
           : op == ".or"  ? &RunReduce<uint32_t, Or>
           : op == ".xor" ? &RunReduce<uint32_t, Xor>
                          : nullptr;
  }
  const bool is_signed = t == Type::kS32;
  if (!is_signed && t != Type::kU32) return nullptr;
  if (op == ".add") return &RunReduce<uint32_t, Add>;
  if (op == ".min") return is_signed ? &RunReduce<int32_t, Min> : &RunReduce<uint32_t, Min>;
  if (op == ".max") return is_signed ? &RunReduce<int32_t, Max> : &RunReduce<uint32_t, Max>;
  return nullptr;
}

Handler ClockRead(uint32_t bytes, bool wall) {
  if (bytes == 8) return wall ? &RunClock<uint64_t, true> : &RunClock<uint64_t, false>;
  return wall ? &RunClock<uint32_t, true> : &RunClock<uint32_t, false>;
}
Handler Sleep() { return &RunSleep; }
Handler ActiveMask() { return &RunActiveMask; }

uint32_t MissingMembers(Warp& w, const Instruction& in, uint32_t mask) {
  if (in.whole_warp) return mask == 0 ? 0 : w.live & ~mask;
  if (in.target == kZeroSlot || mask == 0) return 0;
  const uint32_t* members = LanesOf<uint32_t>(w, in.target);
  uint32_t wanted = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) != 0) wanted |= members[l];
  }
  return wanted & w.live & ~mask;
}

BarrierRequest ReadBarrier(Warp& w, const Instruction& in, uint32_t mask) {
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(mask));
  BarrierRequest request;
  request.barrier = LanesOf<uint32_t>(w, in.a)[first];
  if ((in.flags & kHasCount) != 0) request.expected = LanesOf<uint32_t>(w, in.b)[first];
  request.only_arrives = (in.flags & kOnlyArrives) != 0;
  if (request.barrier >= kBarriers) {
    w.run->Fail(FaultKind::kLaunchFailed, 0,
                Where(w, in, mask) + ": barrier " + std::to_string(request.barrier) + " does not exist (there are 16)");
  }
  return request;
}

void DeliverReduction(Warp& w, uint8_t* frame, const Instruction& in, uint32_t lanes, uint64_t yes, uint64_t all) {
  uint8_t* const before = w.frame;
  w.frame = frame;
  const BarrierReduction reduction = static_cast<BarrierReduction>(in.count);
  if (reduction == BarrierReduction::kCount) {
    uint32_t* d = LanesOf<uint32_t>(w, in.d);
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((lanes & kLaneBit[l]) != 0) d[l] = static_cast<uint32_t>(yes);
    }
  } else {
    const bool holds = reduction == BarrierReduction::kAll ? yes == all : yes != 0;
    SetPredicate(w, in.d, holds ? ~0u : 0, lanes);
  }
  w.frame = before;
}

std::string Where(const Warp& w, const Instruction& in, uint32_t mask) {
  const uint32_t lane = mask == 0 ? 0 : static_cast<uint32_t>(__builtin_ctz(mask));
  const uint32_t thread = w.index * kLanes + lane;
  const Launch& launch = *w.run->launch;
  const uint32_t x = launch.block[0], y = launch.block[1];
  char text[160];
  std::snprintf(text, sizeof text, "', line %u, block (%u,%u,%u), thread (%u,%u,%u)", in.line, w.block->position[0],
                w.block->position[1], w.block->position[2], thread % x, thread / x % y, thread / x / y);
  return "function '" + w.run->function->name + text;
}

}  // namespace mete::emulator::ptx
