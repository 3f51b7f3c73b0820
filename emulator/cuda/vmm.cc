// Virtual memory management: addresses and memory apart. Memory (a Physical) lives until its handles and its mappings
// are gone, in this process and in those that imported it, whatever becomes of contexts. Its content lies in one sparse
// file of the process, so that it can be mapped at several places; a block is counted against the node's backing once,
// however often it is mapped.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/share_file.h"

namespace mete::emulator::cuda {
namespace {

struct Physical {
  uint64_t bytes = 0, offset = 0;     // in the file
  std::shared_ptr<ShareFile> shared;  // a file of its own, if other processes may see it
  bool imported = false;              // its content is another's
  Device* device = nullptr;
  uint64_t memory = 0;  // held at the engine
  CUmemAllocationProp properties{};
  std::unique_ptr<Block[]> blocks;
  uint64_t handles = 0;  // references by handle
  uint64_t mappings = 0;
};

struct Mapping {
  uint64_t bytes = 0;
  std::shared_ptr<Physical> physical;
  std::unique_ptr<Region> region;
};

// The sparse file and everything that refers to it. One mutex: these calls are rare.
struct Vmm {
  std::mutex mutex;
  int file = -1;
  uint64_t file_end = 0;
  std::multimap<uint64_t, uint64_t> free_in_file;  // bytes → offset
  std::unordered_map<uint64_t, std::shared_ptr<Physical>> handles;
  std::map<uint64_t, uint64_t> reservations;  // address → bytes
  std::map<uint64_t, Mapping> mappings;       // by address
  uint64_t next_handle = 1;
};

Vmm& TheVmm() {
  static auto* vmm = new Vmm;
  return *vmm;
}

// A place in the file; -1: no file to be had.
int64_t TakeInFile(Vmm& vmm, uint64_t bytes) {
  if (vmm.file < 0) vmm.file = memfd_create("mete-device-memory", MFD_CLOEXEC);
  if (vmm.file < 0) return -1;
  auto it = vmm.free_in_file.lower_bound(bytes);
  if (it != vmm.free_in_file.end()) {
    const uint64_t offset = it->second, rest = it->first - bytes;
    vmm.free_in_file.erase(it);
    if (rest != 0) vmm.free_in_file.emplace(rest, offset + bytes);
    return static_cast<int64_t>(offset);
  }
  const uint64_t offset = vmm.file_end;
  if (ftruncate(vmm.file, static_cast<off_t>(offset + bytes)) != 0) return -1;
  vmm.file_end += bytes;
  return static_cast<int64_t>(offset);
}

void MaybeDrop(Vmm& vmm, Physical& p) {
  if (p.handles != 0 || p.mappings != 0) return;
  Driver* driver = Driver::Get();
  if (!p.imported) driver->content().ForgetBlocks(p.blocks.get(), p.bytes / kChunkBytes);
  driver->client().DropPhysical(p.memory);
  if (p.shared != nullptr) {
    p.shared = nullptr;
    return;
  }
  fallocate(vmm.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(p.offset),
            static_cast<off_t>(p.bytes));
  vmm.free_in_file.emplace(p.bytes, p.offset);
}

CUresult CheckProperties(const CUmemAllocationProp* prop, Device** device) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;  // as the attributes say
  *device = driver->DeviceAt(prop->location.id);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

bool Reserved(const Vmm& vmm, uint64_t address, uint64_t bytes) {
  auto it = vmm.reservations.upper_bound(address);
  if (it == vmm.reservations.begin()) return false;
  --it;
  return address - it->first < it->second && it->second - (address - it->first) >= bytes;
}

// The mappings that make up [address, address + bytes) exactly; empty if they do not.
std::vector<std::map<uint64_t, Mapping>::iterator> Exactly(Vmm& vmm, uint64_t address, uint64_t bytes) {
  std::vector<std::map<uint64_t, Mapping>::iterator> result;
  const uint64_t end = address + bytes;
  for (auto it = vmm.mappings.find(address); it != vmm.mappings.end() && it->first == address && address < end; ++it) {
    result.push_back(it);
    address += it->second.bytes;
  }
  if (address != end) result.clear();
  return result;
}

}  // namespace

CUresult api::cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* prop,
                                            CUmemAllocationGranularity_flags option) {
  Device* device = nullptr;
  if (CUresult error = CheckProperties(prop, &device)) return error;
  if (out == nullptr || option < 0 || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  *out = kChunkBytes;
  return CUDA_SUCCESS;
}

CUresult api::cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                  unsigned long long flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || bytes == 0 || bytes % kChunkBytes != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > 1ull << 46 || alignment > 1ull << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = hint == 0 ? 0 : driver->address_space().TakeAt(hint, bytes);
  if (address == 0) address = driver->address_space().Take(bytes, std::max<uint64_t>(alignment, kChunkBytes));
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  vmm.reservations[address] = bytes;
  *out = address;
  return CUDA_SUCCESS;
}

