// What the null driver keeps: its devices, blocks and events, and the rules by which memory is counted. Included by
// behaviour.cc alone, which is the driver's one translation unit. libc and the C++ runtime; any thread.
#ifndef METE_BENCH_NULL_DRIVER_STATE_H_
#define METE_BENCH_NULL_DRIVER_STATE_H_

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#define METE_CUDA_NO_ALIASES
#include "bench/null-driver/truth.h"
#include "mete/cuda.h"

#pragma GCC visibility push(default)

extern "C" {
struct NullEntry {
  const char* symbol;
  const char* name;
  int version;
  int stream;  // 0 none, 1 legacy, 2 per thread
  void* address;
};
extern const NullEntry null_entries[];
extern const unsigned null_entry_count;

void null_driver_track(int on);
void null_driver_kernel_ns(unsigned long long ns);
unsigned long long null_driver_used(int device);
unsigned long long null_driver_events_on_captured_streams();
}

namespace {

constexpr int kDevices = 2;
constexpr unsigned long long kTotal = 40ull << 30, kGranule = 2ull << 20, kContext = 300ull << 20;

struct Context {
  int device;
};
struct Event {
  std::atomic<unsigned long long> ready_at{0}, happened_at{0};  // the latter where kernels have a length
};
struct Stream {
  bool capturing = false;
};
struct Block {
  unsigned long long bytes;
  int device;
  const void* owner;  // context, or pool
  bool pooled;
  unsigned long long hidden = 0;  // of an object: its block
};
struct Physical {
  unsigned long long bytes;
  int device, handles, mappings;
  int outside = 0;  // exported descriptors that somebody else holds
};
struct NullPool {
  int device;
  unsigned long long live = 0, reserved = 0;
  bool destroyed = false;
};
// Of graphs only the memory that their nodes ask for.
struct NullNode {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters;
};
struct NullGraph {
  std::vector<NullNode*> nodes;
};
struct NullExec {
  unsigned long long bytes[2];
  unsigned held;  // the count of trims at its last launch: its memory is there
};

std::atomic<bool> track{false};
std::atomic<unsigned long long> kernel_ns{0}, busy_until{0}, next_address{0x700000200000ull}, next_handle{1};
std::atomic<unsigned long long> captured_events{0};
size_t limits[CU_LIMIT_MAX] = {1024, 1 << 20, 8 << 20};  // stack, printf, heap
NullPool default_pool[kDevices] = {{0}, {1}};
std::mutex mutex;
std::map<unsigned long long, Block> blocks;
std::map<std::pair<int, unsigned long long>, int> granules;  // small blocks in each
std::unordered_map<unsigned long long, Physical*> handles;
std::map<unsigned long long, std::pair<unsigned long long, Physical*>> mappings;
std::unordered_map<const void*, Block> objects;  // arrays, contexts
unsigned long long used[kDevices];
unsigned long long graph_memory[kDevices];
unsigned trims = 1;
NullTruth* truth;
Context primary[kDevices] = {{0}, {1}};
int primary_users[kDevices];
int entry_of[1024];  // by hash of the name: index + 1; chained through next_entry
int next_entry[2048];

struct Last {
  unsigned long long at, extent;
  bool free;
};
thread_local Last last{};
thread_local Context* stack[16];
thread_local int depth = 0;

unsigned Hash(const char* name) {
  unsigned h = 2166136261u;
  for (; *name; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 16777619u;
  return h % 1024;
}

__attribute__((constructor)) void Index() {
  for (unsigned i = 0; i < null_entry_count; ++i) {
    int& head = entry_of[Hash(null_entries[i].name)];
    next_entry[i] = head;
    head = static_cast<int>(i) + 1;
  }
}

unsigned long long Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<unsigned long long>(t.tv_sec) * 1000000000ull + static_cast<unsigned long long>(t.tv_nsec);
}

Context* Current() { return depth == 0 ? nullptr : stack[depth - 1]; }
unsigned long long Round(unsigned long long bytes, unsigned long long unit) { return (bytes + unit - 1) / unit * unit; }

__attribute__((constructor)) void FindTruth() {
  const char* path = getenv("METE_NULL_DRIVER_TRUTH");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* page = mmap(nullptr, sizeof *truth, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) truth = static_cast<NullTruth*>(page);
}

void Give(int device, unsigned long long bytes) {  // with the lock
  used[device] -= bytes;
  if (truth != nullptr) truth->used[device] -= bytes;
}

__attribute__((destructor)) void GiveAll() {
  std::lock_guard lock(mutex);
  for (int device = 0; device < kDevices; ++device) Give(device, used[device]);
}

bool Take(int device, unsigned long long bytes) {  // with the lock
  if (device < 0 || device >= kDevices || bytes > kTotal - used[device]) return false;
  used[device] += bytes;
  if (truth == nullptr) return true;
  const unsigned long long now = truth->used[device] += bytes, quota = truth->quota[device];
  unsigned long long highest = truth->highest[device];
  while (highest < now && !truth->highest[device].compare_exchange_weak(highest, now)) {
  }
  if (quota == 0 || now <= quota) return true;
  fprintf(stderr, "null driver: device %d holds %llu bytes, %llu more than the quota; the last were %llu\n", device,
          now, now - quota, bytes);
  abort();
}

// Small blocks share granules, as a driver's sub-allocator does: the address decides.
CUresult Alloc(CUdeviceptr* p, unsigned long long bytes) {
  if (p == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool small = bytes < kGranule / 2;
  const unsigned long long extent = Round(bytes, small ? 512 : kGranule);
  if (!track.load(std::memory_order_relaxed)) {
    // A freed address is soon given out again, as by the real driver: here the last one, to a request of its size.
    if (!last.free || last.extent != extent) {
      last.at = next_address.fetch_add(extent, std::memory_order_relaxed);
      last.extent = extent;
    }
    last.free = false;
    *p = last.at;
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mutex);
  unsigned long long at = next_address.fetch_add(extent, std::memory_order_relaxed);
  // In its own granule, or within one: never across a boundary, and from the start of one that is empty.
  const auto inside_of = granules.find({context->device, at / kGranule});
  const bool empty = inside_of == granules.end() || inside_of->second == 0;
  if (!small || empty || at / kGranule != (at + extent - 1) / kGranule) {
    at = Round(at, kGranule);
    next_address.store(at + extent, std::memory_order_relaxed);
  }
  if (small) {
    int& inside = granules[{context->device, at / kGranule}];
    if (inside == 0 && !Take(context->device, kGranule)) return CUDA_ERROR_OUT_OF_MEMORY;
    ++inside;
  } else if (!Take(context->device, extent)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  blocks[at] = {extent, context->device, context, false};
  *p = at;
  return CUDA_SUCCESS;
}

void TrimLocked(NullPool* pool) {
  const unsigned long long keeps = Round(pool->live, kGranule);
  if (keeps >= pool->reserved) return;
  Give(pool->device, pool->reserved - keeps);
  pool->reserved = keeps;
}

void FreeBlock(std::map<unsigned long long, Block>::iterator it) {  // with the lock
  const Block block = it->second;
  if (block.pooled) {
    auto* pool = static_cast<NullPool*>(const_cast<void*>(block.owner));
    pool->live -= block.bytes;
    if (pool->destroyed) TrimLocked(pool);
  } else if (block.bytes < kGranule / 2 + 512 && block.bytes % kGranule != 0) {
    if (--granules[{block.device, it->first / kGranule}] == 0) Give(block.device, kGranule);
  } else {
    Give(block.device, block.bytes);
  }
  blocks.erase(it);
}

CUresult Free(unsigned long long p) {
  if (!track.load(std::memory_order_relaxed)) {
    last.free = last.free || p == last.at;
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mutex);
  auto it = blocks.find(p);
  if (it == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
  FreeBlock(it);
  return CUDA_SUCCESS;
}

CUresult PoolAlloc(CUdeviceptr* p, unsigned long long bytes, NullPool* pool) {
  if (p == nullptr || bytes == 0 || pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!track.load(std::memory_order_relaxed)) {
    *p = next_address.fetch_add(Round(bytes, 512), std::memory_order_relaxed);
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mutex);
  const unsigned long long at = next_address.fetch_add(Round(bytes, 512), std::memory_order_relaxed);
  const unsigned long long needed = Round(pool->live + Round(bytes, 512), kGranule);
  if (needed > pool->reserved) {
    if (!Take(pool->device, needed - pool->reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
    pool->reserved = needed;
  }
  pool->live += Round(bytes, 512);
  blocks[at] = {Round(bytes, 512), pool->device, pool, true};
  *p = at;
  return CUDA_SUCCESS;
}

void Trim(NullPool* pool) {
  std::lock_guard lock(mutex);
  TrimLocked(pool);
}

CUresult Launch() {
  const unsigned long long ns = kernel_ns.load(std::memory_order_relaxed);
  if (ns == 0) return CUDA_SUCCESS;
  const unsigned long long now = Now();
  unsigned long long until = busy_until.load(std::memory_order_relaxed);
  while (!busy_until.compare_exchange_weak(until, (until > now ? until : now) + ns)) {
  }
  return CUDA_SUCCESS;
}

CUresult WaitUntil(unsigned long long ns) {
  if (ns == 0 || Now() >= ns) return CUDA_SUCCESS;
  const timespec t{static_cast<time_t>(ns / 1000000000ull), static_cast<long>(ns % 1000000000ull)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
  return CUDA_SUCCESS;
}

CUresult Synchronize() {
  const CUresult result = WaitUntil(busy_until.load(std::memory_order_relaxed));
  if (track.load(std::memory_order_relaxed)) {
    for (NullPool& pool : default_pool) Trim(&pool);
  }
  return result;
}

bool IsReal(CUstream s) { return reinterpret_cast<unsigned long long>(s) > 2; }
Stream* Of(CUstream s) { return reinterpret_cast<Stream*>(s); }

// Something that lies in a block which only the driver knows.
template <typename Handle>
CUresult MakeObject(Handle* handle, unsigned long long bytes) {
  Context* context = Current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUdeviceptr at = 0;
  if (bytes != 0) {
    if (const CUresult result = Alloc(&at, bytes)) return result;
  }
  auto* object = new int;
  *handle = reinterpret_cast<Handle>(object);
  std::lock_guard lock(mutex);
  objects[object] = {0, context->device, context, false, at};
  return CUDA_SUCCESS;
}

unsigned TexelBytes(CUarray_format format, unsigned channels) {  // 0: no such texel
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4 * channels;
    default: return 0;
  }
}

template <typename Handle>
CUresult MakeArray(Handle* handle, unsigned long long width, unsigned long long height, unsigned long long deep,
                   unsigned texel, unsigned levels) {
  if (handle == nullptr || texel == 0 || width == 0) return CUDA_ERROR_INVALID_VALUE;
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  unsigned long long bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    bytes += width * std::max(height, 1ull) * std::max(deep, 1ull) * texel;
    if (width <= 1 && height <= 1 && deep <= 1) break;
    width = std::max(width / 2, 1ull), height /= 2, deep /= 2;
  }
  return MakeObject(handle, bytes);
}

// A module whose text begins with the bytes of its variables, as PTX: ".visible .global .b8 name[N];" after the header.
CUresult MakeModule(CUmodule* module, const void* image) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* bound = strchr(static_cast<const char*>(image), '[');
  return MakeObject(module, bound == nullptr ? 0 : strtoull(bound + 1, nullptr, 10));
}

CUresult DestroyObject(const void* object) {
  std::lock_guard lock(mutex);
  auto it = objects.find(object);
  if (it == objects.end()) return CUDA_ERROR_INVALID_HANDLE;
  Give(it->second.device, it->second.bytes);
  if (auto block = blocks.find(it->second.hidden); block != blocks.end()) FreeBlock(block);
  objects.erase(it);
  return CUDA_SUCCESS;
}

CUresult OpenContext(Context* context) {
  std::lock_guard lock(mutex);
  if (!Take(context->device, kContext)) return CUDA_ERROR_OUT_OF_MEMORY;
  objects[context] = {kContext, context->device, context, false};
  return CUDA_SUCCESS;
}

CUresult CloseContext(Context* context) {
  std::lock_guard lock(mutex);
  if (objects.find(context) == objects.end()) return CUDA_ERROR_INVALID_CONTEXT;
  for (auto it = blocks.begin(); it != blocks.end();) {
    auto next = std::next(it);
    if (it->second.owner == context) FreeBlock(it);
    it = next;
  }
  for (auto it = objects.begin(); it != objects.end();) {
    if (it->second.owner == context) {
      Give(it->second.device, it->second.bytes);
      it = objects.erase(it);
    } else {
      ++it;
    }
  }
  if (Current() == context) stack[depth - 1] = nullptr, --depth;
  return CUDA_SUCCESS;
}

NullExec* MakeExec(const NullGraph* graph) {
  auto* exec = new NullExec{};
  for (const NullNode* node : graph->nodes) {
    exec->bytes[node->parameters.poolProps.location.id] += Round(node->parameters.bytesize, kGranule);
  }
  return exec;
}

// A graph's memory comes with its launch and stays until it is trimmed.
CUresult LaunchGraph(NullExec* exec) {
  std::lock_guard lock(mutex);
  if (exec->held == trims) return CUDA_SUCCESS;
  for (int device = 0; device < kDevices; ++device) {
    if (!Take(device, exec->bytes[device])) return CUDA_ERROR_OUT_OF_MEMORY;
    graph_memory[device] += exec->bytes[device];
  }
  exec->held = trims;
  return CUDA_SUCCESS;
}

void EndPhysical(Physical* physical) {
  if (physical->handles != 0 || physical->mappings != 0 || physical->outside != 0) return;
  Give(physical->device, physical->bytes);
  delete physical;
}

CUresult Look(const char* name, void** p, int version, unsigned long long flags,
              CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = nullptr;
  const NullEntry* best = nullptr;
  bool known = false;
  const int stream = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? 2 : 1;
  for (int i = entry_of[Hash(name)]; i != 0; i = next_entry[i - 1]) {
    const NullEntry& entry = null_entries[i - 1];
    if (strcmp(entry.name, name) != 0) continue;
    known = true;
    if (entry.version > version || (entry.stream != 0 && entry.stream != stream)) continue;
    if (best == nullptr || entry.version > best->version) best = &entry;
  }
  if (status != nullptr) {
    *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
              : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  if (best == nullptr) return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  *p = best->address;
  return CUDA_SUCCESS;
}

}  // namespace

#pragma GCC visibility pop

#endif  // METE_BENCH_NULL_DRIVER_STATE_H_
