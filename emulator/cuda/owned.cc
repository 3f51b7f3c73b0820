#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {

void Bury(Handle* object) {
  static auto* mutex = new std::mutex;
  static auto* graveyard = new std::vector<Handle*>;
  object->kind.store(HandleKind::kDead, std::memory_order_release);
  std::lock_guard lock(*mutex);
  graveyard->push_back(object);
}

void ReleaseOwned(Context* context) {
  std::unordered_set<Handle*> owned;
  {
    std::lock_guard lock(context->mutex);
    owned.swap(context->owned);
  }
  // Their memory goes with the context's heap.
  for (Handle* object : owned) {
    if (auto* module = FromHandle<Module>(object)) {
      for (Function* function : module->functions) Bury(function);
    }
    if (auto* mipmap = FromHandle<MipmappedArray>(object)) {
      for (auto& level : mipmap->levels) level->kind.store(HandleKind::kDead);
    }
    Bury(object);
  }
}

}  // namespace mete::emulator::cuda
