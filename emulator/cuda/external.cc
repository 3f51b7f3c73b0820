#include "emulator/cuda/external.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/share_file.h"

namespace mete::emulator::cuda {

struct ExternalMemory : Handle {
  static constexpr HandleKind kKind = HandleKind::kExternalMemory;
  ExternalMemory() : Handle(kKind) {}
  std::mutex mutex;  // of what follows
  int descriptor = -1;
  uint64_t bytes = 0, base = 0, charged = 0;
  Context* context = nullptr;
  std::unique_ptr<Region> region;
};

struct ExternalSemaphore : Handle {
  static constexpr HandleKind kKind = HandleKind::kExternalSemaphore;
  ExternalSemaphore() : Handle(kKind) {}
  int descriptor = -1;
  bool timeline = false;
  std::atomic<uint64_t>* value = nullptr;  // mapped; stays when the semaphore is destroyed and queued work uses it
};

namespace {

std::mutex g_external;
std::set<ExternalMemory*>& All() {
  static auto* all = new std::set<ExternalMemory*>;
  return *all;
}

// A file of at least `bytes` that cannot become shorter.
bool IsFixed(int descriptor, uint64_t bytes) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || static_cast<uint64_t>(status.st_size) < bytes)
    return false;
  int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return false;
  if ((seals & F_SEAL_SHRINK) != 0) return true;
  return fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && fstat(descriptor, &status) == 0 &&
         static_cast<uint64_t>(status.st_size) >= bytes;
}

CUresult Find(CUexternalMemory handle, ExternalMemory** memory) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  *memory = FromHandle<ExternalMemory>(handle);
  return *memory == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

