// External memory and semaphores: what another API hands over as a file descriptor. Here that is a file without a name
// (memfd) that cannot shrink: of the memory's size, or with a 64-bit word as the semaphore's value. Any thread.
#ifndef METE_EMULATOR_CUDA_EXTERNAL_H_
#define METE_EMULATOR_CUDA_EXTERNAL_H_

#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {

CUresult MakeSignal(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS& parameters, Operation* out);
CUresult MakeSemaphoreWait(const CUDA_EXT_SEM_WAIT_NODE_PARAMS& parameters, Operation* out);

// A context ends: what was charged to it for external memory is counted no more.
void DropExternalCharges(Context* context);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_EXTERNAL_H_
