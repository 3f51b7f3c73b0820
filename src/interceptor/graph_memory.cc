#include "interceptor/graph_memory.h"

#include <memory>
#include <new>

#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

constexpr int kDeepest = 32;  // of graphs in graphs

CUdevice DeviceOf(Process& p, uint32_t gpu) {
  for (CUdevice device = 0; device < kMaxDevices; ++device) {
    if (GpuOfDevice(p, device) == static_cast<int>(gpu)) return device;
  }
  return -1;
}

}  // namespace

void GraphMemory::Add(Process& p, CUgraph graph, Footprint* footprint, int depth) {
  size_t count = 0;
  if (depth == kDeepest || driver.cuGraphGetNodes == nullptr || driver.cuGraphNodeGetType == nullptr ||
      driver.cuGraphMemAllocNodeGetParams == nullptr ||
      driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) {
    return;
  }
  std::unique_ptr<CUgraphNode[]> nodes(new (std::nothrow) CUgraphNode[count]);
  if (nodes == nullptr || driver.cuGraphGetNodes(graph, nodes.get(), &count) != CUDA_SUCCESS) return;
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type;
    if (driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) continue;
    CUgraph child = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && driver.cuGraphChildGraphNodeGetGraph != nullptr &&
        driver.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS) {
      Add(p, child, footprint, depth + 1);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
               driver.cuGraphMemAllocNodeGetParams(nodes[i], &parameters) == CUDA_SUCCESS &&
               parameters.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      const int gpu = GpuOfDevice(p, parameters.poolProps.location.id);
      const uint64_t bytes = parameters.bytesize < kAbsurd ? RoundUp(parameters.bytesize, kGranule) : kAbsurd;
      if (gpu >= 0 && footprint->bytes[gpu] < kAbsurd) footprint->bytes[gpu] += bytes;
    }
  }
}

void GraphMemory::Instantiated(Process& p, CUgraphExec exec, CUgraph graph) {
  Footprint footprint{};
  Add(p, graph, &footprint, 0);
  uint64_t all = 0;
  for (const uint64_t bytes : footprint.bytes) all |= bytes;
  if (all == 0) return;
  auto* kept = new (std::nothrow) Footprint(footprint);
  if (kept == nullptr) return;
  used_.store(true, std::memory_order_seq_cst);
  footprints_.Insert(reinterpret_cast<uint64_t>(exec), kept);
}

CUresult GraphMemory::Begin(Process& p, CUgraphExec exec, bool* needs) {
  *needs = false;
  if (!used_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  Footprint* footprint = nullptr;
  footprints_.Update(reinterpret_cast<uint64_t>(exec), [&](Footprint*& cell, bool fresh) {
    if (!fresh) footprint = cell;
    return !fresh;
  });
  if (footprint == nullptr || footprint->held == epoch_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  for (uint32_t gpu = 0; gpu < ledger::kMaxGpus; ++gpu) {
    const uint64_t bytes = footprint->bytes[gpu];
    if (bytes == 0) continue;
    if (bytes < kAbsurd && ReserveOrReclaim(p, ViewOf(p, gpu), bytes)) {
      footprint->reserved[gpu] += bytes;
      continue;
    }
    for (uint32_t before = 0; before < gpu; ++before) {
      if (footprint->bytes[before] == 0) continue;
      ledger::Return(ViewOf(p, before), footprint->bytes[before]);
      footprint->reserved[before] -= footprint->bytes[before];
    }
    return kOutOfMemory;
  }
  *needs = true;
  return CUDA_SUCCESS;
}

void GraphMemory::End(Process& p, CUgraphExec exec, bool launched) {
  std::lock_guard lock(mutex_);
  footprints_.Update(reinterpret_cast<uint64_t>(exec), [&](Footprint*& cell, bool fresh) {
    if (fresh) return false;
    for (uint32_t gpu = 0; gpu < ledger::kMaxGpus; ++gpu) {
      if (cell->bytes[gpu] == 0) continue;
      const uint64_t ahead = cell->bytes[gpu] < cell->reserved[gpu] ? cell->bytes[gpu] : cell->reserved[gpu];
      cell->reserved[gpu] -= ahead;
      Settle(p, gpu, ahead);
    }
    if (launched) cell->held = epoch_.load(std::memory_order_relaxed);
    return true;
  });
}

// Moves the ledger to what the driver holds. `ahead` was reserved for it and becomes part of that.
bool GraphMemory::Settle(Process& p, uint32_t gpu, uint64_t ahead) {
  cuuint64_t holds = charged_[gpu] + ahead;  // no figure to go by: all of it
  const CUdevice device = DeviceOf(p, gpu);
  if (driver.cuDeviceGetGraphMemAttribute != nullptr && device >= 0) {
    driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &holds);
  }
  const ledger::View view = ViewOf(p, gpu);
  const uint64_t had = charged_[gpu] + ahead;
  charged_[gpu] = holds;
  if (holds > had) ledger::Charge(view, holds - had);
  if (holds < had) ledger::Return(view, had - holds);
  return holds < had;
}

bool GraphMemory::Refresh(Process& p) {
  if (!used_.load(std::memory_order_relaxed)) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  bool given_back = false;
  for (uint32_t gpu = 0; lock.owns_lock() && gpu < ledger::kMaxGpus; ++gpu) {
    if (charged_[gpu] != 0) given_back |= Settle(p, gpu, 0);
  }
  return given_back;
}

void GraphMemory::Destroyed(Process& p, CUgraphExec exec) {
  if (!used_.load(std::memory_order_relaxed)) return;
  Footprint* footprint = nullptr;
  if (footprints_.Take(reinterpret_cast<uint64_t>(exec), &footprint)) delete footprint;
  Refresh(p);
}

void GraphMemory::Trimmed(Process& p) {
  if (!used_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  epoch_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t gpu = 0; gpu < ledger::kMaxGpus; ++gpu) {
    if (charged_[gpu] != 0) Settle(p, gpu, 0);
  }
}

}  // namespace mete::interceptor
