/* A library with names that look like the driver's, none of which is, and one that the program has, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
__attribute__((visibility("default"))) int cudnnCreate(void) { return 101; }
__attribute__((visibility("default"))) int curl_easy_init(void) { return 102; }
__attribute__((visibility("default"))) int cuMemAlloc_v2(void) { return 103; } /* its own, whatever its name */
__attribute__((visibility("default"))) int nvmlInit_v2(void) { return 104; }
__attribute__((visibility("default"))) int probe_start_tool(void) { return 105; }
/* As OpenMP runtimes look for the next tool after themselves. */
__attribute__((visibility("default"))) void* next_after_library(const char* name) { return dlsym(RTLD_NEXT, name); }
