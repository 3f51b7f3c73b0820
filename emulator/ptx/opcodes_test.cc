// Each opcode family against the same computation in C++, on full and partial warps, with edge values.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>

#include "emulator/ptx/ptx.h"
#include "emulator/ptx/test_memory.h"

namespace mete::emulator::ptx {
namespace {

template <typename T>
std::string Suffix() {
  if (std::is_same_v<T, float>) return "f32";
  if (std::is_same_v<T, double>) return "f64";
  return (std::is_signed_v<T> ? "s" : "u") + std::to_string(sizeof(T) * 8);
}

constexpr uint32_t kThreads = 61;  // one full warp and a partial one

template <typename T>
std::vector<T> Inputs(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      static const T kEdges[] = {T(0),
                                 -T(0),
                                 T(1),
                                 T(-1),
                                 T(0.5),
                                 T(-2.5),
                                 std::numeric_limits<T>::infinity(),
                                 -std::numeric_limits<T>::infinity(),
                                 std::numeric_limits<T>::quiet_NaN(),
                                 std::numeric_limits<T>::max(),
                                 std::numeric_limits<T>::denorm_min(),
                                 T(1e9)};
      values[i] = random() % 3 == 0 ? kEdges[random() % std::size(kEdges)]
                                    : static_cast<T>(static_cast<double>(static_cast<int64_t>(random())) / 4e15);
    } else {
      static const T kEdges[] = {
          T(0),  T(1), static_cast<T>(-1), std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T(2), T(31),
          T(32), T(33)};
      values[i] =
          random() % 3 == 0 ? kEdges[random() % std::size(kEdges)] : static_cast<T>(random() >> (random() % 64));
    }
  }
  return values;
}

// Runs `body` (a, b, c in %a %b %c, the result in %d) for every element. %p and %q are predicates, %t0…%t9 32-bit.
template <typename D, typename A, typename B = uint32_t, typename C = uint32_t>
std::vector<D> Evaluate(const std::string& body, const std::vector<A>& a,
                        const std::vector<B>& b = std::vector<B>(kThreads),
                        const std::vector<C>& c = std::vector<C>(kThreads)) {
  const auto load = [](const std::string& name, const std::string& suffix, size_t bytes) {
    return "  ld.param.u64 %base, [p" + name + "]; mad.wide.u32 %at, %i, " + std::to_string(bytes) +
           ", %base;\n  ld.global." + suffix + " %" + name + ", [%at];\n";
  };
  const std::string text =
      ".version 7.0\n.target sm_80\n.address_size 64\n"
      ".entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n"
      "  .reg .pred %p, %q; .reg .b32 %i, %t<10>; .reg .b64 %base, %at, %u<4>; .reg .b16 %h<4>;\n"
      "  .reg ." +
      Suffix<A>() + " %a; .reg ." + Suffix<B>() + " %b; .reg ." + Suffix<C>() + " %c; .reg ." + Suffix<D>() +
      " %d;\n"
      "  mov.u32 %i, %tid.x;\n" +
      load("a", Suffix<A>(), sizeof(A)) + load("b", Suffix<B>(), sizeof(B)) + load("c", Suffix<C>(), sizeof(C)) + "  " +
      body + "\n  ld.param.u64 %base, [pd]; mad.wide.u32 %at, %i, " + std::to_string(sizeof(D)) +
      ", %base;\n  st.global." + Suffix<D>() + " [%at], %d;\n  ret;\n}\n";
  Module module;
  Error error;
  if (!Parse(text, 90, &module, &error)) {
    ADD_FAILURE() << body << ": " << error.line << ":" << error.column << ": " << error.message;
    return std::vector<D>(kThreads);
  }
  TestMemory memory;
  const uint64_t pa = memory.Put(a), pb = memory.Put(b), pc = memory.Put(c), pd = memory.Put(std::vector<D>(kThreads));
  const Parameters parameters = Parameters().Add(pa).Add(pb).Add(pc).Add(pd);
  Launch launch;
  launch.block[0] = kThreads;
  launch.parameters = parameters.data();
  const Outcome out = Run(module, *module.FindEntry("k"), launch, memory, Budget(), nullptr);
  EXPECT_EQ(out.fault, FaultKind::kNone) << out.fault_detail;
  return memory.Get<D>(pd);
}

