// Modules and libraries: PTX text becomes functions and globals of a context.
#include "emulator/cuda/module.h"

#include <cstdio>
#include <cstring>

#include "api.h"

namespace mete::emulator::cuda {
namespace {

// The newest PTX of a CUDA version: 13.x has 9.x, 12.x had 8.x.
uint32_t NewestPtx(uint32_t cuda_version) {
  const uint32_t major = cuda_version / 1000, minor = cuda_version % 1000 / 10;
  return major >= 13 ? 90 + minor : 80 + std::min<uint32_t>(minor, 9);
}

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
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, file)) != 0;) text->append(buffer, got);
  fclose(file);
  return true;
}

Function* FindEntry(Module* module, const char* name) {
  for (Function* function : module->functions) {
    if (function->entry->name == name) return function;
  }
  return nullptr;
}

CUresult FindGlobal(Module* module, const char* name, CUdeviceptr* address, size_t* bytes) {
  const auto& globals = module->code->globals();
  for (size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].name != name) continue;
    if (address != nullptr) *address = module->globals[i];
    if (bytes != nullptr) *bytes = globals[i].size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

template <typename T, typename H>
CUresult Find(H handle, T** object) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *object = FromHandle<T>(handle);
  return *object == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult ParameterInfo(const ptx::Function& entry, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.parameters[index].offset;
  if (size != nullptr) *size = entry.parameters[index].size;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult LoadModule(Context* context, const void* image, std::string* log, Module** out) {
  if (CUresult error = CheckImage(image)) return error;
  auto code = std::make_shared<ptx::Module>();
  if (CUresult error = ParseText(&context->device->info, static_cast<const char*>(image), log, code.get()))
    return error;
  auto module = std::make_unique<Module>();
  module->context = context;
  module->code = code;
  CUresult error = CUDA_SUCCESS;
  std::unordered_map<std::string, uint64_t> placed;
  for (const ptx::Global& global : code->globals()) {
    uint64_t address = 0;
    error = context->heap.Allocate(std::max<uint64_t>(global.size, 1), &address);
    if (error != CUDA_SUCCESS) break;
    code->Place(module->globals.size(), address);
    module->globals.push_back(address);
    placed[global.name] = address;
  }
  if (error != CUDA_SUCCESS) {
    for (uint64_t address : module->globals) context->heap.Free(address);
    return error;
  }
  Content& content = Driver::Get()->content();
  for (size_t i = 0; i < module->globals.size(); ++i) {
    const ptx::Global& global = code->globals()[i];
    content.Fill(module->globals[i], 0, global.size);
    if (!global.initial.empty())
      content.Write(module->globals[i], global.initial.data(), std::min<size_t>(global.initial.size(), global.size));
    for (const auto& [offset, name] : global.address_of) {
      if (offset + 8 > global.size) continue;
      uint64_t address = placed[name], addend = 0;
      if (offset + 8 <= global.initial.size()) memcpy(&addend, &global.initial[offset], 8);
      address += addend;
      content.Write(module->globals[i] + offset, &address, 8);
    }
  }
  for (const ptx::Function& entry : code->functions()) {
    if (!entry.is_entry) continue;
    auto* function = new Function;
    function->module = module.get();
    function->context = context;
    function->code = code;
    function->entry = &entry;
    function->max_dynamic_shared = std::max(0, (48 << 10) - static_cast<int>(entry.static_shared_bytes));
    module->functions.push_back(function);
  }
  std::lock_guard lock(context->mutex);
  context->owned.insert(module.get());
  *out = module.release();
  return CUDA_SUCCESS;
}

void UnloadModule(Module* module) {
  Context* context = module->context;
  context->executor.SynchronizeAll();  // an error of the context does not keep a module
  for (Function* function : module->functions) Bury(function);
  for (uint64_t address : module->globals) context->heap.Free(address);
  std::lock_guard lock(context->mutex);
  context->owned.erase(module);
  Bury(module);
}

CUresult ModuleOf(Library* library, Context* context, Module** module) {
  std::lock_guard lock(library->mutex);
  Module*& known = library->modules[context];
  if (known == nullptr || !known->Is(HandleKind::kModule)) {
    std::string log;
    known = nullptr;
    if (CUresult error = LoadModule(context, library->text.c_str(), &log, &known)) return error;
  }
  *module = known;
  return CUDA_SUCCESS;
}

CUresult FindFunction(CUfunction handle, Function** function) {
  if (auto* kernel = FromHandle<Kernel>(handle)) {
    Context* context = nullptr;
    if (CUresult error = Current(&context)) return error;
    Module* module = nullptr;
    if (CUresult error = ModuleOf(kernel->library, context, &module)) return error;
    *function = FindEntry(module, kernel->entry->name.c_str());
  } else {
    *function = FromHandle<Function>(handle);
  }
  return *function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult api::cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count, CUjit_option* options,
                                 void** values) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || image == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  std::string log;
  Module* module = nullptr;
  const CUresult error = LoadModule(context, image, &log, &module);
  PutLog(log, count, options, values);
  if (error == CUDA_SUCCESS) *out = ToHandle<CUmodule>(module);
  return error;
}

