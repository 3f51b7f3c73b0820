// cuGetProcAddress: from a name, a CUDA version and a kind of default stream to a symbol. Works before cuInit.
#include <algorithm>
#include <cstring>

#include "api.h"
#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {
namespace {

CUresult LookUp(const char* name, void** address, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || address == nullptr || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  *address = nullptr;
  const Symbol* end = kSymbols + kSymbolCount;
  const Symbol* first = std::lower_bound(
      kSymbols, end, name, [](const Symbol& symbol, const char* key) { return strcmp(symbol.name, key) < 0; });
  if (first == end || strcmp(first->name, name) != 0) {
    if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
  }
  // A name with twins answers only with the kind that was asked for: another would change what the null stream means.
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const Symbol* last = first;
  bool has_twin = false;
  for (; last != end && strcmp(last->name, name) == 0; ++last) has_twin |= last->stream == StreamKind::kPerThreadStream;
  for (const Symbol* symbol = first; symbol != last; ++symbol) {  // ascending versions: the newest allowed wins
    if (symbol->version > version) continue;
    if (per_thread ? has_twin && symbol->stream != StreamKind::kPerThreadStream
                   : symbol->stream == StreamKind::kPerThreadStream)
      continue;
    *address = symbol->address;
  }
  if (status != nullptr)
    *status = *address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuGetProcAddress(const char* name, void** address, int version, cuuint64_t flags) {
  return LookUp(name, address, version, flags, nullptr);
}

CUresult api::cuGetProcAddress_v2(const char* name, void** address, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  return LookUp(name, address, version, flags, status);
}

namespace {

const ErrorText* FindError(CUresult error) {
  const ErrorText* end = kErrors + kErrorCount;
  const ErrorText* found = std::lower_bound(kErrors, end, static_cast<int>(error),
                                            [](const ErrorText& text, int value) { return text.value < value; });
  return found == end || found->value != static_cast<int>(error) ? nullptr : found;
}

}  // namespace

CUresult api::cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = FindError(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult api::cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = FindError(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