template <typename T>
bool Same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a && b != b) return true;
    return std::memcmp(&a, &b, sizeof a) == 0;
  } else {
    return a == b;
  }
}

template <typename T, typename F>
void CheckBinary(const std::string& op, F f) {
  const auto a = Inputs<T>(1), b = Inputs<T>(2);
  const auto d = Evaluate<T>(op + "." + Suffix<T>() + " %d, %a, %b;", a, b);
  for (uint32_t i = 0; i < kThreads; ++i) {
    const T expected = f(a[i], b[i]);
    EXPECT_TRUE(Same(d[i], expected)) << op << " " << Suffix<T>() << " " << +a[i] << " " << +b[i] << " = " << +d[i]
                                      << ", not " << +expected;
  }
}

template <typename T>
using U = std::make_unsigned_t<T>;

template <typename T>
void CheckIntegerFamily() {
  CheckBinary<T>("add", [](T a, T b) { return static_cast<T>(U<T>(a) + U<T>(b)); });
  CheckBinary<T>("sub", [](T a, T b) { return static_cast<T>(U<T>(a) - U<T>(b)); });
  CheckBinary<T>("mul.lo", [](T a, T b) { return static_cast<T>(uint64_t(a) * uint64_t(b)); });
  CheckBinary<T>("mul.hi", [](T a, T b) {
    __extension__ using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>(Wide(a) * Wide(b) >> (sizeof(T) * 8));
  });
  CheckBinary<T>("min", [](T a, T b) { return std::min(a, b); });
  CheckBinary<T>("max", [](T a, T b) { return std::max(a, b); });
  const auto quotient = [](T a, T b, bool remainder) -> T {
    if (b == 0) return remainder ? a : static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return remainder ? T(0) : static_cast<T>(U<T>(0) - U<T>(a));
    return static_cast<T>(remainder ? a % b : a / b);
  };
  CheckBinary<T>("div", [&](T a, T b) { return quotient(a, b, false); });
  CheckBinary<T>("rem", [&](T a, T b) { return quotient(a, b, true); });
}

TEST(Opcodes, IntegerArithmetic) {
  CheckIntegerFamily<int16_t>();
  CheckIntegerFamily<uint16_t>();
  CheckIntegerFamily<int32_t>();
  CheckIntegerFamily<uint32_t>();
  CheckIntegerFamily<int64_t>();
  CheckIntegerFamily<uint64_t>();
}

template <typename T, typename W>
void CheckWide() {
  const auto a = Inputs<T>(3), b = Inputs<T>(4);
  const auto c = Inputs<W>(5);
  const auto product = Evaluate<W>("mul.wide." + Suffix<T>() + " %d, %a, %b;", a, b);
  const auto sum = Evaluate<W>("mad.wide." + Suffix<T>() + " %d, %a, %b, %c;", a, b, c);
  for (uint32_t i = 0; i < kThreads; ++i) {
    const W p = static_cast<W>(U<W>(static_cast<W>(a[i])) * U<W>(static_cast<W>(b[i])));
    EXPECT_EQ(product[i], p);
    EXPECT_EQ(sum[i], static_cast<W>(U<W>(p) + U<W>(c[i])));
  }
}

TEST(Opcodes, WideProducts) {
  CheckWide<int16_t, int32_t>();
  CheckWide<uint16_t, uint32_t>();
  CheckWide<int32_t, int64_t>();
  CheckWide<uint32_t, uint64_t>();
}

