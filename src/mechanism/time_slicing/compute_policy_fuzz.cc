// What the driver's tool prints is not mete's: whatever it is, reading it ends, and gives classes that exist.
#include <cstdint>
#include <cstdlib>

#include "mechanism/time_slicing/compute_policy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& [index, slice] : mete::mechanism::ParseComputePolicies(text)) {
    if (slice && (static_cast<int>(*slice) < 0 || static_cast<int>(*slice) > 3)) abort();
  }
  return 0;
}
