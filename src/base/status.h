// How mete reports failure: absl::Status with one constructor per exit status of the command line.
//
//   if (quota > free) return Refused("GPU 0 has {} free, {} asked; tenants: {}", free, quota, names);
//   METE_ASSIGN_OR_RETURN(Bytes size, ParseBytes(text));
//
// A message says what failed, on which object, why, and what to do. Values are immutable; any thread may use them.
#ifndef METE_BASE_STATUS_H_
#define METE_BASE_STATUS_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

#include <string>
#include <utility>

namespace mete {

using absl::OkStatus;
using absl::Status;
template <typename T>
using StatusOr = absl::StatusOr<T>;

// Exit statuses of every command of mete.
enum class ExitCode : int {
  kDone = 0,
  kFault = 1,    // a fault inside mete
  kUsage = 2,    // the line or a file is wrong, or names what does not exist
  kRefused = 3,  // well formed, but a promise, quota, taken name or running node forbids it
  kLacks = 4,    // the machine lacks something: driver, right, tool, disk
};

namespace internal {
Status MakeStatus(absl::StatusCode code, std::string message);
}  // namespace internal

// The line or a file is wrong (exit 2).
template <typename... Args>
Status Usage(fmt::format_string<Args...> text, Args&&... args) {
  return internal::MakeStatus(absl::StatusCode::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...));
}
// It names what does not exist (exit 2).
template <typename... Args>
Status NoSuch(fmt::format_string<Args...> text, Args&&... args) {
  return internal::MakeStatus(absl::StatusCode::kNotFound, fmt::format(text, std::forward<Args>(args)...));
}
// Well formed, but something in force forbids it (exit 3).
template <typename... Args>
Status Refused(fmt::format_string<Args...> text, Args&&... args) {
  return internal::MakeStatus(absl::StatusCode::kFailedPrecondition, fmt::format(text, std::forward<Args>(args)...));
}
// The machine lacks something, which the message names (exit 4).
template <typename... Args>
Status Lacks(fmt::format_string<Args...> text, Args&&... args) {
  return internal::MakeStatus(absl::StatusCode::kUnavailable, fmt::format(text, std::forward<Args>(args)...));
}
// A fault inside mete (exit 1).
template <typename... Args>
Status Fault(fmt::format_string<Args...> text, Args&&... args) {
  return internal::MakeStatus(absl::StatusCode::kInternal, fmt::format(text, std::forward<Args>(args)...));
}

// The message as a std::string (absl's own string_view is not std::string_view here).
std::string Message(const Status& status);

// The exit status of a command that ends with `status`; an unknown code is a fault.
ExitCode ExitCodeFor(const Status& status);

// "usage", "refused", "lacks" or "fault": the first word of a failing command's last line.
const char* ExitWord(ExitCode code);

}  // namespace mete

#define METE_STATUS_CONCAT_(a, b) a##b
#define METE_STATUS_CONCAT(a, b) METE_STATUS_CONCAT_(a, b)
#define METE_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                       \
    if (::absl::Status mete_status_ = (expression); !mete_status_.ok()) return mete_status_; \
  } while (false)
#define METE_ASSIGN_OR_RETURN(declaration, expression) \
  METE_ASSIGN_OR_RETURN_(METE_STATUS_CONCAT(mete_result_, __LINE__), declaration, expression)
#define METE_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  declaration = std::move(result).value()

#endif  // METE_BASE_STATUS_H_
