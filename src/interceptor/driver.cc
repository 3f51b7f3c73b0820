#include "interceptor/driver.h"

#include <dlfcn.h>

#include <cstring>

#include "interceptor/own_names.h"
#include "interceptor/proc_address.h"

namespace mete::interceptor {

DriverTable driver;

namespace {

bool driver_found = false;
constexpr size_t kMostHidden = 256;

void** SlotOf(const Entry& entry) { return reinterpret_cast<void**>(reinterpret_cast<char*>(&driver) + entry.offset); }

// Runs after the real driver's own constructors, since it is our dependency, and before anybody who depends on us.
__attribute__((constructor)) void LoadDriver() {
  // The name is looked up among the objects of the caller's own name space, so that a dlmopen copy gets its own driver.
  void* handle = dlopen(kPrivateDriverName, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return;
  const char* missing[kMostHidden];
  size_t missing_count = 0;
  for (unsigned i = 0; i < kEntryCount; ++i) {
    const Entry& entry = kEntries[i];
    void* real = dlsym(handle, entry.symbol);
    // A private link that leads back to the proxy would call itself for ever.
    if (real == entry.wrapper && real != nullptr) continue;
    if (real == nullptr) {
      if (entry.wrapper != nullptr && missing_count < kMostHidden) missing[missing_count++] = entry.symbol;
      continue;
    }
    *SlotOf(entry) = real;
    if (entry.wrapper != nullptr) AddExchange(real, entry.wrapper);
  }
  driver_found = driver.cuInit != nullptr;
  if (driver_found) HideOwnNames(missing, missing_count);
}

}  // namespace

bool DriverFound() { return driver_found; }

CUresult MissingFunction() { return DriverFound() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED; }

}  // namespace mete::interceptor
