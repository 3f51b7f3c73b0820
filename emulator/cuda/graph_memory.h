// Memory of graphs: an allocation node has its address from the day it is made, and memory behind it from the first
// launch on. That memory is counted against the context that launches, stays with the graph between launches, and goes
// when it is trimmed or the last graph that uses it is gone.
// Thread rule: any thread; one mutex. Units: bytes.
#ifndef METE_EMULATOR_CUDA_GRAPH_MEMORY_H_
#define METE_EMULATOR_CUDA_GRAPH_MEMORY_H_

#include <memory>

#include "emulator/cuda/content.h"
#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {

struct GraphAllocation {
  ~GraphAllocation();
  Device* device = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  uint64_t address = 0, bytes = 0;  // bytes: whole chunks
  std::unique_ptr<Region> region;
  std::atomic<int> users{0};    // launches that have it and did not free it yet, as the callers see it
  bool freed_by_graph = false;  // the graph that makes it also frees it
  // Guarded by the mutex of graph memory.
  Context* charged = nullptr;
  bool mapped = false;
};

// The address and the object; nothing is counted yet.
CUresult NewGraphAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& parameters, std::shared_ptr<GraphAllocation>* out);
// By its address; null: of no graph.
std::shared_ptr<GraphAllocation> FindGraphAllocation(uint64_t address);
// Whether the range lies in one, made or not.
bool IsGraphMemory(uint64_t address, uint64_t bytes);
// Counts it against the context, if it is not counted yet.
CUresult ChargeGraphAllocation(GraphAllocation& allocation, Context* context);
// A free outside of any graph, from the caller's side; the memory goes when the returned item is due.
bool ClaimGraphFree(GraphAllocation& allocation);
void MapGraphAllocation(const std::shared_ptr<GraphAllocation>& allocation);
void UnmapGraphAllocation(const std::shared_ptr<GraphAllocation>& allocation);
// A context ends: what it is charged with is counted no more.
void DropGraphCharges(Context* context);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_GRAPH_MEMORY_H_
