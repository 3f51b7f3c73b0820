// Handles: the pointers a program gets are objects that begin with a kind. Every one is listed by its address, so that
// a made-up handle is found out without being read. The memory behind a handle is never given back while the process
// lives (it is recycled for the same kind), so that a stale handle is found out too. Any thread; looking up takes no
// lock. The objects themselves belong to their context or to the driver.
#ifndef METE_EMULATOR_CUDA_HANDLE_H_
#define METE_EMULATOR_CUDA_HANDLE_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

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
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kExternalMemory,
  kExternalSemaphore,
  kTextureReference,
  kSurfaceReference,
  kLinkState,
};

// The addresses of all objects that are handles.
void ListHandle(const void* object);
void UnlistHandle(const void* object);
bool IsListedHandle(const void* object);

struct Handle {
  explicit Handle(HandleKind k) : kind(k) { ListHandle(this); }
  ~Handle() { UnlistHandle(this); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  std::atomic<HandleKind> kind;
  bool Is(HandleKind k) const { return kind.load(std::memory_order_acquire) == k; }
};

// Null if `handle` is null or not (any more) one of T.
template <typename T>
T* FromHandle(const void* handle) {
  if (!IsListedHandle(handle)) return nullptr;
  auto* object = static_cast<Handle*>(const_cast<void*>(handle));
  return object->Is(T::kKind) ? static_cast<T*>(object) : nullptr;
}

// Shells of dead objects, to be used again for the same kind: a program may make millions. T must be empty of
// everything that belonged to its last life before it is given.
template <typename T>
class Shells {
 public:
  T* Take() {
    T* object = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        object = spare_.back();
        spare_.pop_back();
      }
    }
    return object != nullptr ? object : new T;  // lives as long as the process
  }
  void Give(T* object) {
    object->kind.store(HandleKind::kDead, std::memory_order_release);
    std::lock_guard lock(mutex_);
    spare_.push_back(object);
  }
  static Shells& Get() {
    static auto* shells = new Shells;  // never destroyed: other threads may run at exit
    return *shells;
  }

 private:
  std::mutex mutex_;
  std::vector<T*> spare_;
};

template <typename H>
H ToHandle(Handle* object) {
  return reinterpret_cast<H>(object);
}

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_HANDLE_H_