TEST(Opcodes, BitsAndShifts) {
  const auto a = Inputs<uint32_t>(6), b = Inputs<uint32_t>(7), n = Inputs<uint32_t>(8);
  const auto wide = Inputs<uint64_t>(9);
  const auto check = [&](const std::string& body, auto f) {
    const auto d = Evaluate<uint32_t>(body, a, b, n);
    for (uint32_t i = 0; i < kThreads; ++i) {
      const uint32_t expected = f(a[i], b[i], n[i]);
      EXPECT_EQ(d[i], expected) << body << " " << a[i] << " " << b[i] << " " << n[i];
    }
  };
  using V = uint32_t;
  check("and.b32 %d, %a, %b;", [](V x, V y, V) { return x & y; });
  check("or.b32 %d, %a, %b;", [](V x, V y, V) { return x | y; });
  check("xor.b32 %d, %a, %b;", [](V x, V y, V) { return x ^ y; });
  check("not.b32 %d, %a;", [](V x, V, V) { return ~x; });
  check("cnot.b32 %d, %a;", [](V x, V, V) { return x == 0 ? 1u : 0u; });
  check("shl.b32 %d, %a, %c;", [](V x, V, V s) { return s > 31 ? 0 : x << s; });
  check("shr.u32 %d, %a, %c;", [](V x, V, V s) { return s > 31 ? 0 : x >> s; });
  check("shr.s32 %d, %a, %c;", [](V x, V, V s) { return static_cast<V>(static_cast<int32_t>(x) >> std::min(s, 31u)); });
  check("popc.b32 %d, %a;", [](V x, V, V) { return static_cast<V>(__builtin_popcount(x)); });
  check("clz.b32 %d, %a;", [](V x, V, V) { return x == 0 ? 32u : static_cast<V>(__builtin_clz(x)); });
  check("brev.b32 %d, %a;", [](V x, V, V) {
    V r = 0;
    for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
    return r;
  });
  check("bfind.u32 %d, %a;", [](V x, V, V) { return x == 0 ? ~0u : 31u - static_cast<V>(__builtin_clz(x)); });
  check("shf.l.wrap.b32 %d, %a, %b, %c;",
        [](V lo, V hi, V s) { return static_cast<V>((uint64_t{hi} << 32 | lo) << (s & 31) >> 32); });
  check("shf.r.clamp.b32 %d, %a, %b, %c;",
        [](V lo, V hi, V s) { return static_cast<V>((uint64_t{hi} << 32 | lo) >> std::min(s, 32u)); });
  check("lop3.b32 %d, %a, %b, %c, 0x96;", [](V x, V y, V z) { return x ^ y ^ z; });
  check("prmt.b32 %d, %a, %b, 0x9630;", [](V x, V y, V) {
    const uint64_t bytes = uint64_t{y} << 32 | x;
    const V sign = (x >> 15 & 1) != 0 ? 0xffu : 0u;  // 9: the sign of byte 1
    return (V(bytes) & 0xff) | (V(bytes >> 24) & 0xff) << 8 | (V(bytes >> 48) & 0xff) << 16 | sign << 24;
  });
  check("sad.u32 %d, %a, %b, %c;", [](V x, V y, V z) { return z + (x < y ? y - x : x - y); });
  check("bfe.u32 %d, %a, 5, 7;", [](V x, V, V) { return x >> 5 & 127; });
  check("bfe.s32 %d, %a, 28, 8;", [](V x, V, V) { return static_cast<V>(static_cast<int32_t>(x) >> 28); });
  check("bfi.b32 %d, %a, %b, 4, 9;", [](V x, V y, V) { return (y & ~(511u << 4)) | (x & 511) << 4; });
  const auto clz = Evaluate<uint32_t>("clz.b64 %d, %a;", wide);
  const auto popc = Evaluate<uint32_t>("popc.b64 %d, %a;", wide);
  const auto shifted = Evaluate<uint64_t>("shr.u64 %d, %a, %b;", wide, n);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(clz[i], wide[i] == 0 ? 64u : static_cast<uint32_t>(__builtin_clzll(wide[i])));
    EXPECT_EQ(popc[i], static_cast<uint32_t>(__builtin_popcountll(wide[i])));
    EXPECT_EQ(shifted[i], n[i] > 63 ? 0 : wide[i] >> n[i]);
  }
}

