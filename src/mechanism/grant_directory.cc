#include "mechanism/grant_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/files.h"

namespace mete::mechanism {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 6> kLibraryDirs = {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib",
                                                     "lib/x86_64-linux-gnu",     "lib64",     "lib"};
constexpr size_t kMostEnvironment = size_t{4} << 20;

constexpr const char* kShareVariable = "METE_SHARE";

std::string List(const std::vector<std::string>& visible) { return fmt::format("{}", fmt::join(visible, ",")); }

// The value of a variable in the text of /proc/PID/environ; null: not set.
const char* ValueIn(const std::string& environment, const std::string& name) {
  const std::string start = name + "=";
  for (size_t at = 0; at < environment.size(); at += std::strlen(environment.c_str() + at) + 1) {
    if (environment.compare(at, start.size(), start) == 0) return environment.c_str() + at + start.size();
  }
  return nullptr;
}

}  // namespace

std::string GrantDirectory(const std::string& grants_dir, const plan::Grant& grant) {
  // Half of the id is enough to be unique here and keeps the socket's path short.
  return grants_dir + "/" + grant.id.substr(0, 16);
}

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

Status CheckForLoader(const std::string& directory, bool preload) {
  // The dynamic linker takes these characters for ends of names, and then passes over what it cannot find.
  const char* ends = preload ? ":;$ \t\n" : ":;$";
  const size_t at = directory.find_first_of(ends);
  if (at == std::string::npos) return OkStatus();
  return Lacks("the dynamic linker cannot be told of {}, for the '{}' in it; name another place with XDG_RUNTIME_DIR",
               directory, directory[at]);
}

Status MakeLink(const std::string& to, const std::string& path) {
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

Status LinkTool(const std::string& driver_root, const std::string& directory) {
  std::error_code error;
  const fs::path tool = fs::canonical(fs::path(driver_root) / "usr/bin/nvidia-smi", error);
  return error ? OkStatus() : MakeLink(tool.string(), directory + "/bin/nvidia-smi");
}

Status LinkDriver(const std::string& driver_root, const std::string& directory) {
  METE_RETURN_IF_ERROR(CheckForLoader(directory, false));
  METE_RETURN_IF_ERROR(MakeDirectory(directory));
  METE_RETURN_IF_ERROR(MakeDirectory(directory + "/bin"));
  for (const char* name : {"libcuda.so", "libnvidia-ml.so"}) {
    const std::string real_name = std::string(name) + ".1";
    METE_ASSIGN_OR_RETURN(const std::string library, DriverLibrary(driver_root, real_name.c_str()));
    METE_RETURN_IF_ERROR(MakeLink(library, fmt::format("{}/{}", directory, real_name)));
    METE_RETURN_IF_ERROR(MakeLink(real_name, fmt::format("{}/{}", directory, name)));
  }
  return LinkTool(driver_root, directory);
}

Status RemoveGrantDirectory(const std::string& directory, const plan::Grant& grant) {
  if (grant.id.size() < 16) return Fault("grant of {} has no id", grant.share);
  std::error_code error;
  fs::remove_all(directory, error);
  if (error) return Cannot("remove", directory, error.value());
  return OkStatus();
}

Edits DriverEdits(const std::string& directory, const std::vector<std::string>& visible) {
  Edits edits;
  if (!visible.empty()) edits.set.push_back({"CUDA_VISIBLE_DEVICES", List(visible)});
  edits.prepend.push_back({"LD_LIBRARY_PATH", directory});
  // Only this one tool: a whole directory in front would shadow the user's own programs.
  edits.prepend.push_back({"PATH", directory + "/bin"});
  return edits;
}

Edits BareEdits(const plan::Grant& grant, const std::string& directory, const std::vector<std::string>& visible) {
  Edits edits = DriverEdits(directory, visible);
  edits.set.push_back({"NVIDIA_VISIBLE_DEVICES", List(visible)});  // for container runtimes that the program may start
  edits.set.push_back({kShareVariable, grant.id});
  return edits;
}

std::string ShareNamedBy(uint32_t pid, const std::string& proc_root) {
  const auto environment = ReadFile(fmt::format("{}/{}/environ", proc_root, pid), kMostEnvironment);
  if (!environment.ok()) return {};
  const char* value = ValueIn(*environment, kShareVariable);
  return value == nullptr ? std::string() : value;
}

void VerifyVisible(const std::vector<Tenant>& tenants, const std::vector<std::string>& visible,
                   const std::string& proc_root, Evidence* evidence) {
  const std::string wanted = List(visible);
  for (const Tenant& tenant : tenants) {
    Evidence::Item item;
    item.what = fmt::format("process {} sees {} only", tenant.pid, wanted);
    const auto environment = ReadFile(fmt::format("{}/{}/environ", proc_root, tenant.pid), kMostEnvironment);
    if (!environment.ok()) {
      item.because = "its environment cannot be read (it ended, or is another user's)";
    } else {
      const char* value = ValueIn(*environment, "CUDA_VISIBLE_DEVICES");
      item.holds = value != nullptr && wanted == value;
      item.because = value == nullptr ? "it started without CUDA_VISIBLE_DEVICES"
                                      : fmt::format("it started with CUDA_VISIBLE_DEVICES={}", value);
    }
    evidence->items.push_back(std::move(item));
  }
}

}  // namespace mete::mechanism
