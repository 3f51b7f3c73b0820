// Takes names out of this library's own table of exported symbols: those that the real driver behind it lacks. A
// program that asks whether an older driver has a function must get the driver's answer, not the proxy's.
//
// Called once, from the constructor that has found the real driver. Nobody looks names up in this library before that:
// the dynamic linker that loads it holds its lock. libc only.
#ifndef METE_INTERCEPTOR_OWN_NAMES_H_
#define METE_INTERCEPTOR_OWN_NAMES_H_

#include <cstddef>

namespace mete::interceptor {

// Where a page cannot be made writable for a moment the names stay; their functions answer that they are missing.
void HideOwnNames(const char* const* names, size_t count);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_OWN_NAMES_H_
