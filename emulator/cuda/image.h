// Module images: what they are, their text, and the logs of the options they are loaded with. Any thread.
#ifndef METE_EMULATOR_CUDA_IMAGE_H_
#define METE_EMULATOR_CUDA_IMAGE_H_

#include <string>
#include <string_view>

#include "emulator/cuda/exports.h"
#include "emulator/engine/client.h"
#include "emulator/ptx/ptx.h"

namespace mete::emulator::cuda {

// 209 for a binary, 200 for what is no image at all.
CUresult CheckImage(const void* image);
// gpu: null for any. log: what a person needs to mend the text, on error.
CUresult ParseText(const GpuInfo* gpu, std::string_view text, std::string* log, ptx::Module* module);
// Puts the log where the options say.
void PutLog(const std::string& log, unsigned int count, const CUjit_option* options, void** values);
bool ReadFile(const char* path, std::string* text);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_IMAGE_H_
