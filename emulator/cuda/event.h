// Events: the latest instant they were recorded at. Any thread.
#ifndef METE_EMULATOR_CUDA_EVENT_H_
#define METE_EMULATOR_CUDA_EVENT_H_

#include <memory>
#include <mutex>

#include "emulator/cuda/executor.h"

namespace mete::emulator::cuda {

struct Event : Handle {
  static constexpr HandleKind kKind = HandleKind::kEvent;
  Event() : Handle(kKind) {}
  Context* context = nullptr;
  unsigned int flags = 0;

  std::shared_ptr<Instant> Latest() {
    std::lock_guard lock(mutex);
    return latest;
  }
  std::mutex mutex;
  std::shared_ptr<Instant> latest;  // null: never recorded
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_EVENT_H_
