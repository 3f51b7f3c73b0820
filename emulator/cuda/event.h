// Events: the latest instant they were recorded at. Any thread.
#ifndef METE_EMULATOR_CUDA_EVENT_H_
#define METE_EMULATOR_CUDA_EVENT_H_

#include <memory>
#include <mutex>

#include "emulator/cuda/executor.h"
#include "emulator/cuda/share_file.h"

namespace mete::emulator::cuda {

struct CapturedInstant;

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
  std::shared_ptr<Instant> latest;            // null: never recorded
  std::shared_ptr<CapturedInstant> captured;  // where it was recorded last, if a capture went on there
  // Of an event that other processes may open: it counts its recordings where all of them see it.
  std::shared_ptr<ShareFile> shared;
  bool opened = false;  // made by another process,
  ShareHandle maker{};  // this one
};

Event* NewEvent(Context* context, unsigned int flags);
// Asks for a shared event's latest recording: true once it is reached, or its process is gone.
std::function<bool()> ReachedElsewhere(Event* event);
// Records it in the stream; captured if the stream captures.
CUresult RecordEvent(Event* event, Stream* stream, bool external);
CUresult WaitForEvent(Event* event, Stream* stream, bool external);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_EVENT_H_
