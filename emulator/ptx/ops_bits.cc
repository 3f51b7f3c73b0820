// Integer operations beside the plain ones: chains with a carry, 24-bit products, dot products of bytes, bit searches.
#include <algorithm>
#include <cstring>

#include "emulator/ptx/lanes.h"

namespace mete::emulator::ptx {
namespace {

__extension__ using Wide128 = unsigned __int128;
__extension__ using SignedWide128 = __int128;

// The carry is a predicate: read from in.target, written to in.d2.
template <typename T, bool Subtract, bool In, bool Out>
void RunCarry(Warp& w, const Instruction& in, uint32_t mask) {
  const T *a = LanesOf<T>(w, in.a), *b = LanesOf<T>(w, in.b);
  T* d = LanesOf<T>(w, in.d);
  const uint32_t carry = In ? PredicateOf(w, in.target) : 0;
  uint32_t out = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const T c = (carry & kLaneBit[l]) != 0 ? 1 : 0;
    const T x = a[l], y = b[l];
    T r;
    bool over;
    if constexpr (Subtract) {
      r = static_cast<T>(x - y - c);
      over = Wide128{x} < Wide128{y} + c;
    } else {
      r = static_cast<T>(x + y + c);
      over = Wide128{x} + y + c > Wide128{static_cast<T>(~T(0))};
    }
    d[l] = r;
    if (over) out |= kLaneBit[l];
  }
  if (Out) SetPredicate(w, in.d2, out, mask);
}

template <typename T, bool High, bool In, bool Out>
void RunMadCarry(Warp& w, const Instruction& in, uint32_t mask) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 8, SignedWide128, int64_t>,
                                  std::conditional_t<sizeof(T) == 8, Wide128, uint64_t>>;
  using U = std::make_unsigned_t<T>;
  const T *a = LanesOf<T>(w, in.a), *b = LanesOf<T>(w, in.b);
  const U* c = LanesOf<U>(w, in.c);
  U* d = LanesOf<U>(w, in.d);
  const uint32_t carry = In ? PredicateOf(w, in.target) : 0;
  uint32_t out = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const Wide product = static_cast<Wide>(a[l]) * static_cast<Wide>(b[l]);
    const U part = static_cast<U>(High ? product >> (sizeof(T) * 8) : product);
    const Wide128 sum = Wide128{part} + c[l] + ((carry & kLaneBit[l]) != 0 ? 1 : 0);
    d[l] = static_cast<U>(sum);
    if (sum > Wide128{static_cast<U>(~U(0))}) out |= kLaneBit[l];
  }
  if (Out) SetPredicate(w, in.d2, out, mask);
}

template <typename T, bool Subtract>
Handler CarryOn(bool in, bool out) {
  if (in) return out ? &RunCarry<T, Subtract, true, true> : &RunCarry<T, Subtract, true, false>;
  return out ? &RunCarry<T, Subtract, false, true> : nullptr;
}
template <typename T, bool High>
Handler MadCarryOn(bool in, bool out) {
  if (in) return out ? &RunMadCarry<T, High, true, true> : &RunMadCarry<T, High, true, false>;
  return out ? &RunMadCarry<T, High, false, true> : nullptr;
}

// Products of the low 24 bits: the low 32 of them, or bits 16 to 47.
template <typename T, bool High>
T Mul24(T a, T b) {
  const auto low = [](T v) {
    return static_cast<int64_t>(std::is_signed_v<T> ? static_cast<T>(v << 8) >> 8 : v & 0xffffff);
  };
  const int64_t product = low(a) * low(b);
  return static_cast<T>(High ? product >> 16 : product);
}
template <typename T, bool High>
void RunMul24(Warp& w, const Instruction& in, uint32_t m) {
  Map2<T, T, T>(w, in, m, Mul24<T, High>);
}
template <typename T, bool High>
void RunMad24(Warp& w, const Instruction& in, uint32_t m) {
  Map3<T, T, T, T>(w, in, m, [](T a, T b, T c) {
    return static_cast<T>(static_cast<uint32_t>(Mul24<T, High>(a, b)) + static_cast<uint32_t>(c));
  });
}

