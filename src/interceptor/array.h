// How much device memory an array takes. The driver tells only for arrays without memory of their own, so the size is
// worked out from the shape: texels in tiles of 512 bytes by 8 rows. Pure.
#ifndef METE_INTERCEPTOR_ARRAY_H_
#define METE_INTERCEPTOR_ARRAY_H_

#include <cstdint>

#include "interceptor/cuda_api.h"

namespace mete::interceptor {

struct ArrayShape {
  uint64_t width, height, depth;  // 0 as the API means it: no such dimension
  CUarray_format format;
  unsigned channels;
  unsigned flags;
};

ArrayShape ShapeOf(const CUDA_ARRAY_DESCRIPTOR& d);
ArrayShape ShapeOf(const CUDA_ARRAY_DESCRIPTOR_v1& d);
ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR& d);
ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR_v1& d);

// Bytes of an array, or of `levels` mip levels of it. 0: it has no memory of its own (sparse, or mapped later).
// UINT64_MAX: more than can be counted.
uint64_t ArrayBytes(const ArrayShape& shape, unsigned levels);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_ARRAY_H_
