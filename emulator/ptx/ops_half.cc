// Arithmetic and comparison of 16-bit floating point: f16 and bf16, one or two of them in a register. Operands are
// exact in double; sums and products round once on the way back. Built with -frounding-math.
#include <cmath>
#include <type_traits>

#include "emulator/ptx/compare.h"
#include "emulator/ptx/half.h"
#include "emulator/ptx/lanes.h"

namespace mete::emulator::ptx {
namespace {

struct HalfFormat {
  static double Read(uint16_t bits) { return FloatOfHalf(bits); }
  static uint16_t Write(double v) { return HalfOfDouble(v); }
  static constexpr double kSmallestNormal = 0x1p-14;
};
struct BrainFormat {
  static double Read(uint16_t bits) { return FloatOfBrain(bits); }
  static uint16_t Write(double v) { return BrainOfDouble(v); }
  static constexpr double kSmallestNormal = 0x1p-126;
};

struct Add {
  static constexpr int kOperands = 2;
  static double Of(double a, double b, double) { return a + b; }
};
struct Sub {
  static constexpr int kOperands = 2;
  static double Of(double a, double b, double) { return a - b; }
};
struct Mul {
  static constexpr int kOperands = 2;
  static double Of(double a, double b, double) { return a * b; }
};
struct Fma {
  static constexpr int kOperands = 3;
  static double Of(double a, double b, double c) { return std::fma(a, b, c); }
};
struct Min {
  static constexpr int kOperands = 2;
  static double Of(double a, double b, double) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Max {
  static constexpr int kOperands = 2;
  static double Of(double a, double b, double) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
struct Neg {
  static constexpr int kOperands = 1;
  static double Of(double a, double, double) { return -a; }
};
struct Abs {
  static constexpr int kOperands = 1;
  static double Of(double a, double, double) { return std::fabs(a); }
};
struct Ex2 {
  static constexpr int kOperands = 1;
  static double Of(double a, double, double) { return std::exp2(a); }
};
struct Tanh {
  static constexpr int kOperands = 1;
  static double Of(double a, double, double) { return std::tanh(a); }
};

template <typename F, typename Format>
uint16_t One(const Instruction& in, uint16_t a, uint16_t b, uint16_t c) {
  double x = Format::Read(a), y = F::kOperands > 1 ? Format::Read(b) : 0, z = F::kOperands > 2 ? Format::Read(c) : 0;
  const bool flush = (in.flags & kFlushSubnormals) != 0;
  const auto flushed = [flush](double v) {
    return flush && std::fabs(v) < Format::kSmallestNormal ? std::copysign(0.0, v) : v;
  };
  x = flushed(x), y = flushed(y), z = flushed(z);
  const bool nan = F::kOperands == 2 && (in.flags & kPropagateNan) != 0 && (x != x || y != y);
  double r = nan ? NAN : flushed(F::Of(x, y, z));
  if ((in.flags & kSaturate) != 0) r = r != r || r < 0 ? 0 : r > 1 ? 1 : r;
  if ((in.flags & kRelu) != 0 && r < 0) r = 0;
  return Format::Write(r);
}

template <typename F, typename Format, typename Register>
void RunHalf(Warp& w, const Instruction& in, uint32_t mask) {
  Register* d = LanesOf<Register>(w, in.d);
  const Register *a = LanesOf<Register>(w, in.a), *b = LanesOf<Register>(w, in.b), *c = LanesOf<Register>(w, in.c);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const Register x = a[l], y = b[l], z = c[l];
    const auto low = [](Register v) { return static_cast<uint16_t>(v); };
    const auto high = [](Register v) { return static_cast<uint16_t>(static_cast<uint32_t>(v) >> 16); };
    uint32_t r = One<F, Format>(in, low(x), low(y), low(z));
    if constexpr (sizeof(Register) == 4) {
      r |= static_cast<uint32_t>(One<F, Format>(in, high(x), high(y), high(z))) << 16;
    }
    d[l] = static_cast<Register>(r);
  }
}

template <typename F>
Handler On(Type type) {
  switch (type) {
    case Type::kF16: return &RunHalf<F, HalfFormat, uint16_t>;
    case Type::kBF16: return &RunHalf<F, BrainFormat, uint16_t>;
    case Type::kF16x2: return &RunHalf<F, HalfFormat, uint32_t>;
    case Type::kBF16x2: return &RunHalf<F, BrainFormat, uint32_t>;
    default: return nullptr;
  }
}

uint32_t Combined(const Instruction& in, uint32_t result, uint32_t c) {
  switch (static_cast<Combine>(in.count)) {
    case Combine::kAnd: return result & c;
    case Combine::kOr: return result | c;
    case Combine::kXor: return result ^ c;
    default: return result;
  }
}

// flags: the comparison. Scalars: d2 is the opposite of d; pairs: d is of the low halves, d2 of the high ones.
template <typename Format, typename Register>
void RunCompareHalf(Warp& w, const Instruction& in, uint32_t mask) {
  const Compare compare = static_cast<Compare>(in.flags & 15);
  const auto read = [&in](uint32_t bits) {
    const double v = Format::Read(static_cast<uint16_t>(bits));
    return (in.flags & 64) != 0 && std::fabs(v) < Format::kSmallestNormal ? 0.0 : v;
  };
  const Register *a = LanesOf<Register>(w, in.a), *b = LanesOf<Register>(w, in.b);
  uint32_t low = 0, high = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint32_t x = a[l], y = b[l];
    if (Holds(compare, read(x), read(y))) low |= kLaneBit[l];
    if (sizeof(Register) == 4 && Holds(compare, read(x >> 16), read(y >> 16))) high |= kLaneBit[l];
  }
  const uint32_t c = PredicateOf(w, in.c);
  const uint32_t second = sizeof(Register) == 4 ? high : ~low;
  SetPredicate(w, in.d, Combined(in, low, c), mask);
  SetPredicate(w, in.d2, Combined(in, second, c), mask);
}

}  // namespace

Handler HalfOperation(std::string_view op, Type type) {
  if (op == "add") return On<Add>(type);
  if (op == "sub") return On<Sub>(type);
  if (op == "mul") return On<Mul>(type);
  if (op == "fma") return On<Fma>(type);
  if (op == "min") return On<Min>(type);
  if (op == "max") return On<Max>(type);
  if (op == "neg") return On<Neg>(type);
  if (op == "abs") return On<Abs>(type);
  if (op == "ex2") return On<Ex2>(type);
  if (op == "tanh") return On<Tanh>(type);
  return nullptr;
}

Handler HalfComparison(Type type) {
  switch (type) {
    case Type::kF16: return &RunCompareHalf<HalfFormat, uint16_t>;
    case Type::kBF16: return &RunCompareHalf<BrainFormat, uint16_t>;
    case Type::kF16x2: return &RunCompareHalf<HalfFormat, uint32_t>;
    case Type::kBF16x2: return &RunCompareHalf<BrainFormat, uint32_t>;
    default: return nullptr;
  }
}

}  // namespace mete::emulator::ptx
