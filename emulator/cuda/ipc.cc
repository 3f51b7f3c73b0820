// Memory and events of other processes of the node, by the handles that those made for them.
#include <sys/mman.h>

#include <cstring>
#include <map>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/event.h"
#include "emulator/cuda/import.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {
namespace {

struct Import {
  uint64_t nonce = 0, offset = 0;
  uint64_t base = 0;  // of the mapping
  uint64_t bytes = 0;
  uint64_t memory = 0;  // held at the engine
  int references = 0;
  std::unique_ptr<Block[]> blocks;
  std::unique_ptr<Region> region;
};

struct Imports {
  std::mutex mutex;
  std::map<uint64_t, Import> map;  // by the address that the program got
};

Imports& TheImports() {
  static auto* imports = new Imports;
  return *imports;
}

// The region of an opened file, with the bounds of the one allocation that was told of.
std::unique_ptr<Region> RegionOf(ShareFile& file, const ShareHandle& handle, uint64_t base, Import* import) {
  const uint64_t bytes = file.description().bytes;
  auto region = std::make_unique<Region>();
  region->base = base;
  region->bytes = bytes;
  region->end = base + handle.bytes;
  region->device = Driver::Get()->OrdinalOf(file.device());
  region->frozen = true;
  import->blocks = std::make_unique<Block[]>(bytes / kChunkBytes);
  for (uint64_t i = 0; i < bytes / kChunkBytes; ++i) {
    const uint32_t dropped = file.dropped()[i].load();
    import->blocks[i].dropped = dropped;
    import->blocks[i].backed = ~dropped;
    import->blocks[i].open = 1;
  }
  region->blocks = import->blocks.get();
  if (bytes != kChunkBytes) return region;
  region->slots = std::make_unique<Slots>();
  const auto first = static_cast<uint32_t>(handle.offset / kSlotBytes);
  region->slots->bytes[first] = static_cast<uint32_t>(handle.bytes);
  for (uint64_t slot = first; slot < first + RoundUp(handle.bytes, kSlotBytes) / kSlotBytes; ++slot)
    region->slots->first[slot] = static_cast<uint16_t>(first + 1);
  return region;
}

CUresult FindEvent(CUevent handle, Event** event) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *event = FromHandle<Event>(handle);
  return *event == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

CUresult ShareAllocation(CUdeviceptr address, ShareHandle* handle) {
  const auto found = Allocations::Get().Find(address);
  if (!found || (found->kind != AllocationKind::kLinear && found->kind != AllocationKind::kPool))
    return CUDA_ERROR_INVALID_VALUE;
  Region* region = Driver::Get()->content().RegionOf(found->address);
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Nothing of the context may be writing while the pages are moved.
  if (CUresult error = found->context->executor.SynchronizeAll()) return error;
  if (CUresult error = ShareRegion(region, found->context)) return error;
  *handle = region->file->HandleOf(found->address - region->base, found->bytes);
  return CUDA_SUCCESS;
}

CUresult OpenImport(Context* context, const ShareHandle& handle, Pool* pool, CUdeviceptr* out) {
  Imports& imports = TheImports();
  std::lock_guard lock(imports.mutex);
  for (auto& [address, import] : imports.map) {
    if (import.nonce != handle.nonce || import.offset != handle.offset) continue;
    ++import.references;
    *out = address;
    return CUDA_SUCCESS;
  }
  const std::shared_ptr<ShareFile> file = ShareFile::Open(handle, ShareKind::kMemory);
  if (file == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t bytes = file->description().bytes;
  if (handle.bytes == 0 || handle.offset >= bytes || handle.bytes > bytes - handle.offset ||
      handle.offset % kSlotBytes != 0 || (bytes != kChunkBytes && handle.offset != 0))
    return CUDA_ERROR_INVALID_HANDLE;
  if (file->device() == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Driver* driver = Driver::Get();
  Import import;
  import.nonce = handle.nonce;
  import.offset = handle.offset;
  import.bytes = bytes;
  import.memory = file->description().memory;
  const Result held = driver->client().HoldPhysical(import.memory);
  if (held == Result::kNoSuchObject) return CUDA_ERROR_INVALID_HANDLE;  // freed meanwhile
  if (held != Result::kOk) return context->Explain(held);
  import.base = driver->address_space().Take(bytes);
  if (import.base == 0 || !file->MapAt(import.base, bytes, PROT_READ | PROT_WRITE)) {
    if (import.base != 0) driver->address_space().Give(import.base, bytes);
    driver->client().DropPhysical(import.memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  import.region = RegionOf(*file, handle, import.base, &import);
  import.references = 1;
  driver->content().Add(import.region.get());
  Allocation allocation;
  allocation.kind = AllocationKind::kImported;
  allocation.address = import.base + handle.offset;
  allocation.bytes = handle.bytes;
  allocation.context = context;
  allocation.pool = pool;
  *out = allocation.address;
  Allocations::Get().Add(std::move(allocation));
  imports.map[*out] = std::move(import);
  return CUDA_SUCCESS;
}

void CloseImport(uint64_t address, bool all) {
  Imports& imports = TheImports();
  std::lock_guard lock(imports.mutex);
  auto it = imports.map.find(address);
  if (it == imports.map.end() || (--it->second.references > 0 && !all)) return;
  Allocations::Get().Take(address);
  Import& import = it->second;
  Driver::Get()->content().Remove(import.region.get());
  CloseAddresses(import.base, import.bytes);
  Driver::Get()->address_space().Give(import.base, import.bytes);
  Driver::Get()->client().DropPhysical(import.memory);
  imports.map.erase(it);
}

CUresult api::cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = Allocations::Get().Find(address);
  if (!found || found->kind != AllocationKind::kLinear) return CUDA_ERROR_INVALID_VALUE;
  ShareHandle handle{};
  if (CUresult error = ShareAllocation(address, &handle)) return error;
  memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult api::cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle raw, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  ShareHandle handle{};
  memcpy(&handle, &raw, sizeof handle);
  if (IsOwn(handle)) return CUDA_ERROR_INVALID_CONTEXT;  // its own memory it has already
  return OpenImport(context, handle, nullptr, out);
}

CUresult api::cuIpcCloseMemHandle(CUdeviceptr address) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  const auto found = Allocations::Get().Find(address);
  if (!found || found->kind != AllocationKind::kImported || found->pool != nullptr || found->address != address)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = found->context->executor.SynchronizeAll()) return error;
  CloseImport(address);
  return CUDA_SUCCESS;
}

CUresult api::cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event_handle) {
  Event* event = nullptr;
  if (CUresult error = FindEvent(event_handle, &event)) return error;
  if (out == nullptr || event->shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (event->opened) return CUDA_ERROR_INVALID_HANDLE;  // only its maker gives it away
  const ShareHandle handle = event->shared->HandleOf(0, 0);
  memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult api::cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle raw) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ShareHandle handle{};
  memcpy(&handle, &raw, sizeof handle);
  if (IsOwn(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  std::shared_ptr<ShareFile> file = ShareFile::Open(handle, ShareKind::kEvent);
  if (file == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Event* event = NewEvent(context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  event->shared = std::move(file);
  event->opened = true;
  event->maker = handle;
  *out = ToHandle<CUevent>(event);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
