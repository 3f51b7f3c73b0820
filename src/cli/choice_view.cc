#include "cli/choice_view.h"

#include "base/table.h"

namespace mete::cli {
namespace {

std::string PromiseLines(const Json& reason) {
  std::string text;
  for (const Json& promise : reason["promises"]) {
    text += fmt::format("{}{} {}: {}", text.empty() ? "" : "\n", promise["promise"].get<std::string>(),
                        promise["holds"].get<std::string>(), promise["because"].get<std::string>());
  }
  return text;
}

}  // namespace

std::string ChoiceText(const Json& choice, size_t width) {
  std::string text, chosen;
  const Json& reasons = choice["reasons"];
  for (size_t first = 0; first < reasons.size();) {
    const Json& gpu = reasons[first]["gpu"];
    Table table({{"mechanism"}, {"verdict"}, {"gives", Align::kLeft, true}, {"why", Align::kLeft, true}});
    size_t next = first;
    for (; next < reasons.size() && reasons[next]["gpu"] == gpu; ++next) {
      const Json& reason = reasons[next];
      const auto variant = reason["variant"].get<std::string>(), gives = reason["gives"].get<std::string>();
      const auto verdict = reason["verdict"].get<std::string>();
      auto why = reason["why"].get<std::string>();
      // What breaks is already the reason; for what would do, every promise with its condition.
      const bool open = verdict == "chosen" || verdict == "would do" || verdict == "not built yet";
      const std::string promises = open ? PromiseLines(reason) : std::string();
      if (!promises.empty()) why += (why.empty() ? "" : "\n") + promises;
      table.AddRow({variant, verdict, gives, why});
      if (reason["chosen"].get<bool>()) {
        chosen += fmt::format("would run by {} on GPU {}: {}\n", variant, gpu.get<uint32_t>(), gives);
      }
    }
    text += fmt::format("GPU {} ({})\n{}\n", gpu.get<uint32_t>(), reasons[first]["board"].get<std::string>(),
                        table.Render(width, 2));
    first = next;
  }
  for (const Json& proposal : choice["proposals"]) {
    text += fmt::format("could be made possible: {}\n", proposal.get<std::string>());
  }
  return text + chosen;
}

Status ChoiceStatus(const Json& choice) {
  if (choice["granted"].get<bool>()) return OkStatus();
  const auto message = choice["refusal"].get<std::string>();
  switch (choice["status"].get<int>()) {
    case static_cast<int>(ExitCode::kUsage): return Usage("{}", message);
    case static_cast<int>(ExitCode::kRefused): return Refused("{}", message);
    case static_cast<int>(ExitCode::kLacks): return Lacks("{}", message);
    default: return Fault("{}", message);
  }
}

}  // namespace mete::cli
