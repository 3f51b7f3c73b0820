// What one call costs: thread CPU time of a libcuda.so.1, by the way programs find it (dlopen, then cuGetProcAddress).
//
//   per_call LIBCUDA SERIES [THREADS]     prints ns per call, and of the reference; `per_call` alone lists the series
//   per_call LIBCUDA SERIES calls         prints how many system calls 10 000 of the calls make
//   per_call LIBCUDA init                 waits for the end of standard input, then prints CPU and wall ns of cuInit
//
// A figure is the median over stretches of calls. What else runs on the same core (a neighbour of the virtual machine
// on its other thread) can double the time of everything for seconds; so a reference, work of ours that calls nothing,
// is timed between the stretches, and a stretch counts if the references beside it took about as long as the shortest.
// The reference's time is printed for comparing processes. Knows nothing of mete. bench/run compares it bare and behind
// mete.
#include <dlfcn.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
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

double Ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

using Many = std::function<void(int calls)>;

double Median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Some 10 us of eight independent chains of the simplest instructions, which keep every unit of a core busy: on a core
// that is shared it takes up to twice as long.
double Reference() {
  static std::atomic<uint64_t> sink{0};
  const double began = Ns(CLOCK_THREAD_CPUTIME_ID);
  uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
  for (uint64_t i = 0; i < 10'000; ++i) {
    a ^= i, b += i, c ^= i, d += i, e ^= i, f += i, g ^= i, h += i;
    // Seen by nobody, so that the compiler does every turn.
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
  }
  sink.store(a + b + c + d + e + f + g + h, std::memory_order_relaxed);
  return Ns(CLOCK_THREAD_CPUTIME_ID) - began;
}

struct Figure {
  double call = 0, reference = 0;  // ns
};

