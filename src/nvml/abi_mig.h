// The part of NVML's binary interface that speaks of MIG: GPU instances, compute instances, their profiles and
// placements. As abi.h, which includes nothing of this; a face of abi_details.h.
#ifndef METE_NVML_ABI_MIG_H_
#define METE_NVML_ABI_MIG_H_

#include "nvml/abi.h"

namespace mete::nvml::abi {

typedef struct nvmlGpuInstance_st* nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st* nvmlComputeInstance_t;

// A profile is asked for by its enumeration value and answers with an id; instances are made by the id.
inline constexpr unsigned NVML_GPU_INSTANCE_PROFILE_1_SLICE = 0, NVML_GPU_INSTANCE_PROFILE_2_SLICE = 1,
                          NVML_GPU_INSTANCE_PROFILE_3_SLICE = 2, NVML_GPU_INSTANCE_PROFILE_4_SLICE = 3,
                          NVML_GPU_INSTANCE_PROFILE_7_SLICE = 4;
inline constexpr unsigned NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE = 0, NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE = 1,
                          NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE = 2, NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE = 3,
                          NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE = 4;
inline constexpr unsigned NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED = 0;

struct nvmlGpuInstancePlacement_t {
  unsigned start, size;  // in memory slices
};

struct nvmlGpuInstanceProfileInfo_t {
  unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
      encoderCount, jpegCount, ofaCount;
  unsigned long long memorySizeMB;
};

struct nvmlGpuInstanceProfileInfo_v2_t {
  unsigned version;
  unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
      encoderCount, jpegCount, ofaCount;
  unsigned long long memorySizeMB;
  char name[96];
};

struct nvmlGpuInstanceProfileInfo_v3_t {
  unsigned version;
  unsigned id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount,
      ofaCount;
  unsigned long long memorySizeMB;
  char name[96];
  unsigned capabilities;
};
inline constexpr unsigned NVML_GPU_INSTANCE_PROFILE_CAPS_GFX = 2;

struct nvmlGpuInstanceInfo_t {
  nvmlDevice_t device;
  unsigned id, profileId;
  nvmlGpuInstancePlacement_t placement;
};

struct nvmlComputeInstancePlacement_t {
  unsigned start, size;  // in compute slices of the GPU instance
};

struct nvmlComputeInstanceProfileInfo_t {
  unsigned id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
      sharedEncoderCount, sharedJpegCount, sharedOfaCount;
};

struct nvmlComputeInstanceProfileInfo_v2_t {
  unsigned version;
  unsigned id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
      sharedEncoderCount, sharedJpegCount, sharedOfaCount;
  char name[96];
};

struct nvmlComputeInstanceProfileInfo_v3_t {
  unsigned version;
  unsigned id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
      sharedEncoderCount, sharedJpegCount, sharedOfaCount;
  char name[96];
  unsigned capabilities;
};
inline constexpr unsigned NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX = 1;

struct nvmlComputeInstanceInfo_t {
  nvmlDevice_t device;
  nvmlGpuInstance_t gpuInstance;
  unsigned id, profileId;
  nvmlComputeInstancePlacement_t placement;
};

struct nvmlDeviceAttributes_t {
  unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
      sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
  unsigned long long memorySizeMB;
};

}  // namespace mete::nvml::abi

#endif  // METE_NVML_ABI_MIG_H_
