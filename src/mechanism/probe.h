// Which mechanisms a GPU supports, why not, and which promises each would keep there. Pure functions of facts about the
// GPU and its driver; values; any thread. What a mechanism's own Probe finds on the node (a missing library) comes on
// top.
#ifndef METE_MECHANISM_PROBE_H_
#define METE_MECHANISM_PROBE_H_

#include <string>
#include <string_view>
#include <vector>

#include "gpu/catalogue.h"
#include "gpu/promises.h"
#include "nvml/library.h"

namespace mete::mechanism {

// What a node offers for limits of device memory that the kernel holds (intercept/kernel_limits.h).
struct KernelLimitFacts {
  int driver_major = 0;
  bool calls = false;      // NVML has the calls
  bool cgroup_v2 = false;  // mounted where `cgroups` says
  bool dmem = false;       // with the kernel's controller; else the driver counts for itself
  bool writable = false;   // by this process
  std::string cgroups;     // SYS/fs/cgroup
};

// Why they cannot be used; empty: they can, as far as is to be seen without setting one.
std::string WhyNoKernelLimits(const KernelLimitFacts& facts);

struct GpuFacts {
  std::string name;                   // as NVML prints it
  const gpu::Board* board = nullptr;  // null: not in the catalogue
  nvml::ComputeCapability capability;
  nvml::MigState mig;
  int driver_major = 0;           // 580
  bool vgpu_host_driver = false;  // the host offers vGPU types for this GPU
  KernelLimitFacts kernel_limits;
};

// 580 of "580.65.06"; 0 if it does not start with a number.
int DriverMajor(std::string_view version);

enum class Standing {
  kSupported,
  kNotBuilt,     // GPU and driver could, mete cannot yet
  kNotPossible,  // GPU or driver cannot
};

enum class Keeps {
  kAlways,
  kWhileInForce,     // while the library is seen in force in every process of the tenant
  kWhileAllGranted,  // a cap on each is a promise to all while every tenant of the GPU holds a grant
  kNot,
};

struct PromiseHere {
  gpu::Promise promise;
  Keeps keeps = Keeps::kNot;
  std::string why;  // the table's reason, and what is missing for it here
};

struct VariantHere {
  const gpu::Variant* variant = nullptr;
  Standing standing = Standing::kNotPossible;
  std::string why;                    // empty when supported without remark
  std::vector<PromiseHere> promises;  // one for each promise
};

// One for each variant of the table, in its order.
std::vector<VariantHere> ProbeGpu(const GpuFacts& facts, const gpu::PromiseTable& table = gpu::PromiseTable::BuiltIn());

// Does mete set this mechanism up itself, in this version?
bool Built(gpu::Mechanism mechanism);

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_PROBE_H_
