// Floating point. The plain forms (round to nearest, subnormals kept) are vector loops; anything with a modifier goes
// lane by lane through FloatModified, under the rounding mode it names. This file is built with -frounding-math.
#include <cfenv>
#include <cmath>
#include <limits>

#include "emulator/ptx/lanes.h"

namespace mete::emulator::ptx {
namespace {

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
// A NaN gives way to a number, and -0 is less than +0.
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
struct CopySign {
  template <typename T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return -a;
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct Sqrt {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Rcp {
  template <typename T>
  T operator()(T a) const {
    return T(1) / a;
  }
};
struct Rsqrt {
  template <typename T>
  T operator()(T a) const {
    return T(1) / std::sqrt(a);
  }
};
struct Sin {
  template <typename T>
  T operator()(T a) const {
    return std::sin(a);
  }
};
struct Cos {
  template <typename T>
  T operator()(T a) const {
    return std::cos(a);
  }
};
struct Lg2 {
  template <typename T>
  T operator()(T a) const {
    return std::log2(a);
  }
};
struct Ex2 {
  template <typename T>
  T operator()(T a) const {
    return std::exp2(a);
  }
};
struct Tanh {
  template <typename T>
  T operator()(T a) const {
    return std::tanh(a);
  }
};
struct Fma {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};

#if defined(__x86_64__)
template <typename T>
__attribute__((target("avx2,fma"))) void RunFmaHardware(Warp& w, const Instruction& in, uint32_t mask) {
  T* d = LanesOf<T>(w, in.d);
  const T* a = LanesOf<T>(w, in.a);
  const T* b = LanesOf<T>(w, in.b);
  const T* c = LanesOf<T>(w, in.c);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if constexpr (sizeof(T) == 4) {
      const T r = __builtin_fmaf(a[l], b[l], c[l]);
      if ((mask >> l & 1) != 0) d[l] = r;
    } else {
      const T r = __builtin_fma(a[l], b[l], c[l]);
      if ((mask >> l & 1) != 0) d[l] = r;
    }
  }
}
template <typename T>
__attribute__((target("avx2,fma"))) void RunFmaHardwareFull(Warp& w, const Instruction& in, uint32_t mask) {
  if (mask != ~0u) return RunFmaHardware<T>(w, in, mask);
  T* d = LanesOf<T>(w, in.d);
  const T* a = LanesOf<T>(w, in.a);
  const T* b = LanesOf<T>(w, in.b);
  const T* c = LanesOf<T>(w, in.c);
  METE_LANES_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    if constexpr (sizeof(T) == 4)
      d[l] = __builtin_fmaf(a[l], b[l], c[l]);
    else
      d[l] = __builtin_fma(a[l], b[l], c[l]);
  }
}
#endif

template <typename T>
Handler FmaOn() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) return &RunFmaHardwareFull<T>;
#endif
  return &RunTernary<T, Fma>;
}

class RoundingScope {
 public:
  explicit RoundingScope(Rounding mode) : before_(std::fegetround()) {
    static constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[static_cast<int>(mode)]);
  }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

template <typename T>
T Flush(T v) {
  return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(T(0), v) : v;
}
template <typename T>
T Saturate(T v) {
  return v != v ? T(0) : v < T(0) ? T(0) : v > T(1) ? T(1) : v;
}

// Operand count by functor: 1, 2 or 3.
template <typename T, typename F, int Operands>
void RunModified(Warp& w, const Instruction& in, uint32_t mask) {
  const bool flush = (in.flags & kFlushSubnormals) != 0, saturate = (in.flags & kSaturate) != 0;
  const bool nan = (in.flags & kPropagateNan) != 0;
  const RoundingScope scope(static_cast<Rounding>(in.flags >> kRoundShift & 3));
  T* d = LanesOf<T>(w, in.d);
  const T* a = LanesOf<T>(w, in.a);
  const T* b = LanesOf<T>(w, in.b);
  const T* c = LanesOf<T>(w, in.c);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    T x = a[l], y = b[l], z = c[l], r;
    if (flush) x = Flush(x), y = Flush(y), z = Flush(z);
    if constexpr (Operands == 1)
      r = F()(x);
    else if constexpr (Operands == 2)
      r = F()(x, y);
    else
      r = F()(x, y, z);
    if (flush) r = Flush(r);
    if (saturate) r = Saturate(r);
    if (Operands == 2 && nan && (x != x || y != y)) r = std::numeric_limits<T>::quiet_NaN();
    d[l] = r;
  }
}

template <typename F, int Operands>
Handler ModifiedOn(Type type) {
  if (type == Type::kF32) return &RunModified<float, F, Operands>;
  if (type == Type::kF64) return &RunModified<double, F, Operands>;
  return nullptr;
}

template <typename F>
Handler UnaryOn(Type t) {
  return t == Type::kF32 ? &RunUnary<float, F> : t == Type::kF64 ? &RunUnary<double, F> : nullptr;
}
template <typename F>
Handler BinaryOn(Type t) {
  return t == Type::kF32 ? &RunBinary<float, F> : t == Type::kF64 ? &RunBinary<double, F> : nullptr;
}

