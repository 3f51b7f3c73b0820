#include "emulator/engine/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "emulator/engine/cgroup_files.h"

namespace mete::emulator {

namespace fs = std::filesystem;

namespace {

constexpr char kLibraries[] = "usr/lib/x86_64-linux-gnu";
constexpr int kAskMs = 5000;
// Top to bottom; removed the other way round.
const char* const kFolders[] = {"usr",  "usr/lib",     kLibraries,           "usr/bin", "dev",
                                "proc", "proc/driver", "proc/driver/nvidia", "sys",     "run"};

struct Fd {
  int fd;
  ~Fd() {
    if (fd >= 0) close(fd);
  }
};

Status WriteAll(const std::string& path, const char* data, size_t size, mode_t mode) {
  const Fd out{open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)};
  bool ok = out.fd >= 0 && fchmod(out.fd, mode) == 0;
  for (size_t done = 0; ok && done < size;) {
    const ssize_t n = write(out.fd, data + done, size - done);
    ok = n > 0;
    if (ok) done += static_cast<size_t>(n);
  }
  if (ok) return OkStatus();
  return Lacks("cannot write {}: {}; free some space, or choose another folder with --dir", path, std::strerror(errno));
}

Status WriteText(const std::string& path, std::string_view text, mode_t mode) {
  return WriteAll(path, text.data(), text.size(), mode);
}

StatusOr<std::string> ReadFile(const std::string& path) {
  const Fd in{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text;
  char buffer[1 << 16];
  ssize_t n = in.fd < 0 ? -1 : 0;
  if (in.fd >= 0) {
    while ((n = read(in.fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(n));
  }
  if (n < 0) return Lacks("cannot read {}: {}", path, std::strerror(errno));
  return text;
}

Status MakeFolder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return OkStatus();
  return Lacks("cannot make the folder {}: {}", path, std::strerror(errno));
}

std::string RegistryLink(const std::string& runtime, const std::string& root) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : root) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return fmt::format("{}/nodes/{:016x}", runtime, hash);
}

bool Answers(const std::string& root) {
  const Fd socket{ConnectToEngine(root + "/run")};
  return socket.fd >= 0;
}

}  // namespace

StatusOr<std::string> RuntimeFolder() {
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  const bool given = xdg != nullptr && xdg[0] == '/';
  const std::string path = given ? std::string(xdg) + "/mete" : fmt::format("/tmp/mete-{}", geteuid());
  METE_RETURN_IF_ERROR(MakeFolder(path, 0700));
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & 077) != 0) {
    return Lacks(
        "{} is not a folder of yours alone (owner uid {}, mode {:03o}, wanted uid {}, mode 700); remove it or set "
        "XDG_RUNTIME_DIR",
        path, found.st_uid, found.st_mode & 0777, geteuid());
  }
  return path;
}

uint64_t StartTime(int pid) {
  const StatusOr<std::string> text = ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!text.ok()) return 0;
  // The name in parentheses may hold anything; fields count from the last closing one: state is the third.
  size_t at = text->rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text->find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at, nullptr, 10);
}

StatusOr<NodeState> ReadNode(const std::string& root) {
  NodeState node;
  node.root = root;
  const std::string path = root + "/run/engine.json";
  const StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return node;
  METE_ASSIGN_OR_RETURN(node.json, ParseJson(*text, path));
  const auto pid = node.json.find("pid"), start = node.json.find("start_time"), gpus = node.json.find("gpus");
  if (!node.json.is_object() || pid == node.json.end() || !pid->is_number_integer() || start == node.json.end() ||
      !start->is_number_unsigned() || gpus == node.json.end() || !gpus->is_array()) {
    return Usage("{} is not what an engine writes; 'mete emulate down --dir {}' clears it away", path, root);
  }
  node.pid = pid->get<int>();
  const uint64_t started = StartTime(node.pid);
  node.running = started != 0 && started == start->get<uint64_t>() && Answers(root);
  return node;
}

std::vector<NodeState> NodesUp() {
  std::vector<NodeState> nodes;
  const StatusOr<std::string> runtime = RuntimeFolder();
  if (!runtime.ok()) return nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(*runtime + "/nodes", error)) {
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (error) continue;
    StatusOr<NodeState> node = ReadNode(target.string());
    if (node.ok() && node->running) {
      nodes.push_back(*std::move(node));
    } else {
      unlink(entry.path().c_str());
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const NodeState& a, const NodeState& b) { return a.root < b.root; });
  return nodes;
}

StatusOr<int> LockNode(const std::string& root) {
  METE_RETURN_IF_ERROR(MakeFolder(root + "/run", 0755));
  const std::string path = root + "/run/engine.pid";
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return Lacks("cannot write {}: {}", path, std::strerror(errno));
    struct stat held = {}, named = {};
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return Refused(
          "an emulated node is already up in {}; use it ('mete emulate status'), end it with 'mete emulate down "
          "--dir {}', or choose another folder with --dir",
          root, root);
    }
    // A `down` may have removed the file between the two calls.
    if (fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino) return fd;
    close(fd);
    METE_RETURN_IF_ERROR(MakeFolder(root + "/run", 0755));
  }
}

