// What each exported function does: the generated wrappers call these with the real function and the caller's
// arguments. Templates, because several ABIs of one function differ in the width of their types only.
//
// Every hook passes the caller's own arguments to the driver, returns the driver's own code unless mete refuses, and
// tolerates whatever the driver tolerates (null pointers, missing contexts, double frees). No exception leaves them.
#ifndef METE_INTERCEPTOR_HOOKS_H_
#define METE_INTERCEPTOR_HOOKS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "interceptor/array.h"
#include "interceptor/image.h"
#include "interceptor/proc_address.h"
#include "interceptor/process.h"
#include "ledger/account.h"
#include "ledger/gate.h"

#define METE_READY(p)                                                   \
  ::mete::interceptor::Process* const p = ::mete::interceptor::Ready(); \
  if (p == nullptr) [[unlikely]]                                        \
  return ::mete::interceptor::kNotAttached

namespace mete::interceptor {

CUresult Init(decltype(&::cuInit) real, unsigned int flags);

// The quota on a GPU, and what is left of it. False: there is none.
struct Sight {
  uint64_t quota;
  uint64_t left;
};
bool See(Process& p, const ledger::View& view, Sight* sight);

template <typename Size>
Size Clamp(uint64_t bytes) {
  return static_cast<Size>(std::min<uint64_t>(bytes, std::numeric_limits<Size>::max()));
}

template <typename Size>
CUresult MemGetInfo(CUresult (*real)(Size*, Size*), Size* free, Size* total) {
  METE_READY(p);
  const CUresult result = real(free, total);
  Place place;
  Sight sight;
  if (result != CUDA_SUCCESS || !Locate(*p, &place) || place.context == nullptr || !See(*p, place.view, &sight)) {
    return result;
  }
  if (total != nullptr) *total = std::min(*total, Clamp<Size>(sight.quota));
  if (free != nullptr) *free = std::min(*free, Clamp<Size>(sight.left));
  return result;
}

template <typename Size>
CUresult TotalMem(CUresult (*real)(Size*, CUdevice), Size* bytes, CUdevice device) {
  METE_READY(p);
  const CUresult result = real(bytes, device);
  Sight sight;
  const int gpu = GpuOfDevice(*p, device);
  if (result == CUDA_SUCCESS && bytes != nullptr && gpu >= 0 &&
      See(*p, ViewOf(*p, static_cast<uint32_t>(gpu)), &sight)) {
    *bytes = std::min(*bytes, Clamp<Size>(sight.quota));
  }
  return result;
}

// ---- contexts

// A call that may leave another context current in this thread.
template <typename... Types, typename... Arguments>
CUresult SwitchContext(CUresult (*real)(Types...), Arguments... arguments) {
  const CUresult result = real(arguments...);
  ContextChanged();
  return result;
}
template <typename Call>
CUresult CreateContext(Process& p, CUdevice device, CUcontext* context, Call call) {
  uint64_t charged = 0;
  const CUresult room = p.contexts.Begin(p, device, &charged);
  if (room != CUDA_SUCCESS) return room;
  const CUresult result = call();
  ContextChanged();
  if (result == CUDA_SUCCESS && context != nullptr) {
    p.contexts.End(p, device, *context, charged);
  } else {
    p.contexts.Cancel(p, device, charged);
  }
  return result;
}
// The device is the last argument, and the only int that is.
template <typename Argument>
CUdevice LastDevice(CUdevice device, Argument argument) {
  if constexpr (std::is_same_v<Argument, CUdevice>) {
    return argument;
  } else {
    return device;
  }
}
template <typename... Types, typename... Arguments>
CUresult ContextCreate(CUresult (*real)(CUcontext*, Types...), CUcontext* context, Arguments... arguments) {
  METE_READY(p);
  CUdevice device = -1;
  ((device = LastDevice(device, arguments)), ...);
  return CreateContext(*p, device, context, [&] { return real(context, arguments...); });
}
inline CUresult ContextDestroy(CUresult (*real)(CUcontext), CUcontext context) {
  METE_READY(p);
  return p->contexts.Destroy(*p, context, [&] { return SwitchContext(real, context); });
}
inline CUresult GreenContextCreate(decltype(&::cuGreenCtxCreate) real, CUgreenCtx* green, CUdevResourceDesc resources,
                                   CUdevice device, unsigned int flags) {
  METE_READY(p);
  return p->contexts.CreateGreen(*p, real, green, resources, device, flags);
}
inline CUresult GreenContextDestroy(decltype(&::cuGreenCtxDestroy) real, CUgreenCtx green) {
  METE_READY(p);
  const CUresult result = p->contexts.DestroyGreen(*p, real, green);
  ContextChanged();
  return result;
}
inline CUresult ContextAttach(decltype(&::cuCtxAttach) real, CUcontext* context, unsigned int flags) {
  METE_READY(p);
  const CUresult result = real(context, flags);
  if (result == CUDA_SUCCESS && context != nullptr) p->contexts.Attached(*context);
  return result;
}
inline CUresult ContextDetach(decltype(&::cuCtxDetach) real, CUcontext context) {
  METE_READY(p);
  if (!p->contexts.Detached(context)) return SwitchContext(real, context);
  return p->contexts.Destroy(*p, context, [&] { return SwitchContext(real, context); });
}
inline CUresult PrimaryRetain(decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context, CUdevice device) {
  METE_READY(p);
  return p->contexts.RetainPrimary(*p, real, context, device);
}
inline CUresult PrimaryRelease(CUresult (*real)(CUdevice), CUdevice device) {
  METE_READY(p);
  return p->contexts.ReleasePrimary(*p, real, device, false);
}
inline CUresult PrimaryReset(CUresult (*real)(CUdevice), CUdevice device) {
  METE_READY(p);
  return p->contexts.ReleasePrimary(*p, real, device, true);
}

// ---- linear memory

void FreeUnremembered(uint64_t address);

// Reserve, call, settle; `bytes` is what is asked for, bytes_in_truth() what the driver made of it.
template <typename Pointer, typename Call, typename Truth>
CUresult Allocate(Pointer* pointer, uint64_t bytes, Call call, Truth bytes_in_truth) {
  METE_READY(p);
  Ticket ticket;
  const CUresult room = p->memory.Begin(*p, pointer == nullptr ? 0 : bytes, &ticket);
  if (room != CUDA_SUCCESS) return room;
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    p->memory.Cancel(ticket);
    return result;
  }
  if (!ticket.charged || p->memory.EndLinear(ticket, static_cast<uint64_t>(*pointer), bytes_in_truth())) return result;
  FreeUnremembered(static_cast<uint64_t>(*pointer));
  *pointer = 0;
  return kOutOfMemory;
}
template <typename Pointer, typename Size>
CUresult AllocLinear(CUresult (*real)(Pointer*, Size), Pointer* pointer, Size bytes) {
  return Allocate(
      pointer, bytes, [&] { return real(pointer, bytes); }, [&]() -> uint64_t { return bytes; });
}
inline CUresult AllocManaged(decltype(&::cuMemAllocManaged) real, CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  return Allocate(
      pointer, bytes, [&] { return real(pointer, bytes, flags); }, [&]() -> uint64_t { return bytes; });
}
// What a pitched allocation takes at least; the driver tells the pitch afterwards.
uint64_t PitchedBytes(uint64_t width, uint64_t height);
template <typename Pointer, typename Size>
CUresult AllocPitch(CUresult (*real)(Pointer*, Size*, Size, Size, unsigned), Pointer* pointer, Size* pitch, Size width,
                    Size height, unsigned element) {
  return Allocate(
      pointer, PitchedBytes(width, height), [&] { return real(pointer, pitch, width, height, element); },
      [&]() -> uint64_t { return pitch == nullptr ? PitchedBytes(width, height) : uint64_t{*pitch} * height; });
}

