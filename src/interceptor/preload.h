// What stands between the entry points of libmete-preload.so (preload_entry.S) and their decisions (preload.cc).
//
// The entry points are assembly because dlsym and its kin look at their caller's return address: what mete does not
// decide is jumped to with the stack and the registers as the caller left them. libc only; any thread; no state but
// what is found once and is the same for everybody.
#ifndef METE_INTERCEPTOR_PRELOAD_H_
#define METE_INTERCEPTOR_PRELOAD_H_

#include <cstdint>

// The first three arguments of the call, to be changed in place.
struct MeteArguments {
  uintptr_t value[3];
};

extern "C" {

// Each answers the function to jump to with the arguments, or null: value[0] is the result of the call.
void* mete_decide_dlsym(MeteArguments* arguments, const void* caller);
void* mete_decide_dlvsym(MeteArguments* arguments, const void* caller);
void* mete_decide_dlopen(MeteArguments* arguments, const void* caller);
void* mete_decide_dlmopen(MeteArguments* arguments, const void* caller);

// The function behind the exported driver function of this index: the proxy's, or one that refuses. Never null.
void* mete_bind(uint32_t index);

// The exported functions themselves.
void* mete_dlsym(void* handle, const char* name);
void* mete_dlvsym(void* handle, const char* name, const char* version);
void* mete_dlopen(const char* file, int mode);
void* mete_dlmopen(long name_space, const char* file, int mode);

}  // extern "C"

#endif  // METE_INTERCEPTOR_PRELOAD_H_
