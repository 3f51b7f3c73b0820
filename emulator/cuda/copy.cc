// Copies and sets of linear memory. The effect is done in stream order, and the bytes are posted to the engine as a
// copy in the direction they go.
#include "emulator/cuda/copy.h"

#include <cstring>
#include <vector>

#include "emulator/cuda/context.h"
#include "emulator/cuda/memory.h"

namespace mete::emulator::cuda {
namespace {

constexpr uint64_t kInline = 1 << 20;   // bytes that the calling thread moves itself
constexpr uint64_t kStaged = 64 << 10;  // pageable bytes that are copied aside before an asynchronous call returns

bool IsDevice(uint64_t address) { return Driver::Get()->content().IsDevice(address); }

bool IsPinned(uint64_t address) {
  auto found = Allocations::Get().Find(address);
  return found && (found->kind == AllocationKind::kHost || found->kind == AllocationKind::kRegistered);
}

// From the first byte to the last one touched.
uint64_t Span(const Box& box, uint64_t pitch, uint64_t slice) {
  return box.width + (box.height - 1) * pitch + (box.depth - 1) * slice;
}

void Move(const Transfer& t) {
  Content& content = Driver::Get()->content();
  for (uint64_t z = 0; z < t.box.depth; ++z) {
    for (uint64_t y = 0; y < t.box.height; ++y) {
      const uint64_t to = t.destination + z * t.destination_slice + y * t.destination_pitch;
      const uint64_t from = t.source + z * t.source_slice + y * t.source_pitch;
      if (t.to_device && t.from_device) {
        content.Copy(to, from, t.box.width);
      } else if (t.to_device) {
        content.Write(to, reinterpret_cast<void*>(from), t.box.width);
      } else if (t.from_device) {
        content.Read(from, reinterpret_cast<void*>(to), t.box.width);
      } else {
        memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), t.box.width);
      }
    }
  }
}

}  // namespace

CUresult RunTransfer(Transfer t, CUstream stream_handle, bool synchronous) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  const uint64_t bytes = t.box.width * t.box.height * t.box.depth;
  if (bytes == 0) return CUDA_SUCCESS;
  if (t.destination == 0 || t.source == 0) return CUDA_ERROR_INVALID_VALUE;
  if (t.box.height > 1 && (t.destination_pitch < t.box.width || t.source_pitch < t.box.width))
    return CUDA_ERROR_INVALID_VALUE;
  if (t.must_be_device & Transfer::kDestination && !IsDevice(t.destination) && !IsPinned(t.destination)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (t.must_be_device & Transfer::kSource && !IsDevice(t.source) && !IsPinned(t.source))
    return CUDA_ERROR_INVALID_VALUE;
  t.to_device = IsDevice(t.destination);
  t.from_device = IsDevice(t.source);
  Content& content = Driver::Get()->content();
  if (t.to_device && !content.Contains(t.destination, Span(t.box, t.destination_pitch, t.destination_slice), true)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (t.from_device && !content.Contains(t.source, Span(t.box, t.source_pitch, t.source_slice), false)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  WorkKind kind = WorkKind::kMarker;
  if (t.to_device) kind = t.from_device ? WorkKind::kCopyDeviceToDevice : WorkKind::kCopyHostToDevice;
  if (!t.to_device && t.from_device) kind = WorkKind::kCopyDeviceToHost;

  // The program may change pageable memory when the call returns, and expects a read into it to be complete.
  const bool pageable_source = !t.from_device && !IsPinned(t.source);
  const bool pageable_destination = !t.to_device && !IsPinned(t.destination);
  std::shared_ptr<std::vector<uint8_t>> staged;
  if (!synchronous && pageable_source && !pageable_destination && bytes <= kStaged && t.box.height == 1 &&
      t.box.depth == 1) {
    const auto* from = reinterpret_cast<const uint8_t*>(t.source);
    staged = std::make_shared<std::vector<uint8_t>>(from, from + bytes);
    t.source = reinterpret_cast<uint64_t>(staged->data());
  }
  const bool effect_first = !synchronous && pageable_source && staged == nullptr;
  Item item;
  item.light = synchronous || bytes <= kInline;
  item.effect = [t, staged, kind, bytes](Work* work) {
    Move(t);
    work->kind = kind;
    work->bytes = bytes;
    return true;
  };
  if (CUresult error = context->executor.Enqueue(stream, std::move(item))) return error;
  if (synchronous || pageable_destination) return context->executor.Synchronize(stream);
  if (effect_first) return context->executor.WaitForEffects(stream);
  return CUDA_SUCCESS;
}

CUresult RunFill(CUdeviceptr address, uint32_t pattern, uint64_t element, uint64_t pitch, uint64_t width,
                 uint64_t height, CUstream stream_handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (address % element != 0 || pitch % element != 0 || width > (1ull << 46) / element) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = width * element;
  if (height > 1 && pitch < row) return CUDA_ERROR_INVALID_VALUE;
  if (height > (1ull << 46) / std::max<uint64_t>(pitch, 1)) return CUDA_ERROR_INVALID_VALUE;
  Content& content = Driver::Get()->content();
  if (!content.Contains(address, row + (height - 1) * pitch, true)) return CUDA_ERROR_INVALID_VALUE;
  Item item;
  item.light = row * height <= kInline || height == 1;  // one run is cheap: it is kept as a pattern
  item.effect = [=, &content](Work* work) {
    for (uint64_t y = 0; y < height; ++y) content.Fill(address + y * pitch, pattern, row);
    work->kind = WorkKind::kCopyDeviceToDevice;
    work->bytes = row * height;
    return true;
  };
  return context->executor.Enqueue(stream, std::move(item));
}

}  // namespace mete::emulator::cuda
