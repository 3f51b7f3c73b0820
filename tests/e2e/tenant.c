/* A tenant of an emulated node that shares no code with it: it opens libcuda.so.1 by itself and declares what it calls.

   tenant hold BYTES          a context, so much memory, one launch; prints {"pid", "got"}; ends with standard input
   tenant work                launches and waits until an error comes; prints {"launched"} once, then {"error", "launches"}
   tenant endless             one launch that never ends; prints the error that ends it
   tenant cycle COUNT HOW     COUNT children one after another: context, memory, launch; then `exit` (all given back),
                              `leave` (nothing given back) or `kill` (SIGKILL in the middle); prints {"cycles", "failed"}
   tenant post COUNT          mean time of posting a launch, {"ns"}: COUNT launches of an empty kernel, queue never full
   tenant leave WORD          fills 2 MiB with the word, frees it; prints {"left"}
   tenant find WORD           allocates 2 MiB, counts the word in it; prints {"found"}
   tenant free                cuMemGetInfo, {"free", "total", "devices"}
   tenant see                 {"devices": [{"name", "uuid", "sms", "bytes"}, …]}, without a context
   tenant stream COUNT        COUNT copies within the device, which its memory bounds; {"ms"} by the GPU's own clock
   tenant hog                 such copies without an end, many ahead of time; prints {"pid"} once
   tenant give BYTES SOCKET   memory, of which it hands a descriptor to whoever connects to the socket; prints {"pid"}, and
                              {"given"} when that is done; a line on standard input: memory given up, {"released"}; ends
                              with standard input
   tenant take SOCKET         takes it over from there; prints {"error"}; then the same

   TENANT_GPU chooses a GPU, TENANT_DRIVER a libcuda.so.1 by its path.

   Exit 0; 4 when the driver cannot be used, which is printed as {"error": N, "call": name}. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int result;
typedef unsigned long long device_pointer;

static void* library;
static result (*init)(unsigned);
static result (*device_get)(int*, int);
static result (*device_count)(int*);
static result (*context_create)(void**, void*, unsigned, int);
static result (*context_destroy)(void*);
static result (*memory_allocate)(device_pointer*, size_t);
static result (*memory_free)(device_pointer);
static result (*memory_info)(size_t*, size_t*);
static result (*set_words)(device_pointer, unsigned, size_t);
static result (*copy_to_host)(void*, device_pointer, size_t);
static result (*module_load)(void**, const void*);
static result (*function_get)(void**, void*, const char*);
static result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
static result (*synchronize)(void);

static const char ptx[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry endless() { LOOP: bra LOOP; }\n"
    ".visible .entry work() {\n .reg .b32 %r<3>; .reg .pred %p; mov.u32 %r1, 0;\n"
    "AGAIN: add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 20000; @%p bra AGAIN; ret;\n}\n";

static void* find(const char* name) {
  void* pointer = dlsym(library, name);
  if (!pointer) {
    printf("{\"error\": 500, \"call\": \"%s\"}\n", name);
    exit(4);
  }
  return pointer;
}

static void open_library(void) {
  const char* path = getenv("TENANT_DRIVER");
  library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "tenant: %s\n", dlerror());
    exit(4);
  }
  init = find("cuInit");
  device_get = find("cuDeviceGet");
  device_count = find("cuDeviceGetCount");
  context_create = find("cuCtxCreate_v4");
  context_destroy = find("cuCtxDestroy_v2");
  memory_allocate = find("cuMemAlloc_v2");
  memory_free = find("cuMemFree_v2");
  memory_info = find("cuMemGetInfo_v2");
  set_words = find("cuMemsetD32_v2");
  copy_to_host = find("cuMemcpyDtoH_v2");
  module_load = find("cuModuleLoadData");
  function_get = find("cuModuleGetFunction");
  launch = find("cuLaunchKernel");
  synchronize = find("cuCtxSynchronize");
}

static void check(result r, const char* call) {
  if (r == 0) return;
  printf("{\"error\": %d, \"call\": \"%s\"}\n", r, call);
  fflush(stdout);
  exit(4);
}

static void* context;
static void* module;

static void begin(void) {
  const char* ordinal = getenv("TENANT_GPU");
  int device = 0;
  check(init(0), "cuInit");
  check(device_get(&device, ordinal ? atoi(ordinal) : 0), "cuDeviceGet");
  check(context_create(&context, NULL, 0, device), "cuCtxCreate");
  check(module_load(&module, ptx), "cuModuleLoadData");
}

static void* function(const char* name) {
  void* f = NULL;
  check(function_get(&f, module, name), "cuModuleGetFunction");
  return f;
}

static result start(void* f) { return launch(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL); }

struct allocation_property { /* CUmemAllocationProp */
  int type, handle_types, location_type, location;
  void* win32;
  unsigned char flags[8];
};

