#include "lab/load/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lab/load/session.h"

namespace mete::lab {

namespace {

struct Child {
  pid_t pid = -1;
  int output = -1;  // its stdout
  std::string said;
  bool ended = false;
  int status = 0;
};

class Group {
 public:
  ~Group() {
    for (Child& child : children_) {
      if (child.output >= 0) close(child.output);
      if (!child.ended) {
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
      }
    }
    for (int fd : {ready_[0], ready_[1], go_[0], go_[1]}) {
      if (fd >= 0) close(fd);
    }
  }

  Status Open() {
    if (pipe2(ready_, O_CLOEXEC) != 0 || pipe2(go_, O_CLOEXEC) != 0) return Fault("no pipe: {}", strerror(errno));
    return OkStatus();
  }

  // Starts one child with these arguments; `barrier`: it waits for Begin.
  Status Start(std::vector<std::string> arguments, bool barrier) {
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0) return Fault("no pipe: {}", strerror(errno));
    if (barrier) {
      for (const std::string& more :
           {std::string("--ready-fd"), std::to_string(ready_[1]), std::string("--go-fd"), std::to_string(go_[0])}) {
        arguments.push_back(more);
      }
    }
    std::string program = "/proc/self/exe";
    std::vector<char*> words = {program.data()};
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) return Lacks("cannot start a process: {}", strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(output[1], STDOUT_FILENO);
      if (barrier) {
        fcntl(ready_[1], F_SETFD, 0);
        fcntl(go_[0], F_SETFD, 0);
      }
      execv(program.c_str(), words.data());
      _exit(127);
    }
    close(output[1]);
    Child child;
    child.pid = pid;
    child.output = output[0];
    children_.push_back(child);
    return OkStatus();
  }

  // Waits until every child is ready, or has ended, and lets them begin together.
  void Begin() {
    size_t ready = 0;
    while (ready < children_.size() && !StopAsked() && !AnyEnded()) {
      pollfd look = {ready_[0], POLLIN, 0};
      char byte = 0;
      if (poll(&look, 1, 50) > 0 && read(ready_[0], &byte, 1) == 1) ++ready;
    }
    std::vector<char> bytes(children_.size(), 1);
    if (write(go_[1], bytes.data(), bytes.size()) < 0) {  // nobody is left to read it
    }
  }

  // A line of each child; a child that ends without one is an error. Passes on a request to stop.
  StatusOr<std::vector<Json>> Results() {
    std::vector<Json> results;
    for (Child& child : children_) {
      METE_RETURN_IF_ERROR(ReadLine(&child));
      METE_ASSIGN_OR_RETURN(Json result, ParseJson(child.said, "a process of mete-load"));
      results.push_back(std::move(result));
    }
    return results;
  }

  Status WaitForEnds() {
    Status first = OkStatus();
    for (Child& child : children_) {
      while (!child.ended && !Ended(&child, WNOHANG)) {
        if (PassOnStop()) continue;
        usleep(5000);
      }
      Status status = StatusOf(child);
      if (first.ok()) first = status;
    }
    return first;
  }

 private:
  bool Ended(Child* child, int flags) {
    if (child->ended) return true;
    pid_t got = waitpid(child->pid, &child->status, flags);
    child->ended = got == child->pid || (got < 0 && errno == ECHILD);
    return child->ended;
  }

  bool AnyEnded() {
    for (Child& child : children_) {
      if (Ended(&child, WNOHANG)) return true;
    }
    return false;
  }

  // Tells the children once.
  bool PassOnStop() {
    if (told_ || !StopAsked()) return false;
    for (Child& child : children_) {
      if (!child.ended) kill(child.pid, SIGTERM);
    }
    told_ = true;
    return true;
  }

