// Module images: what they are, their text, and the logs of the options they are loaded with.
#include "emulator/cuda/image.h"

#include <cstdio>
#include <cstring>

#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {
namespace {

constexpr size_t kMostText = 256 << 20;  // bytes; a longer file, or one without an end, is no text of a module

// The newest PTX of a CUDA version: 13.x has 9.x, 12.x had 8.x.
uint32_t NewestPtx(uint32_t cuda_version) {
  const uint32_t major = cuda_version / 1000, minor = cuda_version % 1000 / 10;
  return major >= 13 ? 90 + minor : 80 + std::min<uint32_t>(minor, 9);
}

}  // namespace

// What an image is, from its first bytes: a binary for real GPUs, or text.
CUresult CheckImage(const void* image) {
  uint8_t head[4] = {};
  for (int i = 0; i < 4; ++i) {
    head[i] = static_cast<const uint8_t*>(image)[i];
    if (head[i] == 0) break;
  }
  static const uint8_t kElf[4] = {0x7f, 'E', 'L', 'F'}, kFatBinary[4] = {0x50, 0xed, 0x55, 0xba},
                       kWrapper[4] = {0xb1, 0x43, 0x62, 0x46};
  for (const uint8_t* magic : {kElf, kFatBinary, kWrapper}) {
    if (memcmp(head, magic, 4) == 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  for (uint8_t byte : head) {
    if (byte != 0 && byte < ' ' && byte != '\n' && byte != '\r' && byte != '\t') return CUDA_ERROR_INVALID_IMAGE;
  }
  return head[0] == 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

CUresult ParseText(const GpuInfo* gpu, std::string_view text, std::string* log, ptx::Module* module) {
  ptx::Error error;
  if (!ptx::Parse(text, NewestPtx(Driver::Get()->client().CudaVersion()), module, &error)) {
    *log = "ptx, line " + std::to_string(error.line) + ", column " + std::to_string(error.column) + ": " +
           error.message + "\n";
    return error.kind == ptx::ErrorKind::kUnsupportedVersion ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                             : CUDA_ERROR_INVALID_PTX;
  }
  if (gpu != nullptr && module->target() > gpu->compute_major * 10 + gpu->compute_minor) {
    *log = "ptx: .target sm_" + std::to_string(module->target()) + " is newer than the GPU, " + gpu->name + "\n";
    return CUDA_ERROR_INVALID_PTX;
  }
  return CUDA_SUCCESS;
}

// The log buffers among the options of a load. A buffer's size comes in and the bytes written go out in its option
// value.
void PutLog(const std::string& log, unsigned int count, const CUjit_option* options, void** values) {
  char* buffer = nullptr;
  size_t* written = nullptr;
  size_t size = 0;
  for (unsigned int i = 0; i < count && options != nullptr && values != nullptr; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      size = reinterpret_cast<uintptr_t>(values[i]) & 0xffffffffu;
      written = reinterpret_cast<size_t*>(&values[i]);
    }
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = nullptr;  // nothing to say
  }
  if (written != nullptr) *written = 0;
  if (buffer == nullptr || size == 0) return;
  const size_t bytes = std::min(size - 1, log.size());
  memcpy(buffer, log.data(), bytes);
  buffer[bytes] = '\0';
  *written = bytes;
}

bool ReadFile(const char* path, std::string* text) {
  FILE* file = fopen(path, "rbe");
  if (file == nullptr) return false;
  char buffer[65536];
  for (size_t got; text->size() <= kMostText && (got = fread(buffer, 1, sizeof buffer, file)) != 0;)
    text->append(buffer, got);
  fclose(file);
  return text->size() <= kMostText;
}

}  // namespace mete::emulator::cuda
