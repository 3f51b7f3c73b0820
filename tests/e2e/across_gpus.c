/* What programs on several GPUs do among each other, as collective libraries do it: peer access, copies between GPUs, memory handed to
   another process (IPC, and an exported file descriptor). A line a step with the driver's answer; the same with a share as without.

   across_gpus           needs two GPUs that can reach each other. Exit 0 when it came to the end, whatever the answers. */
#define METE_CUDA_NO_ALIASES
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mete/cuda.h"

static void* library;
#define CALL(name, ...) (((__typeof__(&name))dlsym(library, #name))(__VA_ARGS__))
#define STEP(what, ...) printf("%s: %d\n", what, (int)(__VA_ARGS__))

enum { kBytes = 4 << 20, kValue = 0x5EED };

static void open_driver(void) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "across_gpus: %s\n", dlerror());
    exit(4);
  }
  STEP("init", CALL(cuInit, 0));
}

/* Opens what the other process offers and reads it. */
static int other_process(int from) {
  CUipcMemHandle handle;
  CUcontext context;
  CUdeviceptr there = 0;
  unsigned value = 0;
  if (read(from, &handle, sizeof handle) != (ssize_t)sizeof handle) return 1;
  open_driver();
  STEP("other: context", CALL(cuCtxCreate_v2, &context, 0, 0));
  STEP("other: open", CALL(cuIpcOpenMemHandle_v2, &there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  STEP("other: read", CALL(cuMemcpyDtoH_v2, &value, there, sizeof value));
  printf("other: value %x\n", value);
  STEP("other: close", CALL(cuIpcCloseMemHandle, there));
  fflush(stdout);
  return 0;
}

int main(void) {
  int pipes[2], can[2] = {0, 0}, status = 0;
  if (pipe(pipes) != 0) return 1;
  fflush(stdout);
  const pid_t other = fork(); /* before the driver: a context does not survive a fork */
  if (other == 0) _exit(other_process(pipes[0]));

  open_driver();
  CUcontext context[2];
  CUdeviceptr memory[2] = {0, 0};
  unsigned value = 0;
  for (int i = 0; i < 2; i++) {
    STEP("context", CALL(cuCtxCreate_v2, &context[i], 0, i));
    STEP("memory", CALL(cuMemAlloc_v2, &memory[i], kBytes));
    STEP("can", CALL(cuDeviceCanAccessPeer, &can[i], i, 1 - i));
  }
  printf("can %d %d\n", can[0], can[1]);
  STEP("enable", CALL(cuCtxEnablePeerAccess, context[0], 0)); /* of 1 in 0 */
  STEP("set", CALL(cuMemsetD32_v2, memory[1], kValue, kBytes / 4));
  CALL(cuCtxSetCurrent, context[0]);
  STEP("enable", CALL(cuCtxEnablePeerAccess, context[1], 0));
  STEP("enable again", CALL(cuCtxEnablePeerAccess, context[1], 0));
  STEP("copy", CALL(cuMemcpyPeer, memory[0], context[0], memory[1], context[1], kBytes));
  STEP("read", CALL(cuMemcpyDtoH_v2, &value, memory[0], sizeof value));
  printf("value %x\n", value);

  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0, again = 0;
  int fd = -1;
  STEP("create", CALL(cuMemCreate, &handle, kBytes, &properties, 0));
  STEP("export", CALL(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  STEP("import", CALL(cuMemImportFromShareableHandle, &again, (void*)(long)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  STEP("release", CALL(cuMemRelease, again));
  STEP("release", CALL(cuMemRelease, handle));

  CUipcMemHandle ipc;
  STEP("offer", CALL(cuIpcGetMemHandle, &ipc, memory[0]));
  fflush(stdout);
  if (write(pipes[1], &ipc, sizeof ipc) != (ssize_t)sizeof ipc) return 1;
  waitpid(other, &status, 0);
  printf("other ended %d\n", status);
  STEP("disable", CALL(cuCtxDisablePeerAccess, context[1]));
  return 0;
}
