// Memory of other processes that this one has opened. Any thread.
#ifndef METE_EMULATOR_CUDA_IMPORT_H_
#define METE_EMULATOR_CUDA_IMPORT_H_

#include "emulator/cuda/context.h"
#include "emulator/cuda/share_file.h"

namespace mete::emulator::cuda {

struct Pool;

// A handle for an allocation of this process.
CUresult ShareAllocation(CUdeviceptr address, ShareHandle* handle);
// Opens it; again and again gives the same address. pool: the imported pool it comes through, or null.
CUresult OpenImport(Context* context, const ShareHandle& handle, Pool* pool, CUdeviceptr* out);
// One reference less, or none at all any more; the mapping goes with the last.
void CloseImport(uint64_t address, bool all = false);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_IMPORT_H_
