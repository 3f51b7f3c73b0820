#include "share/daemon.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "mechanism/intercept/intercept.h"
#include "mechanism/node.h"
#include "nvml/library.h"
#include "share/broker.h"
#include "share/process.h"

namespace mete::share {
namespace {

constexpr int kReadyFd = 3;

Broker* running = nullptr;  // for the signal handler

void OnSignal(int) {
  if (running != nullptr) running->Stop();
}

// In the second child: nothing of the caller's stays open, or its pipes would never end. Async-signal-safe calls only.
[[noreturn]] void Become(char* const* argv, int ready, const char* log) {
  umask(077);
  if (chdir("/") != 0) _exit(1);
  const int null = open("/dev/null", O_RDWR);
  int errors = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
  if (errors < 0) errors = null;
  // `ready` may itself be below the numbers it must not be overwritten by.
  const int moved = fcntl(ready, F_DUPFD, kReadyFd + 1);
  if (null < 0 || moved < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(errors, 2) < 0 ||
      dup2(moved, kReadyFd) < 0) {
    _exit(1);
  }
  syscall(SYS_close_range, kReadyFd + 1, ~0U, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD, SIGTSTP, SIGCONT}) {
    signal(signal_number, SIG_DFL);
  }
  execv("/proc/self/exe", argv);
  _exit(1);
}

// The first word is the exit status, the rest the message; "0" when the broker listens.
Status ReadReady(int fd, const std::string& log) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  if (text.empty()) return Fault("the broker ended before it was ready; {} says more", log);
  const std::string message = text.size() > 2 ? text.substr(2) : std::string();
  switch (text[0]) {
    case '0': return OkStatus();
    case '2': return Usage("{}", message);
    case '3': return Refused("{}", message);
    case '4': return Lacks("{}", message);
    default: return Fault("{}", message);
  }
}

}  // namespace

Status StartBroker(const Places& places) {
  std::array<int, 2> ready = {-1, -1};
  if (pipe2(ready.data(), O_CLOEXEC) != 0) return Lacks("cannot make a pipe: {}", std::strerror(errno));
  Fd from(ready[0]), to(ready[1]);
  std::vector<std::string> words = {
      "mete", "_broker", "--driver-root", places.driver_root, "--ready-fd", std::to_string(kReadyFd)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) return Lacks("cannot start the broker: {}", std::strerror(errno));
  if (child == 0) {
    setsid();
    // The second fork leaves the session's leader behind, so that no terminal can be acquired.
    const pid_t grandchild = fork();
    if (grandchild != 0) _exit(grandchild < 0 ? 1 : 0);
    Become(argv.data(), to.get(), places.log.c_str());
  }
  to.Reset();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return ReadReady(from.get(), places.log);
}

void HideMemory() { prctl(PR_SET_DUMPABLE, 0); }

Status RunBroker(const StatusOr<Places>& found, int ready_fd) {
  Fd ready(ready_fd);
  const auto tell = [&ready](const std::string& text) {
    if (!ready.valid()) return;
    [[maybe_unused]] const ssize_t put = write(ready.get(), text.data(), text.size());
    ready.Reset();
  };
  const auto fail = [&tell](const Status& status) {
    tell(fmt::format("{} {}", static_cast<int>(ExitCodeFor(status)), Message(status)));
    return status;
  };
  if (!found.ok()) return fail(found.status());
  const Places& places = *found;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  // Two descriptors for each process of each share.
  if (rlimit files; getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const auto start = [&places]() -> StatusOr<std::unique_ptr<Broker>> {
    METE_RETURN_IF_ERROR(MakePlaces(places));
    METE_RETURN_IF_ERROR(log::SendToFile(places.log));
    if (std::getenv("METE_LOG") == nullptr) METE_RETURN_IF_ERROR(log::SetLevel("info"));
    Broker::Options options;
    options.places = places;
    METE_ASSIGN_OR_RETURN(options.interceptor_dir, mechanism::InterceptorBesideProgram());
    const std::string driver_root = places.driver_root;
    METE_ASSIGN_OR_RETURN(const mechanism::Node node, mechanism::FindNode(driver_root));
    options.cgroups = node.roots.sys + "/fs/cgroup";
    options.sys_root = node.roots.sys;
    options.open_nvml = [driver_root] { return nvml::Library::Open(driver_root); };
    return Broker::Start(std::move(options));
  };
  StatusOr<std::unique_ptr<Broker>> broker = start();
  if (!broker.ok()) return fail(broker.status());
  running = broker->get();
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  tell("0");
  Status ended = (*broker)->Run();
  running = nullptr;
  return ended;
}

}  // namespace mete::share