CUresult api::cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.reservations.find(address);
  if (it == vmm.reservations.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto mapped = vmm.mappings.lower_bound(address);
  if (mapped != vmm.mappings.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;  // unmap first
  vmm.reservations.erase(it);
  driver->address_space().Give(address, bytes);
  return CUDA_SUCCESS;
}

CUresult api::cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* prop,
                          unsigned long long flags) {
  Device* device = nullptr;
  if (CUresult error = CheckProperties(prop, &device)) return error;
  if (out == nullptr || bytes == 0 || bytes % kChunkBytes != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > 1ull << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  Context* context = ContextOn(device, nullptr);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult error = context->Error()) return error;
  Driver* driver = Driver::Get();
  uint64_t memory = 0;
  Result result = driver->client().MakePhysical(context->engine, bytes, &memory);
  if (result == Result::kOutOfMemory) {
    TrimPools(context, true);
    result = driver->client().MakePhysical(context->engine, bytes, &memory);
  }
  if (result != Result::kOk) return context->Explain(result);
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto physical = std::make_shared<Physical>();
  const bool exportable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (exportable) physical->shared = ShareFile::Make(ShareKind::kMemory, bytes, device);
  const int64_t offset = exportable ? (physical->shared != nullptr ? 0 : -1) : TakeInFile(vmm, bytes);
  if (offset < 0) {
    driver->client().DropPhysical(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (exportable) physical->shared->description().memory = memory;
  physical->bytes = bytes;
  physical->offset = static_cast<uint64_t>(offset);
  physical->device = device;
  physical->memory = memory;
  physical->properties = *prop;
  physical->blocks = std::make_unique<Block[]>(bytes / kChunkBytes);
  if (exportable) {
    driver->content().FreezeBlocks(physical->blocks.get(), bytes / kChunkBytes);
    for (uint64_t i = 0; i < bytes / kChunkBytes; ++i)
      physical->shared->dropped()[i].store(physical->blocks[i].dropped.load());
  }
  physical->handles = 1;
  *out = vmm.next_handle++;
  vmm.handles[*out] = std::move(physical);
  return CUDA_SUCCESS;
}

CUresult api::cuMemRelease(CUmemGenericAllocationHandle handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.handles.find(handle);
  if (it == vmm.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Physical> physical = it->second;
  if (--physical->handles == 0) vmm.handles.erase(it);
  MaybeDrop(vmm, *physical);
  return CUDA_SUCCESS;
}

CUresult api::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.mappings.upper_bound(reinterpret_cast<uint64_t>(address));
  if (it == vmm.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (reinterpret_cast<uint64_t>(address) - it->first >= it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Physical>& physical = it->second.physical;
  ++physical->handles;
  for (auto& [handle, known] : vmm.handles) {
    if (known != physical) continue;
    *out = handle;
    return CUDA_SUCCESS;
  }
  *out = vmm.next_handle++;
  vmm.handles[*out] = physical;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.handles.find(handle);
  if (it == vmm.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = it->second->properties;
  return CUDA_SUCCESS;
}

CUresult api::cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (bytes == 0 || address % kChunkBytes != 0 || bytes % kChunkBytes != 0 || offset != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.handles.find(handle);
  if (it == vmm.handles.end() || bytes > it->second->bytes || !Reserved(vmm, address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  auto next = vmm.mappings.lower_bound(address);
  if (next != vmm.mappings.end() && next->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != vmm.mappings.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address)
    return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Physical>& physical = it->second;
  const int file = physical->shared != nullptr ? physical->shared->descriptor() : vmm.file;
  void* at = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                  static_cast<off_t>(physical->offset));
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(at, bytes, MADV_DONTFORK);
  Mapping mapping;
  mapping.bytes = bytes;
  mapping.physical = physical;
  mapping.region = std::make_unique<Region>();
  mapping.region->base = address;
  mapping.region->bytes = bytes;
  mapping.region->end = address + bytes;
  mapping.region->blocks = physical->blocks.get();
  mapping.region->readers = mapping.region->writers = 0;  // until cuMemSetAccess
  mapping.region->device = driver->OrdinalOf(physical->device);
  mapping.region->shared = true;
  mapping.region->frozen = physical->shared != nullptr;
  driver->content().Add(mapping.region.get());
  ++physical->mappings;
  Allocation allocation;
  allocation.kind = AllocationKind::kMapped;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.context = ContextOn(physical->device, nullptr);
  if (allocation.context != nullptr) Allocations::Get().Add(std::move(allocation));
  vmm.mappings.emplace(address, std::move(mapping));
  return CUDA_SUCCESS;
}

CUresult api::cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  Context* context = CurrentOrNull();
  if (context != nullptr && context->alive.load()) {
    if (CUresult error = context->executor.SynchronizeAll()) return error;
  }
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto mappings = Exactly(vmm, address, bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (auto it : mappings) {
    Mapping mapping = std::move(it->second);
    const uint64_t at = it->first;
    vmm.mappings.erase(it);
    Allocations::Get().Take(at);
    driver->content().Remove(mapping.region.get());
    CloseAddresses(at, mapping.bytes);  // the address stays reserved
    --mapping.physical->mappings;
    MaybeDrop(vmm, *mapping.physical);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* desc, size_t count) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (bytes == 0 || count == 0 || !IsList(desc, count)) return CUDA_ERROR_INVALID_VALUE;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto mappings = Exactly(vmm, address, bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    Device* device = driver->DeviceAt(desc[i].location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const CUmemAccess_flags flags = desc[i].flags;
    if (flags != 0 && flags != CU_MEM_ACCESS_FLAGS_PROT_READ && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t bit = 1ull << desc[i].location.id;
    for (auto it : mappings) {
      if (device != it->second.physical->device && !CanReach(*device, *it->second.physical->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
      Region& region = *it->second.region;
      const uint64_t readers = (region.readers.load() & ~bit) | (flags != 0 ? bit : 0);
      const uint64_t writers = (region.writers.load() & ~bit) | (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? bit : 0);
      // The pages are opened for our own use; what kernels may do is the region's.
      const int protection = readers == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
      if (mprotect(reinterpret_cast<void*>(it->first), it->second.bytes, protection) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
      region.readers.store(readers);
      region.writers.store(writers);
    }
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.mappings.upper_bound(address);
  if (it == vmm.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (address - it->first >= it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || driver->DeviceAt(location->id) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const Region& region = *it->second.region;
  const bool reads = (region.readers.load() >> location->id & 1) != 0;
  const bool writes = (region.writers.load() >> location->id & 1) != 0;
  *flags = writes  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : reads ? CU_MEM_ACCESS_FLAGS_PROT_READ
                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult api::cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  auto it = vmm.handles.find(handle);
  if (it == vmm.handles.end() || it->second->shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int descriptor = it->second->shared->Export();
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  // The engine gets ours: with the one that is given away it would itself be somebody who has it open.
  const int ours = it->second->shared->descriptor();
  if (driver->client().ExportPhysical(it->second->memory, ours) != Result::kOk) {
    close(descriptor);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = descriptor;
  return CUDA_SUCCESS;
}

// The memory is not counted again, but it stays for as long as this process holds it.
CUresult api::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                             CUmemAllocationHandleType type) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const auto given = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  // Not by a copy of the descriptor: what the program gave stays the program's to close.
  std::shared_ptr<ShareFile> file = ShareFile::OpenAgain(given, ShareKind::kMemory);
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto physical = std::make_shared<Physical>();
  physical->device = file->device();
  if (physical->device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  physical->bytes = file->description().bytes;
  physical->imported = true;
  physical->memory = file->description().memory;
  physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->properties.requestedHandleTypes = type;
  physical->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, driver->OrdinalOf(physical->device)};
  physical->blocks = std::make_unique<Block[]>(physical->bytes / kChunkBytes);
  for (uint64_t i = 0; i < physical->bytes / kChunkBytes; ++i) {
    const uint32_t dropped = file->dropped()[i].load();
    physical->blocks[i].dropped = dropped;
    physical->blocks[i].backed = ~dropped;
  }
  physical->shared = std::move(file);
  physical->handles = 1;
  if (driver->client().HoldPhysical(physical->memory) != Result::kOk) return CUDA_ERROR_INVALID_VALUE;
  Vmm& vmm = TheVmm();
  std::lock_guard lock(vmm.mutex);
  *out = vmm.next_handle++;
  vmm.handles[*out] = std::move(physical);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
