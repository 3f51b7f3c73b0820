// Handles: the pointers a program gets are objects that begin with a kind. The memory behind a handle is never given
// back while the process lives (it is recycled for the same kind), so that a stale handle is found out instead of read.
// Any thread. The objects themselves belong to their context or to the driver.
#ifndef METE_EMULATOR_CUDA_HANDLE_H_
#define METE_EMULATOR_CUDA_HANDLE_H_

#include <atomic>
#include <cstdint>

namespace mete::emulator::cuda {

enum class HandleKind : uint32_t {
  kDead = 0,
  kContext = 0x6d634354,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kPool,
  kArray,
  kMipmappedArray,
};

struct Handle {
  explicit Handle(HandleKind k) : kind(k) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  std::atomic<HandleKind> kind;
  bool Is(HandleKind k) const { return kind.load(std::memory_order_acquire) == k; }
};

// Null if `handle` is null or not (any more) one of T.
template <typename T>
T* FromHandle(const void* handle) {
  if (reinterpret_cast<uintptr_t>(handle) < 4096 || reinterpret_cast<uintptr_t>(handle) % alignof(T) != 0)
    return nullptr;
  auto* object = static_cast<T*>(const_cast<void*>(handle));
  return static_cast<Handle*>(object)->Is(T::kKind) ? object : nullptr;
}

template <typename H>
H ToHandle(Handle* object) {
  return reinterpret_cast<H>(object);
}

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_HANDLE_H_
