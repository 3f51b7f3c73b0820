// Comparison, selection, moves and packing.
#include <cmath>
#include <cstring>

#include "emulator/ptx/compare.h"
#include "emulator/ptx/lanes.h"

namespace mete::emulator::ptx {
namespace {

template <typename T, typename F>
uint32_t CompareLanes(Warp& w, const Instruction& in, F f) {
  const T* a = LanesOf<T>(w, in.a);
  const T* b = LanesOf<T>(w, in.b);
  uint32_t r = 0;
  for (uint32_t l = 0; l < kLanes; ++l) r |= f(a[l], b[l]) ? kLaneBit[l] : 0;
  return r;
}

void Write(Warp& w, const Instruction& in, uint32_t mask, uint32_t result) {
  uint32_t inverse = ~result;
  if (static_cast<Combine>(in.count) != Combine::kNone) {
    const uint32_t c = PredicateOf(w, in.c);
    switch (static_cast<Combine>(in.count)) {
      case Combine::kAnd: result &= c, inverse &= c; break;
      case Combine::kOr: result |= c, inverse |= c; break;
      default: result ^= c, inverse ^= c; break;
    }
  }
  SetPredicate(w, in.d, result, mask);
  SetPredicate(w, in.d2, inverse, mask);
}

template <typename T, Compare C>
void RunCompare(Warp& w, const Instruction& in, uint32_t mask) {
  Write(w, in, mask, CompareLanes<T>(w, in, [](T a, T b) { return Holds(C, a, b); }));
}

template <Compare C>
void RunCompareFlushed(Warp& w, const Instruction& in, uint32_t mask) {
  const auto flushed = [](float v) { return std::fabs(v) < 0x1p-126f ? 0.0f : v; };
  Write(w, in, mask, CompareLanes<float>(w, in, [&](float a, float b) { return Holds(C, flushed(a), flushed(b)); }));
}

template <Compare C>
Handler On(Type type, bool flush) {
  if (type == Type::kF32 && flush) return &RunCompareFlushed<C>;
  constexpr bool kFloatOnly = C >= Compare::kEqu;
  if (type == Type::kF32) return &RunCompare<float, C>;
  if (type == Type::kF64) return &RunCompare<double, C>;
  if constexpr (kFloatOnly) {
    return nullptr;
  } else {
    if (IsBits(type) && C != Compare::kEq && C != Compare::kNe) return nullptr;
    switch (type) {
      case Type::kB16:
      case Type::kU16: return &RunCompare<uint16_t, C>;
      case Type::kB32:
      case Type::kU32: return &RunCompare<uint32_t, C>;
      case Type::kB64:
      case Type::kU64: return &RunCompare<uint64_t, C>;
      case Type::kS16: return &RunCompare<int16_t, C>;
      case Type::kS32: return &RunCompare<int32_t, C>;
      case Type::kS64: return &RunCompare<int64_t, C>;
      default: return nullptr;
    }
  }
}

template <typename T>
void RunMove(Warp& w, const Instruction& in, uint32_t m) {
  Map1<T, T>(w, in, m, [](T a) { return a; });
}

template <typename T>
void RunSelect(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t c = PredicateOf(w, in.c);
  T* d = LanesOf<T>(w, in.d);
  const T* a = LanesOf<T>(w, in.a);
  const T* b = LanesOf<T>(w, in.b);
  METE_LANES_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const T picked = (c & kLaneBit[l]) != 0 ? a[l] : b[l];
    d[l] = (m & kLaneBit[l]) != 0 ? picked : d[l];
  }
}

template <typename T, typename S>
void RunSelectBySign(Warp& w, const Instruction& in, uint32_t m) {
  Map3<T, T, T, S>(w, in, m, [](T a, T b, S c) { return c >= S(0) ? a : b; });
}

// set: all ones (or 1.0) where the predicate in a holds.
template <typename T>
void RunSet(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t p = PredicateOf(w, in.a);
  T* d = LanesOf<T>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((m & kLaneBit[l]) == 0) continue;
    const bool holds = (p & kLaneBit[l]) != 0;
    if constexpr (std::is_floating_point_v<T>)
      d[l] = holds ? T(1) : T(0);
    else
      d[l] = holds ? static_cast<T>(~T(0)) : T(0);
  }
}

