// Libraries (cuLibrary…): their code and variables come into every context of the process, when first used there. They
// are charged to each context at once: from the load, or from the making of a later context, until the library or the
// context goes. Thread-safe.
#ifndef METE_INTERCEPTOR_LIBRARY_H_
#define METE_INTERCEPTOR_LIBRARY_H_

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "interceptor/cuda_api.h"
#include "interceptor/deferred.h"
#include "interceptor/image.h"

namespace mete::interceptor {

struct Process;

class Libraries {
 public:
  // Calls load(), which makes *library, if there is room for it in every context.
  template <typename Call>
  CUresult Load(Process& p, CUlibrary* library, const ImageSize& size, Call load) {
    if (size.extent.Empty() || library == nullptr) {
      const CUresult result = load();
      if (result == CUDA_SUCCESS && !size.known) AskForAuditSoon();
      return result;
    }
    std::lock_guard lock(mutex_);
    const CUresult room = Begin(p, size.extent);
    if (room != CUDA_SUCCESS) return room;
    const CUresult result = load();
    End(p, result == CUDA_SUCCESS ? *library : nullptr, size.extent);
    return result;
  }
  void Unloaded(Process& p, CUlibrary library);
  void ContextMade(Process& p, CUcontext context, uint32_t gpu);

 private:
  CUresult Begin(Process& p, const Extent& extent);               // with the lock
  void End(Process& p, CUlibrary library, const Extent& extent);  // with the lock; null: the load failed

  std::mutex mutex_;
  std::unordered_map<CUlibrary, Extent> libraries_;
  std::unordered_map<CUcontext, uint32_t> into_;  // contexts that a load under way has room in, and their GPUs
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_LIBRARY_H_
