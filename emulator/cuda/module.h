// What a context owns behind handles: modules with their functions, and arrays. Libraries are contextless and load a
// module into each context that asks. Thread rule: a module is immutable once loaded; attributes are atomics.
#ifndef METE_EMULATOR_CUDA_MODULE_H_
#define METE_EMULATOR_CUDA_MODULE_H_

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/cuda/context.h"
#include "emulator/cuda/memory.h"
#include "emulator/ptx/ptx.h"

namespace mete::emulator::cuda {

struct Array : Handle {
  static constexpr HandleKind kKind = HandleKind::kArray;
  Array() : Handle(kKind) {}
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t address = 0, bytes = 0;  // no address: no memory is mapped to it yet
  uint64_t element = 0, pitch = 0;  // bytes of an element, and from row to row
  bool level = false;               // of a mipmapped array
};

struct MipmappedArray : Handle {
  static constexpr HandleKind kKind = HandleKind::kMipmappedArray;
  MipmappedArray() : Handle(kKind) {}
  Context* context = nullptr;
  uint64_t address = 0, bytes = 0;
  bool foreign = false;  // the memory is somebody else's
  std::vector<std::unique_ptr<Array>> levels;
};

struct Function;

struct Module : Handle {
  static constexpr HandleKind kKind = HandleKind::kModule;
  Module() : Handle(kKind) {}
  Context* context = nullptr;
  std::shared_ptr<ptx::Module> code;
  std::vector<uint64_t> globals;     // device address of code->globals()[i]
  std::vector<Function*> functions;  // the entries
};

// What a launch was found to cost, for launches like it.
struct KnownCost {
  KernelCost cost;
  uint64_t uses = 0, next_sample = 1024;
};

struct Function : Handle {
  static constexpr HandleKind kKind = HandleKind::kFunction;
  Function() : Handle(kKind) {}
  Module* module = nullptr;
  Context* context = nullptr;
  std::shared_ptr<ptx::Module> code;
  const ptx::Function* entry = nullptr;  // in *code
  std::atomic<int> max_dynamic_shared{48 << 10}, carveout{-1};
  std::mutex mutex;  // of what follows
  std::unordered_map<std::string, KnownCost> costs;
  // Of the launches before CUDA 4: block shape, shared bytes and parameters are set one by one.
  uint32_t legacy_block[3] = {1, 1, 1};
  uint32_t legacy_shared = 0;
  std::vector<uint8_t> legacy_parameters;
};

struct Kernel;

struct Library : Handle {
  static constexpr HandleKind kKind = HandleKind::kLibrary;
  Library() : Handle(kKind) {}
  std::string text;
  std::shared_ptr<ptx::Module> code;  // never run, only asked
  std::mutex mutex;
  std::unordered_map<Context*, Module*> modules;
  std::vector<Kernel*> kernels;
};

struct Kernel : Handle {
  static constexpr HandleKind kKind = HandleKind::kKernel;
  Kernel() : Handle(kKind) {}
  Library* library = nullptr;
  const ptx::Function* entry = nullptr;
};

// at: where memory of `room` bytes is; 0: the context's own is taken.
CUresult MakeMipmap(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned int levels, uint64_t at,
                    uint64_t room, MipmappedArray** out);

// For the beginning of a call on a handle that belongs to no context.
template <typename T, typename H>
CUresult FindHandle(H handle, T** object) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *object = FromHandle<T>(handle);
  return *object == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// Loads PTX text into a context. log: what a person needs to mend it, on error.
CUresult LoadModule(Context* context, const void* image, std::string* log, Module** module);
void UnloadModule(Module* module);
Function* FindEntry(Module* module, const char* name);  // null: there is none

// A function or a kernel handle, as a function of the current context.
CUresult FindFunction(CUfunction handle, Function** function);
CUresult ModuleOf(Library* library, Context* context, Module** module);
// Occupancy: blocks that fit on one SM.
int BlocksPerSm(const Function& function, uint64_t threads, uint64_t dynamic_shared);

struct LaunchRequest {
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t shared = 0;
  bool cooperative = false;
  std::vector<uint8_t> parameters;
};
// handle: as the program gave it, for a captured launch.
CUresult Launch(Function* function, LaunchRequest request, CUstream stream, CUfunction handle);
CUresult ApplyAttribute(const CUlaunchAttribute& attribute, LaunchRequest* request);

// Makes a handle stale; its shell stays so that a later use is found out.
void Bury(Handle* object);

// Everything in context->owned, when the context ends.
void ReleaseOwned(Context* context);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_MODULE_H_
