// Would opening this library bring in the driver? Asked before a program opens it with RTLD_DEEPBIND, or in a name
// space of its own: only then does mete interfere.
//
// Follows what the files say they need, looked up as the dynamic linker would: loaded objects, run paths, then the
// caller's search list (not the cache of ldconfig: what stands only there is unknown). No state, any thread; reads
// files, allocates nothing, leaves errno as it was. libc only.
#ifndef METE_INTERCEPTOR_DRIVER_NEED_H_
#define METE_INTERCEPTOR_DRIVER_NEED_H_

#include <cstddef>

namespace mete::interceptor {

enum DriverNeed : unsigned {
  kNeedsCuda = 1,     // libcuda.so.1
  kNeedsMl = 2,       // libnvidia-ml.so.1
  kNeedsUnknown = 4,  // something could not be found or read
};

// The sum of what `file` needs, itself included. `folders`: where the caller's libraries are looked for that no run
// path names.
unsigned NeedOf(const char* file, const char* const* folders, size_t folder_count);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_DRIVER_NEED_H_