TEST(Opcodes, SaturatingAddition) {
  const auto a = Inputs<int32_t>(10), b = Inputs<int32_t>(11);
  const auto d = Evaluate<int32_t>("add.sat.s32 %d, %a, %b;", a, b);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(d[i], std::clamp<int64_t>(int64_t{a[i]} + b[i], INT32_MIN, INT32_MAX));
  }
}

template <typename T>
void CheckFloatFamily() {
  CheckBinary<T>("add", [](T a, T b) { return a + b; });
  CheckBinary<T>("sub.rn", [](T a, T b) { return a - b; });
  CheckBinary<T>("mul", [](T a, T b) { return a * b; });
  CheckBinary<T>("div.rn", [](T a, T b) { return a / b; });
  CheckBinary<T>("min", [](T a, T b) {
    return a != a ? b : b != b ? a : a < b || (a == b && std::signbit(a)) ? a : b;
  });
  CheckBinary<T>("max", [](T a, T b) {
    return a != a ? b : b != b ? a : a > b || (a == b && !std::signbit(a)) ? a : b;
  });
  CheckBinary<T>("copysign", [](T a, T b) { return std::copysign(b, a); });
  const auto a = Inputs<T>(12), b = Inputs<T>(13), c = Inputs<T>(14);
  const std::string t = Suffix<T>();
  const auto fma = Evaluate<T>("fma.rn." + t + " %d, %a, %b, %c;", a, b, c);
  const auto root = Evaluate<T>("sqrt.rn." + t + " %d, %a;", a);
  const auto inverse = Evaluate<T>("rcp.rn." + t + " %d, %a;", a);
  const auto negative = Evaluate<T>("neg." + t + " %d, %a;", a);
  const auto magnitude = Evaluate<T>("abs." + t + " %d, %a;", a);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(Same(fma[i], std::fma(a[i], b[i], c[i]))) << a[i] << " " << b[i] << " " << c[i];
    EXPECT_TRUE(Same(root[i], std::sqrt(a[i]))) << a[i];
    EXPECT_TRUE(Same(inverse[i], T(1) / a[i])) << a[i];
    EXPECT_TRUE(Same(negative[i], -a[i]));
    EXPECT_TRUE(Same(magnitude[i], std::fabs(a[i])));
  }
}

TEST(Opcodes, FloatingPoint) {
  CheckFloatFamily<float>();
  CheckFloatFamily<double>();
}

TEST(Opcodes, Transcendental) {
  const auto a = Inputs<float>(15);
  const auto sine = Evaluate<float>("sin.approx.f32 %d, %a;", a), cosine = Evaluate<float>("cos.approx.f32 %d, %a;", a);
  const auto power = Evaluate<float>("ex2.approx.f32 %d, %a;", a),
             logarithm = Evaluate<float>("lg2.approx.f32 %d, %a;", a);
  const auto tangent = Evaluate<float>("tanh.approx.f32 %d, %a;", a),
             inverse_root = Evaluate<float>("rsqrt.approx.f32 %d, %a;", a);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(Same(sine[i], std::sin(a[i])));
    EXPECT_TRUE(Same(cosine[i], std::cos(a[i])));
    EXPECT_TRUE(Same(power[i], std::exp2(a[i])));
    EXPECT_TRUE(Same(logarithm[i], std::log2(a[i])));
    EXPECT_TRUE(Same(tangent[i], std::tanh(a[i])));
    EXPECT_TRUE(Same(inverse_root[i], 1.0f / std::sqrt(a[i])));
  }
}

