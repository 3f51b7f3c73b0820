// cvt. Conversions between 32- and 64-bit types with the default rounding are vector loops; all others go lane by lane:
// read the source, round or clamp, write to the width of the result register. Built with -frounding-math.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "emulator/ptx/half.h"
#include "emulator/ptx/lanes.h"

namespace mete::emulator::ptx {
namespace {

// Float to integer: towards zero, clamped, NaN is 0.
template <typename D, typename S>
D Truncate(S v) {
  if (v != v) return 0;
  constexpr D kLowest = std::numeric_limits<D>::min(), kHighest = std::numeric_limits<D>::max();
  if (v <= static_cast<S>(kLowest)) return kLowest;
  if (v >= static_cast<S>(kHighest)) return kHighest;
  return static_cast<D>(v);
}

template <typename D, typename S>
void RunFast(Warp& w, const Instruction& in, uint32_t m) {
  Map1<D, S>(w, in, m, [](S a) {
    if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>)
      return Truncate<D>(a);
    else
      return static_cast<D>(a);
  });
}

template <typename D>
Handler FastFrom(Type from) {
  switch (from) {
    case Type::kU32: return &RunFast<D, uint32_t>;
    case Type::kS32: return &RunFast<D, int32_t>;
    case Type::kU64: return &RunFast<D, uint64_t>;
    case Type::kS64: return &RunFast<D, int64_t>;
    case Type::kF32: return &RunFast<D, float>;
    case Type::kF64: return &RunFast<D, double>;
    case Type::kU16: return &RunFast<D, uint16_t>;
    case Type::kS16: return &RunFast<D, int16_t>;
    default: return nullptr;
  }
}

uint64_t ReadBits(const uint8_t* slot, uint32_t bytes, uint32_t lane) {
  uint64_t bits = 0;
  std::memcpy(&bits, slot + lane * bytes, bytes);
  return bits;
}

int64_t SignExtend(uint64_t bits, uint32_t bytes) {
  const uint32_t unused = 64 - bytes * 8;
  return static_cast<int64_t>(bits << unused) >> unused;
}

double RealOf(uint64_t bits, Type type) {
  if (type == Type::kF64) {
    double v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
  if (type == Type::kF32) {
    const uint32_t low = static_cast<uint32_t>(bits);
    float v;
    std::memcpy(&v, &low, sizeof v);
    return v;
  }
  const uint16_t narrow = static_cast<uint16_t>(bits);
  return type == Type::kBF16 ? FloatOfBrain(narrow) : FloatOfHalf(narrow);
}

uint64_t IntegerFromReal(double v, Type to) {
  const uint32_t bits = SizeOf(to) * 8;
  if (v != v) return 0;
  v = std::nearbyint(v);
  if (IsSigned(to)) {
    const double limit = std::ldexp(1.0, static_cast<int>(bits) - 1);
    if (v >= limit) return (uint64_t{1} << (bits - 1)) - 1;
    if (v < -limit) return static_cast<uint64_t>(-(int64_t{1} << (bits - 2)) * 2);
    return static_cast<uint64_t>(static_cast<int64_t>(v));
  }
  if (v <= 0) return 0;
  if (v >= std::ldexp(1.0, static_cast<int>(bits))) return ~uint64_t{0} >> (64 - bits);
  return static_cast<uint64_t>(v);
}

uint64_t IntegerFromInteger(uint64_t bits, Type from, Type to, bool saturate) {
  const uint32_t from_size = SizeOf(from), to_size = SizeOf(to);
  const uint64_t value = IsSigned(from)   ? static_cast<uint64_t>(SignExtend(bits, from_size))
                         : from_size == 8 ? bits
                                          : bits & ((uint64_t{1} << from_size * 8) - 1);
  if (!saturate) return value;
  const bool negative = IsSigned(from) && static_cast<int64_t>(value) < 0;
  if (IsSigned(to)) {
    const int64_t highest = static_cast<int64_t>(~uint64_t{0} >> (65 - to_size * 8));
    if (negative) return static_cast<uint64_t>(std::max(static_cast<int64_t>(value), -highest - 1));
    return std::min(value, static_cast<uint64_t>(highest));
  }
  if (negative) return 0;
  return std::min(value, ~uint64_t{0} >> (64 - to_size * 8));
}

uint64_t BitsOfReal(double v, Type to) {
  uint64_t bits = 0;
  if (to == Type::kF64) {
    std::memcpy(&bits, &v, sizeof v);
  } else if (to == Type::kF32) {
    const float f = static_cast<float>(v);
    uint32_t low;
    std::memcpy(&low, &f, sizeof low);
    bits = low;
  } else {
    bits = to == Type::kBF16 ? BrainOfDouble(v) : HalfOfDouble(v);
  }
  return bits;
}

uint64_t RealFromInteger(uint64_t bits, Type from, Type to) {
  const uint64_t value = IntegerFromInteger(bits, from, IsSigned(from) ? Type::kS64 : Type::kU64, false);
  if (to == Type::kF32) {  // straight from the integer: rounded once
    const float f = IsSigned(from) ? static_cast<float>(static_cast<int64_t>(value)) : static_cast<float>(value);
    uint32_t low;
    std::memcpy(&low, &f, sizeof low);
    return low;
  }
  const double d = IsSigned(from) ? static_cast<double>(static_cast<int64_t>(value)) : static_cast<double>(value);
  return BitsOfReal(d, to);
}

double Flushed(double v, Type type) {
  const double smallest = type == Type::kF32 || type == Type::kBF16 ? 0x1p-126 : type == Type::kF16 ? 0x1p-14 : 0;
  return std::fabs(v) < smallest ? std::copysign(0.0, v) : v;
}

void RunSlow(Warp& w, const Instruction& in, uint32_t mask) {
  static constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  const int before = std::fegetround();
  std::fesetround(kModes[in.flags >> kRoundShift & 3]);
  const bool flush = (in.flags & kFlushSubnormals) != 0, saturate = (in.flags & kSaturate) != 0;
  const Type from = in.source_type, to = in.type;
  const uint8_t* a = w.frame + in.a;
  uint8_t* d = w.frame + in.d;
  uint64_t results[kLanes];
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const uint64_t bits = ReadBits(a, in.source_bytes, l);
    uint64_t r;
    if (IsFloat(from)) {
      double v = RealOf(bits, from);
      if (flush) v = Flushed(v, from);
      if (IsFloat(to)) {
        if ((in.flags & kRoundToInteger) != 0) v = std::nearbyint(v);
        if (saturate) v = v != v ? 0 : std::clamp(v, 0.0, 1.0);
        if (flush) v = Flushed(v, to);
        if ((in.flags & kRelu) != 0 && v < 0) v = 0;
        r = BitsOfReal(v, to);
      } else {
        r = IntegerFromReal(v, to);
      }
    } else if (IsFloat(to)) {
      r = RealFromInteger(bits, from, to);
      if (saturate) r = BitsOfReal(std::clamp(RealOf(r, to), 0.0, 1.0), to);
    } else {
      r = IntegerFromInteger(bits, from, to, saturate);
    }
    // A result narrower than its register is extended as its type says.
    const uint32_t size = SizeOf(to);
    if (!IsFloat(to)) {
      r = IsSigned(to) ? static_cast<uint64_t>(SignExtend(r, size))
          : size == 8  ? r
                       : r & ((uint64_t{1} << size * 8) - 1);
    }
    results[l] = r;
  }
  std::fesetround(before);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) != 0) std::memcpy(d + l * in.result_bytes, &results[l], in.result_bytes);
  }
}

