// Runs a command with a grant directory of a stand-in broker: the part of `mete run` that measuring an interceptor
// needs.
//
//   with_share PROXY DRIVER untracked|tracked|capped -- CMD…      {} in CMD becomes the proxy's path in the grant
//   directory
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "interceptor/testing/stand_in.h"

int main(int argc, char** argv) {
  namespace own = mete::interceptor::testing;
  if (argc < 6 || strcmp(argv[4], "--") != 0) {
    fprintf(stderr, "usage: with_share PROXY DRIVER untracked|tracked|capped -- CMD...\n");
    return 2;
  }
  own::StandInOptions options;
  options.proxy = argv[1];
  options.driver = argv[2];
  options.quota = uint64_t{32} << 30;
  options.tracked = strcmp(argv[3], "untracked") != 0;
  if (strcmp(argv[3], "capped") == 0) {
    options.mode = mete::ledger::ComputeMode::kHard;
    options.share = 9000;
  }
  own::StandIn broker(options);
  std::vector<std::string> words(argv + 5, argv + argc);
  std::vector<char*> command;
  for (std::string& word : words) {
    if (word == "{}") word = broker.Proxy();
    command.push_back(word.data());
  }
  command.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    execv(command[0], command.data());
    perror(command[0]);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