Figure PerCall(int calls, const Many& many) {
  // Warm for as long as an interceptor with a thread of its own may need until it limits (one looks every 120 ms), and
  // take fewer calls where a call is slow, so that no figure takes minutes.
  constexpr double kWarmNs = 300e6, kStretchNs = 20e6, kUndisturbed = 1.1;
  constexpr size_t kStretches = 201, kMostStretches = 5 * kStretches;
  const double warm = Ns(CLOCK_MONOTONIC), cpu = Ns(CLOCK_THREAD_CPUTIME_ID);
  int warmed = 0;
  do {
    many(calls / 20);
    warmed += calls / 20;
  } while (Ns(CLOCK_MONOTONIC) - warm < kWarmNs);
  const double stretch = (Ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / warmed * calls;
  if (stretch > kStretchNs) calls = std::max(1, static_cast<int>(calls * (kStretchNs / stretch)));
  struct Stretch {
    double call, reference;  // the slower of the two beside it
  };
  std::vector<Stretch> stretches;
  double before = Reference(), best = before;
  size_t undisturbed = 0;
  while (undisturbed < kStretches && stretches.size() < kMostStretches) {
    const double began = Ns(CLOCK_THREAD_CPUTIME_ID);
    many(calls);
    const double took = Ns(CLOCK_THREAD_CPUTIME_ID) - began, after = Reference();
    stretches.push_back({took / calls, std::max(before, after)});
    if (after < best) {
      best = after;
      undisturbed = static_cast<size_t>(std::count_if(stretches.begin(), stretches.end(), [&](const Stretch& one) {
        return one.reference <= kUndisturbed * best;
      }));
    } else if (stretches.back().reference <= kUndisturbed * best) {
      ++undisturbed;
    }
    before = after;
  }
  std::vector<double> figures, references;
  for (const Stretch& one : stretches) {
    if (one.reference > kUndisturbed * best && undisturbed != 0) continue;
    figures.push_back(one.call);
    references.push_back(one.reference);
  }
  return {Median(figures), Median(references)};
}

// The functions as the program under measurement has them.
struct Cuda {
  CUresult (*alloc)(CUdeviceptr*, size_t) = Find<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc", 3020);
  CUresult (*release)(CUdeviceptr) = Find<CUresult(CUdeviceptr)>("cuMemFree", 3020);
  CUresult (*info)(size_t*, size_t*) = Find<CUresult(size_t*, size_t*)>("cuMemGetInfo", 3020);
  std::remove_pointer_t<decltype(&cuLaunchKernel)>* launch =
      Find<std::remove_pointer_t<decltype(&cuLaunchKernel)>>("cuLaunchKernel", 4000);
  CUresult (*synchronise)(CUstream) = Find<CUresult(CUstream)>("cuStreamSynchronize", 2000);
  CUresult (*set_current)(CUcontext) = Find<CUresult(CUcontext)>("cuCtxSetCurrent", 4000);
  CUresult (*create_stream)(CUstream*, unsigned) = Find<CUresult(CUstream*, unsigned)>("cuStreamCreate", 2000);
  decltype(&cuGetProcAddress_v2) ask =
      reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
};

// One thread's work for a series; null: no such series.
struct Work {
  int calls = 0;  // of a stretch
  Many many;
};
using Make = Work (*)(const Cuda&, CUstream);

template <int kKinds>
Work Launches(const Cuda& cuda, CUstream stream) {
  return {10'000, [&cuda, stream](int n) {
            static char functions[kKinds][64];
            for (int i = 0, kind = 0; i < n; ++i, kind = kind + 1 == kKinds ? 0 : kind + 1) {
              const auto f = reinterpret_cast<CUfunction>(functions[kind]);
              if (cuda.launch(f, 100, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr) != CUDA_SUCCESS) Die("launch");
            }
          }};
}
Work LaunchesAwaited(const Cuda& cuda, CUstream stream) {
  const Many launch = Launches<1>(cuda, stream).many;
  return {500, [&cuda, stream, launch](int n) {
            for (int i = 0; i < n; ++i) {
              launch(1);
              if (cuda.synchronise(stream) != CUDA_SUCCESS) Die("cuStreamSynchronize");
            }
          }};
}
template <size_t kLive>
Work Allocations(const Cuda& cuda, CUstream) {
  constexpr size_t kBytes = 64 << 10;
  for (size_t i = 0; i < kLive; ++i) {
    CUdeviceptr kept;
    if (cuda.alloc(&kept, kBytes) != CUDA_SUCCESS) Die("cuMemAlloc");
  }
  return {2'000, [&cuda](int n) {
            for (int i = 0; i < n; ++i) {
              CUdeviceptr p;
              if (cuda.alloc(&p, kBytes) != CUDA_SUCCESS || cuda.release(p) != CUDA_SUCCESS) Die("cuMemAlloc");
            }
          }};
}
Work Infos(const Cuda& cuda, CUstream) {
  return {10'000, [&cuda](int n) {
            size_t free, total;
            for (int i = 0; i < n; ++i) cuda.info(&free, &total);
          }};
}
Work LookUps(const Cuda& cuda, CUstream) {
  return {5'000, [&cuda](int n) {
            void* found;
            CUdriverProcAddressQueryResult status;
            for (int i = 0; i < n; ++i) cuda.ask("cuMemAlloc", &found, 12000, 0, &status);
          }};
}
const std::map<std::string, Make>& Series() {
  static const std::map<std::string, Make> series = {{"launch", Launches<1>},
                                                     {"launch_5_kinds", Launches<5>},
                                                     {"launch_50_kinds", Launches<50>},
                                                     {"launch_synchronise", LaunchesAwaited},
                                                     {"alloc_10", Allocations<10>},
                                                     {"alloc_100000", Allocations<100'000>},
                                                     {"info", Infos},
                                                     {"look_up", LookUps}};
  return series;
}

// ---- how many system calls

constexpr int kCounted = 10'000;

// Between two calls of getppid, which nobody else makes here, by the calling thread.
[[noreturn]] void Traced(const Work& work) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) Die("ptrace");
  work.many(kCounted);
  raise(SIGSTOP);
  syscall(SYS_getppid);
  work.many(kCounted);
  syscall(SYS_getppid);
  _exit(0);
}

