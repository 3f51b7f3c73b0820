// The driver API as mete-load calls it: libcuda.so.1 opened at run time, so that a machine without a driver gets a
// message and not the loader's. Entry points come from dlsym or from cuGetProcAddress, as the user asks: both ways must
// count. Immutable after Load; any thread. Errors: Lacks when there is no driver or it is too old; a CUDA error is an
// absl Aborted status that names the call and the error (CudaFailure), exit status 5.
#ifndef METE_LAB_LOAD_DRIVER_H_
#define METE_LAB_LOAD_DRIVER_H_

#include <memory>
#include <string>

#include "base/status.h"

#ifndef METE_CUDA_NO_ALIASES
#define METE_CUDA_NO_ALIASES  // symbols are named with their version here
#endif
#include "mete/cuda.h"

namespace mete::lab {

// exported symbol, name that cuGetProcAddress takes
#define METE_LOAD_REQUIRED(X)                                \
  X(cuInit, cuInit)                                          \
  X(cuDriverGetVersion, cuDriverGetVersion)                  \
  X(cuGetErrorName, cuGetErrorName)                          \
  X(cuDeviceGetCount, cuDeviceGetCount)                      \
  X(cuDeviceGet, cuDeviceGet)                                \
  X(cuDeviceGetName, cuDeviceGetName)                        \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute)              \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)      \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease) \
  X(cuCtxSetCurrent, cuCtxSetCurrent)                        \
  X(cuCtxSynchronize, cuCtxSynchronize)                      \
  X(cuMemGetInfo_v2, cuMemGetInfo)                           \
  X(cuModuleLoadData, cuModuleLoadData)                      \
  X(cuModuleGetFunction, cuModuleGetFunction)                \
  X(cuLaunchKernel, cuLaunchKernel)                          \
  X(cuStreamCreate, cuStreamCreate)                          \
  X(cuStreamSynchronize, cuStreamSynchronize)                \
  X(cuEventCreate, cuEventCreate)                            \
  X(cuEventRecord, cuEventRecord)                            \
  X(cuEventSynchronize, cuEventSynchronize)                  \
  X(cuEventElapsedTime, cuEventElapsedTime)                  \
  X(cuMemAlloc_v2, cuMemAlloc)

// Only what `hog` and friends use; null where the driver has none.
#define METE_LOAD_OPTIONAL(X)                                     \
  X(cuMemAllocPitch_v2, cuMemAllocPitch)                          \
  X(cuMemAllocManaged, cuMemAllocManaged)                         \
  X(cuMemAllocAsync, cuMemAllocAsync)                             \
  X(cuMemPoolCreate, cuMemPoolCreate)                             \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync)             \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity) \
  X(cuMemAddressReserve, cuMemAddressReserve)                     \
  X(cuMemCreate, cuMemCreate)                                     \
  X(cuMemRelease, cuMemRelease)                                   \
  X(cuMemMap, cuMemMap)                                           \
  X(cuMemSetAccess, cuMemSetAccess)                               \
  X(cuArrayCreate_v2, cuArrayCreate)                              \
  X(cuArray3DCreate_v2, cuArray3DCreate)                          \
  X(cuMipmappedArrayCreate, cuMipmappedArrayCreate)

enum class Lookup { kDlsym, kProcAddress };

class Driver {
 public:
  static StatusOr<std::shared_ptr<const Driver>> Load(Lookup lookup);

#define METE_LOAD_MEMBER(symbol, name) decltype(&::symbol) symbol = nullptr;
  METE_LOAD_REQUIRED(METE_LOAD_MEMBER)
  METE_LOAD_OPTIONAL(METE_LOAD_MEMBER)
#undef METE_LOAD_MEMBER

  // OK, or the CUDA error of `call` as a status.
  Status Check(CUresult result, const char* call) const;
  std::string ErrorName(CUresult result) const;  // "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA error 4711" if it has no name

  bool emulated = false;  // the driver says that it is an emulated node's
};

// A status made by Check for a CUDA error.
bool CudaFailure(const Status& status);

}  // namespace mete::lab

#define METE_CUDA(driver, call, ...) METE_RETURN_IF_ERROR((driver).Check((driver).call(__VA_ARGS__), #call))

#endif  // METE_LAB_LOAD_DRIVER_H_
