#include "mechanism/node.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "nvml/library.h"

namespace mete::mechanism {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string Below(const std::string& root, std::string_view path) {
  return fmt::format("{}{}{}", root, root.back() == '/' ? "" : "/", path);
}

// The roots that belong to a driver root: a root that carries its own devices or kernel views is asked for them.
gpu::Roots RootsOf(const std::string& driver) {
  gpu::Roots roots;
  roots.driver = driver;
  if (driver == "/") return roots;
  if (Exists(Below(driver, "dev/nvidiactl"))) roots.dev = driver;
  if (Exists(Below(driver, "sys/bus/pci")) || Exists(Below(driver, "sys/fs/cgroup"))) roots.sys = Below(driver, "sys");
  if (Exists(Below(driver, "proc/driver/nvidia"))) roots.proc = Below(driver, "proc");
  return roots;
}

StatusOr<Node> Open(const std::string& driver, FoundBy found_by) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(driver, error).lexically_normal();
  struct stat info {};
  if (error || stat(absolute.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    const char* who = found_by == FoundBy::kVariable ? "$METE_DRIVER_ROOT" : "--driver-root";
    const std::string why = error ? error.message() : errno == ENOENT ? "no such folder" : "not a folder";
    return NoSuch("the driver root {} named by {} cannot be used: {}", driver, who, why);
  }
  std::string clean = absolute;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  return Node{RootsOf(clean), found_by, info.st_dev, info.st_ino};
}

bool HasDriver(const NodePlaces& places) {
  if (!nvml::Library::Find(places.host).ok()) return false;
  return Exists(Below(places.host, "proc/driver/nvidia/version")) || Exists(Below(places.host, "dev/nvidiactl"));
}

bool Alive(const EngineFile& engine, const std::string& proc) {
  const auto stat = ReadFile(fmt::format("{}/{}/stat", proc, engine.pid), 4096);
  return stat.ok() && StartTimeOf(*stat) == engine.start_time;
}

// Driver roots of the user's emulated nodes whose engine runs, sorted. What was left by a killed engine is not up.
std::vector<std::string> NodesUp(const NodePlaces& places) {
  std::vector<std::string> up;
  std::error_code error;
  for (std::filesystem::directory_iterator at(places.runtime + "/nodes", error), end; !error && at != end;
       at.increment(error)) {
    const std::string file = at->path().string() + "/run/engine.json";
    const auto text = ReadFile(file, 65536);
    if (!text.ok()) continue;
    const auto engine = ParseEngineFile(*text, file);
    if (engine.ok() && Alive(*engine, places.proc)) up.push_back(engine->driver_root);
  }
  std::sort(up.begin(), up.end());
  up.erase(std::unique(up.begin(), up.end()), up.end());
  return up;
}

// The runtime folder decides which node is used, so it must be the user's own.
Status CheckOwner(const std::string& folder) {
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) return OkStatus();  // nothing there: no nodes
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Lacks("{} is not a folder of this user alone (uid {}): remove it, or set XDG_RUNTIME_DIR to one that is",
                 folder, geteuid());
  }
  return OkStatus();
}

}  // namespace

std::string Node::Description() const {
  switch (found_by) {
    case FoundBy::kName: return roots.driver + " (named by --driver-root)";
    case FoundBy::kVariable: return roots.driver + " (named by $METE_DRIVER_ROOT)";
    case FoundBy::kHost: return roots.driver + " (this machine's driver)";
    case FoundBy::kEmulatedNode: break;
  }
  return roots.driver + " (the emulated node that is up)";
}

NodePlaces NodePlaces::OfThisProcess() {
  NodePlaces places;
  const char* variable = std::getenv("METE_DRIVER_ROOT");
  places.variable = variable == nullptr ? "" : variable;
  places.runtime = RuntimeFolder();
  return places;
}

std::string RuntimeFolder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return std::string(runtime) + "/mete";
  return fmt::format("/tmp/mete-{}", geteuid());
}

StatusOr<Node> FindNode(std::string_view named, const NodePlaces& places) {
  if (!named.empty()) return Open(std::string(named), FoundBy::kName);
  if (!places.variable.empty()) return Open(places.variable, FoundBy::kVariable);
  if (HasDriver(places)) return Open(places.host, FoundBy::kHost);
  METE_RETURN_IF_ERROR(CheckOwner(places.runtime));
  const std::vector<std::string> up = NodesUp(places);
  if (up.size() == 1) return Open(up.front(), FoundBy::kEmulatedNode);
  if (up.size() > 1) {
    return Usage("{} emulated nodes are up ({}): name one with --driver-root or $METE_DRIVER_ROOT", up.size(),
                 JoinNames(up, "and"));
  }
  return Lacks(
      "no NVIDIA driver on this machine and no emulated node up: install the driver, name one with --driver-root DIR, "
      "or "
      "try mete without a GPU: `mete emulate up --gpus A100-SXM4-40GB`");
}

StatusOr<EngineFile> ParseEngineFile(std::string_view text, std::string_view what) {
  METE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what));
  const auto number = [&json](const char* key, uint64_t most) -> uint64_t {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_unsigned()) return 0;
    const auto value = found->get<uint64_t>();
    return value <= most ? value : 0;
  };
  if (!json.is_object()) return Usage("{}: not an object", what);
  EngineFile file;
  const auto root = json.find("driver_root");
  if (root != json.end() && root->is_string()) file.driver_root = root->get<std::string>();
  file.pid = static_cast<uint32_t>(number("pid", std::numeric_limits<int32_t>::max()));
  file.start_time = number("start_time", std::numeric_limits<uint64_t>::max());
  if (file.driver_root.empty() || file.driver_root.front() != '/' || file.driver_root.find('\0') != std::string::npos) {
    return Usage("{}: \"driver_root\" must be an absolute path", what);
  }
  if (file.pid == 0 || file.start_time == 0) return Usage("{}: \"pid\" and \"start_time\" must be positive", what);
  return file;
}

uint64_t StartTimeOf(std::string_view stat) {
  // The second field is a name in parentheses that may hold anything; the third starts after the last parenthesis.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  stat.remove_prefix(name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    const size_t start = stat.find_first_not_of(' ');
    if (start == std::string_view::npos) return 0;
    stat.remove_prefix(start);
    const size_t end = std::min(stat.find(' '), stat.size());
    if (field == 22) {
      uint64_t value = 0;
      const auto [rest, error] = std::from_chars(stat.data(), stat.data() + end, value);
      return error == std::errc() && rest == stat.data() + end ? value : 0;
    }
    stat.remove_prefix(end);
  }
  return 0;
}

}  // namespace mete::mechanism
