// What the engine says of MIG: profiles of a board, instances of a GPU. Plain data of fixed layout that crosses the
// socket and is read by the emulated NVML, nvidia-smi and libcuda. libc and the C++ runtime only. Placements count
// memory slices, those of compute instances compute slices of their GPU instance. Facts: data/mig.yaml.
#ifndef METE_EMULATOR_ENGINE_MIG_INFO_H_
#define METE_EMULATOR_ENGINE_MIG_INFO_H_

#include <cstddef>
#include <cstdint>

namespace mete::emulator {

inline constexpr uint32_t kNoInstance = UINT32_MAX;  // NVML's word for "not in a MIG instance"
inline constexpr uint32_t kAnyStart = UINT32_MAX;    // the engine chooses the placement, as a driver does

inline constexpr size_t kMostMigStarts = 16, kMostMigComputeProfiles = 8, kMostMigInstances = 32;

struct MigComputeProfileInfo {  // of a GPU-instance profile
  char name[32];                // "1c.3g.20gb"
  uint32_t id;                  // as -lcip prints it and -cci takes it; equal to NVML's NVML_COMPUTE_INSTANCE_PROFILE_*
  uint32_t slices, sm_count;
  uint32_t max_instances;  // in one GPU instance
  uint32_t start_count;
  uint8_t starts[kMostMigStarts];
};

struct MigProfileInfo {   // of a board
  char name[32];          // "1g.5gb+me"
  uint32_t id;            // as -lgip prints it and -cgi takes it; profileId of NVML's calls
  uint32_t nvml_profile;  // NVML_GPU_INSTANCE_PROFILE_*: another numbering
  uint32_t compute_slices, memory_slices;
  uint64_t memory_bytes;
  uint32_t sm_count, max_instances;
  uint32_t copy_engines, decoders, encoders, jpegs, ofas;
  uint32_t graphics;  // 1: can draw
  uint32_t start_count;
  uint8_t starts[kMostMigStarts];  // whatever is in use; each placement is memory_slices wide
  uint32_t compute_count;
  MigComputeProfileInfo compute[kMostMigComputeProfiles];
};

struct MigGpuInstance {
  uint32_t serial;  // counts up over the engine's life: an instance made again is another one
  uint32_t id;      // as NVML and -lgi say it; follows from profile and placement
  uint32_t profile_id;
  uint32_t start, size;
  uint32_t contexts;      // in it now
  uint64_t memory_bytes;  // all of it is for allocations and contexts
  uint64_t used_bytes;
};

struct MigComputeInstance {  // what CUDA and NVML call a MIG device
  uint32_t serial;           // as above
  uint32_t gpu_instance, id;
  uint32_t profile_id;  // a MigComputeProfileInfo's
  uint32_t start, size;
  uint32_t sm_count, contexts;
  uint8_t uuid[16];  // after "MIG-"; the same for the same GPU and ids
};

struct MigState {
  uint32_t capable;        // 0: the board has no MIG, and all else is 0
  uint32_t mode, pending;  // 1: on. They differ while something in use keeps the mode from changing
  uint32_t max_gpu_instances, memory_slices, compute_slices;  // of the board
  uint32_t gpu_instances, compute_instances;                  // how many there are
  MigGpuInstance gpu_instance[kMostMigInstances];             // by id
  MigComputeInstance compute_instance[kMostMigInstances];     // by GPU instance and id: NVML's index of MIG devices
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_MIG_INFO_H_
