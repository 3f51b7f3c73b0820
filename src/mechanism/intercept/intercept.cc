#include "mechanism/intercept/intercept.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "mechanism/grant_directory.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;

constexpr char kPreload[] = "libmete-preload.so";
constexpr std::array<const char*, 3> kLibraries = {"libcuda.so.1", "libnvidia-ml.so.1", kPreload};  // of a grant

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
  if (gpu.mig_enabled) return {false, "MIG is on: intercept shares whole GPUs and MIG devices"};
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

std::string Intercept::Directory(const plan::Grant& grant) const { return GrantDirectory(options_.grants_dir, grant); }

Edits Intercept::EditsOf(const plan::Grant& grant) const {
  const std::string directory = Directory(grant);
  std::vector<std::string> visible;
  for (const plan::GpuGrant& gpu : grant.gpus) visible.push_back(gpu.uuid);
  // The proxy refuses every other GPU; without this the granted one might not be the program's device 0.
  Edits edits = DriverEdits(directory, visible);
  if (grant.preload) edits.prepend.push_back({"LD_PRELOAD", directory + "/" + kPreload});
  return edits;
}

StatusOr<Edits> Intercept::Prepare(const plan::Grant& grant, Journal&) const {
  const std::string directory = Directory(grant);
  METE_RETURN_IF_ERROR(CheckForLoader(directory, grant.preload));
  METE_ASSIGN_OR_RETURN(const std::string cuda, DriverLibrary(options_.driver_root, "libcuda.so.1"));
  METE_ASSIGN_OR_RETURN(const std::string ml, DriverLibrary(options_.driver_root, "libnvidia-ml.so.1"));
  METE_RETURN_IF_ERROR(MakeDirectory(directory));
  METE_RETURN_IF_ERROR(MakeDirectory(directory + "/bin"));
  for (const char* name : kLibraries) {
    METE_RETURN_IF_ERROR(CopyOnce(options_.interceptor_dir + "/" + name, directory + "/" + name));
  }
  METE_RETURN_IF_ERROR(MakeLink("libcuda.so.1", directory + "/libcuda.so"));
  METE_RETURN_IF_ERROR(MakeLink("libnvidia-ml.so.1", directory + "/libnvidia-ml.so"));
  METE_RETURN_IF_ERROR(MakeLink(cuda, directory + "/libmete-driver-cuda.so.1"));
  METE_RETURN_IF_ERROR(MakeLink(ml, directory + "/libmete-driver-ml.so.1"));
  METE_RETURN_IF_ERROR(LinkTool(options_.driver_root, directory));
  return EditsOf(grant);
}

StatusOr<Evidence> Intercept::Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                                     const Journal&) const {
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

Status Intercept::Release(const plan::Grant& grant, Journal&) const {
  return RemoveGrantDirectory(Directory(grant), grant);
}

}  // namespace mete::mechanism