// Frees by whatever route the driver allows; the record says how it was charged.
template <typename Call>
CUresult Release(uint64_t key, Call call) {
  METE_READY(p);
  Taken taken;
  const bool known = p->memory.Take(key, &taken);
  const CUresult result = call();
  if (known && result == CUDA_SUCCESS) p->memory.Settle(*p, taken);
  if (known && result != CUDA_SUCCESS) p->memory.Restore(*p, key, taken);
  return result;
}
template <typename Pointer>
CUresult Free(CUresult (*real)(Pointer), Pointer pointer) {
  return Release(pointer, [&] { return real(pointer); });
}
inline CUresult FreeAsync(decltype(&::cuMemFreeAsync) real, CUdeviceptr pointer, CUstream stream) {
  return Release(pointer, [&] { return real(pointer, stream); });
}

// ---- stream-ordered memory

// Gives a stream-ordered block back that does not fit after all.
void FreeOverQuota(uint64_t address, CUstream stream);

template <typename Call>
CUresult AllocateFromPool(CUdeviceptr* pointer, uint64_t bytes, CUmemoryPool handle, CUstream stream, Call call) {
  METE_READY(p);
  Ticket ticket;
  Pool* pool = nullptr;
  const CUresult room = p->pools.Begin(*p, pointer == nullptr ? 0 : bytes, handle, &ticket, &pool);
  if (room != CUDA_SUCCESS) return room;
  const CUresult result = call();
  if (!ticket.charged) return result;
  if (result != CUDA_SUCCESS) {
    if (pool == nullptr) {
      p->memory.Cancel(ticket);
    } else {
      p->pools.End(*p, ticket, pool, 0, 0);
    }
    return result;
  }
  const CUresult fits = p->pools.End(*p, ticket, pool, *pointer, bytes);
  if (fits == CUDA_SUCCESS) return result;
  FreeOverQuota(*pointer, stream);
  p->pools.Refresh(*p);
  *pointer = 0;
  return fits;
}
inline CUresult AllocAsync(decltype(&::cuMemAllocAsync) real, CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return AllocateFromPool(pointer, bytes, nullptr, stream, [&] { return real(pointer, bytes, stream); });
}
inline CUresult AllocFromPool(decltype(&::cuMemAllocFromPoolAsync) real, CUdeviceptr* pointer, size_t bytes,
                              CUmemoryPool pool, CUstream stream) {
  return AllocateFromPool(pointer, bytes, pool, stream, [&] { return real(pointer, bytes, pool, stream); });
}
inline CUresult PoolCreate(decltype(&::cuMemPoolCreate) real, CUmemoryPool* pool, const CUmemPoolProps* properties) {
  METE_READY(p);
  const CUresult result = real(pool, properties);
  if (result == CUDA_SUCCESS && pool != nullptr && properties != nullptr) p->pools.Created(*p, *pool, *properties);
  return result;
}
inline CUresult PoolDestroy(decltype(&::cuMemPoolDestroy) real, CUmemoryPool pool) {
  METE_READY(p);
  const CUresult result = real(pool);
  if (result == CUDA_SUCCESS) p->pools.Destroyed(*p, pool);
  return result;
}
inline CUresult PoolTrim(decltype(&::cuMemPoolTrimTo) real, CUmemoryPool pool, size_t keep) {
  METE_READY(p);
  const CUresult result = real(pool, keep);
  if (result == CUDA_SUCCESS) p->pools.Refresh(*p);
  return result;
}

