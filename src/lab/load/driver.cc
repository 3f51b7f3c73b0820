#include "lab/load/driver.h"

#include <dlfcn.h>

namespace mete::lab {

namespace {

// The newest interface asked for: everything used here exists since then, and a driver of any later release has it.
constexpr int kInterface = 12000;

class Resolver {
 public:
  Resolver(void* library, Lookup lookup) : library_(library) {
    if (lookup == Lookup::kProcAddress) {
      route_ = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
      if (route_ == nullptr) missing_ = "cuGetProcAddress_v2";
    }
  }

  template <typename F>
  void Resolve(const char* symbol, const char* name, bool required, F* function) {
    void* found = nullptr;
    if (route_ != nullptr) {
      CUdriverProcAddressQueryResult how = {};
      if (route_(name, &found, kInterface, CU_GET_PROC_ADDRESS_DEFAULT, &how) != CUDA_SUCCESS) found = nullptr;
    } else {
      found = dlsym(library_, symbol);
    }
    if (found == nullptr && required && missing_.empty()) missing_ = symbol;
    *function = reinterpret_cast<F>(found);
  }

  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  decltype(&::cuGetProcAddress_v2) route_ = nullptr;
  std::string missing_;
};

}  // namespace

StatusOr<std::shared_ptr<const Driver>> Driver::Load(Lookup lookup) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Lacks(
        "no CUDA driver: {}. Install the NVIDIA driver, run below 'mete run', or take an emulated node with "
        "'mete emulate up' and 'mete emulate env'",
        why != nullptr ? why : "libcuda.so.1 cannot be loaded");
  }
  auto driver = std::make_shared<Driver>();
  Resolver resolver(library, lookup);
#define METE_LOAD_RESOLVE(symbol, name) resolver.Resolve(#symbol, #name, true, &driver->symbol);
  METE_LOAD_REQUIRED(METE_LOAD_RESOLVE)
#undef METE_LOAD_RESOLVE
#define METE_LOAD_RESOLVE(symbol, name) resolver.Resolve(#symbol, #name, false, &driver->symbol);
  METE_LOAD_OPTIONAL(METE_LOAD_RESOLVE)
#undef METE_LOAD_RESOLVE
  if (!resolver.missing().empty()) {
    return Lacks("libcuda.so.1 has no {}; mete-load needs a driver of CUDA 12 or newer", resolver.missing());
  }
  driver->emulated = dlsym(library, "mete_emulated_node") != nullptr;
  return std::shared_ptr<const Driver>(std::move(driver));
}

std::string Driver::ErrorName(CUresult result) const {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return fmt::format("CUDA error {}", static_cast<int>(result));
}

Status Driver::Check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return OkStatus();
  return absl::AbortedError(fmt::format("{}: {} ({})", call, ErrorName(result), static_cast<int>(result)));
}

bool CudaFailure(const Status& status) { return status.code() == absl::StatusCode::kAborted; }

}  // namespace mete::lab