/* Memory of one process in another's hands. */
static int give_or_take(int give, const char* word, const char* path) {
  result (*release)(unsigned long long) = find("cuMemRelease");
  unsigned long long handle = 0;
  int descriptor = -1, channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (give) {
    if (bind(channel, (struct sockaddr*)&address, sizeof address) || listen(channel, 1)) return 4;
    const struct allocation_property property = {.type = 1, .handle_types = 1, .location_type = 1};
    result (*create)(unsigned long long*, size_t, const struct allocation_property*, unsigned long long) = find("cuMemCreate");
    result (*export)(void*, unsigned long long, int, unsigned long long) = find("cuMemExportToShareableHandle");
    check(create(&handle, strtoull(word, NULL, 10), &property, 0), "cuMemCreate");
    check(export(&descriptor, handle, 1, 0), "cuMemExportToShareableHandle");
    printf("{\"pid\": %d}\n", (int)getpid());
    fflush(stdout);
    const int heir = accept(channel, NULL, NULL);
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    const ssize_t sent = sendmsg(heir, &message, 0);
    close(heir);
    close(descriptor);
    printf("{\"given\": %d}\n", sent == 1);
  } else {
    if (connect(channel, (struct sockaddr*)&address, sizeof address) || recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1) return 4;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    result (*import)(unsigned long long*, void*, int) = find("cuMemImportFromShareableHandle");
    printf("{\"error\": %d}\n", import(&handle, (void*)(intptr_t)descriptor, 1));
    close(descriptor);
  }
  close(channel);
  fflush(stdout);
  while (read(0, &byte, 1) > 0 && byte != '\n') {}
  if (byte == '\n') {
    printf("{\"released\": %d}\n", release(handle));
    fflush(stdout);
  }
  return 0;
}

static void until_input_ends(void) {
  char byte;
  while (read(0, &byte, 1) > 0) {}
}

static int cycle(const char* how) {
  const pid_t child = fork();
  if (child == 0) {
    device_pointer memory = 0;
    begin();
    check(memory_allocate(&memory, 8 << 20), "cuMemAlloc");
    check(set_words(memory, 7, 1024), "cuMemsetD32");
    check(start(function("work")), "cuLaunchKernel");
    if (!strcmp(how, "kill")) {
      kill(getpid(), SIGKILL);
    }
    check(synchronize(), "cuCtxSynchronize");
    if (!strcmp(how, "exit")) {
      check(memory_free(memory), "cuMemFree");
      check(context_destroy(context), "cuCtxDestroy");
    }
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) != 0 : !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !strcmp(how, "kill"));
}

static void see(void) {
  result (*get_name)(char*, int, int) = find("cuDeviceGetName");
  result (*get_uuid)(unsigned char*, int) = find("cuDeviceGetUuid_v2");
  result (*get_attribute)(int*, int, int) = find("cuDeviceGetAttribute");
  result (*get_memory)(size_t*, int) = find("cuDeviceTotalMem_v2");
  int count = 0;
  check(init(0), "cuInit");
  check(device_count(&count), "cuDeviceGetCount");
  printf("{\"devices\": [");
  for (int device = 0; device < count; ++device) {
    char name[128];
    unsigned char uuid[16];
    int multiprocessors = 0;
    size_t bytes = 0;
    check(get_name(name, sizeof name, device), "cuDeviceGetName");
    check(get_uuid(uuid, device), "cuDeviceGetUuid");
    check(get_attribute(&multiprocessors, 16, device), "cuDeviceGetAttribute");
    check(get_memory(&bytes, device), "cuDeviceTotalMem");
    printf("%s{\"name\": \"%s\", \"sms\": %d, \"bytes\": %zu, \"uuid\": \"", device ? ", " : "", name, multiprocessors,
           bytes);
    for (int i = 0; i < 16; ++i) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf("\"}");
  }
  printf("]}\n");
}

