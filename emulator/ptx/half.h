// IEEE half precision to and from float, by hand: the compiler's _Float16 is not there on every toolchain we build
// with.
#ifndef METE_EMULATOR_PTX_HALF_H_
#define METE_EMULATOR_PTX_HALF_H_

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace mete::emulator::ptx {

inline float FloatOfHalf(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
  float value;
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds with the mode in force (nearest even unless fesetround said otherwise).
inline uint16_t HalfOfDouble(double v) {
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return 0x7fff;
  const double a = std::fabs(v);
  if (std::isinf(v)) return static_cast<uint16_t>(sign | 0x7c00);
  if (a == 0) return sign;
  int exponent = 0;
  std::frexp(a, &exponent);
  const int scale = exponent - 11 < -24 ? -24 : exponent - 11;  // value of the last bit of the result
  const double steps = std::nearbyint(std::ldexp(v, -scale));   // signed, so that directed rounding keeps its direction
  const double magnitude = std::fabs(steps);
  if (std::ldexp(magnitude, scale) > 65504.0) {
    // Beyond the largest finite half: infinity, unless the mode rounds towards zero here.
    const int mode = std::fegetround();
    const bool inward = mode == FE_TOWARDZERO || (mode == FE_DOWNWARD && sign == 0) || (mode == FE_UPWARD && sign != 0);
    return static_cast<uint16_t>(sign | (inward ? 0x7bff : 0x7c00));
  }
  const uint32_t n = static_cast<uint32_t>(magnitude);
  if (scale == -24 && n < 1024) return static_cast<uint16_t>(sign | n);  // subnormal
  if (n == 2048) return static_cast<uint16_t>(sign | static_cast<uint32_t>(scale + 26) << 10);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(scale + 25) << 10 | (n & 0x3ff));
}

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_HALF_H_
