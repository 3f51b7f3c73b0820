// Copies and sets. The effect is done in stream order, and the bytes are posted to the engine as a copy in the
// direction they go.
#include "emulator/cuda/copy.h"

#include <cstring>
#include <vector>

#include "emulator/cuda/capture.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/graph_memory.h"
#include "emulator/cuda/memory.h"
#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {
namespace {

__extension__ typedef unsigned __int128 Wide;  // sums of products of what a program gave

constexpr uint64_t kInline = 1 << 20;      // bytes that the calling thread moves itself
constexpr uint64_t kStaged = 64 << 10;     // pageable bytes that are copied aside before an asynchronous call returns
constexpr uint64_t kMost = 1ull << 46;     // no memory is larger
constexpr uint64_t kUserEnd = 1ull << 47;  // nor is there an address beyond

bool IsDevice(uint64_t address) { return Driver::Get()->content().IsDevice(address); }

bool IsPinned(uint64_t address) {
  auto found = Allocations::Get().Find(address);
  return found && (found->kind == AllocationKind::kHost || found->kind == AllocationKind::kRegistered);
}

// From the first byte to the last one touched; kMost if it is no sensible range.
uint64_t Span(const Box& box, uint64_t pitch, uint64_t slice) {
  const Wide span = static_cast<Wide>(box.height - 1) * pitch + static_cast<Wide>(box.depth - 1) * slice + box.width;
  return span > kMost ? kMost : static_cast<uint64_t>(span);
}

// Memory that is there now or, for a graph's, will be.
bool Usable(uint64_t address, uint64_t bytes, bool write, bool planned) {
  return Driver::Get()->content().Contains(address, bytes, write) || (planned && IsGraphMemory(address, bytes));
}

// Memory that was freed since the call is an illegal address to the GPU.
bool StillThere(Context* context, uint64_t address, uint64_t bytes, bool write) {
  if (Driver::Get()->content().Contains(address, bytes, write)) return true;
  context->Fail(CUDA_ERROR_ILLEGAL_ADDRESS, 31);
  return false;
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

// One side of a copy as the description has it.
struct Side {
  CUmemorytype type;
  uint64_t host, device;
  CUarray array;
  uint64_t x, y, z, level, pitch, height;
};

CUresult Resolve(const Side& side, const Box& box, uint64_t* start, uint64_t* pitch, uint64_t* slice) {
  if (side.level != 0 || side.x > kMost || side.y > kMost || side.z > kMost) return CUDA_ERROR_INVALID_VALUE;
  uint64_t base = 0;
  if (side.type == CU_MEMORYTYPE_ARRAY) {
    auto* array = FromHandle<Array>(side.array);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
    if (array->address == 0) return CUDA_ERROR_INVALID_VALUE;  // no memory is mapped to it
    if (side.x + box.width > d.Width * array->element || side.y + box.height > std::max<uint64_t>(d.Height, 1) ||
        side.z + box.depth > std::max<uint64_t>(d.Depth, 1))
      return CUDA_ERROR_INVALID_VALUE;
    base = array->address;
    *pitch = array->pitch;
    *slice = array->pitch * std::max<uint64_t>(d.Height, 1);
  } else if (side.type == CU_MEMORYTYPE_HOST || side.type == CU_MEMORYTYPE_DEVICE ||
             side.type == CU_MEMORYTYPE_UNIFIED) {
    base = side.type == CU_MEMORYTYPE_HOST ? side.host : side.device;
    if (base == 0) return CUDA_ERROR_INVALID_VALUE;
    *pitch = side.pitch != 0 ? side.pitch : box.width;
    const uint64_t rows = side.height != 0 ? side.height : box.height;
    if (*pitch > kMost || rows > kMost / std::max<uint64_t>(*pitch, 1)) return CUDA_ERROR_INVALID_VALUE;
    *slice = *pitch * rows;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Wide offset = static_cast<Wide>(side.z) * *slice + static_cast<Wide>(side.y) * *pitch + side.x;
  if (offset > kMost) return CUDA_ERROR_INVALID_VALUE;
  *start = base + static_cast<uint64_t>(offset);
  return CUDA_SUCCESS;
}

uint32_t Repeated(const CUDA_MEMSET_NODE_PARAMS& p) {
  if (p.elementSize == 1) return (p.value & 0xff) * 0x01010101u;
  return p.elementSize == 2 ? (p.value & 0xffff) * 0x00010001u : p.value;
}

}  // namespace

Transfer Line(uint64_t destination, uint64_t source, uint64_t bytes, unsigned must_be_device) {
  Transfer t;
  t.destination = destination;
  t.source = source;
  t.box.width = bytes;
  t.must_be_device = must_be_device;
  return t;
}

CUresult FromDescription(const CUDA_MEMCPY3D& d, Transfer* t) {
  if (d.WidthInBytes > kMost || d.Height > kMost || d.Depth > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<Wide>(d.WidthInBytes) * d.Height > kMost ||
      static_cast<Wide>(d.WidthInBytes) * d.Height * d.Depth > kMost)
    return CUDA_ERROR_INVALID_VALUE;
  t->box = {d.WidthInBytes, d.Height, d.Depth};
  if (t->bytes() == 0) return CUDA_SUCCESS;
  if (d.srcMemoryType == CU_MEMORYTYPE_DEVICE) t->must_be_device |= Transfer::kSource;
  if (d.dstMemoryType == CU_MEMORYTYPE_DEVICE) t->must_be_device |= Transfer::kDestination;
  const Side from = {d.srcMemoryType, reinterpret_cast<uint64_t>(d.srcHost),
                     d.srcDevice,     d.srcArray,
                     d.srcXInBytes,   d.srcY,
                     d.srcZ,          d.srcLOD,
                     d.srcPitch,      d.srcHeight};
  const Side to = {d.dstMemoryType, reinterpret_cast<uint64_t>(d.dstHost),
                   d.dstDevice,     d.dstArray,
                   d.dstXInBytes,   d.dstY,
                   d.dstZ,          d.dstLOD,
                   d.dstPitch,      d.dstHeight};
  if (CUresult error = Resolve(from, t->box, &t->source, &t->source_pitch, &t->source_slice)) return error;
  return Resolve(to, t->box, &t->destination, &t->destination_pitch, &t->destination_slice);
}

CUDA_MEMCPY3D Describe(const Transfer& t) {
  CUDA_MEMCPY3D d{};
  d.srcMemoryType = t.from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  d.dstMemoryType = t.to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  if (t.from_device) d.srcDevice = t.source;
  if (!t.from_device) d.srcHost = reinterpret_cast<const void*>(t.source);
  if (t.to_device) d.dstDevice = t.destination;
  if (!t.to_device) d.dstHost = reinterpret_cast<void*>(t.destination);
  d.WidthInBytes = d.srcPitch = d.dstPitch = t.box.width;
  d.Height = d.Depth = d.srcHeight = d.dstHeight = 1;
  return d;
}

CUresult Check(const Context& context, Transfer* t, bool planned) {
  if (t->destination == 0 || t->source == 0 || t->box.width > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (t->box.height > 1 && (t->destination_pitch < t->box.width || t->source_pitch < t->box.width))
    return CUDA_ERROR_INVALID_VALUE;
  t->to_device = IsDevice(t->destination) || (planned && IsGraphMemory(t->destination, 1));
  t->from_device = IsDevice(t->source) || (planned && IsGraphMemory(t->source, 1));
  if ((t->must_be_device & Transfer::kDestination) != 0 && !t->to_device && !IsPinned(t->destination))
    return CUDA_ERROR_INVALID_VALUE;
  if ((t->must_be_device & Transfer::kSource) != 0 && !t->from_device && !IsPinned(t->source))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t to_span = Span(t->box, t->destination_pitch, t->destination_slice);
  const uint64_t from_span = Span(t->box, t->source_pitch, t->source_slice);
  if (to_span >= kMost || from_span >= kMost) return CUDA_ERROR_INVALID_VALUE;
  if (t->destination > kUserEnd - to_span || t->source > kUserEnd - from_span) return CUDA_ERROR_INVALID_VALUE;
  if (t->to_device && !Usable(t->destination, to_span, true, planned)) return CUDA_ERROR_INVALID_VALUE;
  if (t->from_device && !Usable(t->source, from_span, false, planned)) return CUDA_ERROR_INVALID_VALUE;
  t->kind = WorkKind::kMarker;
  if (t->to_device) t->kind = t->from_device ? WorkKind::kCopyDeviceToDevice : WorkKind::kCopyHostToDevice;
  if (!t->to_device && t->from_device) t->kind = WorkKind::kCopyDeviceToHost;
  if (t->kind == WorkKind::kCopyDeviceToDevice) {
    // Between two GPUs it goes over the bus: out of the one or into the other.
    const Content& content = Driver::Get()->content();
    const int to = content.DeviceOf(t->destination), from = content.DeviceOf(t->source);
    if (to >= 0 && from >= 0 && to != from)
      t->kind =
          to == Driver::Get()->OrdinalOf(context.device) ? WorkKind::kCopyHostToDevice : WorkKind::kCopyDeviceToHost;
  }
  return CUDA_SUCCESS;
}

CUresult MakeCopy(Context* context, const CUDA_MEMCPY3D& description, CopyOperation* out) {
  out->context = context;
  out->description = description;
  if (CUresult error = FromDescription(description, &out->transfer)) return error;
  if (out->transfer.bytes() == 0) return CUDA_ERROR_INVALID_VALUE;
  return Check(*context, &out->transfer, true);
}

Item TransferItem(Context* context, const Transfer& t) {
  Item item;
  item.light = t.bytes() <= kInline;
  item.effect = [context, t](Work* work) {
    if (t.to_device && !StillThere(context, t.destination, Span(t.box, t.destination_pitch, t.destination_slice), true))
      return false;
    if (t.from_device && !StillThere(context, t.source, Span(t.box, t.source_pitch, t.source_slice), false))
      return false;
    Move(t);
    work->kind = t.kind;
    work->bytes = t.bytes();
    return true;
  };
  return item;
}

CUresult RunTransfer(Transfer t, const CUDA_MEMCPY3D* description, CUstream stream_handle, bool synchronous) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  if (t.bytes() == 0) return CUDA_SUCCESS;
  if (CUresult error = Check(*context, &t, stream->capturing.load())) return error;
  if (synchronous) {
    if (CUresult error = RefuseWhileCapturing(context, stream)) return error;
  } else {
    bool captured = false;
    const CUresult error = CaptureInstead(stream, &captured, [&] {
      return Operation(CopyOperation{context, description != nullptr ? *description : Describe(t), t});
    });
    if (error != CUDA_SUCCESS || captured) return error;
  }
  // The program may change pageable memory when the call returns, and expects a read into it to be complete.
  const bool pageable_source = !t.from_device && !IsPinned(t.source);
  const bool pageable_destination = !t.to_device && !IsPinned(t.destination);
  const bool line = t.box.height == 1 && t.box.depth == 1;
  std::shared_ptr<std::vector<uint8_t>> staged;
  if (!synchronous && pageable_source && !pageable_destination && t.bytes() <= kStaged && line) {
    const auto* from = reinterpret_cast<const uint8_t*>(t.source);
    staged = std::make_shared<std::vector<uint8_t>>(from, from + t.bytes());
    t.source = reinterpret_cast<uint64_t>(staged->data());
  }
  const bool effect_first = !synchronous && pageable_source && staged == nullptr;
  Item item = TransferItem(context, t);
  item.light |= synchronous;
  if (staged != nullptr) {
    item.effect = [staged, effect = std::move(item.effect)](Work* work) { return effect(work); };
  }
  if (CUresult error = context->executor.Enqueue(stream, std::move(item))) return error;
  if (synchronous || pageable_destination) return context->executor.Synchronize(stream);
  if (effect_first) return context->executor.WaitForEffects(stream);
  return CUDA_SUCCESS;
}

CUresult RunCopy(const CUDA_MEMCPY3D& description, CUstream stream, bool synchronous) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Transfer t;
  if (CUresult error = FromDescription(description, &t)) return error;
  return RunTransfer(t, &description, stream, synchronous);
}

CUresult MakeFill(Context* context, const CUDA_MEMSET_NODE_PARAMS& p, bool planned, FillOperation* out) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  if (p.width == 0 || p.height == 0 || p.width > kMost / p.elementSize) return CUDA_ERROR_INVALID_VALUE;
  if (p.dst % p.elementSize != 0 || (p.height > 1 && p.pitch % p.elementSize != 0)) return CUDA_ERROR_INVALID_VALUE;
  const Box box = {p.width * p.elementSize, p.height, 1};
  if (p.height > 1 && p.pitch < box.width) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t span = Span(box, p.pitch, 0);
  if (span >= kMost || !Usable(p.dst, span, true, planned)) return CUDA_ERROR_INVALID_VALUE;
  *out = {context, p};
  return CUDA_SUCCESS;
}

Item FillItem(Context* context, const CUDA_MEMSET_NODE_PARAMS& p) {
  const uint64_t row = p.width * p.elementSize;
  Item item;
  item.light = row * p.height <= kInline || p.height == 1;  // one run is cheap: it is kept as a pattern
  item.effect = [context, p, row, pattern = Repeated(p)](Work* work) {
    if (!StillThere(context, p.dst, row + (p.height - 1) * p.pitch, true)) return false;
    for (uint64_t y = 0; y < p.height; ++y) Driver::Get()->content().Fill(p.dst + y * p.pitch, pattern, row);
    work->kind = WorkKind::kCopyDeviceToDevice;
    work->bytes = row * p.height;
    return true;
  };
  return item;
}

CUresult RunFill(const CUDA_MEMSET_NODE_PARAMS& parameters, CUstream stream_handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  if (parameters.width == 0 || parameters.height == 0) return CUDA_SUCCESS;
  FillOperation fill;
  if (CUresult error = MakeFill(context, parameters, stream->capturing.load(), &fill)) return error;
  return Perform(stream, fill);
}

}  // namespace mete::emulator::cuda
