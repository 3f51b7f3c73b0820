#include "mechanism/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace mete::mechanism {
namespace {

constexpr size_t kMostPrinted = size_t{1} << 20;

std::vector<std::string> Environment(const std::string& library_path) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    // What this process was started with is not the node's matter: no preloads, no path of a share it came from.
    const bool kept = text.rfind("LD_PRELOAD=", 0) != 0 && text.rfind("LD_LIBRARY_PATH=", 0) != 0 &&
                      text.rfind("LC_ALL=", 0) != 0 && text.rfind("CUDA_VISIBLE_DEVICES=", 0) != 0;
    if (kept) entries.push_back(text);
  }
  entries.emplace_back("LC_ALL=C");
  if (!library_path.empty()) entries.push_back("LD_LIBRARY_PATH=" + library_path);
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// True: everything was read and the writer has closed.
bool ReadAll(int fd, std::chrono::steady_clock::time_point until, std::string* text) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd wait = {fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (text->size() < kMostPrinted) text->append(buffer.data(), static_cast<size_t>(got));
  }
}

}  // namespace

StatusOr<ToolResult> RunTool(const std::vector<std::string>& words, const std::string& library_path,
                             std::chrono::milliseconds patience) {
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Lacks("cannot make a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults, none;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> arguments = words, entries = Environment(library_path);
  pid_t child = -1;
  const int error = posix_spawn(&child, words[0].c_str(), &actions, &attributes, Pointers(arguments).data(),
                                Pointers(entries).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return Lacks("cannot run {}: {}", words[0], std::strerror(error));
  }
  ToolResult result;
  const bool ended = ReadAll(ends[0], std::chrono::steady_clock::now() + patience, &result.printed);
  close(ends[0]);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return Lacks("{} did not end within {} s", fmt::join(words, " "), patience.count() / 1000);
  result.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace mete::mechanism
