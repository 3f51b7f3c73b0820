// Texture and surface objects, and the references that came before them: descriptions of memory, checked and kept. No
// kernel can use one, for PTX here has no texture instructions.
#include <algorithm>
#include <map>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/element.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

struct Texture {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  bool has_view = false;
  bool surface = false;
};

struct Objects {
  std::mutex mutex;
  std::map<unsigned long long, Texture> map;
  unsigned long long next = 1;
};

Objects& TheTextures() {
  static auto* objects = new Objects;
  return *objects;
}

CUresult CheckResource(const CUDA_RESOURCE_DESC& d) {
  if (d.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (d.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return FromHandle<Array>(d.res.array.hArray) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return FromHandle<MipmappedArray>(d.res.mipmap.hMipmappedArray) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                                                 : CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& l = d.res.linear;
      const uint64_t element = ElementBytes(l.format, l.numChannels);
      if (element == 0 || l.devPtr % 512 != 0 || l.sizeInBytes == 0 || l.sizeInBytes / element > 1ull << 28)
        return CUDA_ERROR_INVALID_VALUE;
      return Driver::Get()->content().Contains(l.devPtr, l.sizeInBytes, false) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& p = d.res.pitch2D;
      const uint64_t element = ElementBytes(p.format, p.numChannels);
      if (element == 0 || p.devPtr % 512 != 0 || p.pitchInBytes % 32 != 0 || p.width == 0 || p.height == 0 ||
          p.width > 131072 || p.height > 65000 || p.pitchInBytes < p.width * element || p.pitchInBytes > 2097120)
        return CUDA_ERROR_INVALID_VALUE;
      const uint64_t bytes = p.pitchInBytes * (p.height - 1) + p.width * element;
      return Driver::Get()->content().Contains(p.devPtr, bytes, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Add(Texture texture, unsigned long long* out) {
  Objects& objects = TheTextures();
  std::lock_guard lock(objects.mutex);
  *out = objects.next++;
  objects.map[*out] = texture;
  return CUDA_SUCCESS;
}

// Reads out of an object under the lock.
template <typename Read>
CUresult Ask(unsigned long long id, bool surface, const void* out, Read read) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Objects& objects = TheTextures();
  std::lock_guard lock(objects.mutex);
  auto it = objects.map.find(id);
  if (it == objects.map.end() || it->second.surface != surface) return CUDA_ERROR_INVALID_VALUE;
  return read(it->second);
}

CUresult Destroy(unsigned long long id, bool surface) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  Objects& objects = TheTextures();
  std::lock_guard lock(objects.mutex);
  auto it = objects.map.find(id);
  if (it == objects.map.end() || it->second.surface != surface) return CUDA_ERROR_INVALID_VALUE;
  objects.map.erase(it);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
                                const CUDA_RESOURCE_VIEW_DESC* view) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = CheckResource(*resource)) return error;
  const bool linear = resource->resType == CU_RESOURCE_TYPE_LINEAR || resource->resType == CU_RESOURCE_TYPE_PITCH2D;
  if (view != nullptr && linear) return CUDA_ERROR_INVALID_VALUE;  // as documented
  for (CUaddress_mode mode : texture->addressMode) {
    if (mode < 0 || mode > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
  }
  if (texture->filterMode < 0 || texture->filterMode > CU_TR_FILTER_MODE_LINEAR || texture->mipmapFilterMode < 0 ||
      texture->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR || texture->maxAnisotropy > 16)
    return CUDA_ERROR_INVALID_VALUE;
  Texture object{*resource, *texture, {}, view != nullptr, false};
  if (view != nullptr) object.view = *view;
  return Add(object, out);
}

CUresult api::cuTexObjectDestroy(CUtexObject id) { return Destroy(id, false); }

CUresult api::cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject id) {
  return Ask(id, false, out, [out](const Texture& t) {
    *out = t.resource;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject id) {
  return Ask(id, false, out, [out](const Texture& t) {
    *out = t.texture;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject id) {
  return Ask(id, false, out, [out](const Texture& t) {
    if (!t.has_view) return CUDA_ERROR_INVALID_VALUE;
    *out = t.view;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY || resource->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto* array = FromHandle<Array>(resource->res.array.hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  constexpr unsigned int kSurface = 2;  // CUDA_ARRAY3D_SURFACE_LDST
  if ((array->descriptor.Flags & kSurface) == 0) return CUDA_ERROR_INVALID_VALUE;
  return Add({*resource, {}, {}, false, true}, out);
}

CUresult api::cuSurfObjectDestroy(CUsurfObject id) { return Destroy(id, true); }

CUresult api::cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject id) {
  return Ask(id, true, out, [out](const Texture& t) {
    *out = t.resource;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuDeviceGetTexture1DLinearMaxWidth(size_t* out, CUarray_format format, unsigned int channels,
                                                 CUdevice dev) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (driver->DeviceAt(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr || ElementBytes(format, channels) == 0) return CUDA_ERROR_INVALID_VALUE;
  *out = 1ull << 28;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