template <uint16_t One>
void RunSetHalf(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t p = PredicateOf(w, in.a);
  uint16_t* d = LanesOf<uint16_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((m & kLaneBit[l]) != 0) d[l] = (p & kLaneBit[l]) != 0 ? One : 0;
  }
}
// set on a pair: both predicates, a of the low half and b of the high one.
template <uint32_t One>
void RunSetPair(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t low = PredicateOf(w, in.a), high = PredicateOf(w, in.b);
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((m & kLaneBit[l]) == 0) continue;
    d[l] = ((low & kLaneBit[l]) != 0 ? One : 0) | ((high & kLaneBit[l]) != 0 ? One << 16 : 0);
  }
}

template <uint32_t Bytes, uint32_t Count>
void RunPack(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t* list = &w.Top().program->lists[in.target];
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((m & kLaneBit[l]) == 0) continue;
    uint8_t value[Bytes * Count];
    for (uint32_t i = 0; i < Count; ++i) std::memcpy(value + i * Bytes, w.frame + list[i] + l * Bytes, Bytes);
    std::memcpy(w.frame + in.d + l * Bytes * Count, value, Bytes * Count);
  }
}
template <uint32_t Bytes, uint32_t Count>
void RunUnpack(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t* list = &w.Top().program->lists[in.target];
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((m & kLaneBit[l]) == 0) continue;
    uint8_t value[Bytes * Count];
    std::memcpy(value, w.frame + in.a + l * Bytes * Count, Bytes * Count);
    for (uint32_t i = 0; i < Count; ++i) std::memcpy(w.frame + list[i] + l * Bytes, value + i * Bytes, Bytes);
  }
}

template <typename T>
void RunToWindow(Warp& w, const Instruction& in, uint32_t m) {
  const uint64_t base = in.space == Space::kShared  ? kSharedWindow
                        : in.space == Space::kLocal ? kLocalWindow
                        : in.space == Space::kParam ? kParamWindow
                                                    : 0;
  Map1<T, T>(w, in, m, [base](T a) { return static_cast<T>(a + base); });
}
template <typename T>
void RunFromWindow(Warp& w, const Instruction& in, uint32_t m) {
  const uint64_t base = in.space == Space::kShared  ? kSharedWindow
                        : in.space == Space::kLocal ? kLocalWindow
                        : in.space == Space::kParam ? kParamWindow
                                                    : 0;
  Map1<T, T>(w, in, m, [base](T a) { return static_cast<T>(a - base); });
}

template <Space S>
void RunIsSpace(Warp& w, const Instruction& in, uint32_t m) {
  const uint64_t* a = LanesOf<uint64_t>(w, in.a);
  uint32_t r = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint64_t window = a[l] & kWindowMask;
    const bool special = window == kSharedWindow || window == kLocalWindow || window == kParamWindow;
    const bool holds = S == Space::kShared  ? window == kSharedWindow
                       : S == Space::kLocal ? window == kLocalWindow
                       : S == Space::kParam ? window == kParamWindow
                                            : !special;
    if (holds) r |= kLaneBit[l];
  }
  SetPredicate(w, in.d, r, m);
}

}  // namespace

