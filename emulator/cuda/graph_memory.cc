#include "emulator/cuda/graph_memory.h"

#include <map>

#include "api.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {
namespace {

struct Highs {
  uint64_t used = 0, reserved = 0;
};

struct State {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<GraphAllocation>> all;  // by address
  std::map<Device*, Highs> highs;
};

State& TheGraphs() {
  static auto* state = new State;
  return *state;
}

// With the mutex held. {used, reserved}
Highs Now(State& state, const Device* device) {
  Highs now;
  for (const auto& [address, weak] : state.all) {
    const auto allocation = weak.lock();
    if (allocation == nullptr || allocation->device != device) continue;
    if (allocation->mapped) now.used += allocation->parameters.bytesize;
    if (allocation->charged != nullptr) now.reserved += allocation->bytes;
  }
  return now;
}

void NoteHighs(State& state, Device* device) {
  const Highs now = Now(state, device);
  Highs& high = state.highs[device];
  high.used = std::max(high.used, now.used);
  high.reserved = std::max(high.reserved, now.reserved);
}

void Uncharge(GraphAllocation& allocation) {
  Context* context = std::exchange(allocation.charged, nullptr);
  if (context != nullptr && context->alive.load())
    Driver::Get()->client().ReturnMemory(context->engine, allocation.bytes);
}

}  // namespace

GraphAllocation::~GraphAllocation() {
  Driver* driver = Driver::Get();
  if (driver == nullptr || address == 0) return;
  if (mapped) driver->content().Remove(region.get());
  Uncharge(*this);
  driver->address_space().Give(address, bytes);
}

CUresult NewGraphAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& parameters, std::shared_ptr<GraphAllocation>* out) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  const CUmemPoolProps& pool = parameters.poolProps;
  if (parameters.bytesize == 0 || !IsList(parameters.accessDescs, parameters.accessDescCount))
    return CUDA_ERROR_INVALID_VALUE;
  if (pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  Device* device = driver->DeviceAt(pool.location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (parameters.bytesize > device->info.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  auto allocation = std::make_shared<GraphAllocation>();
  allocation->device = device;
  allocation->parameters = parameters;
  allocation->parameters.accessDescs = nullptr;
  allocation->parameters.accessDescCount = 0;
  allocation->bytes = RoundUp(parameters.bytesize, kChunkBytes);
  allocation->address = driver->address_space().Take(allocation->bytes);
  if (allocation->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation->parameters.dptr = allocation->address;
  allocation->region = std::make_unique<Region>();
  Region& region = *allocation->region;
  region.base = allocation->address;
  region.bytes = allocation->bytes;
  region.end = allocation->address + parameters.bytesize;
  region.device = driver->OrdinalOf(device);
  region.own_blocks = std::make_unique<Block[]>(region.bytes / kChunkBytes);
  region.blocks = region.own_blocks.get();
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  std::erase_if(state.all, [](const auto& entry) { return entry.second.expired(); });
  state.all[allocation->address] = allocation;
  *out = std::move(allocation);
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphAllocation> FindGraphAllocation(uint64_t address) {
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  auto it = state.all.find(address);
  return it == state.all.end() ? nullptr : it->second.lock();
}

bool IsGraphMemory(uint64_t address, uint64_t bytes) {
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  auto it = state.all.upper_bound(address);
  if (it == state.all.begin()) return false;
  const auto allocation = std::prev(it)->second.lock();
  if (allocation == nullptr) return false;
  const uint64_t offset = address - allocation->address;
  return offset < allocation->parameters.bytesize && bytes <= allocation->parameters.bytesize - offset;
}

CUresult ChargeGraphAllocation(GraphAllocation& allocation, Context* context) {
  if (allocation.device != context->device) {
    // Memory of another GPU than the launch's: under whichever context is there.
    context = ContextOn(allocation.device, nullptr);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  State& state = TheGraphs();
  {
    std::lock_guard lock(state.mutex);
    if (allocation.charged != nullptr) return CUDA_SUCCESS;
  }
  Client& client = Driver::Get()->client();
  Result result = client.ReserveMemory(context->engine, allocation.bytes);
  if (result == Result::kOutOfMemory) {
    TrimPools(context, true);
    result = client.ReserveMemory(context->engine, allocation.bytes);
  }
  if (result != Result::kOk) return context->Explain(result);
  std::lock_guard lock(state.mutex);
  allocation.charged = context;
  NoteHighs(state, allocation.device);
  return CUDA_SUCCESS;
}

bool ClaimGraphFree(GraphAllocation& allocation) {
  if (allocation.freed_by_graph) return false;
  int one = 1;
  return allocation.users.compare_exchange_strong(one, 0);
}

void MapGraphAllocation(const std::shared_ptr<GraphAllocation>& allocation) {
  State& state = TheGraphs();
  Allocation known;
  {
    std::lock_guard lock(state.mutex);
    if (allocation->mapped || allocation->charged == nullptr) return;
    allocation->mapped = true;
    known.context = allocation->charged;
    Driver::Get()->content().Add(allocation->region.get());
    NoteHighs(state, allocation->device);
  }
  known.kind = AllocationKind::kGraph;
  known.address = allocation->address;
  known.bytes = allocation->parameters.bytesize;
  known.graph = allocation;
  Allocations::Get().Add(std::move(known));
}

void UnmapGraphAllocation(const std::shared_ptr<GraphAllocation>& allocation) {
  Allocations::Get().Take(allocation->address);
  std::lock_guard lock(TheGraphs().mutex);
  if (!allocation->mapped) return;
  allocation->mapped = false;
  Driver::Get()->content().Remove(allocation->region.get());
}

void DropGraphCharges(Context* context) {
  std::vector<std::shared_ptr<GraphAllocation>> alive;  // let go of after the lock
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  for (const auto& [address, weak] : state.all) {
    auto allocation = weak.lock();
    if (allocation == nullptr || allocation->charged != context) continue;
    allocation->charged = nullptr;
    allocation->users.store(0);
    alive.push_back(std::move(allocation));
  }
}

Item AllocateItem(const AllocateOperation& operation) {
  Item item;
  item.light = true;
  item.effect = [allocation = operation.allocation](Work*) {
    MapGraphAllocation(allocation);
    return false;
  };
  return item;
}

Item FreeItem(const FreeOperation& operation) {
  Item item;
  item.light = true;
  item.effect = [allocation = operation.allocation](Work*) {
    if (allocation == nullptr) return false;
    UnmapGraphAllocation(allocation);
    if (allocation->freed_by_graph) allocation->users.fetch_sub(1);
    return false;
  };
  return item;
}

CUresult api::cuDeviceGraphMemTrim(CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  std::vector<std::shared_ptr<GraphAllocation>> alive;
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  for (const auto& [address, weak] : state.all) {
    auto allocation = weak.lock();
    if (allocation == nullptr) continue;
    if (allocation->device == device && allocation->users.load() == 0 && !allocation->mapped) Uncharge(*allocation);
    alive.push_back(std::move(allocation));
  }
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  const Highs now = Now(state, device), high = state.highs[device];
  cuuint64_t& out = *static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: out = now.used; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: out = high.used; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: out = now.reserved; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: out = high.reserved; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult api::cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;  // only reset
  State& state = TheGraphs();
  std::lock_guard lock(state.mutex);
  Highs& high = state.highs[device];
  const Highs now = Now(state, device);
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    high.used = now.used;
  } else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    high.reserved = now.reserved;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
