/* What a program can do with each device that it sees. Shares no code with mete.

   devices            a line a device: UUID, and the results of: a context of its own, the primary context, cuDeviceTotalMem with the
                      bytes, an allocation of 3 GiB in whichever context there is, cuMemGetInfo with the bytes
   The first line is the result of cuInit. Exit 0. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long device_pointer;

int main(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "devices: %s\n", dlerror());
    return 4;
  }
  int (*init)(unsigned) = dlsym(library, "cuInit");
  int (*device_count)(int*) = dlsym(library, "cuDeviceGetCount");
  int (*device_get)(int*, int) = dlsym(library, "cuDeviceGet");
  int (*device_uuid)(unsigned char*, int) = dlsym(library, "cuDeviceGetUuid_v2");
  int (*total_memory)(size_t*, int) = dlsym(library, "cuDeviceTotalMem_v2");
  int (*create)(void**, unsigned, int) = dlsym(library, "cuCtxCreate_v2");
  int (*retain)(void**, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void*) = dlsym(library, "cuCtxSetCurrent");
  int (*allocate)(device_pointer*, size_t) = dlsym(library, "cuMemAlloc_v2");
  int (*memory_info)(size_t*, size_t*) = dlsym(library, "cuMemGetInfo_v2");
  int count = 0;
  printf("%d\n", init(0));
  if (device_count(&count) != 0) return 0;
  for (int i = 0; i < count; i++) {
    int device = -1;
    unsigned char uuid[16] = {0};
    void *own = NULL, *primary = NULL;
    size_t bytes = 0, bytes_free = 0, total = 0;
    device_pointer p = 0;
    if (device_get(&device, i) != 0 || device_uuid(uuid, device) != 0) continue;
    const int created = create(&own, 0, device);
    const int retained = retain(&primary, device);
    if (!created || !retained) set_current(own ? own : primary);
    const int known = total_memory(&bytes, device);
    const int allocated = created && retained ? -1 : allocate(&p, (size_t)3 << 30);
    const int seen = created && retained ? -1 : memory_info(&bytes_free, &total);
    printf("GPU-");
    for (int b = 0; b < 16; b++) printf("%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", uuid[b]);
    printf(" %d %d %d %zu %d %d %zu\n", created, retained, known, bytes, allocated, seen, total);
  }
  return 0;
}