template <typename T>
int64_t Field(uint32_t v, uint32_t index) {
  T field;
  std::memcpy(&field, reinterpret_cast<const char*>(&v) + index * sizeof field, sizeof field);
  return field;
}
template <typename A, typename B>
void RunDot4(Warp& w, const Instruction& in, uint32_t m) {
  Map3<uint32_t, uint32_t, uint32_t, uint32_t>(w, in, m, [](uint32_t a, uint32_t b, uint32_t c) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < 4; ++i) sum += Field<A>(a, i) * Field<B>(b, i);
    return c + static_cast<uint32_t>(sum);
  });
}
template <typename A, typename B, bool High>
void RunDot2(Warp& w, const Instruction& in, uint32_t m) {
  Map3<uint32_t, uint32_t, uint32_t, uint32_t>(w, in, m, [](uint32_t a, uint32_t b, uint32_t c) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < 2; ++i) sum += Field<A>(a, i) * Field<B>(b, i + (High ? 2 : 0));
    return c + static_cast<uint32_t>(sum);
  });
}

// The offset-th set bit from the base on, upwards (or downwards where it is negative); ~0 where there is none.
uint32_t FindNthSet(uint32_t mask, uint32_t base, int32_t offset) {
  base &= 31;
  if (offset == 0) return (mask >> base & 1) != 0 ? base : ~0u;
  const int32_t step = offset > 0 ? 1 : -1;
  int64_t left = offset > 0 ? offset : -static_cast<int64_t>(offset);
  for (int32_t at = static_cast<int32_t>(base); at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1) != 0 && --left == 0) return static_cast<uint32_t>(at);
  }
  return ~0u;
}
void RunFns(Warp& w, const Instruction& in, uint32_t m) {
  Map3<uint32_t, uint32_t, uint32_t, int32_t>(w, in, m, FindNthSet);
}

// szext: bit b-1 (or zero) fills everything above. flags & 1: wrap the position instead of clamping it.
template <bool Signed>
void RunExtend(Warp& w, const Instruction& in, uint32_t m) {
  const bool wrap = (in.flags & 1) != 0;
  Map2<uint32_t, uint32_t, uint32_t>(w, in, m, [wrap](uint32_t a, uint32_t n) {
    if (wrap) n &= 31;
    if (n >= 32) return a;
    const uint32_t low = (1u << n) - 1;
    if (!Signed || n == 0) return a & low;
    return (a >> (n - 1) & 1) != 0 ? a | ~low : a & low;
  });
}
// bmsk: b ones from bit a on.
void RunMask(Warp& w, const Instruction& in, uint32_t m) {
  const bool wrap = (in.flags & 1) != 0;
  Map2<uint32_t, uint32_t, uint32_t>(w, in, m, [wrap](uint32_t a, uint32_t n) {
    if (wrap) a &= 31, n &= 31;
    if (a >= 32) return 0u;
    return (n >= 32 ? ~0u : (1u << n) - 1) << a;
  });
}

enum class PermuteMode : uint8_t { kForward, kBackward, kReplicate, kEdgeLeft, kEdgeRight, kReplicate16 };
template <PermuteMode Mode>
uint32_t PermuteBy(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  const uint32_t s = selector & 3;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t pick = 0;
    switch (Mode) {
      case PermuteMode::kForward: pick = s + i; break;
      case PermuteMode::kBackward: pick = (s - i) & 7; break;
      case PermuteMode::kReplicate: pick = s; break;
      case PermuteMode::kEdgeLeft: pick = std::max(s, i); break;
      case PermuteMode::kEdgeRight: pick = std::min(s, i); break;
      case PermuteMode::kReplicate16: pick = (s & 1) * 2 + (i & 1); break;
    }
    result |= static_cast<uint32_t>(bytes >> (8 * pick) & 0xff) << (8 * i);
  }
  return result;
}
template <PermuteMode Mode>
void RunPermuteBy(Warp& w, const Instruction& in, uint32_t m) {
  Map3<uint32_t, uint32_t, uint32_t, uint32_t>(w, in, m, PermuteBy<Mode>);
}

