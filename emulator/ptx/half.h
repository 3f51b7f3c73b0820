// IEEE half precision and bfloat16 to and from float, by hand: the compiler's _Float16 is not there on every toolchain
// we build with.
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

inline float FloatOfBrain(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// To a 16-bit format of kPrecision significant bits, rounded with the mode in force (nearest even unless fesetround
// said otherwise).
template <int kPrecision, int kBias>
uint16_t NarrowOfDouble(double v) {
  constexpr int kMantissa = kPrecision - 1, kLowest = 1 - kBias - kMantissa;  // kLowest: last bit of a subnormal
  constexpr uint16_t kInfinity = static_cast<uint16_t>((2 * kBias + 1) << kMantissa);
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return 0x7fff;
  const double a = std::fabs(v);
  if (std::isinf(v)) return static_cast<uint16_t>(sign | kInfinity);
  if (a == 0) return sign;
  int exponent = 0;
  std::frexp(a, &exponent);
  const int scale = exponent - kPrecision < kLowest ? kLowest : exponent - kPrecision;  // of the result's last bit
  const double steps = std::nearbyint(std::ldexp(v, -scale));  // signed, so that directed rounding keeps its direction
  const double magnitude = std::fabs(steps);
  if (std::ldexp(magnitude, scale) > std::ldexp((1 << kPrecision) - 1, kBias - kMantissa)) {
    // Beyond the largest finite value: infinity, unless the mode rounds towards zero here.
    const int mode = std::fegetround();
    const bool inward = mode == FE_TOWARDZERO || (mode == FE_DOWNWARD && sign == 0) || (mode == FE_UPWARD && sign != 0);
    return static_cast<uint16_t>(sign | (inward ? kInfinity - 1 : kInfinity));
  }
  const uint32_t n = static_cast<uint32_t>(magnitude);
  if (scale == kLowest && n < (1u << kMantissa)) return static_cast<uint16_t>(sign | n);  // subnormal
  // A mantissa that was rounded up to the next power of two carries into the exponent by itself.
  const uint32_t biased = static_cast<uint32_t>(scale + kMantissa + kBias) << kMantissa;
  return static_cast<uint16_t>(sign | (biased + n - (1u << kMantissa)));
}

inline uint16_t HalfOfDouble(double v) { return NarrowOfDouble<11, 15>(v); }
inline uint16_t BrainOfDouble(double v) { return NarrowOfDouble<8, 127>(v); }

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_HALF_H_