// ---- virtual memory management

inline CUresult VmmCreate(decltype(&::cuMemCreate) real, CUmemGenericAllocationHandle* handle, size_t size,
                          const CUmemAllocationProp* properties, unsigned long long flags) {
  METE_READY(p);
  return p->vmm.Create(*p, real, handle, size, properties, flags);
}
inline CUresult VmmRelease(decltype(&::cuMemRelease) real, CUmemGenericAllocationHandle handle) {
  METE_READY(p);
  return p->vmm.Release(*p, real, handle);
}
inline CUresult VmmMap(decltype(&::cuMemMap) real, CUdeviceptr address, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  METE_READY(p);
  return p->vmm.Map(real, address, size, offset, handle, flags);
}
inline CUresult VmmUnmap(decltype(&::cuMemUnmap) real, CUdeviceptr address, size_t size) {
  METE_READY(p);
  return p->vmm.Unmap(*p, real, address, size);
}
inline CUresult VmmRetain(decltype(&::cuMemRetainAllocationHandle) real, CUmemGenericAllocationHandle* handle,
                          void* address) {
  METE_READY(p);
  return p->vmm.Retain(real, handle, address);
}
inline CUresult VmmImport(decltype(&::cuMemImportFromShareableHandle) real, CUmemGenericAllocationHandle* handle,
                          void* os_handle, CUmemAllocationHandleType type) {
  METE_READY(p);
  return p->vmm.Import(real, handle, os_handle, type);
}

inline CUresult VmmExport(decltype(&::cuMemExportToShareableHandle) real, void* os_handle,
                          CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                          unsigned long long flags) {
  METE_READY(p);
  return p->vmm.Export(*p, real, os_handle, handle, type, flags);
}

// ---- what other processes may hold

// The start of the allocation that the address lies in.
uint64_t BaseOf(CUdeviceptr address);

inline CUresult IpcExport(decltype(&::cuIpcGetMemHandle) real, CUipcMemHandle* handle, CUdeviceptr address) {
  METE_READY(p);
  const CUresult result = real(handle, address);
  if (result == CUDA_SUCCESS) p->memory.Export(*p, BaseOf(address));
  return result;
}
inline CUresult PoolExport(decltype(&::cuMemPoolExportToShareableHandle) real, void* os_handle, CUmemoryPool pool,
                           CUmemAllocationHandleType type, unsigned long long flags) {
  METE_READY(p);
  const CUresult result = real(os_handle, pool, type, flags);
  if (result == CUDA_SUCCESS) p->pools.Exported(*p, pool);
  return result;
}