TEST(Opcodes, RoundingSaturationAndFlushing) {
  const std::vector<float> third(kThreads, 3.0f), one(kThreads, 1.0f), minus(kThreads, -1.0f);
  const auto with = [&](int mode, float a, float b) {
    std::fesetround(mode);
    volatile float x = a, y = b, r = x / y;
    std::fesetround(FE_TONEAREST);
    return static_cast<float>(r);
  };
  EXPECT_EQ(Evaluate<float>("div.rz.f32 %d, %a, %b;", one, third)[0], with(FE_TOWARDZERO, 1, 3));
  EXPECT_EQ(Evaluate<float>("div.rp.f32 %d, %a, %b;", one, third)[40], with(FE_UPWARD, 1, 3));
  EXPECT_EQ(Evaluate<float>("div.rm.f32 %d, %a, %b;", minus, third)[60], with(FE_DOWNWARD, -1, 3));
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_EQ(Evaluate<float>("add.sat.f32 %d, %a, %b;", one, third)[0], 1.0f);
  EXPECT_EQ(Evaluate<float>("add.sat.f32 %d, %a, %a;", minus)[0], 0.0f);
  const std::vector<float> tiny(kThreads, 1e-40f);
  EXPECT_EQ(Evaluate<float>("add.ftz.f32 %d, %a, %a;", tiny)[0], 0.0f);
  EXPECT_EQ(Evaluate<float>("add.f32 %d, %a, %a;", tiny)[0], 1e-40f + 1e-40f);
}

template <typename T>
void CheckComparisons(const std::vector<std::pair<std::string, bool (*)(T, T)>>& comparisons) {
  const auto a = Inputs<T>(16);
  auto b = Inputs<T>(17);
  for (uint32_t i = 0; i < kThreads; i += 4) b[i] = a[i];
  for (const auto& [name, holds] : comparisons) {
    const auto d = Evaluate<uint32_t>("setp." + name + "." + Suffix<T>() + " %p, %a, %b; selp.u32 %d, 1, 0, %p;", a, b);
    for (uint32_t i = 0; i < kThreads; ++i)
      EXPECT_EQ(d[i], holds(a[i], b[i]) ? 1u : 0u) << name << " " << a[i] << " " << b[i];
  }
}

TEST(Opcodes, Comparisons) {
  CheckComparisons<int32_t>({{"eq", [](int32_t a, int32_t b) { return a == b; }},
                             {"ne", [](int32_t a, int32_t b) { return a != b; }},
                             {"lt", [](int32_t a, int32_t b) { return a < b; }},
                             {"ge", [](int32_t a, int32_t b) { return a >= b; }}});
  CheckComparisons<uint64_t>({{"lo", [](uint64_t a, uint64_t b) { return a < b; }},
                              {"hs", [](uint64_t a, uint64_t b) { return a >= b; }},
                              {"gt", [](uint64_t a, uint64_t b) { return a > b; }},
                              {"le", [](uint64_t a, uint64_t b) { return a <= b; }}});
  CheckComparisons<int16_t>({{"lt", [](int16_t a, int16_t b) { return a < b; }}});
  CheckComparisons<float>({{"eq", [](float a, float b) { return a == b; }},
                           {"ne", [](float a, float b) { return a < b || a > b; }},
                           {"neu", [](float a, float b) { return !(a == b); }},
                           {"ltu", [](float a, float b) { return !(a >= b); }},
                           {"gt", [](float a, float b) { return a > b; }},
                           {"num", [](float a, float b) { return a == a && b == b; }},
                           {"nan", [](float a, float b) { return a != a || b != b; }}});
  CheckComparisons<double>(
      {{"le", [](double a, double b) { return a <= b; }}, {"geu", [](double a, double b) { return !(a < b); }}});
}

