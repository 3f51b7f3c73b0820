// What an ELF file that is not loaded yet says it needs: its name, its run path, and the libraries it is linked to.
//
// Every byte comes from a stranger: all offsets and lengths are checked against the size before they are used. The
// answer points into `bytes`. Nothing is allocated. libc only. Facts: the System V ABI.
#ifndef METE_INTERCEPTOR_ELF_NEEDS_H_
#define METE_INTERCEPTOR_ELF_NEEDS_H_

#include <cstddef>

namespace mete::interceptor {

struct ElfNeeds {
  static constexpr size_t kMost = 256;
  const char* soname = "";
  const char* run_path = "";  // DT_RUNPATH, else DT_RPATH; several folders, separated by ':'
  size_t count = 0;
  const char* needed[kMost];
};

// False: not a whole shared object of this machine, or one with more libraries than fit.
bool ReadElfNeeds(const void* bytes, size_t size, ElfNeeds* needs);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_ELF_NEEDS_H_