CUresult api::cuModuleLoadData(CUmodule* out, const void* image) {
  return api::cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}

CUresult api::cuModuleLoad(CUmodule* out, const char* path) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  if (!ReadFile(path, &text)) return CUDA_ERROR_FILE_NOT_FOUND;
  return api::cuModuleLoadData(out, text.c_str());
}

CUresult api::cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  return out == nullptr || image == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult api::cuModuleUnload(CUmodule handle) {
  Module* module = nullptr;
  if (CUresult error = Find(handle, &module)) return error;
  UnloadModule(module);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Module* module = nullptr;
  if (CUresult error = Find(handle, &module)) return error;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = FindEntry(module, name);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  *out = ToHandle<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  Module* module = nullptr;
  if (CUresult error = Find(handle, &module)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(module->functions.size());
  return CUDA_SUCCESS;
}

CUresult api::cuModuleEnumerateFunctions(CUfunction* out, unsigned int count, CUmodule handle) {
  Module* module = nullptr;
  if (CUresult error = Find(handle, &module)) return error;
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count && i < module->functions.size(); ++i)
    out[i] = ToHandle<CUfunction>(module->functions[i]);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  Module* module = nullptr;
  if (CUresult error = Find(handle, &module)) return error;
  return name == nullptr ? CUDA_ERROR_INVALID_VALUE : FindGlobal(module, name, address, bytes);
}

CUresult api::cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option* options, void** values,
                                unsigned int count, CUlibraryOption*, void**, unsigned int) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = CheckImage(image)) return error;
  auto library = std::make_unique<Library>();
  library->text = static_cast<const char*>(image);
  library->code = std::make_shared<ptx::Module>();
  std::string log;
  const CUresult error = ParseText(nullptr, library->text, &log, library->code.get());
  PutLog(log, count, options, values);
  if (error != CUDA_SUCCESS) return error;
  for (const ptx::Function& entry : library->code->functions()) {
    if (!entry.is_entry) continue;
    auto* kernel = new Kernel;
    kernel->library = library.get();
    kernel->entry = &entry;
    library->kernels.push_back(kernel);
  }
  *out = ToHandle<CUlibrary>(library.release());
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options, void** values,
                                    unsigned int count, CUlibraryOption* library_options, void** library_values,
                                    unsigned int library_count) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  if (!ReadFile(path, &text)) return CUDA_ERROR_FILE_NOT_FOUND;
  return api::cuLibraryLoadData(out, text.c_str(), options, values, count, library_options, library_values,
                                library_count);
}

CUresult api::cuLibraryUnload(CUlibrary handle) {
  Library* library = nullptr;
  if (CUresult error = Find(handle, &library)) return error;
  std::lock_guard lock(library->mutex);
  for (auto& [context, module] : library->modules) {
    if (module != nullptr && module->Is(HandleKind::kModule)) UnloadModule(module);
  }
  for (Kernel* kernel : library->kernels) Bury(kernel);
  Bury(library);
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  Library* library = nullptr;
  if (CUresult error = Find(handle, &library)) return error;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (Kernel* kernel : library->kernels) {
    if (kernel->entry->name != name) continue;
    *out = ToHandle<CUkernel>(kernel);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult api::cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  Library* library = nullptr;
  if (CUresult error = Find(handle, &library)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  Library* library = nullptr;
  if (CUresult error = Find(handle, &library)) return error;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = nullptr;
  if (CUresult error = ModuleOf(library, context, &module)) return error;
  *out = ToHandle<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name) {
  CUmodule module = nullptr;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = api::cuLibraryGetModule(&module, handle)) return error;
  return api::cuModuleGetGlobal_v2(address, bytes, module, name);
}

CUresult api::cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  Kernel* kernel = nullptr;
  if (CUresult error = Find(handle, &kernel)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  if (CUresult error = FindFunction(reinterpret_cast<CUfunction>(handle), &function)) return error;
  *out = ToHandle<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  Kernel* kernel = nullptr;
  if (CUresult error = Find(handle, &kernel)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetName(const char** name, CUkernel handle) {
  Kernel* kernel = nullptr;
  if (CUresult error = Find(handle, &kernel)) return error;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->entry->name.c_str();
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  Kernel* kernel = nullptr;
  if (CUresult error = Find(handle, &kernel)) return error;
  return ParameterInfo(*kernel->entry, index, offset, size);
}

CUresult api::cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  Function* function = nullptr;
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (CUresult error = FindFunction(handle, &function)) return error;
  return ParameterInfo(*function->entry, index, offset, size);
}

}  // namespace mete::emulator::cuda
