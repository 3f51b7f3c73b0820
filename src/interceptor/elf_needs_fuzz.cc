// A library that a program is about to open, as bytes from a stranger.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interceptor/elf_needs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mete::interceptor::ElfNeeds needs;
  if (!mete::interceptor::ReadElfNeeds(data, size, &needs)) return 0;
  size_t length = strlen(needs.soname) + strlen(needs.run_path);
  for (size_t i = 0; i < needs.count; ++i) length += strlen(needs.needed[i]);
  // What was found lies within the file.
  if (needs.count > mete::interceptor::ElfNeeds::kMost || length > (needs.count + 2) * size) __builtin_trap();
  return 0;
}
