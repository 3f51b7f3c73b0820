// Texture references, the way before texture objects: settings, kept so that they can be read.
#include <algorithm>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/element.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {

struct TextureReference : Handle {
  static constexpr HandleKind kKind = HandleKind::kTextureReference;
  TextureReference() : Handle(kKind) {}
  struct Settings {
    CUdeviceptr address = 0;
    CUarray array = nullptr;
    CUmipmappedArray mipmap = nullptr;
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    int channels = 1;
    CUaddress_mode modes[3] = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP};
    CUfilter_mode filter = CU_TR_FILTER_MODE_POINT, mipmap_filter = CU_TR_FILTER_MODE_POINT;
    unsigned int flags = 0;
    int anisotropy = 1;
    float bias = 0, least = 0, most = 0;
    float border[4] = {};
  };
  std::mutex mutex;
  Settings settings;
};

namespace {

using Settings = TextureReference::Settings;

// Changes or reads the settings of a reference; `change` gives the call's result.
template <typename Change>
CUresult With(CUtexref handle, Change change) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto* reference = FromHandle<TextureReference>(handle);
  if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(reference->mutex);
  return change(reference->settings);
}

template <typename T, typename Field>
CUresult Read(CUtexref handle, T* out, Field field) {
  return With(handle, [&](Settings& s) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = static_cast<T>(s.*field);
    return CUDA_SUCCESS;
  });
}

template <typename Size>
CUresult SetAddress(Size* offset, CUtexref handle, CUdeviceptr address, uint64_t bytes) {
  return With(handle, [&](Settings& s) {
    if (address == 0 || bytes == 0 || !Driver::Get()->content().Contains(address, bytes, false))
      return CUDA_ERROR_INVALID_VALUE;
    if (offset == nullptr && address % 512 != 0) return CUDA_ERROR_INVALID_VALUE;
    if (offset != nullptr) *offset = static_cast<Size>(address % 512);
    s.address = address;
    s.array = nullptr;
    s.mipmap = nullptr;
    return CUDA_SUCCESS;
  });
}

