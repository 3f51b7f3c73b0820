// Transfers between memories of any kind, and fills: one way for copies of one, two and three dimensions, of linear
// memory, pitched memory and arrays, in a GPU or between GPUs. Any thread; CUresult errors; bytes.
#ifndef METE_EMULATOR_CUDA_COPY_H_
#define METE_EMULATOR_CUDA_COPY_H_

#include <cstdint>

#include "emulator/cuda/exports.h"
#include "emulator/engine/work.h"

namespace mete::emulator::cuda {

struct Context;

struct Box {
  uint64_t width = 0, height = 1, depth = 1;  // bytes, rows, slices
};

struct Transfer {
  static constexpr unsigned kDestination = 1, kSource = 2;
  uint64_t destination = 0, source = 0;  // addresses, host or device
  Box box;
  uint64_t destination_pitch = 0, source_pitch = 0, destination_slice = 0, source_slice = 0;
  unsigned must_be_device = 0;  // sides that the function declares to be device memory
  // Found out by Check.
  bool to_device = false, from_device = false;
  WorkKind kind = WorkKind::kMarker;
  uint64_t bytes() const { return box.width * box.height * box.depth; }
};

Transfer Line(uint64_t destination, uint64_t source, uint64_t bytes, unsigned must_be_device);

// What a copy in three dimensions means; all others are put into this form.
CUresult FromDescription(const CUDA_MEMCPY3D& description, Transfer* transfer);
// The other way round, for a copy of one line.
CUDA_MEMCPY3D Describe(const Transfer& line);

// That both sides are memory that may be used so, for a copy done by the context's GPU. planned: it is done later, as a
// node of a graph, so that memory a graph will allocate is fine too.
CUresult Check(const Context& context, Transfer* transfer, bool planned);

// `description`: null for a line.
CUresult RunTransfer(Transfer transfer, const CUDA_MEMCPY3D* description, CUstream stream, bool synchronous);
inline CUresult RunTransfer(Transfer transfer, CUstream stream, bool synchronous) {
  return RunTransfer(transfer, nullptr, stream, synchronous);
}
CUresult RunCopy(const CUDA_MEMCPY3D& description, CUstream stream, bool synchronous);

CUresult RunFill(const CUDA_MEMSET_NODE_PARAMS& parameters, CUstream stream);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_COPY_H_
