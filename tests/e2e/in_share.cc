// Runs a command inside a share of one GPU or MIG device: a stand-in for the broker, the proxies, and the node's
// driver.
//
//   in_share PROXIES DRIVERS UUID QUOTA -- CMD…
//
// PROXIES and DRIVERS are folders with libcuda.so.1 and libnvidia-ml.so.1; UUID with or without "GPU-" or "MIG-"; QUOTA
// in bytes. Ends with CMD's status; 2 for a wrong line.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "interceptor/testing/stand_in.h"

namespace {

bool ParseUuid(std::string text, mete::interceptor::testing::Uuid* uuid) {
  if (text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0) text.erase(0, 4);
  std::string digits;
  for (const char c : text) {
    if (c != '-') digits += c;
  }
  if (digits.size() != 2 * uuid->size()) return false;
  for (size_t i = 0; i < uuid->size(); ++i) {
    unsigned byte = 0;
    if (sscanf(digits.c_str() + 2 * i, "%2x", &byte) != 1) return false;
    (*uuid)[i] = static_cast<uint8_t>(byte);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  mete::interceptor::testing::StandInOptions options;
  options.gpus.resize(1);
  if (argc < 7 || strcmp(argv[5], "--") != 0 || !ParseUuid(argv[3], options.gpus.data())) {
    fprintf(stderr, "usage: in_share PROXIES DRIVERS UUID QUOTA -- CMD...\n");
    return 2;
  }
  const std::string proxies = argv[1], drivers = argv[2];
  options.proxy = proxies + "/libcuda.so.1";
  options.ml_proxy = proxies + "/libnvidia-ml.so.1";
  options.driver = drivers + "/libcuda.so.1";
  options.ml_driver = drivers + "/libnvidia-ml.so.1";
  options.quota = strtoull(argv[4], nullptr, 10);
  mete::interceptor::testing::StandIn broker(options);
  setenv("LD_LIBRARY_PATH", broker.Directory().c_str(), 1);
  const pid_t pid = fork();
  if (pid == 0) {
    execvp(argv[6], argv + 6);
    perror(argv[6]);
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
