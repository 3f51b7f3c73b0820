// CUDA arrays: opaque device memory of a shape, in rows as pitched memory has them. They take the memory that a real
// one would and hold what is copied into them; no kernel can read them, for PTX here has no texture instructions.
#include <memory>
#include <vector>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/element.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

constexpr uint64_t kArrayAlignment = 512;
constexpr uint64_t kMostBytes = 1ull << 46;
constexpr unsigned int kLayered = 1, kSurface = 2, kCubemap = 4, kGather = 8, kDepth = 16, kColor = 32, kSparse = 64,
                       kDeferred = 128;

// From row to row: padded as pitched memory is.
uint64_t Pitch(const CUDA_ARRAY3D_DESCRIPTOR& d, uint64_t width) {
  return RoundUp(width * ElementBytes(d.Format, d.NumChannels), d.Height == 0 && d.Depth == 0 ? 64 : 128);
}

// More than any memory has gives 0.
uint64_t LevelBytes(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned int level, bool layered) {
  auto at = [level](uint64_t extent) { return std::max<uint64_t>(extent >> level, 1); };
  const uint64_t width = at(d.Width), height = d.Height == 0 ? 1 : at(d.Height);
  const uint64_t depth = d.Depth == 0 ? 1 : layered ? d.Depth : at(d.Depth);
  if (width > 1 << 20 || height > 1 << 20 || depth > 1 << 20) return 0;
  const uint64_t row = Pitch(d, width);
  if (height * depth > kMostBytes / std::max<uint64_t>(row, 1)) return 0;
  return RoundUp(row * height * depth, kArrayAlignment);
}

CUresult Check(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (d.Width == 0 || ElementBytes(d.Format, d.NumChannels) == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & (kSparse | kDeferred | kColor)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((d.Flags & ~(kLayered | kSurface | kCubemap | kGather | kDepth)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & kCubemap) != 0 && (d.Width != d.Height || d.Depth % 6 != 0 || d.Depth == 0))
    return CUDA_ERROR_INVALID_VALUE;
  return LevelBytes(d, 0, false) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Reserve(Context* context, uint64_t bytes, uint64_t* address) {
  CUresult error = context->heap.Allocate(bytes, address);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) {
    TrimPools(context, true);
    error = context->heap.Allocate(bytes, address);
  }
  return error;
}

CUresult Create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (CUresult error = RefuseUnsafe()) return error;
  if (CUresult error = Check(descriptor)) return error;
  const uint64_t bytes = LevelBytes(descriptor, 0, (descriptor.Flags & kLayered) != 0);
  uint64_t address = 0;
  if (CUresult error = Reserve(context, bytes, &address)) return error;
  auto* array = new Array;
  array->context = context;
  array->descriptor = descriptor;
  array->address = address;
  array->bytes = bytes;
  array->element = ElementBytes(descriptor.Format, descriptor.NumChannels);
  array->pitch = Pitch(descriptor, descriptor.Width);
  std::lock_guard lock(context->mutex);
  context->owned.insert(array);
  *out = ToHandle<CUarray>(array);
  return CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR& d) {
  return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
}

CUresult FindArray(CUarray handle, Array** array) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  *array = FromHandle<Array>(handle);
  return *array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  return out == nullptr || d == nullptr ? CUDA_ERROR_INVALID_VALUE : Create(out, Widen(*d));
}

CUresult api::cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* d) {
  if (out == nullptr || d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Create(out, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
}

CUresult api::cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return out == nullptr || d == nullptr ? CUDA_ERROR_INVALID_VALUE : Create(out, *d);
}

CUresult api::cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* d) {
  if (out == nullptr || d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Create(out, {d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags});
}

CUresult api::cuArrayDestroy(CUarray handle) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  if (array->level) return CUDA_ERROR_INVALID_VALUE;  // belongs to its mipmapped array
  if (CUresult error = array->context->executor.SynchronizeAll()) return error;
  std::lock_guard lock(array->context->mutex);
  array->context->owned.erase(array);
  array->context->heap.Free(array->address);
  Bury(array);
  return CUDA_SUCCESS;
}

CUresult api::cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *out = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult api::cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* out, CUarray handle) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *out = {static_cast<unsigned int>(d.Width), static_cast<unsigned int>(d.Height), d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult api::cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult api::cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* out, CUarray handle) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *out = {static_cast<unsigned int>(d.Width),
          static_cast<unsigned int>(d.Height),
          static_cast<unsigned int>(d.Depth),
          d.Format,
          d.NumChannels,
          d.Flags};
  return CUDA_SUCCESS;
}

