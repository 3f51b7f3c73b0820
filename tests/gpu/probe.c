/* What only a real driver can tell, as lines of JSON; it shares no code with mete and opens libcuda.so.1 itself.

   probe look-ups FUNCTIONS.tsv   every symbol by dlsym and by cuGetProcAddress_v2 with its name, version and stream:
                                  {"compared", "different": [symbols]}
   probe granule                  the steps in which free memory falls for small and large allocations: {"small", "large"}
   probe context                  free memory before and with a context, as nvidia-smi would see it: {"context"}; waits
   probe runtime LIBCUDART        cudaMalloc of 64 MiB until it is refused: {"got", "error"}

   Exit 0; 4 when driver or library cannot be used, with the reason on standard error. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int result;
typedef unsigned long long device_pointer;

static void* library;

static void* find(const char* name) {
  void* pointer = dlsym(library, name);
  if (!pointer) {
    fprintf(stderr, "probe: the driver has no %s\n", name);
    exit(4);
  }
  return pointer;
}

static void check(result r, const char* call) {
  if (r == 0) return;
  fprintf(stderr, "probe: %s answered %d\n", call, r);
  exit(4);
}

static void* begin(void) {
  int device = 0;
  void* context = NULL;
  check(((result(*)(unsigned))find("cuInit"))(0), "cuInit");
  check(((result(*)(int*, int))find("cuDeviceGet"))(&device, 0), "cuDeviceGet");
  check(((result(*)(void**, unsigned, int))find("cuCtxCreate_v2"))(&context, 0, device), "cuCtxCreate");
  return context;
}

static size_t free_memory(void) {
  size_t free_bytes = 0, total = 0;
  check(((result(*)(size_t*, size_t*))find("cuMemGetInfo_v2"))(&free_bytes, &total), "cuMemGetInfo");
  return free_bytes;
}

/* Columns of the list: symbol, name, version, stream, module, parameters. */
static void look_ups(const char* list) {
  result (*ask)(const char*, void**, int, uint64_t, int*) = find("cuGetProcAddress_v2");
  FILE* file = fopen(list, "r");
  char line[4096], symbol[256], name[256], stream[32];
  int version, compared = 0, different = 0;
  if (!file) {
    fprintf(stderr, "probe: %s cannot be read\n", list);
    exit(4);
  }
  printf("{\"different\": [");
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "%255s %255s %d %31s", symbol, name, &version, stream) != 4) continue;
    void* by_name = dlsym(library, symbol);
    void* asked = NULL;
    int status = 0;
    const uint64_t flags = !strcmp(stream, "per-thread") ? 2 : !strcmp(stream, "legacy") ? 1 : 0;
    if (!by_name || ask(name, &asked, version, flags, &status) != 0 || !asked) continue; /* not in this driver */
    compared++;
    if (asked == by_name) continue;
    printf("%s\"%s\"", different++ ? ", " : "", symbol);
  }
  fclose(file);
  printf("], \"compared\": %d}\n", compared);
}

static size_t step(size_t bytes, int count) {
  result (*allocate)(device_pointer*, size_t) = find("cuMemAlloc_v2");
  size_t before = free_memory(), least = 0;
  for (int i = 0; i < count; i++) {
    device_pointer p;
    check(allocate(&p, bytes), "cuMemAlloc");
    const size_t now = free_memory();
    if (now < before && (least == 0 || before - now < least)) least = before - now;
    before = now;
  }
  return least;
}

static void runtime(const char* path) {
  void* cudart = dlopen(path, RTLD_NOW);
  if (!cudart) {
    fprintf(stderr, "probe: %s\n", dlerror());
    exit(4);
  }
  int (*allocate)(void**, size_t) = (int (*)(void**, size_t))dlsym(cudart, "cudaMalloc");
  size_t got = 0;
  int error = 0;
  void* p;
  while (got < (size_t)1 << 40 && (error = allocate(&p, 64 << 20)) == 0) got += 64 << 20;
  printf("{\"got\": %zu, \"error\": %d}\n", got, error);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "probe: %s\n", dlerror());
    return 4;
  }
  if (!strcmp(what, "look-ups") && argc == 3) {
    check(((result(*)(unsigned))find("cuInit"))(0), "cuInit");
    look_ups(argv[2]);
  } else if (!strcmp(what, "granule")) {
    begin();
    const size_t small = step(1000, 3000), large = step(3 << 20, 16);
    printf("{\"small\": %zu, \"large\": %zu}\n", small, large);
  } else if (!strcmp(what, "context")) {
    begin();
    printf("{\"pid\": %d}\n", (int)getpid());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
  } else if (!strcmp(what, "runtime") && argc == 3) {
    runtime(argv[2]);
  } else {
    fprintf(stderr, "usage: probe look-ups FUNCTIONS.tsv | granule | context | runtime LIBCUDART\n");
    return 2;
  }
  return 0;
}
