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
  uint64_t address = 0, bytes = 0;
  bool level = false;  // of a mipmapped array
};

struct MipmappedArray : Handle {
  static constexpr HandleKind kKind = HandleKind::kMipmappedArray;
  MipmappedArray() : Handle(kKind) {}
  Context* context = nullptr;
  uint64_t address = 0, bytes = 0;
  std::vector<std::unique_ptr<Array>> levels;
};

// Makes a handle stale; its shell stays so that a later use is found out.
void Bury(Handle* object);

// Everything in context->owned, when the context ends.
void ReleaseOwned(Context* context);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_MODULE_H_