CUresult api::cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle, CUdevice dev) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::Get()->DeviceAt(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = {array->bytes, kArrayAlignment, {}};
  return CUDA_SUCCESS;
}

CUresult MakeMipmap(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned int levels, uint64_t at, uint64_t room,
                    MipmappedArray** out) {
  if (levels == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = Check(d)) return error;
  const bool layered = (d.Flags & kLayered) != 0;
  // At most down to one element, as documented: 1 + floor(log2(max extent)).
  uint64_t largest = std::max<uint64_t>(d.Width, std::max<uint64_t>(d.Height, layered ? 0 : d.Depth));
  unsigned int most = 0;
  for (; largest != 0; largest >>= 1) ++most;
  levels = std::min(levels, most);
  auto mipmap = std::make_unique<MipmappedArray>();
  for (unsigned int i = 0; i < levels; ++i) mipmap->bytes += LevelBytes(d, i, layered);
  mipmap->foreign = at != 0;
  mipmap->address = at;
  if (at != 0 && mipmap->bytes > room) return CUDA_ERROR_INVALID_VALUE;
  if (at == 0) {
    if (CUresult error = Reserve(context, mipmap->bytes, &mipmap->address)) return error;
  }
  mipmap->context = context;
  uint64_t place = mipmap->address;
  for (unsigned int i = 0; i < levels; ++i) {
    auto level = std::make_unique<Array>();
    level->context = context;
    level->descriptor = d;
    level->descriptor.Width = std::max<size_t>(d.Width >> i, 1);
    if (d.Height != 0) level->descriptor.Height = std::max<size_t>(d.Height >> i, 1);
    if (d.Depth != 0 && !layered) level->descriptor.Depth = std::max<size_t>(d.Depth >> i, 1);
    level->address = place;
    level->bytes = LevelBytes(d, i, layered);
    level->element = ElementBytes(d.Format, d.NumChannels);
    level->pitch = Pitch(d, level->descriptor.Width);
    level->level = true;
    place += level->bytes;
    mipmap->levels.push_back(std::move(level));
  }
  std::lock_guard lock(context->mutex);
  context->owned.insert(mipmap.get());
  *out = mipmap.release();
  return CUDA_SUCCESS;
}

CUresult api::cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned int levels) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (CUresult error = RefuseUnsafe()) return error;
  if (out == nullptr || d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MipmappedArray* mipmap = nullptr;
  if (CUresult error = MakeMipmap(context, *d, levels, 0, 0, &mipmap)) return error;
  *out = ToHandle<CUmipmappedArray>(mipmap);
  return CUDA_SUCCESS;
}

CUresult api::cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  Context* current = nullptr;
  if (CUresult error = Current(&current)) return error;
  auto* mipmap = FromHandle<MipmappedArray>(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* context = mipmap->context;
  if (CUresult error = context->executor.SynchronizeAll()) return error;
  std::lock_guard lock(context->mutex);
  context->owned.erase(mipmap);
  if (!mipmap->foreign) context->heap.Free(mipmap->address);
  for (auto& level : mipmap->levels) level->kind.store(HandleKind::kDead);
  Bury(mipmap);
  return CUDA_SUCCESS;
}

CUresult api::cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned int level) {
  Context* current = nullptr;
  if (CUresult error = Current(&current)) return error;
  auto* mipmap = FromHandle<MipmappedArray>(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUarray>(mipmap->levels[level].get());
  return CUDA_SUCCESS;
}

CUresult api::cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUmipmappedArray handle,
                                                    CUdevice dev) {
  Context* current = nullptr;
  if (CUresult error = Current(&current)) return error;
  auto* mipmap = FromHandle<MipmappedArray>(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::Get()->DeviceAt(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = {mipmap->bytes, kArrayAlignment, {}};
  return CUDA_SUCCESS;
}

namespace {

// Only sparse arrays have them, and the attributes say that there are none.
CUresult SparseProperties(const void* object, CUDA_ARRAY_SPARSE_PROPERTIES*) {
  return object == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult api::cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUarray handle) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  return SparseProperties(array, out);
}

CUresult api::cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUmipmappedArray handle) {
  Context* current = nullptr;
  if (CUresult error = Current(&current)) return error;
  return SparseProperties(FromHandle<MipmappedArray>(handle), out);
}

// A plane of an array of several: none of the formats here has them.
CUresult api::cuArrayGetPlane(CUarray* out, CUarray handle, unsigned int) {
  Array* array = nullptr;
  if (CUresult error = FindArray(handle, &array)) return error;
  (void)out;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace mete::emulator::cuda
