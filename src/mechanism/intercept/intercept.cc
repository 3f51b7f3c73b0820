#include "mechanism/intercept/intercept.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "plan/resolve.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;

constexpr char kPreload[] = "libmete-preload.so";
constexpr std::array<const char*, 3> kLibraries = {"libcuda.so.1", "libnvidia-ml.so.1", kPreload};  // of a grant
constexpr std::array<const char*, 6> kLibraryDirs = {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib",
                                                     "lib/x86_64-linux-gnu",     "lib64",     "lib"};

Status Cannot(std::string_view what, const std::string& object, int error) {
  const char* hint = error == ENOSPC || error == EDQUOT  ? "; free some space there"
                     : error == EACCES || error == EROFS ? "; name another place with XDG_RUNTIME_DIR"
                                                         : "";
  return Lacks("cannot {} {}: {}{}", what, object, std::strerror(error), hint);
}

// The real file of a driver library below the node's root, symbolic links resolved.
StatusOr<std::string> DriverLibrary(const std::string& root, const char* name) {
  std::string looked;
  for (const char* dir : kLibraryDirs) {
    const fs::path path = fs::path(root) / dir / name;
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (!error && fs::is_regular_file(real, error)) return real.string();
    looked += (looked.empty() ? "" : ", ") + std::string(dir);
  }
  return Lacks(
      "there is no {} below {} (looked in {}): no NVIDIA driver there; 'mete emulate up' makes an emulated node", name,
      root, looked);
}

Status CopyAll(int from, int to, const std::string& source, const std::string& target) {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Cannot("read", source, errno);
    if (got == 0) return OkStatus();
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = write(to, buffer.data() + done, static_cast<size_t>(got - done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Cannot("write", target, errno);
      done += put;
    }
  }
}

// Copies whole or not at all: what is at `target` is never a part. An existing copy stays, tenants may have it mapped.
Status CopyOnce(const std::string& source, const std::string& target) {
  struct stat there;
  if (lstat(target.c_str(), &there) == 0 && S_ISREG(there.st_mode)) return OkStatus();
  const int from = open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0) {
    return Lacks("cannot open {}: {}; the interceptor is a part of mete, install it beside the program", source,
                 std::strerror(errno));
  }
  const std::string part = target + ".part";
  unlink(part.c_str());
  const int to = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  Status status = to < 0 ? Cannot("make", part, errno) : CopyAll(from, to, source, part);
  close(from);
  if (to >= 0) {
    if (status.ok() && fchmod(to, 0555) != 0) status = Cannot("set the mode of", part, errno);
    if (close(to) != 0 && status.ok()) status = Cannot("write", part, errno);
  }
  if (status.ok() && rename(part.c_str(), target.c_str()) != 0) status = Cannot("make", target, errno);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

Status Link(const std::string& to, const std::string& path) {
  std::error_code error;
  if (fs::read_symlink(path, error) == to && !error) return OkStatus();
  unlink(path.c_str());
  return symlink(to.c_str(), path.c_str()) == 0 ? OkStatus() : Cannot("make", path, errno);
}

Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Cannot("make", path, errno);
  struct stat there;
  if (lstat(path.c_str(), &there) != 0 || !S_ISDIR(there.st_mode) || there.st_uid != geteuid()) {
    return Lacks("{} is not a directory of this user; remove it", path);
  }
  return OkStatus();
}

// Does the process map this file? Empty: yes.
std::string WhyNotMapped(const std::string& proc_root, const Tenant& tenant, const std::string& file) {
  std::ifstream maps(fmt::format("{}/{}/maps", proc_root, tenant.pid));
  if (!maps) return "its memory map cannot be read (it ended, or is another user's)";
  for (std::string line; std::getline(maps, line);) {
    if (line.size() > file.size() && line.compare(line.size() - file.size(), file.size(), file) == 0 &&
        line[line.size() - file.size() - 1] == ' ') {
      return {};
    }
  }
  return "it does not map " + file;
}

}  // namespace

StatusOr<std::string> InterceptorBesideProgram() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return Fault("cannot read /proc/self/exe: {}", error.message());
  return (program.parent_path().parent_path() / "lib" / "mete" / "interceptor").string();
}

Support Intercept::Probe(const plan::GpuOccupancy& gpu) const {
  if (gpu.mig_enabled) return {false, "the GPU is in MIG mode; intercept shares whole GPUs"};
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    if (const auto library = DriverLibrary(options_.driver_root, name); !library.ok()) {
      return {false, Message(library.status())};
    }
  }
  for (const char* name : kLibraries) {
    if (access((options_.interceptor_dir + "/" + name).c_str(), R_OK) != 0) {
      return {false, fmt::format("the interceptor {}/{} is missing", options_.interceptor_dir, name)};
    }
  }
  return {true, {}};
}

