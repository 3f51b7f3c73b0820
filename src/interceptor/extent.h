// Sizes of device memory as a driver hands it out: whole granules, and small pieces that share them. Pure; bytes.
#ifndef METE_INTERCEPTOR_EXTENT_H_
#define METE_INTERCEPTOR_EXTENT_H_

#include <cstdint>

namespace mete::interceptor {

inline constexpr uint64_t kGranule = uint64_t{2} << 20;
inline constexpr uint64_t kSmallBelow = uint64_t{1} << 20;  // requests below this share granules
inline constexpr uint64_t kAbsurd = uint64_t{1} << 47;      // no GPU has this much: refused without asking

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// The product, or UINT64_MAX where it does not fit.
constexpr uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// Memory of things without an address that we know.
struct Extent {
  uint64_t large = 0;  // whole granules of its own
  uint64_t small = 0;  // pieces that share granules, with what is lost at a granule's end

  void Add(uint64_t bytes);
  void Add(const Extent& other);
  bool Empty() const { return (large | small) == 0; }
  // The most that it can take by itself.
  uint64_t Most() const;
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_EXTENT_H_