Handler Comparison(Compare compare, Type type, bool flush) {
  switch (compare) {
    case Compare::kEq: return On<Compare::kEq>(type, flush);
    case Compare::kNe: return On<Compare::kNe>(type, flush);
    case Compare::kLt: return On<Compare::kLt>(type, flush);
    case Compare::kLe: return On<Compare::kLe>(type, flush);
    case Compare::kGt: return On<Compare::kGt>(type, flush);
    case Compare::kGe: return On<Compare::kGe>(type, flush);
    case Compare::kEqu: return On<Compare::kEqu>(type, flush);
    case Compare::kNeu: return On<Compare::kNeu>(type, flush);
    case Compare::kLtu: return On<Compare::kLtu>(type, flush);
    case Compare::kLeu: return On<Compare::kLeu>(type, flush);
    case Compare::kGtu: return On<Compare::kGtu>(type, flush);
    case Compare::kGeu: return On<Compare::kGeu>(type, flush);
    case Compare::kNum: return On<Compare::kNum>(type, flush);
    case Compare::kNan: return On<Compare::kNan>(type, flush);
  }
  return nullptr;
}

Handler SetFromPredicate(Type type) {
  switch (type) {
    case Type::kU32:
    case Type::kS32: return &RunSet<uint32_t>;
    case Type::kF32: return &RunSet<float>;
    case Type::kF16: return &RunSetHalf<0x3c00>;
    case Type::kBF16: return &RunSetHalf<0x3f80>;
    default: return nullptr;
  }
}

Handler SetPairFromPredicates(Type type) {
  switch (type) {
    case Type::kF16x2: return &RunSetPair<0x3c00>;
    case Type::kBF16x2: return &RunSetPair<0x3f80>;
    case Type::kU32:
    case Type::kS32: return &RunSetPair<0xffff>;
    default: return nullptr;
  }
}

Handler Move(uint32_t bytes) {
  return bytes == 8 ? &RunMove<uint64_t> : bytes == 4 ? &RunMove<uint32_t> : bytes == 2 ? &RunMove<uint16_t> : nullptr;
}
Handler Select(uint32_t bytes) {
  return bytes == 8   ? &RunSelect<uint64_t>
         : bytes == 4 ? &RunSelect<uint32_t>
         : bytes == 2 ? &RunSelect<uint16_t>
                      : nullptr;
}
Handler SelectBySign(Type type, Type selector) {
  const bool real = selector == Type::kF32;
  if (!real && selector != Type::kS32) return nullptr;
  switch (SizeOf(type)) {
    case 2: return real ? &RunSelectBySign<uint16_t, float> : &RunSelectBySign<uint16_t, int32_t>;
    case 4: return real ? &RunSelectBySign<uint32_t, float> : &RunSelectBySign<uint32_t, int32_t>;
    case 8: return real ? &RunSelectBySign<uint64_t, float> : &RunSelectBySign<uint64_t, int32_t>;
    default: return nullptr;
  }
}
Handler Pack(uint32_t bytes, uint32_t count) {
  if (bytes == 2) return count == 2 ? &RunPack<2, 2> : count == 4 ? &RunPack<2, 4> : nullptr;
  return bytes == 4 && count == 2 ? &RunPack<4, 2> : nullptr;
}
Handler Unpack(uint32_t bytes, uint32_t count) {
  if (bytes == 2) return count == 2 ? &RunUnpack<2, 2> : count == 4 ? &RunUnpack<2, 4> : nullptr;
  return bytes == 4 && count == 2 ? &RunUnpack<4, 2> : nullptr;
}
Handler WindowToGeneric(Space, bool to_generic, uint32_t bytes) {
  if (bytes == 4) return to_generic ? &RunToWindow<uint32_t> : &RunFromWindow<uint32_t>;
  return to_generic ? &RunToWindow<uint64_t> : &RunFromWindow<uint64_t>;
}
Handler IsSpace(Space space) {
  switch (space) {
    case Space::kShared: return &RunIsSpace<Space::kShared>;
    case Space::kLocal: return &RunIsSpace<Space::kLocal>;
    case Space::kParam: return &RunIsSpace<Space::kParam>;
    case Space::kGlobal: return &RunIsSpace<Space::kGlobal>;
    default: return nullptr;
  }
}

}  // namespace mete::emulator::ptx
