#include "interceptor/testing/tenant.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

namespace mete::interceptor::testing {
namespace {

std::map<std::string, void (*)()>& Tenants() {
  static std::map<std::string, void (*)()> tenants;
  return tenants;
}
std::string directory;
std::string last_errors;

int Start(const StandIn& broker, const char* name, int errors) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // tenants end as programs do: with what they still hold
  execl("/proc/self/exe", "tenant", "--tenant", name, broker.Directory().c_str(), nullptr);
  _exit(127);
}

}  // namespace

StandInOptions Options() {
  StandInOptions options;
  options.proxy = METE_PROXY_PATH;
  options.driver = METE_NULL_DRIVER_PATH;
  return options;
}

RegisterTenant::RegisterTenant(const char* name, void (*body)()) { Tenants()[name] = body; }

int StartTenant(const StandIn& broker, const char* name) { return Start(broker, name, -1); }

int WaitTenant(int pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int RunTenant(const StandIn& broker, const char* name) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const int pid = Start(broker, name, ends[1]);
  close(ends[1]);
  last_errors.clear();
  char text[4096];
  for (ssize_t got; (got = read(ends[0], text, sizeof text)) > 0;) last_errors.append(text, static_cast<size_t>(got));
  close(ends[0]);
  const int status = WaitTenant(pid);
  if (status != 0) fprintf(stderr, "tenant %s: status %d\n%s", name, status, last_errors.c_str());
  return status;
}

std::string LastErrors() { return last_errors; }

const std::string& Directory() { return directory; }

void* Proxy() {
  static void* handle = [] {
    void* opened = dlopen((directory + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) {
      fprintf(stderr, "%s\n", dlerror());
      _Exit(2);
    }
    return opened;
  }();
  return handle;
}

void* Symbol(const char* name) {
  void* symbol = dlsym(Proxy(), name);
  if (symbol == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    _Exit(2);
  }
  return symbol;
}

}  // namespace mete::interceptor::testing

int main(int argc, char** argv) {
  namespace own = mete::interceptor::testing;
  if (argc == 4 && strcmp(argv[1], "--tenant") == 0) {
    own::directory = argv[3];
    auto found = own::Tenants().find(argv[2]);
    if (found == own::Tenants().end()) return 2;
    found->second();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