/* Copies within the device: COUNT of them, timed by the device, or without an end if it is 0. */
static void copies(long count) {
  enum { AHEAD = 1500 };
  const size_t bytes = 256 << 20;
  result (*copy)(device_pointer, device_pointer, size_t, void*) = find("cuMemcpyDtoDAsync_v2");
  result (*event_create)(void**, unsigned) = find("cuEventCreate");
  result (*event_record)(void*, void*) = find("cuEventRecord");
  result (*event_wait)(void*) = find("cuEventSynchronize");
  result (*event_time)(float*, void*, void*) = find("cuEventElapsedTime_v2");
  device_pointer from = 0, to = 0;
  void* events[2];
  float ms = 0;
  check(memory_allocate(&from, bytes), "cuMemAlloc");
  check(memory_allocate(&to, bytes), "cuMemAlloc");
  check(set_words(from, 7, bytes / 4), "cuMemsetD32");
  for (int i = 0; i < 2; ++i) check(event_create(&events[i], 0), "cuEventCreate");
  check(event_record(events[0], NULL), "cuEventRecord");
  for (long done = 0; count == 0 || done < count; ++done) {
    check(copy(to, from, bytes, NULL), "cuMemcpyDtoDAsync");
    if (count != 0 || done % AHEAD != AHEAD - 1) continue;
    /* One batch is under way while the next is posted. */
    if (done == 2 * AHEAD - 1) {
      printf("{\"pid\": %d}\n", (int)getpid());
      fflush(stdout);
    }
    check(event_wait(events[done / AHEAD % 2]), "cuEventSynchronize");
    check(event_record(events[done / AHEAD % 2], NULL), "cuEventRecord");
  }
  check(event_record(events[1], NULL), "cuEventRecord");
  check(event_wait(events[1]), "cuEventSynchronize");
  check(event_time(&ms, events[0], events[1]), "cuEventElapsedTime");
  printf("{\"ms\": %.6f}\n", ms);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const char* word = argc > 2 ? argv[2] : "0";
  open_library();
  if (!strcmp(what, "cycle")) {
    long failed = 0, count = atol(word);
    for (long i = 0; i < count; ++i) failed += cycle(argc > 3 ? argv[3] : "exit");
    printf("{\"cycles\": %ld, \"failed\": %ld}\n", count, failed);
    return 0;
  }
  if (!strcmp(what, "see")) {
    see();
    return 0;
  }
  begin();
  if (!strcmp(what, "stream") || !strcmp(what, "hog")) {
    copies(!strcmp(what, "hog") ? 0 : atol(word));
  } else if (!strcmp(what, "hold")) {
    device_pointer memory = 0;
    const size_t bytes = strtoull(word, NULL, 10);
    check(memory_allocate(&memory, bytes), "cuMemAlloc");
    check(start(function("work")), "cuLaunchKernel");
    check(synchronize(), "cuCtxSynchronize");
    printf("{\"pid\": %d, \"got\": %zu}\n", (int)getpid(), bytes);
    fflush(stdout);
    until_input_ends();
  } else if (!strcmp(what, "give") || !strcmp(what, "take")) {
    const int give = !strcmp(what, "give"), failed = give_or_take(give, word, give && argc > 3 ? argv[3] : word);
    if (failed) return failed;
    until_input_ends();
  } else if (!strcmp(what, "work")) {
    void* work = function("work");
    result r = 0;
    long launches = 0;
    while (r == 0) {
      if ((r = start(work)) == 0) r = synchronize();
      if (r == 0 && launches++ == 0) {
        printf("{\"launched\": 1, \"pid\": %d}\n", (int)getpid());
        fflush(stdout);
      }
    }
    device_pointer memory = 0;
    printf("{\"error\": %d, \"launches\": %ld, \"again\": %d}\n", r, launches, memory_allocate(&memory, 1 << 20));
  } else if (!strcmp(what, "endless")) {
    check(start(function("endless")), "cuLaunchKernel");
    printf("{\"launched\": 1, \"pid\": %d}\n", (int)getpid());
    fflush(stdout);
    printf("{\"error\": %d}\n", synchronize());
  } else if (!strcmp(what, "post")) {
    void* empty = function("empty");
    const long count = atol(word), batch = 500;
    uint64_t spent = 0;
    for (long done = 0; done < count; done += batch) {
      const uint64_t from = now_ns();
      for (long i = 0; i < batch; ++i) check(start(empty), "cuLaunchKernel");
      spent += now_ns() - from;
      check(synchronize(), "cuCtxSynchronize");
    }
    printf("{\"ns\": %.1f}\n", (double)spent / (double)((count + batch - 1) / batch * batch));
  } else if (!strcmp(what, "leave") || !strcmp(what, "find")) {
    const size_t words = (2 << 20) / 4;
    const unsigned mark = (unsigned)strtoul(word, NULL, 0);
    device_pointer memory = 0;
    check(memory_allocate(&memory, words * 4), "cuMemAlloc");
    if (!strcmp(what, "leave")) {
      check(set_words(memory, mark, words), "cuMemsetD32");
      check(synchronize(), "cuCtxSynchronize");
      check(memory_free(memory), "cuMemFree");
      printf("{\"left\": %zu}\n", words);
    } else {
      unsigned* host = malloc(words * 4);
      size_t found = 0;
      check(copy_to_host(host, memory, words * 4), "cuMemcpyDtoH");
      for (size_t i = 0; i < words; ++i) found += host[i] == mark;
      printf("{\"found\": %zu}\n", found);
    }
  } else if (!strcmp(what, "free")) {
    size_t free_bytes = 0, total = 0;
    int devices = 0;
    check(memory_info(&free_bytes, &total), "cuMemGetInfo");
    check(device_count(&devices), "cuDeviceGetCount");
    printf("{\"free\": %zu, \"total\": %zu, \"devices\": %d}\n", free_bytes, total, devices);
  } else {
    return 2;
  }
  return 0;
}
