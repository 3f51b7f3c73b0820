// The real driver behind the proxy: found under its private name, resolved once when the proxy is loaded.
//
// `driver` is written by the loader's constructor before any other thread can call the proxy, and never again. An entry
// is null where the real driver (an older one) has no such function. libc only.
#ifndef METE_INTERCEPTOR_DRIVER_H_
#define METE_INTERCEPTOR_DRIVER_H_

#include <cstddef>

#include "interceptor/driver_table.h"

namespace mete::interceptor {

inline constexpr char kPrivateDriverName[] = "libmete-driver-cuda.so.1";

enum class DefaultStream { kNone, kLegacy, kPerThread };

// One function of the driver that mete knows.
struct Entry {
  const char* symbol;    // as exported
  const char* name;      // as cuGetProcAddress takes it
  int version;           // first CUDA version with this ABI
  DefaultStream stream;  // which default stream its null handle means
  size_t offset;         // in DriverTable
  void* wrapper;         // null: called by mete, not exported
};
extern const Entry kEntries[];
extern const unsigned kEntryCount;

extern DriverTable driver;

// False when no real driver stands behind the proxy (or only the proxy itself): cuInit then fails.
bool DriverFound();

// What a wrapper answers when the driver lacks the function.
CUresult MissingFunction();

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_DRIVER_H_
