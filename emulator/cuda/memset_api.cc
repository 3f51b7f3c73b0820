// The set functions of the driver API, as thin adapters of copy.h.
#include "api.h"
#include "emulator/cuda/copy.h"

namespace mete::emulator::cuda {

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return RunFill({to, 0, value, 1, count, 1}, nullptr);
}

CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return RunFill({to, pitch, value, 1, width, height}, nullptr);
}

CUresult api::cuMemsetD8(CUdeviceptr_v1 to, unsigned char value, unsigned int count) {
  return RunFill({to, 0, value, 1, count, 1}, nullptr);
}

CUresult api::cuMemsetD2D8(CUdeviceptr_v1 to, unsigned int pitch, unsigned char value, unsigned int width,
                           unsigned int height) {
  return RunFill({to, pitch, value, 1, width, height}, nullptr);
}

CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return RunFill({to, 0, value, 1, count, 1}, stream);
}

CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                                CUstream stream) {
  return RunFill({to, pitch, value, 1, width, height}, stream);
}

CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return RunFill({to, 0, value, 2, count, 1}, nullptr);
}

CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return RunFill({to, pitch, value, 2, width, height}, nullptr);
}

CUresult api::cuMemsetD16(CUdeviceptr_v1 to, unsigned short value, unsigned int count) {
  return RunFill({to, 0, value, 2, count, 1}, nullptr);
}

CUresult api::cuMemsetD2D16(CUdeviceptr_v1 to, unsigned int pitch, unsigned short value, unsigned int width,
                            unsigned int height) {
  return RunFill({to, pitch, value, 2, width, height}, nullptr);
}

CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return RunFill({to, 0, value, 2, count, 1}, stream);
}

CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                                 CUstream stream) {
  return RunFill({to, pitch, value, 2, width, height}, stream);
}

CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return RunFill({to, 0, value, 4, count, 1}, nullptr);
}

CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height) {
  return RunFill({to, pitch, value, 4, width, height}, nullptr);
}

CUresult api::cuMemsetD32(CUdeviceptr_v1 to, unsigned int value, unsigned int count) {
  return RunFill({to, 0, value, 4, count, 1}, nullptr);
}

CUresult api::cuMemsetD2D32(CUdeviceptr_v1 to, unsigned int pitch, unsigned int value, unsigned int width,
                            unsigned int height) {
  return RunFill({to, pitch, value, 4, width, height}, nullptr);
}

CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return RunFill({to, 0, value, 4, count, 1}, stream);
}

CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                                 CUstream stream) {
  return RunFill({to, pitch, value, 4, width, height}, stream);
}

}  // namespace mete::emulator::cuda