template <template <typename, typename> typename Pick>
Handler BySigns(bool a_signed, bool b_signed) {
  if (a_signed) return b_signed ? Pick<int32_t, int32_t>::value : Pick<int32_t, uint32_t>::value;
  return b_signed ? Pick<uint32_t, int32_t>::value : Pick<uint32_t, uint32_t>::value;
}
template <typename A>
using Byte = std::conditional_t<std::is_signed_v<A>, int8_t, uint8_t>;
template <typename A>
using Short = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
template <typename A, typename B>
struct Dot4 {
  static constexpr Handler value = &RunDot4<Byte<A>, Byte<B>>;
};
template <typename A, typename B>
struct Dot2Low {
  static constexpr Handler value = &RunDot2<Short<A>, Byte<B>, false>;
};
template <typename A, typename B>
struct Dot2High {
  static constexpr Handler value = &RunDot2<Short<A>, Byte<B>, true>;
};

}  // namespace

Handler Carry(std::string_view op, Type type, bool high, bool in, bool out) {
  const bool narrow = SizeOf(type) == 4;
  if ((SizeOf(type) != 4 && SizeOf(type) != 8) || IsFloat(type) || IsBits(type) || IsPacked(type)) return nullptr;
  if (op == "add") return narrow ? CarryOn<uint32_t, false>(in, out) : CarryOn<uint64_t, false>(in, out);
  if (op == "sub") return narrow ? CarryOn<uint32_t, true>(in, out) : CarryOn<uint64_t, true>(in, out);
  if (op != "mad") return nullptr;
  switch (type) {
    case Type::kU32: return high ? MadCarryOn<uint32_t, true>(in, out) : MadCarryOn<uint32_t, false>(in, out);
    case Type::kS32: return high ? MadCarryOn<int32_t, true>(in, out) : MadCarryOn<int32_t, false>(in, out);
    case Type::kU64: return high ? MadCarryOn<uint64_t, true>(in, out) : MadCarryOn<uint64_t, false>(in, out);
    case Type::kS64: return high ? MadCarryOn<int64_t, true>(in, out) : MadCarryOn<int64_t, false>(in, out);
    default: return nullptr;
  }
}

Handler Product24(bool add, Type type, bool high) {
  if (type == Type::kU32) {
    if (add) return high ? &RunMad24<uint32_t, true> : &RunMad24<uint32_t, false>;
    return high ? &RunMul24<uint32_t, true> : &RunMul24<uint32_t, false>;
  }
  if (type != Type::kS32) return nullptr;
  if (add) return high ? &RunMad24<int32_t, true> : &RunMad24<int32_t, false>;
  return high ? &RunMul24<int32_t, true> : &RunMul24<int32_t, false>;
}

Handler DotProduct(std::string_view op, Type a, Type b) {
  const bool fits = (a == Type::kU32 || a == Type::kS32) && (b == Type::kU32 || b == Type::kS32);
  if (!fits) return nullptr;
  if (op == "dp4a") return BySigns<Dot4>(IsSigned(a), IsSigned(b));
  if (op == "dp2a.lo") return BySigns<Dot2Low>(IsSigned(a), IsSigned(b));
  return op == "dp2a.hi" ? BySigns<Dot2High>(IsSigned(a), IsSigned(b)) : nullptr;
}

Handler BitSearch(std::string_view op, Type type) {
  if (op == "fns") return type == Type::kB32 ? &RunFns : nullptr;
  if (op == "bmsk") return type == Type::kB32 ? &RunMask : nullptr;
  if (op != "szext") return nullptr;
  return type == Type::kU32 ? &RunExtend<false> : type == Type::kS32 ? &RunExtend<true> : nullptr;
}

Handler PermuteBytes(std::string_view mode) {
  if (mode == ".f4e") return &RunPermuteBy<PermuteMode::kForward>;
  if (mode == ".b4e") return &RunPermuteBy<PermuteMode::kBackward>;
  if (mode == ".rc8") return &RunPermuteBy<PermuteMode::kReplicate>;
  if (mode == ".ecl") return &RunPermuteBy<PermuteMode::kEdgeLeft>;
  if (mode == ".ecr") return &RunPermuteBy<PermuteMode::kEdgeRight>;
  return mode == ".rc16" ? &RunPermuteBy<PermuteMode::kReplicate16> : nullptr;
}

}  // namespace mete::emulator::ptx