enum class Property : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
template <typename T, Property P>
void RunTest(Warp& w, const Instruction& in, uint32_t mask) {
  const T* a = LanesOf<T>(w, in.a);
  uint32_t r = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    bool holds = false;
    switch (P) {
      case Property::kFinite: holds = std::isfinite(a[l]); break;
      case Property::kInfinite: holds = std::isinf(a[l]); break;
      case Property::kNumber: holds = !std::isnan(a[l]); break;
      case Property::kNotANumber: holds = std::isnan(a[l]); break;
      case Property::kNormal: holds = std::isnormal(a[l]); break;
      case Property::kSubnormal: holds = std::fpclassify(a[l]) == FP_SUBNORMAL; break;
    }
    if (holds) r |= kLaneBit[l];
  }
  SetPredicate(w, in.d, r, mask);
}

}  // namespace

Handler FloatUnary(std::string_view op, Type t) {
  if (IsHalf(t)) return HalfOperation(op, t);
  if (op == "neg") return UnaryOn<Neg>(t);
  if (op == "abs") return UnaryOn<Abs>(t);
  if (op == "sqrt") return UnaryOn<Sqrt>(t);
  if (op == "rcp") return UnaryOn<Rcp>(t);
  if (op == "rsqrt") return UnaryOn<Rsqrt>(t);
  if (t != Type::kF32) return nullptr;
  if (op == "sin") return &RunUnary<float, Sin>;
  if (op == "cos") return &RunUnary<float, Cos>;
  if (op == "lg2") return &RunUnary<float, Lg2>;
  if (op == "ex2") return &RunUnary<float, Ex2>;
  if (op == "tanh") return &RunUnary<float, Tanh>;
  return nullptr;
}

Handler FloatBinary(std::string_view op, Type t) {
  if (IsHalf(t)) return HalfOperation(op, t);
  if (op == "add") return BinaryOn<Add>(t);
  if (op == "sub") return BinaryOn<Sub>(t);
  if (op == "mul") return BinaryOn<Mul>(t);
  if (op == "div") return BinaryOn<Div>(t);
  if (op == "min") return BinaryOn<Min>(t);
  if (op == "max") return BinaryOn<Max>(t);
  if (op == "copysign") return BinaryOn<CopySign>(t);
  return nullptr;
}

Handler FloatTernary(std::string_view op, Type t) {
  if (op != "fma" && op != "mad") return nullptr;
  if (IsHalf(t)) return HalfOperation(op, t);
  return t == Type::kF32 ? FmaOn<float>() : t == Type::kF64 ? FmaOn<double>() : nullptr;
}

Handler FloatModified(std::string_view op, Type t) {
  if (IsHalf(t)) return HalfOperation(op, t);
  if (op == "add") return ModifiedOn<Add, 2>(t);
  if (op == "sub") return ModifiedOn<Sub, 2>(t);
  if (op == "mul") return ModifiedOn<Mul, 2>(t);
  if (op == "div") return ModifiedOn<Div, 2>(t);
  if (op == "min") return ModifiedOn<Min, 2>(t);
  if (op == "max") return ModifiedOn<Max, 2>(t);
  if (op == "fma" || op == "mad") return ModifiedOn<Fma, 3>(t);
  if (op == "neg") return ModifiedOn<Neg, 1>(t);
  if (op == "abs") return ModifiedOn<Abs, 1>(t);
  if (op == "sqrt") return ModifiedOn<Sqrt, 1>(t);
  if (op == "rcp") return ModifiedOn<Rcp, 1>(t);
  if (op == "rsqrt") return ModifiedOn<Rsqrt, 1>(t);
  if (t != Type::kF32) return nullptr;
  if (op == "sin") return &RunModified<float, Sin, 1>;
  if (op == "cos") return &RunModified<float, Cos, 1>;
  if (op == "lg2") return &RunModified<float, Lg2, 1>;
  if (op == "ex2") return &RunModified<float, Ex2, 1>;
  if (op == "tanh") return &RunModified<float, Tanh, 1>;
  return nullptr;
}

Handler TestProperty(std::string_view p, Type t) {
  const bool wide = t == Type::kF64;
  if (t != Type::kF32 && !wide) return nullptr;
  if (p == ".finite") return wide ? &RunTest<double, Property::kFinite> : &RunTest<float, Property::kFinite>;
  if (p == ".infinite") return wide ? &RunTest<double, Property::kInfinite> : &RunTest<float, Property::kInfinite>;
  if (p == ".number") return wide ? &RunTest<double, Property::kNumber> : &RunTest<float, Property::kNumber>;
  if (p == ".notanumber")
    return wide ? &RunTest<double, Property::kNotANumber> : &RunTest<float, Property::kNotANumber>;
  if (p == ".normal") return wide ? &RunTest<double, Property::kNormal> : &RunTest<float, Property::kNormal>;
  if (p == ".subnormal") return wide ? &RunTest<double, Property::kSubnormal> : &RunTest<float, Property::kSubnormal>;
  return nullptr;
}

}  // namespace mete::emulator::ptx
