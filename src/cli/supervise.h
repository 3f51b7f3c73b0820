// Runs one program in the foreground as env(1) would, and stands between it and the outside: signals sent to this
// process reach it, its stops are this process's stops, its end is the result. One thread.
#ifndef METE_CLI_SUPERVISE_H_
#define METE_CLI_SUPERVISE_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace mete::cli {

struct Outcome {
  bool started = false;
  int start_errno = 0;  // when not started
  int exit_status = 0;  // 128+n when it was killed by signal n
  int signal = 0;       // n
};

// A descriptor to watch beside the program. When it is readable `attend` is called, and answers with the one to watch
// from now on (-1: none).
struct SideWatch {
  int fd = -1;
  std::function<int()> attend;
};

// Finds words[0] by the PATH of `environment`, runs it with that environment and waits for its end.
StatusOr<Outcome> Supervise(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                            SideWatch side);

}  // namespace mete::cli

#endif  // METE_CLI_SUPERVISE_H_
