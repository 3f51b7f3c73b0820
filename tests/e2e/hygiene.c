/* What a program can see of what is loaded into it. Shares no code with mete.

   hygiene idle       loads no driver; prints what it finds: objects, threads, descriptors, environment, …
   hygiene used       prints the same, line by line "before" and "after": loading libcuda.so.1, cuInit, a context, an allocation
   hygiene closefrom  closes every descriptor from 3 on and goes on: allocates, frees, forks a child that uses its own descriptors
   hygiene handlers   has its own handlers for every signal that may have one, as a JVM has for SIGUSR1 and SIGUSR2, and gets them
   hygiene quota      allocates 1 GiB blocks until refused; prints how many it got, and the refusal
   A second argument is what is opened instead of libcuda.so.1.

   Exit 0; 1 when something was not as it must be, which is said on standard error; 4 when there is no GPU for it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long device_pointer;
static int (*init)(unsigned);
static int (*device_get)(int*, int);
static int (*create)(void**, unsigned, int);
static int (*allocate)(device_pointer*, size_t);
static int (*release)(device_pointer);
extern char** environ;

static const char* driver = "libcuda.so.1";

static void load(void) {
  void* library = dlopen(driver, RTLD_NOW);
  if (!library) {
    fprintf(stderr, "hygiene: %s\n", dlerror());
    exit(4);
  }
  init = dlsym(library, "cuInit");
  device_get = dlsym(library, "cuDeviceGet");
  create = dlsym(library, "cuCtxCreate_v2");
  allocate = dlsym(library, "cuMemAlloc_v2");
  release = dlsym(library, "cuMemFree_v2");
}

static device_pointer begin(void) {
  int device = 0, result;
  void* context;
  device_pointer p = 0;
  load();
  if ((result = init(0)) || (result = device_get(&device, 0)) || (result = create(&context, 0, device)) || (result = allocate(&p, 1 << 20))) {
    fprintf(stderr, "hygiene: error %d\n", result);
    exit(4);
  }
  return p;
}

static int print_object(struct dl_phdr_info* info, size_t size, void* when) {
  (void)size;
  const char* slash = strrchr(info->dlpi_name, '/');
  printf("%s object %s\n", (const char*)when, slash ? slash + 1 : info->dlpi_name);
  return 0;
}

static void print_folder(const char* when, const char* what, const char* path) {
  DIR* folder = opendir(path);
  if (!folder) return;
  const int own = dirfd(folder);
  for (struct dirent* entry; (entry = readdir(folder));) {
    if (entry->d_name[0] == '.' || (!strcmp(what, "descriptor") && atoi(entry->d_name) == own)) continue;
    char link[512] = "", name[300];
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    if (!strcmp(what, "descriptor") && readlink(name, link, sizeof link - 1) < 0) link[0] = '?';
    /* above 400 mete may have descriptors of its own */
    if (strcmp(what, "descriptor") != 0) printf("%s %s\n", when, what);
    else if (atoi(entry->d_name) < 400) printf("%s descriptor %s %s\n", when, entry->d_name, link[0] == '/' ? link : "-");
  }
  closedir(folder);
}

static void print_all(const char* when) {
  char folder[4096];
  sigset_t blocked;
  stack_t stack;
  struct rlimit limit;
  const mode_t mask = umask(0);
  umask(mask);
  printf("%s umask %o\n", when, mask);
  printf("%s folder %s\n", when, getcwd(folder, sizeof folder));
  sigprocmask(SIG_SETMASK, NULL, &blocked);
  sigaltstack(NULL, &stack);
  printf("%s alternate stack %p\n", when, stack.ss_sp);
  for (int signal = 1; signal < 65; signal++) {
    struct sigaction action;
    if (sigaction(signal, NULL, &action) != 0) continue;
    printf("%s signal %d handler %p flags %x blocked %d\n", when, signal, (void*)action.sa_handler, action.sa_flags, sigismember(&blocked, signal));
  }
  for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
    if (getrlimit(resource, &limit) == 0) printf("%s limit %d %ld %ld\n", when, resource, (long)limit.rlim_cur, (long)limit.rlim_max);
  }
  for (char** entry = environ; *entry; entry++) {
    if (strncmp(*entry, "LD_PRELOAD=", 11) != 0) printf("%s environment %s\n", when, *entry);
  }
  print_folder(when, "thread", "/proc/self/task");
  print_folder(when, "descriptor", "/proc/self/fd");
}

static int wrong(const char* what) {
  fprintf(stderr, "hygiene: %s\n", what);
  return 1;
}

static int closefrom_and_go_on(void) {
  begin();
  syscall(SYS_close_range, 3u, ~0u, 0);
  int ours[2];
  if (pipe(ours) != 0) return wrong("no pipe"); /* numbers that may have been another's */
  for (int i = 0; i < 200; i++) {
    device_pointer p;
    if (allocate(&p, (size_t)64 << 20) || release(p)) return wrong("no memory after closefrom");
  }
  const pid_t child = fork();
  if (child == 0) {
    char byte = 7;
    _exit(write(ours[1], &byte, 1) == 1 ? 0 : 1);
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) return wrong("a descriptor of the child was closed");
  char byte = 0;
  if (read(ours[0], &byte, 1) != 1 || byte != 7) return wrong("the pipe is not ours any more");
  return 0;
}

static volatile sig_atomic_t got[65];
static void handle(int signal) { got[signal]++; }

static int own_handlers(void) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  int count = 0;
  for (int signal = 1; signal < 65; signal++) {
    if (sigaction(signal, &action, NULL) == 0) count++;
  }
  device_pointer p = begin();
  for (int signal = 1; signal < 65; signal++) {
    struct sigaction now;
    if (sigaction(signal, NULL, &now) != 0 || signal == SIGKILL || signal == SIGSTOP) continue;
    if (now.sa_handler != handle) return wrong("a handler is another");
    const int before = got[signal];
    raise(signal);
    if (got[signal] != before + 1) return wrong("a signal did not reach its handler");
    if (release(p) || allocate(&p, 1 << 20)) return wrong("no memory after a signal");
  }
  return count > 40 ? 0 : wrong("too few handlers");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (argc > 2) driver = argv[2];
  if (!strcmp(argv[1], "closefrom")) return closefrom_and_go_on();
  if (!strcmp(argv[1], "handlers")) return own_handlers();
  if (!strcmp(argv[1], "quota")) {
    device_pointer p = begin();
    int blocks = 0, result;
    while ((result = allocate(&p, (size_t)1 << 30)) == 0) blocks++;
    printf("%d %d\n", blocks, result);
    return 0;
  }
  /* distinctive, so that a change shows */
  umask(027);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  setvbuf(stdout, NULL, _IOFBF, 1 << 20);
  print_all("before");
  if (!strcmp(argv[1], "used")) {
    begin();
    print_all("after");
  } else {
    dl_iterate_phdr(print_object, "before");
    void* math = dlopen("libm.so.6", RTLD_NOW); /* the way of any program that loads something */
    if (!math || !dlsym(math, "cos") || dlsym(RTLD_DEFAULT, "cuInit") || dlsym(RTLD_DEFAULT, "curl_easy_init")) return wrong("a look-up went wrong");
    print_all("after");
    dl_iterate_phdr(print_object, "after");
  }
  return 0;
}
