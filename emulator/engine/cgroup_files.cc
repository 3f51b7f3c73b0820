#include "emulator/engine/cgroup_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"

namespace mete::emulator {
namespace {

namespace fs = std::filesystem;

constexpr int kMostGenerations = 128;
constexpr size_t kMostGroups = 4096;

// The name of a GPU's memory in the dmem files, in the form that the kernel's documentation shows.
std::string RegionOf(const GpuInfo& gpu) {
  std::string bus =
      gpu.pci_bus_id;  // "00000000:07:00.0"; the kernel writes four digits of the domain, and small letters
  std::transform(bus.begin(), bus.end(), bus.begin(), [](unsigned char c) { return std::tolower(c); });
  return "drm/" + bus.substr(bus.size() > 12 ? bus.size() - 12 : 0) + "/vram0";
}

std::string AmountText(uint64_t bytes) { return bytes == kNoMemoryLimit ? "max" : std::to_string(bytes); }

class CgroupFiles final : public CgroupTree {
 public:
  CgroupFiles(std::string root, const std::vector<GpuInfo>& gpus, std::string proc)
      : root_(std::move(root)), proc_(std::move(proc)) {
    for (const GpuInfo& gpu : gpus) regions_.push_back(RegionOf(gpu));
  }

  std::string GroupOf(uint32_t pid) override {
    const std::map<uint32_t, std::string> members = Members();
    if (members.empty()) return "";
    for (int generation = 0; pid > 1 && generation < kMostGenerations; ++generation) {
      const auto found = members.find(pid);
      if (found != members.end()) return found->second;
      pid = ParentOf(pid);
    }
    return "";
  }

  bool Exists(const std::string& path) override {
    std::error_code error;
    return IsPath(path) && fs::is_directory(fs::symlink_status(Folder(path), error));
  }

  bool HasController(const std::string& path) override {
    if (path.empty() || !Exists(path)) return false;
    for (size_t slash = path.rfind('/');; slash = path.rfind('/', slash - 1)) {
      const std::string above = slash == std::string::npos ? "" : path.substr(0, slash);
      std::ifstream file(Folder(above) + "/cgroup.subtree_control");
      bool given = false;
      for (std::string word; file >> word;) {
        if (word == "+dmem" || word == "dmem") given = true;
        if (word == "-dmem") given = false;
      }
      if (!given) return false;
      if (slash == std::string::npos) return true;
    }
  }

  void Show(const std::string& path, uint32_t gpu, const MemoryLimits& limits, uint64_t current) override {
    if (!Exists(path)) return;
    auto& lines = shown_[path];
    lines.resize(regions_.size());
    lines[gpu] = {limits, current};
    std::string max, min, now;
    for (size_t i = 0; i < regions_.size(); ++i) {
      max += regions_[i] + " " + AmountText(lines[i].limits.hard) + "\n";
      min += regions_[i] + " " + AmountText(lines[i].limits.soft) + "\n";
      now += regions_[i] + " " + AmountText(lines[i].current) + "\n";
    }
    Write(Folder(path) + "/dmem.max", max);
    Write(Folder(path) + "/dmem.min", min);
    Write(Folder(path) + "/dmem.current", now);
  }

 private:
  struct Line {
    MemoryLimits limits;
    uint64_t current = 0;
  };

  std::string Folder(const std::string& path) const { return path.empty() ? root_ : root_ + "/" + path; }
  // A name from a stranger stays below the root.
  static bool IsPath(const std::string& path) {
    if (path.empty() || path.front() == '/' || path.back() == '/') return path.empty();
    std::stringstream parts(path);
    for (std::string part; std::getline(parts, part, '/');) {
      if (part.empty() || part == "." || part == "..") return false;
    }
    return true;
  }
  // Whole or not at all for a reader.
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path + ".new", std::ios::trunc) << text;
    rename((path + ".new").c_str(), path.c_str());
  }
  uint32_t ParentOf(uint32_t pid) const {
    std::ifstream file(proc_ + "/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text, '\0');
    const size_t at = text.rfind(')');  // the name may hold anything
    uint32_t parent = 0;
    char state = 0;
    if (at != std::string::npos) std::istringstream(text.substr(at + 1)) >> state >> parent;
    return parent;
  }
  std::map<uint32_t, std::string> Members() const {
    std::map<uint32_t, std::string> members;
    std::error_code error;
    size_t groups = 0;
    for (fs::recursive_directory_iterator at(root_, error), end; !error && at != end && groups < kMostGroups;
         at.increment(error)) {
      std::error_code ignored;
      if (!at->is_directory(ignored) || at->is_symlink(ignored)) continue;
      ++groups;
      std::ifstream file(at->path() / "cgroup.procs");
      for (uint32_t pid = 0; file >> pid;) members[pid] = at->path().string().substr(root_.size() + 1);
    }
    return members;
  }

  const std::string root_, proc_;
  std::vector<std::string> regions_;
  std::map<std::string, std::vector<Line>> shown_;  // by path
};

}  // namespace

Status MakeCgroupRoot(const std::string& node_root, const std::vector<GpuInfo>& gpus) {
  const std::string root = node_root + "/" + kCgroupFolder;
  std::error_code error;
  fs::create_directories(root, error);
  std::ofstream(root + "/cgroup.controllers") << "dmem\n";
  std::ofstream(root + "/cgroup.subtree_control").flush();
  std::ofstream(root + "/cgroup.procs").flush();
  std::ofstream capacity(root + "/dmem.capacity");
  for (const GpuInfo& gpu : gpus) capacity << RegionOf(gpu) << " " << gpu.memory_bytes << "\n";
  capacity.close();
  if (error || !capacity) return Lacks("cannot make the cgroup tree of the emulated node in {}", root);
  return OkStatus();
}

void RemoveCgroups(const std::string& node_root) {
  std::error_code error;
  fs::remove_all(node_root + "/" + kCgroupFolder, error);
  fs::remove(node_root + "/sys/fs", error);
}

std::unique_ptr<CgroupTree> OpenCgroups(const std::string& node_root, const std::vector<GpuInfo>& gpus,
                                        const std::string& proc_root) {
  return std::make_unique<CgroupFiles>(node_root + "/" + kCgroupFolder, gpus, proc_root);
}

}  // namespace mete::emulator
