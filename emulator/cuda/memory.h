// The allocations of the process, as pointer queries and frees see them, and what goes with a context.
// Thread rule: any thread; one mutex. Units: bytes.
#ifndef METE_EMULATOR_CUDA_MEMORY_H_
#define METE_EMULATOR_CUDA_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "emulator/cuda/content.h"
#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

struct Advice;
struct Context;
struct GraphAllocation;
struct Pool;

enum class AllocationKind : uint8_t {
  kLinear,   // of the context's heap
  kManaged,  // host memory of our own, counted on the device
  kPool,
  kHost,        // page-locked, ours
  kRegistered,  // page-locked, the program's
  kMapped,      // a mapping of a physical allocation
  kGraph,       // of an allocation node, graph_memory.h
  kImported,    // another process's, import.h
  kExternal,    // a part of external memory
};

struct Allocation {
  AllocationKind kind = AllocationKind::kLinear;
  uint64_t address = 0, bytes = 0;
  Context* context = nullptr;
  Pool* pool = nullptr;
  uint64_t id = 0;
  uint64_t charged = 0;  // counted at the engine besides a heap
  uint32_t flags = 0;    // of host memory
  bool sync_memops = false;
  std::shared_ptr<Region> region;  // managed memory
  std::shared_ptr<GraphAllocation> graph;
  std::shared_ptr<Advice> advice;  // what the program said of managed memory
};

class Allocations {
 public:
  static Allocations& Get();
  void Add(Allocation allocation);
  // The one that starts at `address`, taken out; nothing if there is none, or `kind` is given and another.
  std::optional<Allocation> Take(uint64_t address);
  // Whether any of them lies in the range.
  bool Touches(uint64_t address, uint64_t bytes);
  // The one that contains the address.
  std::optional<Allocation> Find(uint64_t address);
  bool SetSyncMemops(uint64_t address, bool on);
  // Forgets all that lie in the range.
  void DropWithin(uint64_t address, uint64_t bytes);
  // Takes out all of a context that die with it.
  void TakeOf(Context* context, std::map<uint64_t, Allocation>* out);

 private:
  std::mutex mutex_;
  std::map<uint64_t, Allocation> map_;
};

// Frees what an Allocation stands for, after it was taken out.
void FreeAllocation(const Allocation& allocation);

// When a context ends.
void DropAllocations(Context* context);
void DropPoolMemory(Context* context);  // pool.cc

// Gives idle pool memory of the device back, to make room or at a synchronisation.
void TrimPools(Context* context, bool all);
bool FreeFromPool(const Allocation& allocation);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_MEMORY_H_
