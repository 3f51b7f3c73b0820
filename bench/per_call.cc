// What one call costs: thread CPU time of a libcuda.so.1, by the way programs find it (dlopen, then cuGetProcAddress).
//
//   per_call LIBCUDA SERIES     prints ns per call; `per_call` alone lists the series
//
// Knows nothing of mete. bench/run compares it bare and behind mete.
#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#define METE_CUDA_NO_ALIASES
#include "mete/cuda.h"

namespace {

void* library;

[[noreturn]] void Die(const char* what) {
  fprintf(stderr, "per_call: %s failed\n", what);
  exit(1);
}
template <typename Function>
Function* Find(const char* name, int version) {
  static auto* ask = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  if (ask == nullptr || ask(name, &found, version, 0, &status) != CUDA_SUCCESS || found == nullptr) Die(name);
  return reinterpret_cast<Function*>(found);
}

double ThreadNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double PerCall(int calls, const std::function<void(int)>& many) {
  many(calls / 10 + 1);  // warm
  const double began = ThreadNs();
  many(calls);
  return (ThreadNs() - began) / calls;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: per_call LIBCUDA launch|alloc_10|alloc_50000|info|look_up|launch_synchronise\n");
    return 2;
  }
  library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    fprintf(stderr, "per_call: %s\n", dlerror());
    return 1;
  }
  if (Find<CUresult(unsigned)>("cuInit", 2000)(0) != CUDA_SUCCESS) Die("cuInit");
  CUcontext context;
  if (Find<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate", 3020)(&context, 0, 0) != CUDA_SUCCESS) {
    Die("cuCtxCreate");
  }
  auto* alloc = Find<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc", 3020);
  auto* release = Find<CUresult(CUdeviceptr)>("cuMemFree", 3020);
  auto* info = Find<CUresult(size_t*, size_t*)>("cuMemGetInfo", 3020);
  auto* launch = Find<std::remove_pointer_t<decltype(&cuLaunchKernel)>>("cuLaunchKernel", 4000);
  auto* synchronise = Find<CUresult(CUstream)>("cuStreamSynchronize", 2000);
  auto* ask = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));

  const char* series = argv[2];
  const auto f = reinterpret_cast<CUfunction>(&context);
  const auto one_launch = [&] {
    if (launch(f, 100, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS) Die("cuLaunchKernel");
  };
  double ns = 0;
  if (strcmp(series, "launch") == 0) {
    ns = PerCall(200'000, [&](int n) {
      for (int i = 0; i < n; ++i) one_launch();
    });
  } else if (strcmp(series, "launch_synchronise") == 0) {
    ns = PerCall(50'000, [&](int n) {
      for (int i = 0; i < n; ++i) {
        one_launch();
        if (synchronise(nullptr) != CUDA_SUCCESS) Die("cuStreamSynchronize");
      }
    });
  } else if (strncmp(series, "alloc_", 6) == 0) {
    std::vector<CUdeviceptr> live(static_cast<size_t>(atoi(series + 6)));
    for (CUdeviceptr& p : live) {
      if (alloc(&p, 64 << 10) != CUDA_SUCCESS) Die("cuMemAlloc");
    }
    ns = PerCall(100'000, [&](int n) {
      for (int i = 0; i < n; ++i) {
        CUdeviceptr p;
        if (alloc(&p, 64 << 10) != CUDA_SUCCESS || release(p) != CUDA_SUCCESS) Die("cuMemAlloc");
      }
    });
  } else if (strcmp(series, "info") == 0) {
    ns = PerCall(200'000, [&](int n) {
      size_t free, total;
      for (int i = 0; i < n; ++i) info(&free, &total);
    });
  } else if (strcmp(series, "look_up") == 0) {
    ns = PerCall(100'000, [&](int n) {
      void* found;
      CUdriverProcAddressQueryResult status;
      for (int i = 0; i < n; ++i) ask("cuMemAlloc", &found, 12000, 0, &status);
    });
  } else {
    Die(series);
  }
  printf("%.2f\n", ns);
  return 0;
}
