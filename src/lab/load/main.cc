// mete-load: a known load on a GPU. See README.md beside this file and `mete-load --help`.
#include <cstdio>

#include "base/output.h"
#include "lab/load/command_line.h"
#include "lab/load/processes.h"
#include "lab/load/session.h"
#include "lab/load/workloads.h"

namespace {

constexpr int kCudaError = 5;

int ExitStatus(const mete::Status& status) {
  return mete::lab::CudaFailure(status) ? kCudaError : static_cast<int>(mete::ExitCodeFor(status));
}

int Fail(const mete::Status& status) {
  const char* word = mete::lab::CudaFailure(status) ? "CUDA error" : mete::ExitWord(mete::ExitCodeFor(status));
  fprintf(stderr, "mete-load: %s: %s\n", word, mete::Message(status).c_str());
  return ExitStatus(status);
}

// What the load came to is worth nothing if nobody can read it.
int Finish(const mete::Status& status) {
  const mete::Status written = mete::FinishOutput();
  if (!status.ok()) return Fail(status);
  return written.ok() ? 0 : Fail(written);
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> arguments(words + (count > 0 ? 1 : 0), words + count);
  mete::StatusOr<mete::lab::CommandLine> line = mete::lab::ParseCommandLine(arguments);
  if (!line.ok()) return Fail(line.status());
  if (!line->help.empty()) {
    fputs(line->help.c_str(), stdout);
    return Finish(mete::OkStatus());
  }
  mete::lab::InstallStopSignals();
  const mete::lab::LoadOptions& options = line->options;
  auto emit = [&](const mete::Json& result) {
    std::string text =
        options.json ? result.dump(-1, ' ', false, mete::Json::error_handler_t::replace) : mete::lab::ForPeople(result);
    mete::Print(text + "\n");
    (void)mete::FinishOutput();  // readers wait for it; whether it arrived is said at the end
  };
  mete::Status status =
      options.processes > 1 ? mete::lab::RunProcesses(options, arguments, emit) : mete::lab::RunWorkload(options, emit);
  return Finish(status);
}
