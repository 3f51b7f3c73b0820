// Transfers between linear memories of any kind, and fills. Any thread; CUresult errors; bytes.
#ifndef METE_EMULATOR_CUDA_COPY_H_
#define METE_EMULATOR_CUDA_COPY_H_

#include <cstdint>

#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

struct Box {
  uint64_t width = 0, height = 1, depth = 1;  // bytes, rows, slices
};

struct Transfer {
  static constexpr unsigned kDestination = 1, kSource = 2;
  uint64_t destination = 0, source = 0;  // addresses, host or device
  Box box;
  uint64_t destination_pitch = 0, source_pitch = 0, destination_slice = 0, source_slice = 0;
  unsigned must_be_device = 0;                  // sides that the function declares to be device memory
  bool to_device = false, from_device = false;  // found out
};

CUresult RunTransfer(Transfer transfer, CUstream stream, bool synchronous);

// pattern: the element repeated to 32 bits; width in elements.
CUresult RunFill(CUdeviceptr address, uint32_t pattern, uint64_t element, uint64_t pitch, uint64_t width,
                 uint64_t height, CUstream stream);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_COPY_H_
