// `mete emulate up` and the engine process that it starts.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "base/output.h"
#include "base/quantities.h"
#include "emulator/engine/cgroup_files.h"
#include "emulator/engine/commands.h"
#include "emulator/engine/node.h"
#include "emulator/engine/server.h"

namespace mete::emulator {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kLeastBacking = 64 * kMiB;
constexpr int kLimitsBranch = 615;  // the first with limits of memory by cgroup

StatusOr<std::string> OwnFolder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return Lacks("cannot find where mete is installed: /proc/self/exe: {}", error.message());
  return self.parent_path().string();
}

StatusOr<uint64_t> BackingBytes(const std::string& text) {
  if (!text.empty()) {
    METE_ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
    return bytes.count;
  }
  const uint64_t machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::max(machine / 4, kLeastBacking);
}

// Makes the folder and says its name without links. `made`: it was not there.
StatusOr<std::string> MakeRoot(const std::string& asked, bool* made) {
  std::string path = asked;
  if (path.empty()) {
    METE_ASSIGN_OR_RETURN(const std::string runtime, RuntimeFolder());
    path = runtime + "/node";
  }
  std::error_code error;
  *made = !fs::exists(path, error);
  // Only the last folder of the path: what is made here is what `down` removes.
  if (*made && mkdir(path.c_str(), asked.empty() ? 0700 : 0755) != 0) {
    return Lacks("cannot make the folder {}: {}; choose another with --dir", path, std::strerror(errno));
  }
  if (!fs::is_directory(path, error))
    return Usage("--dir {}: it is no folder; name one that is empty or not there yet", path);
  const fs::path real = fs::canonical(path, error);
  if (error) return Lacks("cannot look into the folder {}: {}", path, error.message());
  if (HoldsForeignFiles(real.string())) {
    return Refused("{} holds files that are none of an emulated node's; name a folder that is empty or not there yet",
                   real.string());
  }
  return real.string();
}

// Starts the engine process and waits until it answers or has said why it cannot.
Status StartEngine(const std::string& root, const UpOptions& options, uint64_t backing, int lock_fd, bool made_root) {
  METE_ASSIGN_OR_RETURN(const std::string own, OwnFolder());
  const std::string program = own + "/mete-emulator";
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return Lacks("no pipe to the engine: {}", std::strerror(errno));
  const std::string log = root + "/run/engine.log";
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (out < 0 || in < 0) return Lacks("cannot write {}: {}", log, std::strerror(errno));
  std::vector<std::string> words = {"mete-emulator", "_engine",
                                    "--root",        root,
                                    "--gpus",        options.gpus,
                                    "--driver",      options.driver,
                                    "--backing",     std::to_string(backing),
                                    "--lock-fd",     std::to_string(lock_fd),
                                    "--ready-fd",    std::to_string(ready[1])};
  if (made_root) words.push_back("--made-root");
  if (!options.boards.empty()) words.insert(words.end(), {"--boards", fs::absolute(options.boards).string()});
  for (const std::string& rule : options.test_without) words.insert(words.end(), {"--test-without", rule});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    fcntl(lock_fd, F_SETFD, 0);
    fcntl(ready[1], F_SETFD, 0);
    if (chdir("/") == 0) execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(ready[1]);
  close(in);
  close(out);
  std::string answer;
  char buffer[512];
  ssize_t n;
  while ((n = read(ready[0], buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR)) {
    if (n > 0) answer.append(buffer, static_cast<size_t>(n));
  }
  close(ready[0]);
  if (child > 0 && answer == std::string(1, '\0')) return OkStatus();
  if (child > 0) {
    kill(child, SIGKILL);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (answer.size() > 1) {
    const auto code = static_cast<ExitCode>(answer[0] - 1);
    const std::string why = answer.substr(1);
    switch (code) {
      case ExitCode::kUsage: return Usage("{}", why);
      case ExitCode::kRefused: return Refused("{}", why);
      case ExitCode::kLacks: return Lacks("{}", why);
      default: return Fault("{}", why);
    }
  }
  return Fault("the engine process ({}) ended before it answered", program);
}

void PrintUp(const std::string& root, const NodeState& node, bool json) {
  if (json) {
    Print(ToText(node.json));
    return;
  }
  std::string gpus;
  for (const Json& gpu : node.json["gpus"]) {
    gpus += fmt::format("  GPU {}: {} ({})\n", gpu["index"].get<int>(), gpu["name"].get<std::string>(),
                        gpu["uuid"].get<std::string>());
  }
  Print(
      "emulated node up in {}, driver {}\n{}commands of mete find it by themselves; 'mete emulate env' for programs "
      "without mete\n",
      root, node.json["driver_version"].get<std::string>(), gpus);
}

}  // namespace

Status Up(const UpOptions& options) {
  // Everything that can be wrong with the line is found before anything is made.
  METE_ASSIGN_OR_RETURN(const std::vector<EngineSettings::Gpu> gpus, GpusByName(options.gpus, "", options.boards));
  METE_ASSIGN_OR_RETURN(const DriverBranch driver, FindDriver(options.driver));
  METE_ASSIGN_OR_RETURN(const uint64_t backing, BackingBytes(options.backing));
  METE_ASSIGN_OR_RETURN(const std::string own, OwnFolder());
  // Ctrl-C waits until the node is whole or gone.
  sigset_t ends, before;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, &before);

  bool made_root = false;
  METE_ASSIGN_OR_RETURN(const std::string root, MakeRoot(options.dir, &made_root));
  StatusOr<int> lock = LockNode(root);
  if (!lock.ok()) {
    if (made_root) RemoveTree(root, true);
    return lock.status();
  }
  // The lock is ours, so whatever is there was left by an engine that is dead.
  StatusOr<NodeState> left = ReadNode(root);
  if (left.ok() && left->json.is_object()) made_root = made_root || left->json.value("made_root", false);
  unlink((root + "/run/engine.sock").c_str());
  unlink((root + "/run/engine.json").c_str());

  Status status = MakeTree(root, own + "/../lib/mete/emulator", options.without, gpus.size(), driver);
  if (status.ok()) status = StartEngine(root, options, backing, *lock, made_root);
  StatusOr<NodeState> node = NodeState{};
  if (status.ok()) {
    node = ReadNode(root);
    status = node.status();
  }
  if (!status.ok()) {
    UnpublishNode(root);
    RemoveTree(root, made_root);
    close(*lock);
    return status;
  }
  close(*lock);
  sigset_t pending;
  sigpending(&pending);
  if (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1) (void)Down(root, false);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  PrintUp(root, *node, options.json);
  return OkStatus();
}

