#include "mechanism/intercept/kernel_limits.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;

Status Cannot(const char* what, const std::string& object, int error) {
  return Lacks("cannot {} {}: {}; limits by cgroup need a writable cgroup v2 tree", what, object, std::strerror(error));
}

// One word, as the files of a cgroup take them: appended where the tree is made of plain files, which the kernel
// ignores.
Status WriteWord(const std::string& path, const std::string& word) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return Cannot("open", path, errno);
  const std::string line = word + "\n";
  const ssize_t put = write(fd, line.data(), line.size());
  const int error = errno;
  close(fd);
  return put == static_cast<ssize_t>(line.size()) ? OkStatus() : Cannot("write to", path, error);
}

bool HasWord(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return Cannot("make the cgroup", path, errno);
  return OkStatus();
}

// The groups below go first. Files of a cgroup cannot be removed and need not be; others can, and must.
Status RemoveGroup(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) {
      METE_RETURN_IF_ERROR(RemoveGroup(at->path().string()));
    } else {
      unlink(at->path().c_str());
    }
  }
  if (rmdir(path.c_str()) != 0 && errno != ENOENT) return Cannot("remove the cgroup", path, errno);
  return OkStatus();
}

}  // namespace

KernelLimitFacts LookForKernelLimits(const nvml::Library& library, const std::string& cgroups) {
  KernelLimitFacts facts;
  facts.driver_major = DriverMajor(library.driver_version());
  facts.calls = library.limits_cgroups();
  facts.cgroup_v2 = access((cgroups + "/cgroup.controllers").c_str(), R_OK) == 0;
  facts.dmem = HasWord(cgroups + "/cgroup.controllers", "dmem");
  // Groups are made in the root's folder, and where it exists already in ours.
  const std::string ours = cgroups + "/mete";
  facts.writable = access(access(ours.c_str(), F_OK) == 0 ? ours.c_str() : cgroups.c_str(), W_OK) == 0;
  facts.cgroups = cgroups;
  return facts;
}

std::string KernelLimits::Folder(const plan::Grant& grant) const { return base_ + "/" + grant.id.substr(0, 16); }

StatusOr<std::shared_ptr<const nvml::Device>> KernelLimits::Find(const std::string& gpu_uuid) const {
  return library_.FindDevice(gpu_uuid);
}

Status KernelLimits::Make(const plan::Grant& grant) const {
  if (grant.id.size() < 16) return Fault("grant of {} has no id", grant.share);
  // The controller is handed down level by level; without it the driver counts for itself, in any group.
  const bool dmem = HasWord(cgroups_ + "/cgroup.controllers", "dmem");
  for (const std::string& folder : {cgroups_, cgroups_ + "/mete", base_}) {
    METE_RETURN_IF_ERROR(MakeFolder(folder));
    const std::string control = folder + "/cgroup.subtree_control";
    if (dmem && !HasWord(control, "dmem") && !HasWord(control, "+dmem"))
      METE_RETURN_IF_ERROR(WriteWord(control, "+dmem"));
  }
  return MakeFolder(Folder(grant));
}

// The group, its own or one above, that limits the process's memory or processors; empty: none.
std::string KernelLimits::LimitedBy(uint32_t pid) const {
  std::ifstream file(fmt::format("{}/{}/cgroup", proc_root_, pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) != 0) continue;  // of the unified hierarchy
    for (std::string path = line.substr(3); path.size() > 1; path.resize(path.rfind('/'))) {
      for (const char* limit : {"/memory.max", "/memory.high", "/cpu.max"}) {
        std::ifstream value(cgroups_ + path + limit);
        std::string word;
        if (value >> word && word != "max") return cgroups_ + path;
      }
    }
  }
  return {};
}

Status KernelLimits::Put(const plan::Grant& grant, uint32_t pid) const {
  if (const std::string other = LimitedBy(pid); !other.empty()) {
    return Lacks("process {} is under the limits of the cgroup {}, which it would leave", pid, other);
  }
  return WriteWord(Folder(grant) + "/cgroup.procs", std::to_string(pid));
}

Status KernelLimits::Limit(const plan::Grant& grant, const std::string& gpu_uuid, Bytes hard) const {
  METE_ASSIGN_OR_RETURN(const auto device, Find(gpu_uuid));
  return device->LimitCgroup(Folder(grant), hard);
}

StatusOr<nvml::CgroupMemory> KernelLimits::Read(const plan::Grant& grant, const std::string& gpu_uuid) const {
  METE_ASSIGN_OR_RETURN(const auto device, Find(gpu_uuid));
  return device->MemoryOfCgroup(Folder(grant));
}

Status KernelLimits::Remove(const plan::Grant& grant) const {
  const std::string folder = Folder(grant);
  if (grant.id.size() < 16) return Fault("grant of {} has no id", grant.share);
  if (access(folder.c_str(), F_OK) != 0) return OkStatus();
  for (const plan::GpuGrant& gpu : grant.gpus) {
    // Not an error: the GPU may have gone, and the group goes with its limits.
    (void)Limit(grant, gpu.uuid, Bytes{0});
  }
  return RemoveGroup(folder);
}

void KernelLimits::LeaveOwnGroups() const {
  std::ifstream file(proc_root_ + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/mete/", 0) == 0) (void)WriteWord(cgroups_ + "/cgroup.procs", std::to_string(getpid()));
  }
}

void KernelLimits::RemoveOthers(const std::set<std::string>& folders) const {
  std::error_code error;
  for (fs::directory_iterator at(base_, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored) && folders.count(at->path().string()) == 0)
      (void)RemoveGroup(at->path().string());  // one with processes in it is tried again at the next start
  }
}

}  // namespace mete::mechanism
