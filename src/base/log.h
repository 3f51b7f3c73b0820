// Logging for programs of mete: one line per event on stderr, "key=value" for facts, nothing on stdout.
//
//   log::Info("broker started node={} shares={}", node, shares);
//
// Thread-safe. The level is `warn` unless $METE_LOG or SetLevel says trace, debug, info, warn, error or off.
// Never used inside a tenant's process.
#ifndef METE_BASE_LOG_H_
#define METE_BASE_LOG_H_

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace mete::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };

bool Enabled(Level level);
// By name; Usage, listing the names, if there is no such level.
Status SetLevel(std::string_view name);
// Appends to a file instead of stderr, for daemons. Lacks if it cannot be opened.
Status SendToFile(const std::string& path);

namespace internal {
void Write(Level level, std::string_view line);
}  // namespace internal

template <typename... Args>
void Debug(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kDebug)) internal::Write(Level::kDebug, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void Info(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kInfo)) internal::Write(Level::kInfo, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void Warn(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kWarn)) internal::Write(Level::kWarn, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void Error(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kError)) internal::Write(Level::kError, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace mete::log

#endif  // METE_BASE_LOG_H_