template <typename D>
CUresult SetAddress2D(CUtexref handle, const D* d, CUdeviceptr address, uint64_t pitch) {
  return With(handle, [&](Settings& s) {
    if (d == nullptr || address == 0 || address % 512 != 0 || pitch % 32 != 0 || d->Width == 0 || d->Height == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (!Driver::Get()->content().Contains(address, 1, false)) return CUDA_ERROR_INVALID_VALUE;
    s.address = address;
    s.array = nullptr;
    s.mipmap = nullptr;
    s.format = d->Format;
    s.channels = static_cast<int>(d->NumChannels);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult api::cuTexRefCreate(CUtexref* out) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TextureReference* reference = Shells<TextureReference>::Get().Take();
  reference->settings = {};
  reference->kind.store(HandleKind::kTextureReference, std::memory_order_release);
  *out = ToHandle<CUtexref>(reference);
  return CUDA_SUCCESS;
}

CUresult api::cuTexRefDestroy(CUtexref handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto* reference = FromHandle<TextureReference>(handle);
  if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Shells<TextureReference>::Get().Give(reference);
  return CUDA_SUCCESS;
}

CUresult api::cuTexRefSetAddress_v2(size_t* offset, CUtexref reference, CUdeviceptr address, size_t bytes) {
  return SetAddress(offset, reference, address, bytes);
}

CUresult api::cuTexRefSetAddress(unsigned int* offset, CUtexref reference, CUdeviceptr_v1 address, unsigned int bytes) {
  return SetAddress(offset, reference, address, bytes);
}

CUresult api::cuTexRefSetAddress2D_v3(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* d, CUdeviceptr address,
                                      size_t pitch) {
  return SetAddress2D(reference, d, address, pitch);
}

CUresult api::cuTexRefSetAddress2D(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v1* d, CUdeviceptr_v1 address,
                                   unsigned int pitch) {
  return SetAddress2D(reference, d, address, pitch);
}

CUresult api::cuTexRefGetAddress_v2(CUdeviceptr* out, CUtexref reference) {
  return With(reference, [out](Settings& s) {
    if (out == nullptr || s.address == 0) return CUDA_ERROR_INVALID_VALUE;
    *out = s.address;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetAddress(CUdeviceptr_v1* out, CUtexref reference) {
  return With(reference, [out](Settings& s) {
    if (out == nullptr || s.address == 0 || s.address >> 32 != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = static_cast<CUdeviceptr_v1>(s.address);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetArray(CUtexref reference, CUarray array, unsigned int flags) {
  return With(reference, [&](Settings& s) {
    auto* object = FromHandle<Array>(array);
    if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 1) return CUDA_ERROR_INVALID_VALUE;  // CU_TRSA_OVERRIDE_FORMAT
    s.array = array;
    s.mipmap = nullptr;
    s.address = 0;
    s.format = object->descriptor.Format;
    s.channels = static_cast<int>(object->descriptor.NumChannels);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetArray(CUarray* out, CUtexref reference) {
  return With(reference, [out](Settings& s) {
    if (out == nullptr || s.array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = s.array;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetMipmappedArray(CUtexref reference, CUmipmappedArray mipmap, unsigned int flags) {
  return With(reference, [&](Settings& s) {
    if (FromHandle<MipmappedArray>(mipmap) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 1) return CUDA_ERROR_INVALID_VALUE;
    s.mipmap = mipmap;
    s.array = nullptr;
    s.address = 0;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetMipmappedArray(CUmipmappedArray* out, CUtexref reference) {
  return With(reference, [out](Settings& s) {
    if (out == nullptr || s.mipmap == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = s.mipmap;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetFormat(CUtexref reference, CUarray_format format, int channels) {
  return With(reference, [&](Settings& s) {
    if (channels < 0 || ElementBytes(format, static_cast<unsigned int>(channels)) == 0) return CUDA_ERROR_INVALID_VALUE;
    s.format = format;
    s.channels = channels;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetFormat(CUarray_format* format, int* channels, CUtexref reference) {
  return With(reference, [&](Settings& s) {
    if (format == nullptr || channels == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *format = s.format;
    *channels = s.channels;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetAddressMode(CUtexref reference, int dimension, CUaddress_mode mode) {
  return With(reference, [&](Settings& s) {
    if (dimension < 0 || dimension > 2 || mode < 0 || mode > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
    s.modes[dimension] = mode;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetAddressMode(CUaddress_mode* out, CUtexref reference, int dimension) {
  return With(reference, [&](Settings& s) {
    if (out == nullptr || dimension < 0 || dimension > 2) return CUDA_ERROR_INVALID_VALUE;
    *out = s.modes[dimension];
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetFilterMode(CUtexref reference, CUfilter_mode mode) {
  return With(reference, [&](Settings& s) {
    if (mode < 0 || mode > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
    s.filter = mode;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetFilterMode(CUfilter_mode* out, CUtexref reference) {
  return Read(reference, out, &Settings::filter);
}

CUresult api::cuTexRefSetMipmapFilterMode(CUtexref reference, CUfilter_mode mode) {
  return With(reference, [&](Settings& s) {
    if (mode < 0 || mode > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
    s.mipmap_filter = mode;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetMipmapFilterMode(CUfilter_mode* out, CUtexref reference) {
  return Read(reference, out, &Settings::mipmap_filter);
}

CUresult api::cuTexRefSetMipmapLevelBias(CUtexref reference, float bias) {
  return With(reference, [&](Settings& s) {
    s.bias = bias;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetMipmapLevelBias(float* out, CUtexref reference) {
  return Read(reference, out, &Settings::bias);
}

CUresult api::cuTexRefSetMipmapLevelClamp(CUtexref reference, float least, float most) {
  return With(reference, [&](Settings& s) {
    s.least = least;
    s.most = most;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetMipmapLevelClamp(float* least, float* most, CUtexref reference) {
  return With(reference, [&](Settings& s) {
    if (least == nullptr || most == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *least = s.least;
    *most = s.most;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetMaxAnisotropy(CUtexref reference, unsigned int most) {
  return With(reference, [&](Settings& s) {
    if (most == 0 || most > 16) return CUDA_ERROR_INVALID_VALUE;
    s.anisotropy = static_cast<int>(most);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetMaxAnisotropy(int* out, CUtexref reference) {
  return Read(reference, out, &Settings::anisotropy);
}

CUresult api::cuTexRefSetBorderColor(CUtexref reference, float* color) {
  return With(reference, [&](Settings& s) {
    if (color == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::copy(color, color + 4, s.border);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetBorderColor(float* out, CUtexref reference) {
  return With(reference, [&](Settings& s) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::copy(s.border, s.border + 4, out);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefSetFlags(CUtexref reference, unsigned int flags) {
  return With(reference, [&](Settings& s) {
    if ((flags & ~0x73u) != 0) return CUDA_ERROR_INVALID_VALUE;
    s.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuTexRefGetFlags(unsigned int* out, CUtexref reference) { return Read(reference, out, &Settings::flags); }

}  // namespace mete::emulator::cuda
