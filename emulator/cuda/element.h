// Elements of arrays and of linear texture memory. Pure; no errors but 0.
#ifndef METE_EMULATOR_CUDA_ELEMENT_H_
#define METE_EMULATOR_CUDA_ELEMENT_H_

#include <cstdint>

#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

// Bytes of one element; 0: not a format that arrays and textures here have.
inline uint64_t ElementBytes(CUarray_format format, unsigned int channels) {
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4ull * channels;
    default: return 0;
  }
}

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_ELEMENT_H_
