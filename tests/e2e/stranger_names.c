/* Look-ups that are none of mete's business, in a process into which it is preloaded: the program is linked to the stranger
   library, defines one of its names itself, and asks for what comes next. Exit 0; 1 and a line where an answer is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern void* next_after_library(const char*);
__attribute__((visibility("default"))) int probe_start_tool(void) { return 5; }

static int answer(void* function) { return function ? ((int (*)(void))function)() : -1; }
static int wrong;
static void check(const char* what, int is, int must) {
  if (is == must) return;
  fprintf(stderr, "stranger_names: %s: %d instead of %d\n", what, is, must);
  wrong = 1;
}

int main(void) {
  void* library = dlopen("libstranger_library.so", RTLD_NOW);
  if (!library) return fprintf(stderr, "stranger_names: %s\n", dlerror()), 1;
  for (int twice = 0; twice < 2; twice++) {
    check("cudnnCreate", answer(dlsym(library, "cudnnCreate")), 101);
    check("curl_easy_init", answer(dlsym(library, "curl_easy_init")), 102);
    check("its own cuMemAlloc_v2", answer(dlsym(library, "cuMemAlloc_v2")), 103);
    check("its own nvmlInit_v2", answer(dlsym(library, "nvmlInit_v2")), 104);
    check("its cuMemAlloc_v2 by RTLD_DEFAULT", answer(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), 103);
    check("its cuMemAlloc_v2 by RTLD_NEXT", answer(dlsym(RTLD_NEXT, "cuMemAlloc_v2")), 103);
    check("nothing", dlsym(RTLD_DEFAULT, "cuMemFree_v2") != NULL, 0);
    check("an error for nothing", dlerror() != NULL, 1);
    check("curl by RTLD_DEFAULT", answer(dlsym(RTLD_DEFAULT, "curl_easy_init")), 102);
    check("no error", dlerror() != NULL, 0);
    /* Answered for the caller: the program's own comes first, the library's is next to it, and none is after that. */
    check("the program's own tool", answer(dlsym(RTLD_DEFAULT, "probe_start_tool")), 5);
    check("the tool after the program's", answer(dlsym(RTLD_NEXT, "probe_start_tool")), 105);
    check("the tool after the library's", next_after_library("probe_start_tool") != NULL, 0);
    check("open after the program", dlsym(RTLD_NEXT, "open") != NULL, 1);
    check("open after the library", next_after_library("open") == dlsym(RTLD_NEXT, "open"), 1);
    dlerror();
  }
  return wrong;
}
