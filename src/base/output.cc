#include "base/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace mete {
namespace {

int g_first_error = 0;

}  // namespace

void Print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && g_first_error == 0) g_first_error = errno;
}

Status FinishOutput() {
  errno = 0;
  // A flush that succeeds does not forgive an earlier write that failed.
  if (std::fflush(stdout) != 0 && g_first_error == 0) g_first_error = errno;
  if (g_first_error == 0 && std::ferror(stdout) == 0) return OkStatus();
  return Lacks("the output could not be written: {}",
               g_first_error != 0 ? std::strerror(g_first_error) : "an earlier write failed");
}

}  // namespace mete
