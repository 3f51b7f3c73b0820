// Limits of device memory that the kernel holds, by cgroup (driver 615 and newer): a share gets a cgroup, its processes
// are put into it, and NVML sets the hard limit of each of its GPUs. They count all device memory of all processes in
// it, whatever library those use, so a program that goes past the interceptor is refused all the same. Managed memory
// is counted in system memory only, which is why the interceptor goes on counting.
//
//   CGROUPS/mete/NODE/ID/     CGROUPS = SYS/fs/cgroup    ID: half of the grant's id
//
// A process is in one cgroup: in the share's it is no longer in the one it came from, so one that is under limits of
// other resources there is left where it is. Hard limits only: a soft limit is passed on to every group above, and
// stays there when the group is removed. Ownership: names what it makes by the grant's id, keeps nothing. Thread rule:
// one thread. Errors: Lacks, with what is missing. Units: bytes. Source: NVIDIA's "MPS v3 Memory Partitioning" and the
// NVML reference; cgroup v2 of the kernel.
#ifndef METE_MECHANISM_INTERCEPT_KERNEL_LIMITS_H_
#define METE_MECHANISM_INTERCEPT_KERNEL_LIMITS_H_

#include <cstdint>
#include <set>
#include <string>

#include "base/quantities.h"
#include "base/status.h"
#include "mechanism/probe.h"
#include "nvml/library.h"
#include "plan/values.h"

namespace mete::mechanism {

// What this node offers. `cgroups`: SYS/fs/cgroup.
KernelLimitFacts LookForKernelLimits(const nvml::Library& library, const std::string& cgroups);

class KernelLimits {
 public:
  // `node`: a name of the node that can be a folder's.
  KernelLimits(const nvml::Library& library, std::string cgroups, const std::string& node,
               std::string proc_root = "/proc")
      : library_(library),
        cgroups_(std::move(cgroups)),
        base_(cgroups_ + "/mete/" + node),
        proc_root_(std::move(proc_root)) {}

  // Idempotent; without limits yet.
  Status Make(const plan::Grant& grant) const;
  // Lacks for a process that would get away from other limits by it.
  Status Put(const plan::Grant& grant, uint32_t pid) const;
  Status Limit(const plan::Grant& grant, const std::string& gpu_uuid, Bytes hard) const;
  // As the driver holds it now.
  StatusOr<nvml::CgroupMemory> Read(const plan::Grant& grant, const std::string& gpu_uuid) const;
  // Idempotent. Lacks while processes are in it: they are left with a limit of nothing more.
  Status Remove(const plan::Grant& grant) const;
  // Takes this process out of the group of a share that it was started in, for it would keep it from being removed.
  void LeaveOwnGroups() const;
  // Groups of shares that are none of these.
  void RemoveOthers(const std::set<std::string>& folders) const;

  std::string Folder(const plan::Grant& grant) const;

 private:
  std::string LimitedBy(uint32_t pid) const;
  StatusOr<std::shared_ptr<const nvml::Device>> Find(const std::string& gpu_uuid) const;

  const nvml::Library& library_;
  std::string cgroups_, base_, proc_root_;
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_INTERCEPT_KERNEL_LIMITS_H_
