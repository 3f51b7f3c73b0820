/* Processes that are killed, and one that must not notice. Tenants of an emulated node that share no code with it.

   kill_victims kill KILLS PARALLEL SEED   keeps PARALLEL children at work and kills one at random after another, KILLS
                                           times in rounds; after each comes a round in which they end by themselves.
   Prints
                                           {"kills": true or false} when a round begins, {"done": kills} at the end.
   kill_victims survive                    allocates, launches, synchronises, asks and frees until standard input ends;
                                           prints {"longest_us", "call", "calls"} of each 100 ms: the longest of its
   calls.

   Exit 0; 4 when the driver fails, which is printed as {"error": N, "call": name}. */
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int result;
typedef unsigned long long device_pointer;

static result (*init)(unsigned);
static result (*context_create)(void**, void*, unsigned, int);
static result (*memory_allocate)(device_pointer*, size_t);
static result (*memory_allocate_async)(device_pointer*, size_t, void*);
static result (*memory_free_async)(device_pointer, void*);
static result (*memory_free)(device_pointer);
static result (*memory_info)(size_t*, size_t*);
static result (*module_load)(void**, const void*);
static result (*function_get)(void**, void*, const char*);
static result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**);
static result (*synchronize)(void);

static const char ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n";

static void check(result error, const char* call) {
  if (error == 0) return;
  printf("{\"error\": %d, \"call\": \"%s\"}\n", error, call);
  fflush(stdout);
  _exit(4);
}
#define CHECK(call) check(call, #call)

static void* begin(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *function;
  if (!library) check(-1, "dlopen");
  init = dlsym(library, "cuInit");
  context_create = dlsym(library, "cuCtxCreate_v4");
  memory_allocate = dlsym(library, "cuMemAlloc_v2");
  memory_allocate_async = dlsym(library, "cuMemAllocAsync");
  memory_free_async = dlsym(library, "cuMemFreeAsync");
  memory_free = dlsym(library, "cuMemFree_v2");
  memory_info = dlsym(library, "cuMemGetInfo_v2");
  module_load = dlsym(library, "cuModuleLoadData");
  function_get = dlsym(library, "cuModuleGetFunction");
  launch = dlsym(library, "cuLaunchKernel");
  synchronize = dlsym(library, "cuCtxSynchronize");
  CHECK(init(0));
  CHECK(context_create(&context, NULL, 0, 0));
  CHECK(module_load(&module, ptx));
  CHECK(function_get(&function, module, "empty"));
  return function;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static volatile sig_atomic_t asked;
static void ask(int signal) { asked = signal; }

/* The work of a victim, until it is killed or asked to end. What is refused for want of room is left. */
static void toil(unsigned seed) {
  signal(SIGTERM, ask);
  void* function = begin();
  while (!asked) {
    device_pointer linear = 0, pooled = 0;
    result took = memory_allocate(&linear, (size_t)(rand_r(&seed) % 64 + 1) << 16);
    if (took != 2) check(took, "cuMemAlloc");
    result took_async = memory_allocate_async(&pooled, (size_t)(rand_r(&seed) % 64 + 1) << 16, NULL);
    if (took_async != 2) check(took_async, "cuMemAllocAsync");
    CHECK(launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    if (rand_r(&seed) % 4 == 0) CHECK(synchronize());
    if (took == 0) CHECK(memory_free(linear));
    if (took_async == 0) CHECK(memory_free_async(pooled, NULL));
  }
}

static int survive(void) {
  void* function = begin();
  struct pollfd input = {0, POLLIN, 0};
  double shown = now(), longest = 0;
  const char* which = "";
  long calls = 0;
  while (poll(&input, 1, 0) == 0) {
    device_pointer p = 0;
    size_t free = 0, total = 0;
#define TIMED(call)                                    \
  do {                                                 \
    const double before = now();                       \
    CHECK(call);                                       \
    const double took = now() - before;                \
    if (took > longest) longest = took, which = #call; \
    ++calls;                                           \
  } while (0)
    TIMED(memory_allocate(&p, 1 << 20));
    TIMED(launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TIMED(memory_info(&free, &total));
    TIMED(synchronize());
    TIMED(memory_free(p));
    if (now() - shown < 100000) continue;
    printf("{\"longest_us\": %.0f, \"call\": \"%s\", \"calls\": %ld}\n", longest, which, calls);
    fflush(stdout);
    shown = now();
    longest = 0;
    calls = 0;
  }
  return 0;
}

static pid_t start(unsigned seed) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  toil(seed);
  exit(0);
}

static int kill_them(long kills, int parallel, unsigned seed) {
  enum { kMost = 64, kRound = 100 };
  pid_t victims[kMost];
  if (parallel > kMost) parallel = kMost;
  for (int i = 0; i < parallel; ++i) victims[i] = start(seed + (unsigned)i);
  long done = 0;
  for (int killing = 1; done < kills || !killing; killing = !killing) {
    printf("{\"kills\": %s}\n", killing ? "true" : "false");
    fflush(stdout);
    for (int i = 0; i < kRound; ++i) {
      usleep((useconds_t)(rand_r(&seed) % 10000));
      const int which = rand_r(&seed) % parallel;
      int status = 0;
      kill(victims[which], killing ? SIGKILL : SIGTERM);
      waitpid(victims[which], &status, 0);
      if (WIFEXITED(status) && WEXITSTATUS(status) != 0) return WEXITSTATUS(status); /* it has said why */
      victims[which] = start(seed + (unsigned)i);
      done += killing;
    }
  }
  for (int i = 0; i < parallel; ++i) {
    kill(victims[i], SIGKILL);
    waitpid(victims[i], NULL, 0);
  }
  printf("{\"done\": %ld}\n", done);
  return 0;
}

int main(int count, char** words) {
  if (count == 2 && strcmp(words[1], "survive") == 0) return survive();
  if (count == 5 && strcmp(words[1], "kill") == 0)
    return kill_them(atol(words[2]), atoi(words[3]), (unsigned)atol(words[4]));
  return 2;
}