// Two floats into a pair: a is the high half, b the low one.
void RunPair(Warp& w, const Instruction& in, uint32_t mask) {
  const int before = std::fegetround();
  if (static_cast<Rounding>(in.flags >> kRoundShift & 3) == Rounding::kZero) std::fesetround(FE_TOWARDZERO);
  const float *a = LanesOf<float>(w, in.a), *b = LanesOf<float>(w, in.b);
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const auto half = [&](float v) -> uint32_t {
      if ((in.flags & kRelu) != 0 && v < 0) v = 0;
      return in.type == Type::kBF16x2 ? BrainOfDouble(v) : HalfOfDouble(v);
    };
    d[l] = half(a[l]) << 16 | half(b[l]);
  }
  std::fesetround(before);
}

// A float with ten bits of mantissa: .rna rounds halves away from zero, .rn to even, .rz cuts.
void RunTensorFloat(Warp& w, const Instruction& in, uint32_t mask) {
  const uint32_t* a = LanesOf<uint32_t>(w, in.a);
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    uint32_t v = a[l];
    const bool finite = (v >> 23 & 0xff) != 0xff;
    if (finite && in.count == 0) v += 0x1000;
    if (finite && in.count == 1) v += 0xfff + (v >> 13 & 1);
    v &= finite || (v & 0x7fffff) == 0 ? 0xffffe000u : 0xffffffffu;
    if ((in.flags & kRelu) != 0 && (v >> 31) != 0) v = 0;
    d[l] = v;
  }
}

