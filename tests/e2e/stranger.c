/* A driver-API client that shares no code with mete: it opens libcuda.so.1 itself and declares what it calls. It allocates
   through one API until the driver refuses, halving the size down to one granule (2 MiB), and prints what it got.

   stranger API dlsym|proc-address [HOLD_SECONDS]
   API: alloc pitch managed async async-ptsz pool vmm export module library array small-arrays array3d mipmap graph
        capture fragments

   $STRANGER_DRIVER: the driver library by its path, as a program that goes past whatever stands in front of it.

   Prints one JSON line: bytes asked for and got, the refusing call's error, and what cuMemGetInfo says. Exit 0 when an
   allocation was refused, 3 when none ever was, 4 when the driver could not be used. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int result;
typedef unsigned long long device_pointer;

static void* library;
static result (*get_proc_address)(const char*, void**, int, uint64_t, int*);
static int by_proc_address;

/* `symbol` is the exported name, `name` the one cuGetProcAddress takes. */
static void* find(const char* symbol, const char* name, uint64_t flags) {
  void* pointer = NULL;
  if (by_proc_address) {
    int status = 0;
    if (get_proc_address(name, &pointer, 13000, flags, &status) != 0) pointer = NULL;
  } else {
    pointer = dlsym(library, symbol);
  }
  if (!pointer) {
    fprintf(stderr, "stranger: no %s in the driver\n", symbol);
    exit(4);
  }
  return pointer;
}

struct location { int type; int id; };
struct allocation_property { /* CUmemAllocationProp */
  int type, handle_types;
  struct location location;
  void* win32;
  struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
};
struct access { struct location location; int flags; };
struct pool_property { int type, handle_types; struct location location; void* win32; size_t max_size; unsigned short usage; unsigned char reserved[54]; };
struct node_property { /* CUDA_MEM_ALLOC_NODE_PARAMS */
  struct pool_property pool;
  const struct access* access;
  size_t access_count, bytes;
  device_pointer address;
};
struct array2d { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };

enum { FORMAT_UINT32 = 3, LOCATION_DEVICE = 1, PINNED = 1, READ_WRITE = 3 };

static const char* api;
static device_pointer pool;

