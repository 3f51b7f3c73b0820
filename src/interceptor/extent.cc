#include "interceptor/extent.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kUnit = 512;  // of a piece's size and place

// A piece with its part of what is lost at the end of the granule: nothing reaches over it.
uint64_t InPile(uint64_t bytes) { return kGranule / (kGranule / RoundUp(bytes, kUnit)); }

uint64_t Saturating(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

}  // namespace

void Extent::Add(uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes >= kAbsurd) {
    large = UINT64_MAX;
  } else if (bytes >= kSmallBelow) {
    large = Saturating(large, RoundUp(bytes, kGranule));
  } else {
    small = Saturating(small, InPile(bytes));
  }
}

void Extent::Add(const Extent& other) {
  large = Saturating(large, other.large);
  small = Saturating(small, other.small);
}

uint64_t Extent::Most() const { return small >= kAbsurd ? UINT64_MAX : Saturating(large, RoundUp(small, kGranule)); }

}  // namespace mete::interceptor
