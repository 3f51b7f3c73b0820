#include "interceptor/array.h"

#include "interceptor/extent.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kRowBytes = 512, kTileRows = 8;
constexpr unsigned kSparse = 0x40, kDeferredMapping = 0x80;  // CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING

uint64_t Round(uint64_t value, uint64_t unit) {
  return value > UINT64_MAX - unit ? UINT64_MAX : (value + unit - 1) / unit * unit;
}

// Bytes of one texel. Block-compressed and planar formats are counted by what a texel needs at most.
uint64_t TexelBytes(CUarray_format format, unsigned channels) {
  const uint64_t n = channels == 0 ? 1 : channels;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return n;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2 * n;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4 * n;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1: return 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1: return 2;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT_101010_2: return 4;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4: return 8;
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM: return 1;  // 8 bytes for 4 × 4, rounded up
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB: return 1;
    default: return 8;  // video formats: at most four 16-bit samples
  }
}

}  // namespace

ArrayShape ShapeOf(const CUDA_ARRAY_DESCRIPTOR& d) { return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0}; }
ArrayShape ShapeOf(const CUDA_ARRAY_DESCRIPTOR_v1& d) { return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0}; }
ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return {d.Width, d.Height, d.Depth, d.Format, d.NumChannels, d.Flags};
}
ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR_v1& d) {
  return {d.Width, d.Height, d.Depth, d.Format, d.NumChannels, d.Flags};
}

uint64_t ArrayBytes(const ArrayShape& shape, unsigned levels) {
  if ((shape.flags & (kSparse | kDeferredMapping)) != 0) return 0;
  const bool layered = (shape.flags & 1) != 0;  // CUDA_ARRAY3D_LAYERED: depth counts layers, which do not shrink
  const uint64_t texel = TexelBytes(shape.format, shape.channels);
  uint64_t width = shape.width, height = shape.height, depth = shape.depth, total = 0;
  for (unsigned level = 0; level < (levels == 0 ? 1 : levels); ++level) {
    const uint64_t row = Round(Times(width == 0 ? 1 : width, texel), kRowBytes);
    const uint64_t rows = height <= 1 ? 1 : Round(height, kTileRows);
    const uint64_t bytes = Times(Times(row, rows), depth == 0 ? 1 : depth);
    if (__builtin_add_overflow(total, bytes, &total)) return UINT64_MAX;
    if (width <= 1 && height <= 1 && (layered || depth <= 1)) break;
    width = width > 1 ? width / 2 : width;
    height = height > 1 ? height / 2 : height;
    if (!layered && depth > 1) depth /= 2;
  }
  return total;
}

}  // namespace mete::interceptor
