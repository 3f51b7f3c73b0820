// NVML's calls about MIG on one GPU, with types. Internal to this layer; Device hands them on. Values that borrow the
// Api; any thread. Errors as in library.h.
#ifndef METE_NVML_MIG_CALLS_H_
#define METE_NVML_MIG_CALLS_H_

#include <string>
#include <vector>

#include "nvml/api.h"
#include "nvml/library.h"

namespace mete::nvml {

struct MigHandle {
  abi::nvmlDevice_t handle = nullptr;
  std::string uuid, name;  // "MIG-…", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
  uint32_t gpu_instance = 0, compute_instance = 0;
};

class MigCalls {
 public:
  MigCalls(const Api& api, abi::nvmlDevice_t device, std::string object)
      : api_(api), device_(device), object_(std::move(object)) {}

  Status SetMode(bool on) const;
  StatusOr<std::vector<MigHandle>> Handles() const;
  StatusOr<std::vector<GpuInstance>> All() const;
  StatusOr<GpuInstance> Create(uint32_t profile, int start, int size) const;
  StatusOr<ComputeInstance> CreateCompute(uint32_t gpu_instance, int compute_slices) const;
  Status DestroyCompute(uint32_t gpu_instance, uint32_t compute_instance) const;
  Status Destroy(uint32_t gpu_instance) const;

 private:
  Status Check(abi::nvmlReturn_t code, const char* call, const std::string& what = {}) const;
  Status Needs(bool all, const char* call) const;
  StatusOr<abi::nvmlGpuInstance_t> ById(uint32_t gpu_instance) const;
  StatusOr<GpuInstance> Describe(abi::nvmlGpuInstance_t handle) const;
  StatusOr<ComputeInstance> DescribeCompute(abi::nvmlComputeInstance_t handle) const;
  // Ids of the profiles that the GPU has, each once.
  std::vector<abi::nvmlGpuInstanceProfileInfo_t> Profiles() const;
  std::vector<abi::nvmlComputeInstanceProfileInfo_t> ComputeProfiles(abi::nvmlGpuInstance_t handle) const;

  const Api& api_;
  abi::nvmlDevice_t device_;
  std::string object_;
};

}  // namespace mete::nvml

#endif  // METE_NVML_MIG_CALLS_H_
