// Integer arithmetic, bits and predicates. Arithmetic is on unsigned values: PTX wraps.
#include <algorithm>
#include <limits>

#include "emulator/ptx/lanes.h"

namespace mete::emulator::ptx {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
struct Twice;
template <>
struct Twice<uint16_t> {
  using type = uint32_t;
};
template <>
struct Twice<int16_t> {
  using type = int32_t;
};
template <>
struct Twice<uint32_t> {
  using type = uint64_t;
};
template <>
struct Twice<int32_t> {
  using type = int64_t;
};
__extension__ using Wide128 = __int128;
__extension__ using UnsignedWide128 = unsigned __int128;
template <>
struct Twice<uint64_t> {
  using type = UnsignedWide128;
};
template <>
struct Twice<int64_t> {
  using type = Wide128;
};
template <typename T>
using Double = typename Twice<T>::type;

template <typename T>
constexpr uint32_t kBits = sizeof(T) * 8;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
};
struct MulLo {
  // Through at least 32 unsigned bits: 16-bit operands would be promoted to int and overflow it.
  template <typename T>
  T operator()(T a, T b) const {
    using U = std::conditional_t<(sizeof(T) < 4), uint32_t, Unsigned<T>>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};
struct MulHi {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>((static_cast<Double<T>>(a) * static_cast<Double<T>>(b)) >> kBits<T>);
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
    }
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
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
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    return a < 0 ? Neg()(a) : a;
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <typename T>
  T operator()(T a) const {
    return a == 0 ? 1 : 0;
  }
};
struct Sad {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(c, a < b ? Sub()(b, a) : Sub()(a, b));
  }
};
struct MadLo {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(MulLo()(a, b), c);
  }
};
struct MadHi {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(MulHi()(a, b), c);
  }
};

template <typename T>
struct ShiftLeft {
  T operator()(T a, uint32_t n) const { return n >= kBits<T> ? T(0) : static_cast<T>(a << n); }
};
template <typename T>
struct ShiftRight {  // signed types fill with the sign
  T operator()(T a, uint32_t n) const {
    return static_cast<T>(a >> std::min(n, kBits<T> - 1) >> (n >= kBits<T> ? 1 : 0));
  }
};

template <typename T, typename F>
void RunShift(Warp& w, const Instruction& in, uint32_t m) {
  Map2<T, T, uint32_t>(w, in, m, F());
}

template <typename T>
void RunMulWide(Warp& w, const Instruction& in, uint32_t m) {
  Map2<Double<T>, T, T>(
      w, in, m, [](T a, T b) { return static_cast<Double<T>>(static_cast<Double<T>>(a) * static_cast<Double<T>>(b)); });
}
template <typename T>
void RunMadWide(Warp& w, const Instruction& in, uint32_t m) {
  using D = Double<T>;
  Map3<D, T, T, D>(w, in, m,
                   [](T a, T b, D c) { return Add()(static_cast<D>(static_cast<D>(a) * static_cast<D>(b)), c); });
}

template <typename F>
Handler BinaryOn(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return &RunBinary<uint16_t, F>;
    case Type::kS16: return &RunBinary<int16_t, F>;
    case Type::kB32:
    case Type::kU32: return &RunBinary<uint32_t, F>;
    case Type::kS32: return &RunBinary<int32_t, F>;
    case Type::kB64:
    case Type::kU64: return &RunBinary<uint64_t, F>;
    case Type::kS64: return &RunBinary<int64_t, F>;
    default: return nullptr;
  }
}
template <typename F>
Handler UnaryOn(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return &RunUnary<uint16_t, F>;
    case Type::kS16: return &RunUnary<int16_t, F>;
    case Type::kB32:
    case Type::kU32: return &RunUnary<uint32_t, F>;
    case Type::kS32: return &RunUnary<int32_t, F>;
    case Type::kB64:
    case Type::kU64: return &RunUnary<uint64_t, F>;
    case Type::kS64: return &RunUnary<int64_t, F>;
    default: return nullptr;
  }
}
template <typename F>
Handler TernaryOn(Type type) {
  switch (type) {
    case Type::kU16: return &RunTernary<uint16_t, F>;
    case Type::kS16: return &RunTernary<int16_t, F>;
    case Type::kU32: return &RunTernary<uint32_t, F>;
    case Type::kS32: return &RunTernary<int32_t, F>;
    case Type::kU64: return &RunTernary<uint64_t, F>;
    case Type::kS64: return &RunTernary<int64_t, F>;
    default: return nullptr;
  }
}