Status MakeTree(const std::string& root, const std::string& libraries, const std::vector<std::string>& without,
                size_t gpus, const DriverBranch& driver) {
  for (const char* folder : kFolders) METE_RETURN_IF_ERROR(MakeFolder(root + "/" + folder, 0755));
  const std::pair<const char*, std::string> files[] = {
      {"libcuda.so.1", kLibraries}, {"libnvidia-ml.so.1", kLibraries}, {"nvidia-smi", "usr/bin"}};
  for (const auto& [name, folder] : files) {
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    const std::string from = libraries + "/" + name;
    StatusOr<std::string> content = ReadFile(from);
    if (!content.ok()) {
      return Lacks("{} of the emulated node is missing: {}; build or install the whole of mete", name,
                   Message(content.status()));
    }
    METE_RETURN_IF_ERROR(WriteText(fmt::format("{}/{}/{}", root, folder, name), *content, 0755));
  }
  const std::string link = root + "/" + kLibraries + "/libcuda.so";
  if (symlink("libcuda.so.1", link.c_str()) != 0 && errno != EEXIST) {
    return Lacks("cannot make the link {}: {}", link, std::strerror(errno));
  }
  METE_RETURN_IF_ERROR(WriteText(root + "/dev/nvidiactl", "", 0666));
  for (size_t i = 0; i < gpus; ++i) {
    METE_RETURN_IF_ERROR(WriteText(fmt::format("{}/dev/nvidia{}", root, i), "", 0666));
  }
  return WriteText(root + "/proc/driver/nvidia/version",
                   fmt::format("NVRM version: mete emulated node  {}  (no NVIDIA driver on this machine is involved)\n",
                               driver.version),
                   0444);
}

void RemoveTree(const std::string& root, bool and_root) {
  const auto remove = [&](const std::string& name) { unlink((root + "/" + name).c_str()); };
  for (const char* name : {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"})
    remove(std::string(kLibraries) + "/" + name);
  remove("usr/bin/nvidia-smi");
  remove("dev/nvidiactl");
  for (uint32_t i = 0; i < kMaxGpus; ++i) remove(fmt::format("dev/nvidia{}", i));
  remove("proc/driver/nvidia/version");
  RemoveCgroups(root);
  for (const char* name : {"engine.json", "engine.json.new", "engine.sock", "engine.log", "engine.pid"}) {
    remove(std::string("run/") + name);
  }
  for (auto folder = std::rbegin(kFolders); folder != std::rend(kFolders); ++folder) {
    rmdir((root + "/" + *folder).c_str());
  }
  if (and_root) rmdir(root.c_str());
}

bool HoldsForeignFiles(const std::string& root) {
  std::error_code error;
  if (fs::exists(root + "/run/engine.pid", error)) return false;
  return !fs::is_empty(root, error) && !error;
}

Status PublishNode(const std::string& root, const EngineSettings& settings, bool made_root) {
  Json gpus = Json::array();
  for (size_t i = 0; i < settings.gpus.size(); ++i) {
    const GpuInfo& info = settings.gpus[i].info;
    gpus.push_back({{"index", i},
                    {"board", info.board},
                    {"name", info.name},
                    {"uuid", UuidText(info.uuid)},
                    {"memory_bytes", info.memory_bytes}});
  }
  const Json json = {{"driver_root", root},
                     {"pid", getpid()},
                     {"start_time", StartTime(getpid())},
                     {"driver_version", settings.driver_version},
                     {"cuda_version", settings.cuda_version},
                     {"made_root", made_root},
                     {"gpus", std::move(gpus)}};
  METE_ASSIGN_OR_RETURN(const std::string runtime, RuntimeFolder());
  METE_RETURN_IF_ERROR(MakeFolder(runtime + "/nodes", 0700));
  const std::string path = root + "/run/engine.json", fresh = path + ".new";
  METE_RETURN_IF_ERROR(WriteText(root + "/run/engine.pid", fmt::format("{}\n", getpid()), 0644));
  METE_RETURN_IF_ERROR(WriteText(fresh, ToText(json), 0644));
  if (rename(fresh.c_str(), path.c_str()) != 0) return Lacks("cannot write {}: {}", path, std::strerror(errno));
  const std::string link = RegistryLink(runtime, root);
  unlink(link.c_str());
  if (symlink(root.c_str(), link.c_str()) != 0) return Lacks("cannot make the link {}: {}", link, std::strerror(errno));
  return OkStatus();
}

void UnpublishNode(const std::string& root) {
  const StatusOr<std::string> runtime = RuntimeFolder();
  if (!runtime.ok()) return;
  unlink(RegistryLink(*runtime, root).c_str());
  rmdir((*runtime + "/nodes").c_str());
}

StatusOr<std::string> Ask(const std::string& root, MessageType type) {
  const Fd socket{ConnectToEngine(root + "/run")};
  if (socket.fd < 0) return Lacks("the engine of {} does not answer: {}", root, std::strerror(errno));
  Request request = {};
  request.magic = kProtocolMagic;
  request.version = kProtocolVersion;
  request.type = static_cast<uint32_t>(type);
  request.bytes = sizeof(request);
  std::string buffer(kMaxReplyBytes, 0);
  ReplyHeader header = {};
  size_t payload = 0;
  pollfd ready = {socket.fd, POLLIN, 0};
  ssize_t n = send(socket.fd, &request, sizeof(request), MSG_NOSIGNAL);
  if (n == sizeof(request)) n = poll(&ready, 1, kAskMs) > 0 ? recv(socket.fd, buffer.data(), buffer.size(), 0) : -1;
  if (n <= 0 || !DecodeReply(buffer.data(), static_cast<size_t>(n), &header, &payload)) {
    return Lacks("the engine of {} did not answer within {} s", root, kAskMs / 1000);
  }
  if (header.result != static_cast<int32_t>(Result::kOk)) {
    return Refused("the engine of {} belongs to another user, who alone may end it", root);
  }
  return buffer.substr(sizeof(ReplyHeader), payload);
}

}  // namespace mete::emulator
