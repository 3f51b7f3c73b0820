// Any bytes as a module's image: no crash, nothing read beyond the end, and the same answer twice.
#include <cstdint>
#include <cstdlib>

#include "interceptor/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using mete::interceptor::ImageSize;
  const ImageSize text = mete::interceptor::SizeOfPtx(reinterpret_cast<const char*>(bytes), size);
  const ImageSize again = mete::interceptor::SizeOfPtx(reinterpret_cast<const char*>(bytes), size);
  if (text.known != again.known || text.extent.Most() != again.extent.Most()) abort();
  (void)mete::interceptor::SizeOfElf(bytes, size);
  return 0;
}
