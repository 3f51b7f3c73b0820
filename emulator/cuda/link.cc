// Linking at run time: PTX texts become one, which the program loads as a module. Binaries cannot be linked here.
#include <algorithm>
#include <cstring>

#include "api.h"
#include "emulator/cuda/image.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {

struct LinkState : Handle {
  static constexpr HandleKind kKind = HandleKind::kLinkState;
  LinkState() : Handle(kKind) {}
  Context* context = nullptr;
  std::mutex mutex;  // of what follows
  std::vector<std::string> inputs;
  std::string image;  // once complete; the program reads it until it destroys the state
  std::vector<CUjit_option> options;
  void** values = nullptr;  // the program's, where logs go
};

namespace {

CUresult Find(CUlinkState handle, LinkState** state) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  *state = FromHandle<LinkState>(handle);
  return *state == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// The directives at the head of a text, which a linked one has once.
bool IsHead(std::string_view line) {
  const size_t start = line.find_first_not_of(" \t");
  if (start == std::string_view::npos) return false;
  line.remove_prefix(start);
  for (std::string_view directive : {".version", ".target", ".address_size"}) {
    if (line.substr(0, directive.size()) == directive) return true;
  }
  return false;
}

// One text: the head of the first, then the bodies.
std::string Join(const std::vector<std::string>& inputs) {
  std::string head, body;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string_view rest = inputs[i];
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1);
      const std::string_view line = rest.substr(0, end + 1);
      rest.remove_prefix(end + 1);
      if (!IsHead(line)) {
        body += line;
      } else if (i == 0) {
        head += line;
      }
    }
    body += '\n';
  }
  return head + body;
}

CUresult Add(LinkState* state, CUjitInputType type, std::string text) {
  if (type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_JIT_INPUT_PTX) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (CUresult error = CheckImage(text.c_str())) return error;
  std::lock_guard lock(state->mutex);
  if (!state->image.empty()) return CUDA_ERROR_INVALID_VALUE;  // it is complete
  state->inputs.push_back(std::move(text));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values, CUlinkState* out) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || !IsList(options, count) || !IsList(values, count)) return CUDA_ERROR_INVALID_VALUE;
  LinkState* state = Shells<LinkState>::Get().Take();
  state->context = context;
  state->options.assign(options, options + count);
  state->values = values;
  state->kind.store(HandleKind::kLinkState, std::memory_order_release);
  *out = ToHandle<CUlinkState>(state);
  return CUDA_SUCCESS;
}

CUresult api::cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t bytes, const char*,
                               unsigned int count, CUjit_option* options, void** values) {
  LinkState* state = nullptr;
  if (CUresult error = Find(handle, &state)) return error;
  if (data == nullptr || bytes == 0 || !IsList(options, count) || !IsList(values, count))
    return CUDA_ERROR_INVALID_VALUE;
  const char* text = static_cast<const char*>(data);
  return Add(state, type, std::string(text, strnlen(text, bytes)));  // the size counts the end of the string
}

CUresult api::cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int count,
                               CUjit_option* options, void** values) {
  LinkState* state = nullptr;
  if (CUresult error = Find(handle, &state)) return error;
  if (path == nullptr || !IsList(options, count) || !IsList(values, count)) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  if (!ReadFile(path, &text)) return CUDA_ERROR_FILE_NOT_FOUND;
  return Add(state, type, std::move(text));
}

CUresult api::cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  LinkState* state = nullptr;
  if (CUresult error = Find(handle, &state)) return error;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(state->mutex);
  if (state->inputs.empty()) return CUDA_ERROR_INVALID_VALUE;
  std::string joined = Join(state->inputs), log;
  ptx::Module parsed;
  const CUresult result = ParseText(&state->context->device->info, joined, &log, &parsed);
  PutLog(log, static_cast<unsigned int>(state->options.size()), state->options.data(), state->values);
  if (result != CUDA_SUCCESS) return result;
  state->image = std::move(joined);
  *image = state->image.data();
  if (bytes != nullptr) *bytes = state->image.size() + 1;
  return CUDA_SUCCESS;
}

CUresult api::cuLinkDestroy(CUlinkState handle) {
  LinkState* state = nullptr;
  if (CUresult error = Find(handle, &state)) return error;
  {
    std::lock_guard lock(state->mutex);
    state->inputs.clear();
    state->image.clear();
    state->options.clear();
  }
  Shells<LinkState>::Get().Give(state);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