TEST(Opcodes, CombinedComparisonsAndPredicates) {
  const auto a = Inputs<int32_t>(18), b = Inputs<int32_t>(19);
  const auto check = [&](const std::string& body, auto f) {
    const auto d = Evaluate<uint32_t>(body + " selp.u32 %d, 1, 0, %p; @%q add.u32 %d, %d, 2;", a, b);
    for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(d[i], f(a[i], b[i])) << body;
  };
  check("setp.gt.s32 %q, %a, 0; setp.lt.and.s32 %p|%q, %a, %b, %q;",
        [](int32_t x, int32_t y) { return (x < y && x > 0 ? 1u : 0u) + (x >= y && x > 0 ? 2u : 0u); });
  check("setp.gt.s32 %q, %a, 0; setp.lt.or.s32 %p, %a, %b, !%q;",
        [](int32_t x, int32_t y) { return (x < y || x <= 0 ? 1u : 0u) + (x > 0 ? 2u : 0u); });
  check("setp.gt.s32 %p, %a, 0; setp.gt.s32 %q, %b, 0; xor.pred %p, %p, %q; not.pred %q, %q;",
        [](int32_t x, int32_t y) { return ((x > 0) != (y > 0) ? 1u : 0u) + (y > 0 ? 0u : 2u); });
  const auto set = Evaluate<uint32_t>("set.lt.u32.s32 %d, %a, %b;", a, b);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(set[i], a[i] < b[i] ? ~0u : 0u);
}

TEST(Opcodes, Conversions) {
  const auto f = Inputs<float>(20);
  const auto g = Inputs<double>(21);
  const auto s = Inputs<int32_t>(22);
  const auto w = Inputs<uint64_t>(23);
  const auto clamp32 = [](double v) -> int32_t {
    return v != v ? 0 : v <= -2147483648.0 ? INT32_MIN : v >= 2147483647.0 ? INT32_MAX : static_cast<int32_t>(v);
  };
  const auto to_s32 = Evaluate<int32_t>("cvt.rzi.s32.f32 %d, %a;", f),
             nearest = Evaluate<int32_t>("cvt.rni.s32.f32 %d, %a;", f);
  const auto down = Evaluate<int32_t>("cvt.rmi.s32.f64 %d, %a;", g);
  const auto widened = Evaluate<double>("cvt.f64.f32 %d, %a;", f);
  const auto narrowed = Evaluate<float>("cvt.rn.f32.f64 %d, %a;", g),
             cut = Evaluate<float>("cvt.rz.f32.f64 %d, %a;", g);
  const auto from_s32 = Evaluate<float>("cvt.rn.f32.s32 %d, %a;", s);
  const auto from_u64 = Evaluate<float>("cvt.rn.f32.u64 %d, %a;", w),
             up_u64 = Evaluate<float>("cvt.rp.f32.u64 %d, %a;", w);
  const auto extended = Evaluate<int64_t>("cvt.s64.s32 %d, %a;", s),
             byte = Evaluate<int64_t>("cvt.s32.s8 %t0, %a; cvt.s64.s32 %d, %t0;", s);
  const auto saturated = Evaluate<uint32_t>("cvt.sat.u8.s32 %d, %a;", s);
  const auto floor = Evaluate<float>("cvt.rmi.f32.f32 %d, %a;", f);
  const auto whole = Evaluate<uint32_t>("cvt.rzi.u32.f32 %d, %a;", f);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(to_s32[i], clamp32(std::trunc(f[i]))) << f[i];
    EXPECT_EQ(nearest[i], clamp32(std::nearbyint(f[i]))) << f[i];
    EXPECT_EQ(down[i], clamp32(std::floor(g[i]))) << g[i];
    EXPECT_TRUE(Same(widened[i], static_cast<double>(f[i])));
    EXPECT_TRUE(Same(narrowed[i], static_cast<float>(g[i])));
    std::fesetround(FE_TOWARDZERO);
    volatile double from = g[i];
    volatile float expected_cut = static_cast<float>(from);
    std::fesetround(FE_UPWARD);
    volatile uint64_t from_integer = w[i];
    volatile float expected_up = static_cast<float>(from_integer);
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(Same(cut[i], static_cast<float>(expected_cut))) << g[i];
    EXPECT_TRUE(Same(up_u64[i], static_cast<float>(expected_up))) << w[i];
    EXPECT_EQ(from_s32[i], static_cast<float>(s[i]));
    EXPECT_EQ(from_u64[i], static_cast<float>(w[i]));
    EXPECT_EQ(extended[i], s[i]);
    EXPECT_EQ(byte[i], static_cast<int8_t>(s[i]));
    EXPECT_EQ(saturated[i], static_cast<uint32_t>(std::clamp(s[i], 0, 255)));
    EXPECT_TRUE(Same(floor[i], std::floor(f[i]))) << f[i];
    EXPECT_EQ(whole[i], f[i] != f[i] || f[i] <= 0 ? 0u : f[i] >= 4294967296.0f ? ~0u : static_cast<uint32_t>(f[i]));
  }
}