long CountCalls(pid_t child) {
  int status = 0, marks = 0;
  long calls = 0;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) Die("tracing");
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  while (marks < 2) {
    if (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0 || waitpid(child, &status, 0) != child) Die("tracing");
    if (!WIFSTOPPED(status)) Die("the traced program");
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info{};
    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    if (info.entry.nr == SYS_getppid) {
      ++marks;
    } else if (marks == 1) {
      ++calls;
    }
  }
  ptrace(PTRACE_DETACH, child, nullptr, nullptr);
  waitpid(child, &status, 0);
  return calls;
}

// ----

CUcontext Begin() {
  CUcontext context;
  if (Find<CUresult(unsigned)>("cuInit", 2000)(0) != CUDA_SUCCESS) Die("cuInit");
  if (Find<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate", 3020)(&context, 0, 0) != CUDA_SUCCESS) {
    Die("cuCtxCreate");
  }
  return context;
}

void Init() {
  auto* init = Find<CUresult(unsigned)>("cuInit", 2000);
  while (getchar() != EOF) {
  }
  const double wall = Ns(CLOCK_MONOTONIC), cpu = Ns(CLOCK_THREAD_CPUTIME_ID);
  if (init(0) != CUDA_SUCCESS) Die("cuInit");
  const double cpu_ns = Ns(CLOCK_THREAD_CPUTIME_ID) - cpu, wall_ns = Ns(CLOCK_MONOTONIC) - wall;
  printf("%.0f %.0f\n", cpu_ns, wall_ns);
}

Figure OnThreads(unsigned count, Make make) {
  const CUcontext context = Begin();
  const Cuda cuda;
  std::vector<Figure> figures(count);
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (Figure& figure : figures) {
    threads.emplace_back([&cuda, &figure, context, make] {
      CUstream stream = nullptr;
      if (cuda.set_current(context) != CUDA_SUCCESS || cuda.create_stream(&stream, 0) != CUDA_SUCCESS) Die("a thread");
      const Work work = make(cuda, stream);
      figure = PerCall(work.calls, work.many);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> calls, references;
  for (const Figure& figure : figures) {
    calls.push_back(figure.call);
    references.push_back(figure.reference);
  }
  return {Median(calls), Median(references)};
}

void Print(const Figure& figure) { printf("%.2f %.0f\n", figure.call, figure.reference); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: per_call LIBCUDA init, or per_call LIBCUDA SERIES [THREADS|calls]; series:");
    for (const auto& [name, make] : Series()) fprintf(stderr, " %s", name.c_str());
    fprintf(stderr, "\n");
    return 2;
  }
  const std::string series = argv[2], how = argc == 4 ? argv[3] : "1";
  const auto found = Series().find(series);
  if (found == Series().end() && series != "init") {
    fprintf(stderr, "per_call: there is no series %s\n", argv[2]);
    return 2;
  }
  pid_t traced = 0;
  if (how == "calls") {  // forked before anything is opened: the program that is traced is a fresh one
    traced = fork();
    if (traced > 0) {
      printf("%ld\n", CountCalls(traced));
      return 0;
    }
  }
  library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    fprintf(stderr, "per_call: %s\n", dlerror());
    return 1;
  }
  if (series == "init") {
    Init();
    return 0;
  }
  if (how == "calls") {
    Begin();
    const Cuda cuda;
    Traced(found->second(cuda, nullptr));
  }
  const int threads = atoi(how.c_str());
  if (threads > 1) {
    Print(OnThreads(static_cast<unsigned>(threads), found->second));
    return 0;
  }
  Begin();
  const Cuda cuda;
  const Work work = found->second(cuda, nullptr);
  Print(PerCall(work.calls, work.many));
  return 0;
}
