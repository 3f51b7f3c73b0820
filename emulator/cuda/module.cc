// Modules and libraries: PTX text becomes functions and globals of a context.
#include "emulator/cuda/module.h"

#include <cstring>

#include "api.h"
#include "emulator/cuda/image.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {
namespace {

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

}  // namespace

Function* FindEntry(Module* module, const char* name) {
  for (Function* function : module->functions) {
    if (function->entry->name == name) return function;
  }
  return nullptr;
}

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
  if (out == nullptr || image == nullptr || !IsList(options, count) || !IsList(values, count))
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
  if (CUresult error = FindHandle(handle, &module)) return error;
  UnloadModule(module);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Module* module = nullptr;
  if (CUresult error = FindHandle(handle, &module)) return error;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = FindEntry(module, name);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  *out = ToHandle<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  Module* module = nullptr;
  if (CUresult error = FindHandle(handle, &module)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(module->functions.size());
  return CUDA_SUCCESS;
}

CUresult api::cuModuleEnumerateFunctions(CUfunction* out, unsigned int count, CUmodule handle) {
  Module* module = nullptr;
  if (CUresult error = FindHandle(handle, &module)) return error;
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count && i < module->functions.size(); ++i)
    out[i] = ToHandle<CUfunction>(module->functions[i]);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  Module* module = nullptr;
  if (CUresult error = FindHandle(handle, &module)) return error;
  return name == nullptr ? CUDA_ERROR_INVALID_VALUE : FindGlobal(module, name, address, bytes);
}

CUresult api::cuModuleGetGlobal(CUdeviceptr_v1* address, unsigned int* bytes, CUmodule handle, const char* name) {
  CUdeviceptr wide = 0;
  size_t size = 0;
  if (CUresult error = api::cuModuleGetGlobal_v2(&wide, &size, handle, name)) return error;
  if (wide >> 32 != 0 || size >> 32 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (address != nullptr) *address = static_cast<CUdeviceptr_v1>(wide);
  if (bytes != nullptr) *bytes = static_cast<unsigned int>(size);
  return CUDA_SUCCESS;
}

namespace {

// PTX modules here have no texture and no surface references.
CUresult NoReference(CUmodule handle, const void* out, const char* name) {
  Module* module = nullptr;
  if (CUresult error = FindHandle(handle, &module)) return error;
  return out == nullptr || name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult api::cuModuleGetTexRef(CUtexref* out, CUmodule module, const char* name) {
  return NoReference(module, out, name);
}

CUresult api::cuModuleGetSurfRef(CUsurfref* out, CUmodule module, const char* name) {
  return NoReference(module, out, name);
}

CUresult api::cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