TEST(Opcodes, HalfPrecision) {
  const std::vector<float> values = [] {
    std::vector<float> v(kThreads);
    for (uint32_t i = 0; i < kThreads; ++i) v[i] = static_cast<float>(i) * 0.25f - 4.0f;
    v[0] = 65504.0f, v[1] = 65520.0f, v[2] = 1e-7f, v[3] = 6e-8f, v[4] = 1.0009765625f, v[5] = 1.00048828125f;
    return v;
  }();
  const auto back = Evaluate<float>("cvt.rn.f16.f32 %h0, %a; cvt.f32.f16 %d, %h0;", values);
  EXPECT_EQ(back[0], 65504.0f);
  EXPECT_TRUE(std::isinf(back[1]));
  EXPECT_FLOAT_EQ(back[2], 2 * 0x1p-24f);
  EXPECT_EQ(back[3], 0x1p-24f);
  EXPECT_EQ(back[4], 1.0009765625f);
  EXPECT_EQ(back[5], 1.0f);  // a tie goes to even
  for (uint32_t i = 6; i < kThreads; ++i) EXPECT_EQ(back[i], values[i]);
  const auto sum = Evaluate<float>("cvt.rn.f16.f32 %h0, %a; add.rn.f16 %h1, %h0, %h0; cvt.f32.f16 %d, %h1;", values);
  for (uint32_t i = 6; i < kThreads; ++i) EXPECT_EQ(sum[i], 2 * values[i]);
}

TEST(Opcodes, PackingAndUnpacking) {
  const auto a = Inputs<uint64_t>(24);
  const auto swapped = Evaluate<uint64_t>("mov.b64 {%t0, %t1}, %a; mov.b64 %d, {%t1, %t0};", a);
  const auto halves = Evaluate<uint64_t>("mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0};", a);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(swapped[i], a[i] << 32 | a[i] >> 32);
    EXPECT_EQ(halves[i], a[i] << 48 | (a[i] << 16 & 0xffff00000000) | (a[i] >> 16 & 0xffff0000) | a[i] >> 48);
  }
}

TEST(Opcodes, SelectionBySign) {
  const auto a = Inputs<uint32_t>(25), b = Inputs<uint32_t>(26);
  const auto c = Inputs<int32_t>(27);
  const auto d = Evaluate<uint32_t>("slct.u32.s32 %d, %a, %b, %c;", a, b, c);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(d[i], c[i] >= 0 ? a[i] : b[i]);
}

TEST(Opcodes, NarrowLoadsAndStores) {
  const auto a = Inputs<uint32_t>(28);
  const std::string body =
      "{ .local .align 8 .b8 room[16]; st.local.u32 [room+4], %a; ld.local.s8 %t0, [room+5]; ld.local.u16 %t1, "
      "[room+6]; "
      "st.local.u8 [room], %t0; ld.local.u8 %t2, [room]; shl.b32 %t1, %t1, 8; or.b32 %d, %t1, %t2; }";
  const auto d = Evaluate<uint32_t>(body, a);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(d[i], (a[i] >> 16) << 8 | (a[i] >> 8 & 0xff));
}

}  // namespace
}  // namespace mete::emulator::ptx
