// Runs a command, once or several times at once, with a grant directory of a stand-in broker: the part of `mete run`
// that measuring an interceptor needs.
//
//   with_share PROXY DRIVER bare|untracked|tracked|capped COUNT -- CMD…
//
// {} in CMD becomes the proxy's path in the grant directory (bare: the driver's). `capped` is a hard cap that is never
// reached. The commands' standard input ends when all of them have been started.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "interceptor/testing/stand_in.h"

int main(int argc, char** argv) {
  namespace own = mete::interceptor::testing;
  if (argc < 7 || strcmp(argv[5], "--") != 0 || atoi(argv[4]) < 1) {
    fprintf(stderr, "usage: with_share PROXY DRIVER bare|untracked|tracked|capped COUNT -- CMD...\n");
    return 2;
  }
  const std::string mode = argv[3];
  own::StandInOptions options;
  options.proxy = argv[1];
  options.driver = argv[2];
  options.quota = uint64_t{32} << 30;
  options.tracked = mode == "tracked" || mode == "capped";
  if (mode == "capped") options.mode = mete::ledger::ComputeMode::kHard;
  own::StandIn broker(options);
  std::vector<std::string> words(argv + 6, argv + argc);
  std::vector<char*> command;
  for (std::string& word : words) {
    if (word == "{}") word = mode == "bare" ? options.driver : broker.Proxy();
    command.push_back(word.data());
  }
  command.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return 1;
  std::vector<pid_t> children;
  for (int i = 0; i < atoi(argv[4]); ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(ends[0], STDIN_FILENO);
      execv(command[0], command.data());
      perror(command[0]);
      _exit(127);
    }
    children.push_back(pid);
  }
  close(ends[0]);
  constexpr useconds_t kStarted = 300'000;  // until all of them wait for the end of their input
  if (children.size() > 1) usleep(kStarted);
  close(ends[1]);
  int worst = 0;
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code > worst) worst = code;
  }
  return worst;
}