static result allocate(size_t bytes) {
  device_pointer p = 0;
  const size_t row = 64 << 10; /* bytes of one row where a shape is needed: 16384 elements of 4 bytes */
  if (!strcmp(api, "alloc")) {
    result (*f)(device_pointer*, size_t) = find("cuMemAlloc_v2", "cuMemAlloc", 0);
    return f(&p, bytes);
  }
  if (!strcmp(api, "pitch")) {
    size_t pitch;
    result (*f)(device_pointer*, size_t*, size_t, size_t, unsigned) = find("cuMemAllocPitch_v2", "cuMemAllocPitch", 0);
    return f(&p, &pitch, row, bytes / row, 4);
  }
  if (!strcmp(api, "managed")) {
    result (*f)(device_pointer*, size_t, unsigned) = find("cuMemAllocManaged", "cuMemAllocManaged", 0);
    return f(&p, bytes, 1);
  }
  if (!strcmp(api, "async") || !strcmp(api, "fragments")) {
    result (*f)(device_pointer*, size_t, void*) = find("cuMemAllocAsync", "cuMemAllocAsync", 1);
    return f(&p, bytes, NULL);
  }
  if (!strcmp(api, "async-ptsz")) {
    result (*f)(device_pointer*, size_t, void*) = find("cuMemAllocAsync_ptsz", "cuMemAllocAsync", 2);
    return f(&p, bytes, NULL);
  }
  if (!strcmp(api, "pool")) {
    if (!pool) {
      struct pool_property property = {.type = PINNED, .location = {LOCATION_DEVICE, 0}};
      result (*create)(device_pointer*, const struct pool_property*) = find("cuMemPoolCreate", "cuMemPoolCreate", 0);
      const result r = create(&pool, &property);
      if (r) return r;
    }
    result (*f)(device_pointer*, size_t, device_pointer, void*) = find("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 1);
    return f(&p, bytes, pool, NULL);
  }
  if (!strcmp(api, "vmm")) {
    /* create, map, release at once: the memory lives in the mapping */
    struct allocation_property property = {.type = PINNED, .location = {LOCATION_DEVICE, 0}};
    struct access access = {{LOCATION_DEVICE, 0}, READ_WRITE};
    result (*reserve)(device_pointer*, size_t, size_t, device_pointer, uint64_t) = find("cuMemAddressReserve", "cuMemAddressReserve", 0);
    result (*create)(uint64_t*, size_t, const struct allocation_property*, uint64_t) = find("cuMemCreate", "cuMemCreate", 0);
    result (*map)(device_pointer, size_t, size_t, uint64_t, uint64_t) = find("cuMemMap", "cuMemMap", 0);
    result (*set_access)(device_pointer, size_t, const struct access*, size_t) = find("cuMemSetAccess", "cuMemSetAccess", 0);
    result (*release)(uint64_t) = find("cuMemRelease", "cuMemRelease", 0);
    uint64_t handle;
    result r = create(&handle, bytes, &property, 0);
    if (r) return r;
    if ((r = reserve(&p, bytes, 0, 0, 0)) || (r = map(p, bytes, 0, handle, 0)) || (r = set_access(p, bytes, &access, 1))) return 1000 + r;
    return (r = release(handle)) ? 1000 + r : 0;
  }
  if (!strcmp(api, "export")) {
    /* create, export, release, close: the memory lives in what was imported from the descriptor */
    struct allocation_property property = {.type = PINNED, .handle_types = 1, .location = {LOCATION_DEVICE, 0}};
    result (*create)(uint64_t*, size_t, const struct allocation_property*, uint64_t) = find("cuMemCreate", "cuMemCreate", 0);
    result (*export)(void*, uint64_t, int, uint64_t) = find("cuMemExportToShareableHandle", "cuMemExportToShareableHandle", 0);
    result (*import)(uint64_t*, void*, int) = find("cuMemImportFromShareableHandle", "cuMemImportFromShareableHandle", 0);
    result (*release)(uint64_t) = find("cuMemRelease", "cuMemRelease", 0);
    uint64_t handle, imported;
    int descriptor = -1;
    result r = create(&handle, bytes, &property, 0);
    if (r) return r;
    if ((r = export(&descriptor, handle, 1, 0)) || (r = import(&imported, (void*)(intptr_t)descriptor, 1)) || (r = release(handle))) return 1000 + r;
    close(descriptor);
    return 0;
  }
  if (!strcmp(api, "module") || !strcmp(api, "library")) {
    /* a variable of a module, and one of a library that is there once its address was asked for */
    char text[400];
    snprintf(text, sizeof text, ".version 6.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 big[%zu];\n.visible .entry empty() { ret; }\n", bytes);
    if (api[0] == 'm') {
      result (*load)(void**, const void*) = find("cuModuleLoadData", "cuModuleLoadData", 0);
      void* module;
      return load(&module, text);
    }
    result (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned) = find("cuLibraryLoadData", "cuLibraryLoadData", 0);
    result (*global)(device_pointer*, size_t*, void*, const char*) = find("cuLibraryGetGlobal", "cuLibraryGetGlobal", 0);
    void* made;
    result r = load(&made, text, NULL, NULL, 0, NULL, NULL, 0);
    if (r) return r;
    return (r = global(&p, NULL, made, "big")) ? 1000 + r : 0;
  }
  if (!strcmp(api, "array")) {
    struct array2d d = {row / 4, bytes / row, FORMAT_UINT32, 1};
    result (*f)(void**, const struct array2d*) = find("cuArrayCreate_v2", "cuArrayCreate", 0);
    void* array;
    return f(&array, &d);
  }
  if (!strcmp(api, "small-arrays")) {
    /* many of 40 000 bytes, which share granules */
    struct array2d d = {10000, 1, FORMAT_UINT32, 1};
    result (*f)(void**, const struct array2d*) = find("cuArrayCreate_v2", "cuArrayCreate", 0);
    void* array;
    result r = 0;
    for (size_t done = 0; done < bytes && r == 0; done += 40000) r = f(&array, &d);
    return r;
  }
  if (!strcmp(api, "array3d") || !strcmp(api, "mipmap")) {
    struct array3d d = {row / 4, 16, bytes / row / 16, FORMAT_UINT32, 1, 0};
    void* array;
    if (api[0] == 'm') {
      result (*f)(void**, const struct array3d*, unsigned) = find("cuMipmappedArrayCreate", "cuMipmappedArrayCreate", 0);
      return f(&array, &d, 1);
    }
    result (*f)(void**, const struct array3d*) = find("cuArray3DCreate_v2", "cuArray3DCreate", 0);
    return f(&array, &d);
  }
  if (!strcmp(api, "graph") || !strcmp(api, "capture")) {
    /* a graph with an allocation node, made by hand or by capturing an allocation: its memory comes with the launch */
    result (*instantiate)(void**, void*, unsigned long long) = find("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 0);
    result (*launch)(void*, void*) = find("cuGraphLaunch", "cuGraphLaunch", 1);
    result (*synchronize)(void*) = find("cuStreamSynchronize", "cuStreamSynchronize", 1);
    void *graph = NULL, *node = NULL, *executable = NULL;
    result r;
    if (api[0] == 'g') {
      struct node_property property = {.pool = {.type = PINNED, .location = {LOCATION_DEVICE, 0}}, .bytes = bytes};
      result (*create)(void**, unsigned) = find("cuGraphCreate", "cuGraphCreate", 0);
      result (*add)(void**, void*, void* const*, size_t, struct node_property*) = find("cuGraphAddMemAllocNode", "cuGraphAddMemAllocNode", 0);
      if ((r = create(&graph, 0)) || (r = add(&node, graph, NULL, 0, &property))) return 1000 + r;
    } else {
      static void* stream;
      result (*stream_create)(void**, unsigned) = find("cuStreamCreate", "cuStreamCreate", 0);
      result (*begin)(void*, int) = find("cuStreamBeginCapture_v2", "cuStreamBeginCapture", 1);
      result (*end)(void*, void**) = find("cuStreamEndCapture", "cuStreamEndCapture", 1);
      result (*f)(device_pointer*, size_t, void*) = find("cuMemAllocAsync", "cuMemAllocAsync", 1);
      if (!stream && (r = stream_create(&stream, 1))) return 1000 + r;
      if ((r = begin(stream, 0))) return 1000 + r;
      const result allocated = f(&p, bytes, stream);
      if ((r = end(stream, &graph)) || allocated) return allocated ? allocated : 1000 + r;
    }
    if ((r = instantiate(&executable, graph, 0))) return r;
    if ((r = launch(executable, NULL))) return r;
    return (r = synchronize(NULL)) ? 1000 + r : 0;
  }
  fprintf(stderr, "stranger: unknown API %s\n", api);
  exit(2);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  api = argv[1];
  const char* driver = getenv("STRANGER_DRIVER");
  library = dlopen(driver ? driver : "libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "stranger: %s\n", dlerror());
    return 4;
  }
  get_proc_address = dlsym(library, "cuGetProcAddress_v2");
  by_proc_address = !strcmp(argv[2], "proc-address");
  int count = 0, device = 0;
  void* context = NULL;
  result (*init)(unsigned) = find("cuInit", "cuInit", 0);
  result (*device_count)(int*) = find("cuDeviceGetCount", "cuDeviceGetCount", 0);
  result (*device_get)(int*, int) = find("cuDeviceGet", "cuDeviceGet", 0);
  result (*retain)(void**, int) = find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 0);
  result (*set_current)(void*) = find("cuCtxSetCurrent", "cuCtxSetCurrent", 0);
  result (*memory_info)(size_t*, size_t*) = find("cuMemGetInfo_v2", "cuMemGetInfo", 0);
  result r;
  if ((r = init(0)) || (r = device_count(&count)) || (r = device_get(&device, 0)) || (r = retain(&context, device)) || (r = set_current(context))) {
    printf("{\"error\": %d}\n", r);
    return 4;
  }
  if (!strcmp(api, "fragments")) { /* a pool that keeps what is freed, full of holes that are too small */
    static device_pointer blocks[4096];
    unsigned long long keep = ~0ull;
    int n = 0;
    result (*default_pool)(device_pointer*, int) = find("cuDeviceGetDefaultMemPool", "cuDeviceGetDefaultMemPool", 0);
    result (*set)(device_pointer, int, void*) = find("cuMemPoolSetAttribute", "cuMemPoolSetAttribute", 0);
    result (*take)(device_pointer*, size_t, void*) = find("cuMemAllocAsync", "cuMemAllocAsync", 1);
    result (*give)(device_pointer, void*) = find("cuMemFreeAsync", "cuMemFreeAsync", 1);
    if ((r = default_pool(&pool, device)) || (r = set(pool, 4 /* release threshold */, &keep))) {
      printf("{\"error\": %d}\n", r);
      return 4;
    }
    while (n < 4096 && !take(&blocks[n], 10 << 20, NULL)) n++;
    for (int i = 0; i < n; i += 2) give(blocks[i], NULL);
    ((result (*)(void))find("cuCtxSynchronize", "cuCtxSynchronize", 0))();
  }
  const size_t granule = 2 << 20;
  size_t got = 0, size = (size_t)256 << 20, free_bytes = 0, total = 0;
  int refusal = 0;
  while (size >= granule && got < ((size_t)1 << 40)) {
    r = allocate(size);
    if (r == 0) {
      got += size;
      continue;
    }
    refusal = r;
    if (r != 2) break;
    size /= 2;
  }
  memory_info(&free_bytes, &total);
  printf("{\"got\": %zu, \"error\": %d, \"free\": %zu, \"total\": %zu, \"devices\": %d, \"pid\": %d}\n", got, refusal, free_bytes, total, count, (int)getpid());
  fflush(stdout);
  if (argc > 3) {
    char line[8];
    if (!strcmp(argv[3], "wait")) { /* hold until standard input ends */
      while (read(0, line, sizeof line) > 0) {}
    } else {
      sleep((unsigned)atoi(argv[3]));
    }
  }
  return refusal ? 0 : 3;
}
