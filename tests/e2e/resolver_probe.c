/* Looks every function of the driver API up by one route and prints what was found. It shares no code with mete: the names
   come from data/cuda/functions.tsv, and built with PROBE_LINKED it is linked to libcuda.so.1 like any program.

   resolver_probe ROUTE [PATH]
   linked            addresses that the dynamic linker put into this program   (PROBE_LINKED only)
   needs             those in a library that is linked to libcuda.so.1         PATH: the library
   needs-deepbind    the same, opened with RTLD_DEEPBIND
   needs-dlmopen     the same, in a name space of its own
   dlsym             dlopen("libcuda.so.1"), or PATH, and dlsym
   dlsym-global      the same handle, opened with RTLD_GLOBAL
   deepbind          the same handle, opened with RTLD_DEEPBIND
   dlvsym            dlvsym, with a version that no driver has
   dlmopen           dlmopen of "libcuda.so.1", or PATH, and dlsym
   program           dlsym by the handle of the program itself, after dlopen with RTLD_GLOBAL
   default, next     dlsym(RTLD_DEFAULT) and dlsym(RTLD_NEXT), after the same
   past-dlsym        dlsym as found by dlvsym(RTLD_NEXT, "dlsym", its first version)
   proc-1, proc-2    cuGetProcAddress and its second form, every name at every version and with every flag

   A line an answer: question, object file, symbol; "-" for what is not found. For proc routes the question is
   name@version/flags and a fourth column has result and status. The last line is "call", the result of cuInit, and that of
   an allocation of 36 GiB in a new context, made through what was found. Exit 0; 4: the route itself cannot be gone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

#ifdef PROBE_LINKED
#define X(name) extern int name();
#include "probe_names.inc"
#undef X
#endif
struct found { const char* name; void* address; };
static struct found table[] = {
#ifdef PROBE_LINKED
#define X(name) {#name, (void*)name},
#else
#define X(name) {#name, 0},
#endif
#include "probe_names.inc"
#undef X
};
enum { COUNT = sizeof table / sizeof *table };

#ifdef PROBE_LIBRARY
/* The library for the "needs" routes: its own table, filled by the dynamic linker. */
__attribute__((visibility("default"))) struct found* probe_table(void) { return table; }
#else

static const int versions[] = {2000,  3000,  3010,  3020,  4000,  4010,  4020,  5000,  5050,  6000,  6050,  7000,  7050,  8000,  9000,  9010,  9020,
                               10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040,
                               12050, 12060, 12080, 12090, 13000, 13010, 13020, 13030};

static void print(const char* question, void* address, const char* more) {
  Dl_info info;
  if (!address) {
    printf("%s\t-\t-%s\n", question, more);
  } else if (!dladdr(address, &info) || !info.dli_sname || info.dli_saddr != address) {
    printf("%s\t?\t?%s\n", question, more);
  } else {
    printf("%s\t%s\t%s%s\n", question, info.dli_fname, info.dli_sname, more);
  }
}

static void* need(void* pointer, const char* what) {
  if (pointer) return pointer;
  const char* why = dlerror();
  fprintf(stderr, "resolver_probe: %s: %s\n", what, why ? why : "not found");
  exit(4);
}

/* What "call" goes through: by exported name. */
static void* call_table(const char* name) {
  for (int i = 0; i < COUNT; i++) {
    if (!strcmp(table[i].name, name)) return table[i].address;
  }
  return NULL;
}

static void call(void) {
  int (*init)(unsigned) = call_table("cuInit");
  int (*device_get)(int*, int) = call_table("cuDeviceGet");
  int (*create)(void**, unsigned, int) = call_table("cuCtxCreate_v2");
  int (*allocate)(unsigned long long*, size_t) = call_table("cuMemAlloc_v2");
  if (!init || !device_get || !create || !allocate) {
    printf("call\t-\t-\n");
    return;
  }
  int device = 0;
  void* context = NULL;
  unsigned long long p = 0;
  const int initialised = init(0);
  int result = device_get(&device, 0);
  if (!result) result = create(&context, 0, device);
  if (!result) result = allocate(&p, (size_t)36 << 30);
  printf("call\t%d\t%d\n", initialised, result);
}

