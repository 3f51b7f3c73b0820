// Sizes and shares as people write them. Values are immutable; any thread may use them.
#ifndef METE_BASE_QUANTITIES_H_
#define METE_BASE_QUANTITIES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mete {

// A number of bytes of memory. GB = 10^9, GiB = 2^30.
struct Bytes {
  uint64_t count = 0;
  friend auto operator<=>(Bytes, Bytes) = default;
};

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// Reads "4GiB", "512MiB", "20GB", "1.5GiB", "4096MiB", "1073741824B"; a bare number, an unknown unit, a negative,
// zero or overflowing size is Usage. Fractions round down to a byte.
StatusOr<Bytes> ParseBytes(std::string_view text);
// The shortest exact binary form with at most one decimal: "4 GiB", "1.5 GiB", "4864 MiB", "10 B".
std::string ToString(Bytes bytes);

// A share of one GPU's compute, in hundredths of a percent: 3000 is 30 %. Range 1 to 10000.
struct Percent {
  uint32_t hundredths = 0;
  friend auto operator<=>(Percent, Percent) = default;
};
// Reads "30%", "30", "12.5%". Zero, negative, above 100 or finer than 0.01 is Usage.
StatusOr<Percent> ParsePercent(std::string_view text);
std::string ToString(Percent percent);  // "30 %", "12.5 %"

}  // namespace mete

#endif  // METE_BASE_QUANTITIES_H_
