#include "cli/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "share/process.h"

namespace mete::cli {
namespace {

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

std::string PathOf(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    if (entry.rfind("PATH=", 0) == 0) return entry.substr(5);
  }
  return "/usr/local/bin:/usr/bin:/bin";
}

// As execvp looks, but in the environment that the program will have.
std::vector<std::string> Candidates(const std::string& name, const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> candidates;
  const std::string path = PathOf(environment);
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find(':', start), path.size());
    const std::string dir = path.substr(start, end - start);
    candidates.push_back((dir.empty() ? "." : dir) + "/" + name);
    start = end + 1;
  }
  return candidates;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, async-signal-safe: tries each place; tells the parent the errno that says most.
[[noreturn]] void Exec(const std::vector<std::string>& places, char* const* argv, char* const* envp,
                       const sigset_t& mask, int tell) {
  for (const int number : kForwarded) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  int error = ENOENT;
  for (const std::string& place : places) {
    execve(place.c_str(), argv, envp);
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
  }
  [[maybe_unused]] const ssize_t put = write(tell, &error, sizeof(error));
  _exit(127);
}

}  // namespace

StatusOr<Outcome> Supervise(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                            SideWatch side) {
  // Signals are taken from a descriptor, from before the fork on, so that none is lost between.
  sigset_t watched, before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int number : kForwarded) sigaddset(&watched, number);
  sigprocmask(SIG_BLOCK, &watched, &before);
  const share::Fd signals(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  std::array<int, 2> tell = {-1, -1};
  if (!signals.valid() || pipe2(tell.data(), O_CLOEXEC) != 0) return Fault("cannot start: {}", std::strerror(errno));
  share::Fd from(tell[0]), to(tell[1]);

  std::vector<std::string> words_copy = words, environment_copy = environment;
  const std::vector<std::string> places = Candidates(words[0], environment);
  const std::vector<char*> argv = Pointers(words_copy), envp = Pointers(environment_copy);
  const pid_t child = fork();
  if (child < 0) return Lacks("cannot start {}: {}", words[0], std::strerror(errno));
  if (child == 0) Exec(places, argv.data(), envp.data(), before, to.get());
  to.Reset();

  Outcome outcome;
  ssize_t got;
  while ((got = read(from.get(), &outcome.start_errno, sizeof(outcome.start_errno))) < 0 && errno == EINTR) {
  }
  outcome.started = got == 0;
  for (;;) {
    int status = 0;
    const pid_t waited = waitpid(child, &status, WNOHANG | WUNTRACED);
    if (waited == child && WIFSTOPPED(status) && outcome.started) {
      // Stopped by the terminal, as a whole: whoever started this process sees it stop as well, and its SIGCONT is
      // passed on. A SIGSTOP was meant for the program alone, and so will its SIGCONT be.
      if (WSTOPSIG(status) != SIGSTOP) raise(SIGSTOP);
      continue;
    }
    if (waited == child && !WIFSTOPPED(status)) {
      outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      outcome.exit_status = outcome.signal != 0 ? 128 + outcome.signal : WEXITSTATUS(status);
      return outcome;
    }
    std::array<pollfd, 2> ready = {{{signals.get(), POLLIN, 0}, {side.fd, POLLIN, 0}}};
    poll(ready.data(), ready.size(), -1);
    if (ready[1].revents != 0) side.fd = side.attend();
    signalfd_siginfo info;
    while (read(signals.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      // What the terminal sends reaches the program by itself: it is in the same process group.
      const bool from_terminal = info.ssi_code == SI_KERNEL && info.ssi_signo != SIGCONT;
      if (info.ssi_signo != SIGCHLD && !from_terminal) kill(child, static_cast<int>(info.ssi_signo));
    }
  }
}

}  // namespace mete::cli