  Status ReadLine(Child* child) {
    while (child->said.find('\n') == std::string::npos) {
      PassOnStop();
      pollfd look = {child->output, POLLIN, 0};
      int ready = poll(&look, 1, 100);
      if (ready <= 0) continue;
      char buffer[4096];
      ssize_t got = read(child->output, buffer, sizeof(buffer));
      if (got > 0) {
        child->said.append(buffer, static_cast<size_t>(got));
      } else if (got == 0) {
        Ended(child, 0);
        Status status = StatusOf(*child);
        return status.ok() ? Fault("process {} of mete-load ended without a result", child->pid) : status;
      }
    }
    return OkStatus();
  }

  static Status StatusOf(const Child& child) {
    if (WIFSIGNALED(child.status))
      return Fault("process {} of mete-load was ended by signal {}", child.pid, WTERMSIG(child.status));
    // Each has said on stderr what it was.
    switch (int code = WEXITSTATUS(child.status); code) {
      case 0: return OkStatus();
      case 2: return Usage("process {} of mete-load could not begin", child.pid);
      case 4: return Lacks("process {} of mete-load lacks something", child.pid);
      case 5: return absl::AbortedError(fmt::format("process {} of mete-load ended with a CUDA error", child.pid));
      default: return Fault("process {} of mete-load ended with status {}", child.pid, code);
    }
  }

  std::vector<Child> children_;
  int ready_[2] = {-1, -1}, go_[2] = {-1, -1};
  bool told_ = false;
};

bool HasKernelLength(Workload workload) {
  return workload == Workload::kCompute || workload == Workload::kMemoryStream || workload == Workload::kInfer;
}

// The length of the kernels, measured by a process of its own: this one must not hold a context.
StatusOr<KernelLength> Calibrate(const LoadOptions& options) {
  Group group;
  METE_RETURN_IF_ERROR(group.Open());
  std::vector<std::string> arguments = {"calibrate",   "--json",
                                        "--gpu",       std::to_string(options.gpu),
                                        "--kernel-ms", fmt::format("{}", options.kernel_ms),
                                        "--grid",      std::to_string(options.grid)};
  if (options.workload == Workload::kMemoryStream) {
    arguments.insert(arguments.end(),
                     {"--kernel", "memory-stream", "--memory", fmt::format("{}B", options.memory.count)});
  }
  METE_RETURN_IF_ERROR(group.Start(arguments, false));
  METE_ASSIGN_OR_RETURN(std::vector<Json> results, group.Results());
  METE_RETURN_IF_ERROR(group.WaitForEnds());
  KernelLength length;
  length.iterations = results[0]["iterations"].get<uint64_t>();
  length.ms = results[0]["kernel_ms"].get<double>();
  return length;
}

}  // namespace

Status RunProcesses(const LoadOptions& options, const std::vector<std::string>& arguments, const Emit& emit) {
  std::vector<std::string> common = arguments;
  std::erase(common, "--progress");  // its lines are one process's
  // The last of two equal options counts.
  for (const char* more : {"--json", "--processes", "1"}) common.push_back(more);
  if (HasKernelLength(options.workload) && options.iterations == 0) {
    METE_ASSIGN_OR_RETURN(KernelLength length, Calibrate(options));
    common.insert(common.end(), {"--iterations", std::to_string(length.iterations), "--kernel-ms",
                                 fmt::format("{:.17g}", length.ms)});
  }
  Group group;
  METE_RETURN_IF_ERROR(group.Open());
  for (uint32_t i = 0; i < options.processes; ++i) {
    std::vector<std::string> own = common;
    if (options.workload == Workload::kInfer) {
      // The rate is the group's; each process has arrivals of its own.
      own.insert(own.end(), {"--raw", "--rate", fmt::format("{:.17g}", options.rate / options.processes), "--seed",
                             std::to_string(options.seed + i)});
    }
    METE_RETURN_IF_ERROR(group.Start(own, true));
  }
  group.Begin();
  METE_ASSIGN_OR_RETURN(std::vector<Json> results, group.Results());
  emit(SumResults(results));
  return group.WaitForEnds();
}

}  // namespace mete::lab