// cvt.pack.sat: a and b, each clamped to its field, then c shifted in behind them where there is one.
void RunPackSaturated(Warp& w, const Instruction& in, uint32_t mask) {
  const int32_t *a = LanesOf<int32_t>(w, in.a), *b = LanesOf<int32_t>(w, in.b);
  const uint32_t* c = LanesOf<uint32_t>(w, in.c);
  uint32_t* d = LanesOf<uint32_t>(w, in.d);
  const uint32_t bits = SizeOf(in.type) * 8;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const auto field = [&](int32_t v) {
      const uint64_t r = IntegerFromInteger(static_cast<uint32_t>(v), Type::kS32, in.type, true);
      return static_cast<uint32_t>(r) & ((1u << bits) - 1);
    };
    const uint32_t both = field(a[l]) << bits | field(b[l]);
    d[l] = bits == 16 ? both : c[l] << 16 | both;
  }
}

}  // namespace

Handler ConvertPair() { return &RunPair; }
Handler ConvertTensorFloat() { return &RunTensorFloat; }
Handler PackSaturated() { return &RunPackSaturated; }

Handler Convert(Type to, Type from, uint32_t to_bytes, uint32_t from_bytes, uint8_t flags) {
  const bool natural = SizeOf(to) == to_bytes && SizeOf(from) == from_bytes && SizeOf(from) >= 2;
  const uint8_t rounding = flags >> kRoundShift & 3;
  const bool plain_flags = (flags & (kFlushSubnormals | kSaturate | kRelu | kRoundToInteger)) == 0;
  const bool to_integer = IsFloat(from) && !IsFloat(to);
  const bool default_rounding = rounding == static_cast<uint8_t>(to_integer ? Rounding::kZero : Rounding::kNearest);
  if (natural && plain_flags && default_rounding) {
    Handler fast = nullptr;
    switch (to) {
      case Type::kU16: fast = FastFrom<uint16_t>(from); break;
      case Type::kS16: fast = FastFrom<int16_t>(from); break;
      case Type::kU32: fast = FastFrom<uint32_t>(from); break;
      case Type::kS32: fast = FastFrom<int32_t>(from); break;
      case Type::kU64: fast = FastFrom<uint64_t>(from); break;
      case Type::kS64: fast = FastFrom<int64_t>(from); break;
      case Type::kF32: fast = FastFrom<float>(from); break;
      case Type::kF64: fast = FastFrom<double>(from); break;
      default: break;
    }
    if (fast != nullptr) return fast;
  }
  return &RunSlow;
}

}  // namespace mete::emulator::ptx
