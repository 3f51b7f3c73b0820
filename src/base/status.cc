#include "base/status.h"

namespace mete {

namespace internal {
Status MakeStatus(absl::StatusCode code, std::string message) { return {code, message}; }
}  // namespace internal

std::string Message(const Status& status) { return {status.message().data(), status.message().size()}; }

ExitCode ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return ExitCode::kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound: return ExitCode::kUsage;
    case absl::StatusCode::kFailedPrecondition: return ExitCode::kRefused;
    case absl::StatusCode::kUnavailable: return ExitCode::kLacks;
    default: return ExitCode::kFault;
  }
}

const char* ExitWord(ExitCode code) {
  switch (code) {
    case ExitCode::kDone: return "done";
    case ExitCode::kUsage: return "usage";
    case ExitCode::kRefused: return "refused";
    case ExitCode::kLacks: return "lacks";
    case ExitCode::kFault: break;
  }
  return "fault";
}

}  // namespace mete
