#include "emulator/cuda/operation.h"

#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {
namespace {

struct Maker {
  Context* context;

  Item operator()(const EmptyOperation&) const { return Light(); }
  Item operator()(const ChildOperation&) const { return Light(); }
  Item operator()(const KernelOperation& o) const { return KernelItem(o.function, o.request); }
  Item operator()(const CopyOperation& o) const { return TransferItem(context, o.transfer); }
  Item operator()(const FillOperation& o) const { return FillItem(context, o.parameters); }
  Item operator()(const HostOperation& o) const {
    Item item = Light();
    item.host = [p = o.parameters](CUresult) { p.fn(p.userData); };
    return item;
  }
  Item operator()(const RecordOperation& o) const {
    Item item = Light();
    item.records = std::make_shared<Instant>();
    item.records->context = context;
    std::lock_guard lock(o.event->mutex);
    o.event->latest = item.records;
    o.event->captured = nullptr;
    return item;
  }
  Item operator()(const WaitOperation& o) const {
    Item item = Light();
    if (std::shared_ptr<Instant> instant = o.event->Latest()) item.after.push_back(std::move(instant));
    return item;
  }
  Item operator()(const AllocateOperation& o) const { return AllocateItem(o); }
  Item operator()(const FreeOperation& o) const { return FreeItem(o); }
  Item operator()(const MemoryOperation& o) const { return MemoryItem(o); }
  Item operator()(const SignalOperation& o) const { return SignalItem(o); }
  Item operator()(const SemaphoreWaitOperation& o) const { return SemaphoreWaitItem(o); }

  static Item Light() {
    Item item;
    item.light = true;
    return item;
  }
};

}  // namespace

Item MakeItem(Context* context, const Operation& operation) { return std::visit(Maker{context}, operation); }

CUresult Perform(Stream* stream, Operation operation) {
  bool captured = false;
  if (CUresult error = CaptureInstead(stream, &captured, [&]() -> const Operation& { return operation; })) return error;
  if (captured) return CUDA_SUCCESS;
  return stream->context->executor.Enqueue(stream, MakeItem(stream->context, operation));
}

}  // namespace mete::emulator::cuda