// ---- arrays, modules, external memory

void DestroyUnremembered(CUarray array);
void DestroyUnremembered(CUmipmappedArray array);
void DestroyUnremembered(CUexternalMemory memory);
void DestroyUnremembered(CUmodule module);

template <typename Handle, typename Call>
CUresult CreateObject(Handle* handle, const Extent& extent, Call call) {
  METE_READY(p);
  Ticket ticket;
  const CUresult room = p->memory.BeginObject(*p, extent, &ticket);
  if (room != CUDA_SUCCESS) return room;
  const CUresult result = call();
  if (result != CUDA_SUCCESS || handle == nullptr || *handle == nullptr) {
    p->memory.Cancel(ticket);
    return result;
  }
  if (p->memory.EndObject(ticket, Memory::KeyOf(*handle), extent)) return result;
  DestroyUnremembered(*handle);
  return kOutOfMemory;
}
template <typename Descriptor>
CUresult ArrayCreate(CUresult (*real)(CUarray*, const Descriptor*), CUarray* array, const Descriptor* descriptor) {
  Extent extent;
  if (descriptor != nullptr) extent.Add(ArrayBytes(ShapeOf(*descriptor), 1));
  return CreateObject(array, extent, [&] { return real(array, descriptor); });
}
inline CUresult MipmapCreate(decltype(&::cuMipmappedArrayCreate) real, CUmipmappedArray* array,
                             const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels) {
  Extent extent;
  if (descriptor != nullptr) extent.Add(ArrayBytes(ShapeOf(*descriptor), levels));
  return CreateObject(array, extent, [&] { return real(array, descriptor, levels); });
}
inline CUresult ExternalImport(decltype(&::cuImportExternalMemory) real, CUexternalMemory* memory,
                               const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor) {
  Extent extent;
  if (descriptor != nullptr)
    extent.large = descriptor->size < kAbsurd ? RoundUp(descriptor->size, kGranule) : UINT64_MAX;
  return CreateObject(memory, extent, [&] { return real(memory, descriptor); });
}

// The variables of a module are allocated with it; what else it takes is found by the audit, at once if its image says
// nothing about it.
template <typename Call>
CUresult ModuleLoad(CUmodule* module, const ImageSize& size, Call call) {
  const CUresult result = CreateObject(module, size.extent, call);
  if (result == CUDA_SUCCESS && !size.known) AskForAuditSoon();
  return result;
}
template <typename... More>
CUresult ModuleLoadData(CUresult (*real)(CUmodule*, const void*, More...), CUmodule* module, const void* image,
                        More... more) {
  return ModuleLoad(module, SizeOfImage(image), [&] { return real(module, image, more...); });
}
inline CUresult ModuleLoadFile(decltype(&::cuModuleLoad) real, CUmodule* module, const char* path) {
  return ModuleLoad(module, SizeOfFile(path), [&] { return real(module, path); });
}
template <typename... More>
CUresult LibraryLoadData(CUresult (*real)(CUlibrary*, const void*, More...), CUlibrary* library, const void* image,
                         More... more) {
  METE_READY(p);
  return p->libraries.Load(*p, library, SizeOfImage(image), [&] { return real(library, image, more...); });
}
template <typename... More>
CUresult LibraryLoadFile(CUresult (*real)(CUlibrary*, const char*, More...), CUlibrary* library, const char* path,
                         More... more) {
  METE_READY(p);
  return p->libraries.Load(*p, library, SizeOfFile(path), [&] { return real(library, path, more...); });
}
inline CUresult LibraryUnload(decltype(&::cuLibraryUnload) real, CUlibrary library) {
  METE_READY(p);
  const CUresult result = real(library);
  if (result == CUDA_SUCCESS) p->libraries.Unloaded(*p, library);
  return result;
}
inline CUresult SetLimit(decltype(&::cuCtxSetLimit) real, CUlimit limit, size_t value) {
  METE_READY(p);
  return p->contexts.SetLimit(*p, real, limit, value);
}
template <typename Handle>
CUresult HandleDestroy(CUresult (*real)(Handle), Handle handle) {
  return Release(Memory::KeyOf(handle), [&] { return real(handle); });
}

}  // namespace mete::interceptor

#include "interceptor/launch_hooks.h"

#endif  // METE_INTERCEPTOR_HOOKS_H_