namespace {

Status LeaveOut(const std::string& rule, EngineSettings* settings) {
  if (rule == "slices" || rule == "bandwidth") {
    for (EngineSettings::Gpu& gpu : settings->gpus) {
      (rule == "slices" ? gpu.model.without_slices : gpu.model.without_bandwidth) = true;
    }
  } else if (rule == "fault-spread") {
    settings->without.fault_spread = true;
  } else if (rule == "memory-limit") {
    settings->without.memory_limit = true;
  } else if (rule == "scrubbing") {
    settings->without.scrubbing = true;
  } else {
    return Usage("--test-without {}: the rules are slices, bandwidth, fault-spread, memory-limit and scrubbing", rule);
  }
  return OkStatus();
}

StatusOr<int> Listen(const std::string& run_folder) {
  const int folder = open(run_folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = EngineAddress(run_folder, folder);
  const bool ok = folder >= 0 && fd >= 0 &&
                  bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                  chmod(address.sun_path, 0666) == 0 && listen(fd, 128) == 0;
  const int error = errno;
  if (folder >= 0) close(folder);
  if (ok) return fd;
  if (fd >= 0) close(fd);
  return Lacks("cannot listen on {}/engine.sock: {}", run_folder, std::strerror(error));
}

StatusOr<std::unique_ptr<Server>> Prepare(const EngineOptions& options) {
  EngineSettings settings;
  METE_ASSIGN_OR_RETURN(settings.gpus, GpusByName(options.gpus, options.root, options.boards));
  for (const std::string& rule : options.test_without) METE_RETURN_IF_ERROR(LeaveOut(rule, &settings));
  METE_ASSIGN_OR_RETURN(const DriverBranch driver, FindDriver(options.driver));
  settings.driver_version = driver.version;
  settings.cuda_version = driver.cuda;
  settings.backing_bytes = options.backing_bytes;
  settings.owner_uid = geteuid();
  if (driver.branch >= kLimitsBranch) {
    std::vector<GpuInfo> infos;
    for (const EngineSettings::Gpu& gpu : settings.gpus) infos.push_back(gpu.info);
    METE_RETURN_IF_ERROR(MakeCgroupRoot(options.root, infos));
    settings.cgroups = OpenCgroups(options.root, infos);
  }
  METE_ASSIGN_OR_RETURN(const int listener, Listen(options.root + "/run"));
  const std::string alive = options.root + "/run/engine.json";
  METE_ASSIGN_OR_RETURN(auto server,
                        Server::Make(settings, listener, [alive] { return access(alive.c_str(), F_OK) == 0; }));
  METE_RETURN_IF_ERROR(PublishNode(options.root, settings, options.made_root));
  return server;
}

}  // namespace

int RunEngine(const EngineOptions& options) {
  // Clients and whoever asks /proc may know what it does, but nobody may stop the world by closing a terminal.
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  fcntl(options.lock_fd, F_SETFD, FD_CLOEXEC);
  StatusOr<std::unique_ptr<Server>> server = Prepare(options);
  std::string answer(1, '\0');
  if (!server.ok()) {
    answer[0] = static_cast<char>(1 + static_cast<int>(ExitCodeFor(server.status())));
    answer += Message(server.status());
  }
  const bool told = write(options.ready_fd, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  close(options.ready_fd);
  if (!server.ok() || !told) return static_cast<int>(ExitCodeFor(server.status()));
  const Status ended = (*server)->Run();
  if (!ended.ok()) log::Error("engine ended: {}", Message(ended));
  UnpublishNode(options.root);
  return static_cast<int>(ExitCodeFor(ended));
}

}  // namespace mete::emulator