template <typename P, typename O>
CUresult Gather(const CUexternalSemaphore* handles, const P* parameters, unsigned int count, O* out) {
  if (count == 0 || count > 4096 || !IsList(handles, count) || !IsList(parameters, count))
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    auto* semaphore = FromHandle<ExternalSemaphore>(handles[i]);
    if (semaphore == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    out->semaphores.push_back(semaphore);
    out->parameters.push_back(parameters[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult MakeSignal(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS& p, Operation* out) {
  SignalOperation operation;
  if (CUresult error = Gather(p.extSemArray, p.paramsArray, p.numExtSems, &operation)) return error;
  *out = std::move(operation);
  return CUDA_SUCCESS;
}

CUresult MakeSemaphoreWait(const CUDA_EXT_SEM_WAIT_NODE_PARAMS& p, Operation* out) {
  SemaphoreWaitOperation operation;
  if (CUresult error = Gather(p.extSemArray, p.paramsArray, p.numExtSems, &operation)) return error;
  *out = std::move(operation);
  return CUDA_SUCCESS;
}

Item SignalItem(const SignalOperation& operation) {
  Item item;
  item.light = true;
  item.effect = [operation](Work*) {
    for (size_t i = 0; i < operation.semaphores.size(); ++i) {
      const ExternalSemaphore& s = *operation.semaphores[i];
      s.value->store(s.timeline ? operation.parameters[i].params.fence.value : 1, std::memory_order_release);
    }
    return false;
  };
  return item;
}

Item SemaphoreWaitItem(const SemaphoreWaitOperation& operation) {
  Item item;
  item.light = true;
  item.due = [operation, next = size_t{0}]() mutable {
    for (; next < operation.semaphores.size(); ++next) {
      const ExternalSemaphore& s = *operation.semaphores[next];
      uint64_t one = 1;  // a binary semaphore is taken by whoever waited for it
      const bool there = s.timeline
                             ? s.value->load(std::memory_order_acquire) >= operation.parameters[next].params.fence.value
                             : s.value->compare_exchange_strong(one, 0);
      if (!there) return false;
    }
    return true;
  };
  return item;
}

void DropExternalCharges(Context* context) {
  std::lock_guard lock(g_external);
  for (ExternalMemory* memory : All()) {
    std::lock_guard memory_lock(memory->mutex);
    if (memory->context == context) memory->charged = 0;
  }
}

CUresult api::cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || d == nullptr || d->size == 0 || d->flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (d->type < CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || d->type > CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF)
    return CUDA_ERROR_INVALID_VALUE;
  if (d->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if (d->size > 1ull << 46 || !IsFixed(d->handle.fd, d->size)) return CUDA_ERROR_INVALID_HANDLE;
  Driver* driver = Driver::Get();
  const uint64_t room = RoundUp(d->size, kChunkBytes);
  Result result = driver->client().ReserveMemory(context->engine, room);
  if (result == Result::kOutOfMemory) {
    TrimPools(context, true);
    result = driver->client().ReserveMemory(context->engine, room);
  }
  if (result != Result::kOk) return context->Explain(result);
  const uint64_t base = driver->address_space().Take(room);
  void* at = base == 0 ? MAP_FAILED
                       : mmap(reinterpret_cast<void*>(base), RoundUp(d->size, 4096), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, d->handle.fd, 0);
  if (at == MAP_FAILED) {
    if (base != 0) driver->address_space().Give(base, room);
    driver->client().ReturnMemory(context->engine, room);
    return base == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
  }
  madvise(at, d->size, MADV_DONTFORK);
  ExternalMemory* memory = Shells<ExternalMemory>::Get().Take();
  {
    std::lock_guard lock(memory->mutex);
    memory->descriptor = d->handle.fd;  // ours from here on
    memory->bytes = d->size;
    memory->base = base;
    memory->charged = room;
    memory->context = context;
    memory->region = std::make_unique<Region>();
    memory->region->base = base;
    memory->region->bytes = room;
    memory->region->end = base + d->size;
    memory->region->device = driver->OrdinalOf(context->device);
    driver->content().Add(memory->region.get());
    memory->kind.store(HandleKind::kExternalMemory, std::memory_order_release);
  }
  std::lock_guard lock(g_external);
  All().insert(memory);
  *out = ToHandle<CUexternalMemory>(memory);
  return CUDA_SUCCESS;
}

CUresult api::cuExternalMemoryGetMappedBuffer(CUdeviceptr* out, CUexternalMemory handle,
                                              const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* d) {
  ExternalMemory* memory = nullptr;
  if (CUresult error = Find(handle, &memory)) return error;
  if (out == nullptr || d == nullptr || d->flags != 0 || d->size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(memory->mutex);
  if (d->offset >= memory->bytes || d->size > memory->bytes - d->offset) return CUDA_ERROR_INVALID_VALUE;
  Allocation allocation;
  allocation.kind = AllocationKind::kExternal;
  allocation.address = memory->base + d->offset;
  allocation.bytes = d->size;
  allocation.context = memory->context;
  *out = allocation.address;
  Allocations::Get().Add(std::move(allocation));
  return CUDA_SUCCESS;
}

CUresult api::cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray* out, CUexternalMemory handle,
                                                      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* d) {
  ExternalMemory* memory = nullptr;
  if (CUresult error = Find(handle, &memory)) return error;
  if (out == nullptr || d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(memory->mutex);
  if (d->offset >= memory->bytes) return CUDA_ERROR_INVALID_VALUE;
  MipmappedArray* mipmap = nullptr;
  if (CUresult error = MakeMipmap(memory->context, d->arrayDesc, d->numLevels, memory->base + d->offset,
                                  memory->bytes - d->offset, &mipmap))
    return error;
  *out = ToHandle<CUmipmappedArray>(mipmap);
  return CUDA_SUCCESS;
}

CUresult api::cuDestroyExternalMemory(CUexternalMemory handle) {
  ExternalMemory* memory = nullptr;
  if (CUresult error = Find(handle, &memory)) return error;
  if (memory->context->alive.load()) memory->context->executor.SynchronizeAll();
  {
    std::lock_guard lock(g_external);
    if (All().erase(memory) == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  Driver* driver = Driver::Get();
  std::lock_guard lock(memory->mutex);
  Allocations::Get().DropWithin(memory->base, memory->bytes);
  driver->content().Remove(memory->region.get());
  memory->region = nullptr;
  const uint64_t room = RoundUp(memory->bytes, kChunkBytes);
  CloseAddresses(memory->base, room);
  driver->address_space().Give(memory->base, room);
  if (memory->charged != 0 && memory->context->alive.load())
    driver->client().ReturnMemory(memory->context->engine, memory->charged);
  close(memory->descriptor);
  Shells<ExternalMemory>::Get().Give(memory);
  return CUDA_SUCCESS;
}

CUresult api::cuImportExternalSemaphore(CUexternalSemaphore* out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* d) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || d == nullptr || d->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool timeline = d->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (d->type < CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD ||
      d->type > CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32)
    return CUDA_ERROR_INVALID_VALUE;
  if (!timeline && d->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if (!IsFixed(d->handle.fd, sizeof(uint64_t))) return CUDA_ERROR_INVALID_HANDLE;
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, d->handle.fd, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_INVALID_HANDLE;
  auto* semaphore = new ExternalSemaphore;  // its word may be in use by queued work for ever
  semaphore->descriptor = d->handle.fd;
  semaphore->timeline = timeline;
  semaphore->value = static_cast<std::atomic<uint64_t>*>(at);
  *out = ToHandle<CUexternalSemaphore>(semaphore);
  return CUDA_SUCCESS;
}

CUresult api::cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto* semaphore = FromHandle<ExternalSemaphore>(handle);
  if (semaphore == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  close(std::exchange(semaphore->descriptor, -1));
  Bury(semaphore);
  return CUDA_SUCCESS;
}

CUresult api::cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* handles,
                                              const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* parameters,
                                              unsigned int count, CUstream stream_handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  Operation operation;
  if (CUresult error = MakeSignal({const_cast<CUexternalSemaphore*>(handles), parameters, count}, &operation))
    return error;
  return Perform(stream, std::move(operation));
}

CUresult api::cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* handles,
                                            const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* parameters, unsigned int count,
                                            CUstream stream_handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  Operation operation;
  if (CUresult error = MakeSemaphoreWait({const_cast<CUexternalSemaphore*>(handles), parameters, count}, &operation))
    return error;
  return Perform(stream, std::move(operation));
}

}  // namespace mete::emulator::cuda
