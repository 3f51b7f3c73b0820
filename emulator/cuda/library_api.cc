// Libraries and kernels of the driver API: modules without a context, loaded into each that asks.
#include "api.h"
#include "emulator/cuda/image.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

CUresult ParameterInfo(const ptx::Function& entry, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.parameters[index].offset;
  if (size != nullptr) *size = entry.parameters[index].size;
  return CUDA_SUCCESS;
}

template <typename Option>
bool AreOptions(const Option* options, void* const* values, unsigned int count) {
  return IsList(options, count) && IsList(values, count);
}

}  // namespace

CUresult api::cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option* options, void** values,
                                unsigned int count, CUlibraryOption* library_options, void** library_values,
                                unsigned int library_count) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!AreOptions(options, values, count) || !AreOptions(library_options, library_values, library_count))
    return CUDA_ERROR_INVALID_VALUE;
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
  if (!AreOptions(options, values, count) || !AreOptions(library_options, library_values, library_count))
    return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  if (!ReadFile(path, &text)) return CUDA_ERROR_FILE_NOT_FOUND;
  return api::cuLibraryLoadData(out, text.c_str(), options, values, count, library_options, library_values,
                                library_count);
}

CUresult api::cuLibraryUnload(CUlibrary handle) {
  Library* library = nullptr;
  if (CUresult error = FindHandle(handle, &library)) return error;
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
  if (CUresult error = FindHandle(handle, &library)) return error;
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
  if (CUresult error = FindHandle(handle, &library)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  Library* library = nullptr;
  if (CUresult error = FindHandle(handle, &library)) return error;
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
  if (CUresult error = FindHandle(handle, &kernel)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  if (CUresult error = FindFunction(reinterpret_cast<CUfunction>(handle), &function)) return error;
  *out = ToHandle<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  Kernel* kernel = nullptr;
  if (CUresult error = FindHandle(handle, &kernel)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetName(const char** name, CUkernel handle) {
  Kernel* kernel = nullptr;
  if (CUresult error = FindHandle(handle, &kernel)) return error;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->entry->name.c_str();
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  Kernel* kernel = nullptr;
  if (CUresult error = FindHandle(handle, &kernel)) return error;
  return ParameterInfo(*kernel->entry, index, offset, size);
}

CUresult api::cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  Function* function = nullptr;
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (CUresult error = FindFunction(handle, &function)) return error;
  return ParameterInfo(*function->entry, index, offset, size);
}

CUresult api::cuLibraryEnumerateKernels(CUkernel* out, unsigned int count, CUlibrary handle) {
  Library* library = nullptr;
  if (CUresult error = FindHandle(handle, &library)) return error;
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count && i < library->kernels.size(); ++i)
    out[i] = ToHandle<CUkernel>(library->kernels[i]);
  return CUDA_SUCCESS;
}

// Managed variables and unified function pointers: PTX here has none, so none is ever found.
CUresult api::cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary handle, const char* name) {
  Library* library = nullptr;
  if (CUresult error = FindHandle(handle, &library)) return error;
  return name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

CUresult api::cuLibraryGetUnifiedFunction(void** out, CUlibrary handle, const char* name) {
  Library* library = nullptr;
  if (CUresult error = FindHandle(handle, &library)) return error;
  return out == nullptr || name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

CUresult api::cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev) {
  Kernel* kernel = nullptr;
  if (CUresult error = FindHandle(handle, &kernel)) return error;
  if (Driver::Get()->DeviceAt(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