StatusOr<plan::Grant> Intercept::Plan(const plan::Request& request, const plan::Occupancy& occupancy) const {
  return plan::Resolve(request, occupancy);
}

std::string Intercept::Directory(const plan::Grant& grant) const {
  // Half of the id is enough to be unique here and keeps the socket's path short.
  return options_.grants_dir + "/" + grant.id.substr(0, 16);
}

Edits Intercept::EditsOf(const plan::Grant& grant) const {
  const std::string directory = Directory(grant);
  Edits edits;
  // The proxy refuses every other GPU; without this the granted one might not be the program's device 0.
  std::string visible;
  for (const plan::GpuGrant& gpu : grant.gpus) visible += (visible.empty() ? "" : ",") + gpu.uuid;
  if (!visible.empty()) edits.set.push_back({"CUDA_VISIBLE_DEVICES", visible});
  edits.prepend.push_back({"LD_LIBRARY_PATH", directory});
  // Only this one tool: a whole directory in front would shadow the user's own programs.
  edits.prepend.push_back({"PATH", directory + "/bin"});
  if (grant.preload) edits.prepend.push_back({"LD_PRELOAD", directory + "/" + kPreload});
  return edits;
}

StatusOr<Edits> Intercept::Prepare(const plan::Grant& grant) const {
  const std::string directory = Directory(grant);
  // The dynamic linker takes these characters for ends of names, and then passes over what it cannot find.
  const char* ends = grant.preload ? ":;$ \t\n" : ":;$";
  if (const size_t at = directory.find_first_of(ends); at != std::string::npos) {
    return Lacks("the dynamic linker cannot be told of {}, for the '{}' in it; name another place with XDG_RUNTIME_DIR",
                 directory, directory[at]);
  }
  METE_ASSIGN_OR_RETURN(const std::string cuda, DriverLibrary(options_.driver_root, "libcuda.so.1"));
  METE_ASSIGN_OR_RETURN(const std::string ml, DriverLibrary(options_.driver_root, "libnvidia-ml.so.1"));
  METE_RETURN_IF_ERROR(MakeDirectory(directory));
  METE_RETURN_IF_ERROR(MakeDirectory(directory + "/bin"));
  for (const char* name : kLibraries) {
    METE_RETURN_IF_ERROR(CopyOnce(options_.interceptor_dir + "/" + name, directory + "/" + name));
  }
  METE_RETURN_IF_ERROR(Link("libcuda.so.1", directory + "/libcuda.so"));
  METE_RETURN_IF_ERROR(Link("libnvidia-ml.so.1", directory + "/libnvidia-ml.so"));
  METE_RETURN_IF_ERROR(Link(cuda, directory + "/libmete-driver-cuda.so.1"));
  METE_RETURN_IF_ERROR(Link(ml, directory + "/libmete-driver-ml.so.1"));
  std::error_code error;
  if (const fs::path tool = fs::canonical(fs::path(options_.driver_root) / "usr/bin/nvidia-smi", error); !error) {
    METE_RETURN_IF_ERROR(Link(tool.string(), directory + "/bin/nvidia-smi"));
  }
  return EditsOf(grant);
}

StatusOr<Evidence> Intercept::Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants) const {
  const std::string directory = Directory(grant);
  Evidence evidence;
  for (const char* name :
       {"libcuda.so.1", "libnvidia-ml.so.1", kPreload, "libmete-driver-cuda.so.1", "libmete-driver-ml.so.1"}) {
    std::error_code error;
    const bool there = fs::is_regular_file(directory + "/" + name, error);
    if (!there)
      evidence.items.push_back({"the grant's libraries are in place", false, directory + "/" + name + " is missing"});
  }
  if (evidence.items.empty()) evidence.items.push_back({"the grant's libraries are in place", true, directory});
  for (const Tenant& tenant : tenants) {
    const std::string because = WhyNotMapped(options_.proc_root, tenant, directory + "/libcuda.so.1");
    evidence.items.push_back({fmt::format("process {} runs through the interceptor", tenant.pid), because.empty(),
                              because.empty() ? "it holds a slot and maps the proxy" : because});
  }
  return evidence;
}

Status Intercept::Release(const plan::Grant& grant) const {
  const std::string directory = Directory(grant);
  if (grant.id.size() < 16) return Fault("grant of {} has no id", grant.share);
  std::error_code error;
  fs::remove_all(directory, error);
  if (error) return Cannot("remove", directory, error.value());
  return OkStatus();
}

}  // namespace mete::mechanism
