// Look-ups through the driver: the real resolver answers the caller's exact question, then the returned pointer is
// exchanged for our wrapper of the same function. Names, versions and flags are the driver's business; what it returns
// and mete does not wrap passes untouched. Lock-free; any thread.
#ifndef METE_INTERCEPTOR_PROC_ADDRESS_H_
#define METE_INTERCEPTOR_PROC_ADDRESS_H_

#include "interceptor/driver.h"

namespace mete::interceptor {

// Remembers that `real` is to be exchanged for `wrapper`. The first of two wrappers for one address stays.
void AddExchange(void* real, void* wrapper);

// The wrapper of `real`, or `real` itself.
void* Exchange(void* real);

CUresult GetProcAddress(decltype(&::cuGetProcAddress) real, const char* symbol, void** pfn, int version,
                        cuuint64_t flags);
CUresult GetProcAddress(decltype(&::cuGetProcAddress_v2) real, const char* symbol, void** pfn, int version,
                        cuuint64_t flags, CUdriverProcAddressQueryResult* status);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_PROC_ADDRESS_H_