static void ask(int form, void* function) {
  int (*one)(const char*, void**, int, uint64_t) = function;
  int (*two)(const char*, void**, int, uint64_t, int*) = function;
  char question[160], more[64];
  for (int i = -2; i < COUNT; i++) {
    const char* name = i == -2 ? "" : i == -1 ? "cuNameOfTheFuture" : table[i].name;
    const size_t step = getenv("METE_LONG_TESTS") ? 1 : 5; /* of the versions */
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v += step) {
      for (uint64_t flags = 0; flags < 3; flags++) {
        void* address = NULL;
        int status = -1;
        const int result = form == 1 ? one(name, &address, versions[v], flags) : two(name, &address, versions[v], flags, &status);
        snprintf(question, sizeof question, "%s@%d/%d", name, versions[v], (int)flags);
        snprintf(more, sizeof more, "\t%d %d", result, status);
        print(question, address, more);
      }
    }
  }
}

static void* real_looking_dlsym(void* handle, const char* name) {
  static void* (*past)(void*, const char*);
  if (!past) past = need(dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION), "dlsym");
  return past(handle, name);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* route = argv[1];
  const char* path = argc > 2 ? argv[2] : "libcuda.so.1";
  void* handle = NULL;
  struct found* of_library = NULL;
  if (!strncmp(route, "needs", 5)) {
    handle = !strcmp(route, "needs-dlmopen")    ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW)
             : !strcmp(route, "needs-deepbind") ? dlopen(path, RTLD_NOW | RTLD_DEEPBIND)
                                                : dlopen(path, RTLD_NOW);
    struct found* (*probe_table)(void) = need(dlsym(need(handle, path), "probe_table"), "probe_table");
    of_library = probe_table();
    route = "needs";
  } else if (!strcmp(route, "dlmopen")) {
    handle = need(dlmopen(LM_ID_NEWLM, path, RTLD_NOW), path);
  } else if (strcmp(route, "linked") != 0) {
    const int global = !strcmp(route, "default") || !strcmp(route, "next") || !strcmp(route, "program") || !strcmp(route, "dlsym-global");
    const int deep = !strcmp(route, "deepbind");
    handle = need(dlopen(path, RTLD_NOW | (global ? RTLD_GLOBAL : 0) | (deep ? RTLD_DEEPBIND : 0)), path);
  }
  if (!strcmp(route, "proc-1")) {
    ask(1, need(dlsym(handle, "cuGetProcAddress"), "cuGetProcAddress"));
    return 0;
  }
  if (!strcmp(route, "proc-2")) {
    ask(2, need(dlsym(handle, "cuGetProcAddress_v2"), "cuGetProcAddress_v2"));
    return 0;
  }
  void* program = dlopen(NULL, RTLD_NOW);
  for (int i = 0; i < COUNT; i++) {
    const char* name = table[i].name;
    if (of_library) table[i].address = of_library[i].address;
    else if (!strcmp(route, "program")) table[i].address = dlsym(program, name);
    else if (!strcmp(route, "default")) table[i].address = dlsym(RTLD_DEFAULT, name);
    else if (!strcmp(route, "next")) table[i].address = dlsym(RTLD_NEXT, name);
    else if (!strcmp(route, "dlvsym")) table[i].address = dlvsym(handle, name, "NO_SUCH_VERSION");
    else if (!strcmp(route, "past-dlsym")) table[i].address = real_looking_dlsym(handle, name);
    else if (strcmp(route, "linked") != 0) table[i].address = dlsym(handle, name);
    print(name, table[i].address, "");
  }
  if (handle) print("cuNameOfTheFuture", dlsym(handle, "cuNameOfTheFuture"), "");
  call();
  return 0;
}
#endif
