#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "base/text.h"

namespace mete::log {
namespace {

struct Name {
  std::string_view name;
  spdlog::level::level_enum level;
};
constexpr std::array<Name, 6> kLevels{{{"trace", spdlog::level::trace},
                                       {"debug", spdlog::level::debug},
                                       {"info", spdlog::level::info},
                                       {"warn", spdlog::level::warn},
                                       {"error", spdlog::level::err},
                                       {"off", spdlog::level::off}}};

const Name* FindLevel(std::string_view name) {
  for (const Name& level : kLevels) {
    if (EqualsIgnoringCase(level.name, name)) return &level;
  }
  return nullptr;
}

spdlog::level::level_enum Native(Level level) { return kLevels[static_cast<size_t>(level)].level; }

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("mete", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l pid=%P %v");
    const char* wanted = std::getenv("METE_LOG");
    const Name* level = wanted == nullptr ? nullptr : FindLevel(wanted);
    made->set_level(level == nullptr ? spdlog::level::warn : level->level);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

}  // namespace

bool Enabled(Level level) { return Logger().should_log(Native(level)); }

Status SetLevel(std::string_view name) {
  const Name* level = FindLevel(name);
  if (level == nullptr) return Usage("no log level \"{}\": use trace, debug, info, warn, error or off", name);
  Logger().set_level(level->level);
  return OkStatus();
}

Status SendToFile(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l pid=%P %v");
    // Replaced once at start, before other threads log: the list of sinks itself is not locked.
    Logger().sinks() = {std::move(sink)};
  } catch (const spdlog::spdlog_ex& error) {
    return Lacks("the log file {} cannot be opened: {}", path, error.what());
  }
  return OkStatus();
}

void internal::Write(Level level, std::string_view line) {
  Logger().log(Native(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace mete::log
