// The driver API as the interceptor sees it: exported symbols only, no plain names mapped to the newest ABI.
#ifndef METE_INTERCEPTOR_CUDA_API_H_
#define METE_INTERCEPTOR_CUDA_API_H_

#ifndef METE_CUDA_NO_ALIASES
#define METE_CUDA_NO_ALIASES
#endif
#include "mete/cuda.h"

#define METE_EXPORT __attribute__((visibility("default")))

namespace mete::interceptor {

// What mete itself answers. Everything else is the driver's own code.
inline constexpr CUresult kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;      // over the quota, or the share has ended
inline constexpr CUresult kNotAttached = CUDA_ERROR_NOT_INITIALIZED;    // the limits are not in force
inline constexpr CUresult kNotInShare = CUDA_ERROR_DEVICE_UNAVAILABLE;  // a GPU of which the share has no part
inline constexpr CUresult kShareEnded = CUDA_ERROR_NOT_PERMITTED;       // launches after the share was released

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_CUDA_API_H_