uint32_t ReverseBits(uint32_t v) {
  v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
  v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
  v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(v);
}
uint64_t ReverseBits(uint64_t v) {
  return static_cast<uint64_t>(ReverseBits(static_cast<uint32_t>(v))) << 32 |
         ReverseBits(static_cast<uint32_t>(v >> 32));
}

uint32_t LeadingZeros(uint64_t v) { return v == 0 ? 64 : static_cast<uint32_t>(__builtin_clzll(v)); }

template <typename T>
void RunPopc(Warp& w, const Instruction& in, uint32_t m) {
  Map1<uint32_t, T>(w, in, m, [](T a) { return static_cast<uint32_t>(__builtin_popcountll(a)); });
}
template <typename T>
void RunClz(Warp& w, const Instruction& in, uint32_t m) {
  Map1<uint32_t, T>(w, in, m, [](T a) { return LeadingZeros(a) - (64 - kBits<T>); });
}
template <typename T>
void RunBrev(Warp& w, const Instruction& in, uint32_t m) {
  Map1<T, T>(w, in, m, [](T a) { return ReverseBits(a); });
}
// Position of the highest bit that is not the sign; ~0 if there is none. flags & 1: the shift amount that normalises.
template <typename T>
void RunFindBit(Warp& w, const Instruction& in, uint32_t m) {
  const bool shift = (in.flags & 1) != 0;
  Map1<uint32_t, T>(w, in, m, [shift](T a) {
    const Unsigned<T> v = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
    if (v == 0) return ~0u;
    const uint32_t position = 63 - LeadingZeros(v);
    return shift ? kBits<T> - 1 - position : position;
  });
}

template <typename T>
T BitField(T a, uint32_t position, uint32_t length) {
  position &= 0xff;
  length &= 0xff;
  const uint32_t top = std::min(position + length, kBits<T>);  // one past the last bit that is there
  uint64_t value = 0;
  if (position < top) {
    value = static_cast<uint64_t>(static_cast<Unsigned<T>>(a)) >> position;
    const uint32_t there = top - position;
    if (there < 64) value &= (uint64_t{1} << there) - 1;
  }
  if (std::is_signed_v<T> && length != 0) {
    const uint32_t sign_at = std::min(position + length - 1, kBits<T> - 1);
    const bool negative = (static_cast<uint64_t>(static_cast<Unsigned<T>>(a)) >> sign_at & 1) != 0;
    const uint32_t there = position < top ? top - position : 0;
    if (negative && there < 64) value |= ~uint64_t{0} << there;
  }
  return static_cast<T>(value);
}
template <typename T>
void RunBfe(Warp& w, const Instruction& in, uint32_t m) {
  Map3<T, T, uint32_t, uint32_t>(w, in, m, [](T a, uint32_t b, uint32_t c) { return BitField(a, b, c); });
}
template <typename T>
void RunBfi(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t* length = LanesOf<uint32_t>(w, in.target);
  const T* a = LanesOf<T>(w, in.a);
  const T* b = LanesOf<T>(w, in.b);
  const uint32_t* c = LanesOf<uint32_t>(w, in.c);
  T* d = LanesOf<T>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((m & kLaneBit[l]) == 0) continue;
    const uint32_t position = c[l] & 0xff, count = length[l] & 0xff;
    T field = 0;
    if (position < kBits<T> && count != 0) {
      field = static_cast<T>(count >= kBits<T> ? ~T(0) : (T(1) << count) - 1);
      field = static_cast<T>(field << position);
      d[l] = static_cast<T>((b[l] & ~field) | (static_cast<T>(a[l] << position) & field));
    } else {
      d[l] = b[l];
    }
  }
}

uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (pick & 7))) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
void RunPermute(Warp& w, const Instruction& in, uint32_t m) {
  Map3<uint32_t, uint32_t, uint32_t, uint32_t>(w, in, m, Permute);
}
template <bool Left, bool Wrap>
void RunFunnel(Warp& w, const Instruction& in, uint32_t m) {
  Map3<uint32_t, uint32_t, uint32_t, uint32_t>(w, in, m, [](uint32_t low, uint32_t high, uint32_t n) {
    n = Wrap ? n & 31 : std::min(n, 32u);
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<uint32_t>(Left ? both << n >> 32 : both >> n);
  });
}
void RunLop3(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t table = static_cast<uint32_t>(in.offset);
  Map3<uint32_t, uint32_t, uint32_t, uint32_t>(w, in, m, [table](uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      if ((table >> i & 1) == 0) continue;
      r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
  });
}

template <typename T>
void RunAddSat(Warp& w, const Instruction& in, uint32_t m) {
  Map2<int32_t, int32_t, int32_t>(w, in, m, [](int32_t a, int32_t b) {
    const int64_t exact = T()(static_cast<int64_t>(a), static_cast<int64_t>(b));
    return static_cast<int32_t>(
        std::clamp<int64_t>(exact, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
  });
}

template <typename F>
void RunPredicate2(Warp& w, const Instruction& in, uint32_t m) {
  SetPredicate(w, in.d, F()(PredicateOf(w, in.a), PredicateOf(w, in.b)), m);
}
void RunPredicateNot(Warp& w, const Instruction& in, uint32_t m) { SetPredicate(w, in.d, ~PredicateOf(w, in.a), m); }
void RunPredicateMove(Warp& w, const Instruction& in, uint32_t m) { SetPredicate(w, in.d, PredicateOf(w, in.a), m); }
void RunPredicateSelect(Warp& w, const Instruction& in, uint32_t m) {
  const uint32_t c = PredicateOf(w, in.c);
  SetPredicate(w, in.d, (PredicateOf(w, in.a) & c) | (PredicateOf(w, in.b) & ~c), m);
}

}  // namespace

Handler IntegerUnary(std::string_view op, Type type) {
  if (op == "neg") return IsSigned(type) ? UnaryOn<Neg>(type) : nullptr;
  if (op == "abs") return IsSigned(type) ? UnaryOn<Abs>(type) : nullptr;
  if (op == "not") return IsBits(type) ? UnaryOn<Not>(type) : nullptr;
  if (op == "cnot") return IsBits(type) ? UnaryOn<LogicalNot>(type) : nullptr;
  const bool b32 = type == Type::kB32, b64 = type == Type::kB64;
  if (op == "popc") return b32 ? &RunPopc<uint32_t> : b64 ? &RunPopc<uint64_t> : nullptr;
  if (op == "clz") return b32 ? &RunClz<uint32_t> : b64 ? &RunClz<uint64_t> : nullptr;
  if (op == "brev") return b32 ? &RunBrev<uint32_t> : b64 ? &RunBrev<uint64_t> : nullptr;
  if (op == "bfind") {
    switch (type) {
      case Type::kU32: return &RunFindBit<uint32_t>;
      case Type::kS32: return &RunFindBit<int32_t>;
      case Type::kU64: return &RunFindBit<uint64_t>;
      case Type::kS64: return &RunFindBit<int64_t>;
      default: return nullptr;
    }
  }
  return nullptr;
}

Handler IntegerBinary(std::string_view op, Type type) {
  if (op == "shl" || op == "shr") {
    const bool left = op == "shl";
    if (left && !IsBits(type)) return nullptr;
    switch (type) {
      case Type::kB16:
      case Type::kU16:
        return left ? &RunShift<uint16_t, ShiftLeft<uint16_t>> : &RunShift<uint16_t, ShiftRight<uint16_t>>;
      case Type::kB32:
      case Type::kU32:
        return left ? &RunShift<uint32_t, ShiftLeft<uint32_t>> : &RunShift<uint32_t, ShiftRight<uint32_t>>;
      case Type::kB64:
      case Type::kU64:
        return left ? &RunShift<uint64_t, ShiftLeft<uint64_t>> : &RunShift<uint64_t, ShiftRight<uint64_t>>;
      case Type::kS16: return &RunShift<int16_t, ShiftRight<int16_t>>;
      case Type::kS32: return &RunShift<int32_t, ShiftRight<int32_t>>;
      case Type::kS64: return &RunShift<int64_t, ShiftRight<int64_t>>;
      default: return nullptr;
    }
  }
  if (op == "and" || op == "or" || op == "xor") {
    if (!IsBits(type)) return nullptr;
    return op == "and" ? BinaryOn<And>(type) : op == "or" ? BinaryOn<Or>(type) : BinaryOn<Xor>(type);
  }
  if (IsBits(type)) return nullptr;
  if (op == "add") return BinaryOn<Add>(type);
  if (op == "sub") return BinaryOn<Sub>(type);
  if (op == "mul.lo") return BinaryOn<MulLo>(type);
  if (op == "mul.hi") return BinaryOn<MulHi>(type);
  if (op == "div") return BinaryOn<Div>(type);
  if (op == "rem") return BinaryOn<Rem>(type);
  if (op == "min") return BinaryOn<Min>(type);
  if (op == "max") return BinaryOn<Max>(type);
  if (op == "mul.wide") {
    switch (type) {
      case Type::kU16: return &RunMulWide<uint16_t>;
      case Type::kS16: return &RunMulWide<int16_t>;
      case Type::kU32: return &RunMulWide<uint32_t>;
      case Type::kS32: return &RunMulWide<int32_t>;
      default: return nullptr;
    }
  }
  return nullptr;
}

Handler IntegerTernary(std::string_view op, Type type) {
  if (op == "mad.lo") return TernaryOn<MadLo>(type);
  if (op == "mad.hi") return TernaryOn<MadHi>(type);
  if (op == "sad") return TernaryOn<Sad>(type);
  if (op == "mad.wide") {
    switch (type) {
      case Type::kU16: return &RunMadWide<uint16_t>;
      case Type::kS16: return &RunMadWide<int16_t>;
      case Type::kU32: return &RunMadWide<uint32_t>;
      case Type::kS32: return &RunMadWide<int32_t>;
      default: return nullptr;
    }
  }
  if (op == "bfe") {
    switch (type) {
      case Type::kU32: return &RunBfe<uint32_t>;
      case Type::kS32: return &RunBfe<int32_t>;
      case Type::kU64: return &RunBfe<uint64_t>;
      case Type::kS64: return &RunBfe<int64_t>;
      default: return nullptr;
    }
  }
  if (type != Type::kB32) return nullptr;
  if (op == "prmt") return &RunPermute;
  if (op == "lop3") return &RunLop3;
  if (op == "shf.l.wrap") return &RunFunnel<true, true>;
  if (op == "shf.l.clamp") return &RunFunnel<true, false>;
  if (op == "shf.r.wrap") return &RunFunnel<false, true>;
  if (op == "shf.r.clamp") return &RunFunnel<false, false>;
  return nullptr;
}

Handler IntegerSaturating(std::string_view op) {
  return op == "add" ? &RunAddSat<Add> : op == "sub" ? &RunAddSat<Sub> : nullptr;
}

Handler BitFieldInsert(Type type) {
  return type == Type::kB32 ? &RunBfi<uint32_t> : type == Type::kB64 ? &RunBfi<uint64_t> : nullptr;
}

Handler PredicateLogic(std::string_view op) {
  if (op == "and") return &RunPredicate2<And>;
  if (op == "or") return &RunPredicate2<Or>;
  if (op == "xor") return &RunPredicate2<Xor>;
  if (op == "not") return &RunPredicateNot;
  if (op == "mov") return &RunPredicateMove;
  if (op == "selp") return &RunPredicateSelect;
  return nullptr;
}

}  // namespace mete::emulator::ptx
