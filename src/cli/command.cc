#include "cli/command.h"

#include <unistd.h>

#include <cstdio>
#include <exception>

#include "base/output.h"
#include "base/quantities.h"
#include "base/table.h"
#include "base/text.h"

namespace mete::cli {
namespace {

constexpr std::string_view kIntroduction =
    "mete shares NVIDIA GPUs among tenants and proves what it promises.\n"
    "\n"
    "Usage: mete COMMAND [OPTION…]      mete COMMAND --help tells more\n";
constexpr std::string_view kClosing =
    "\n"
    "Exit status: 0 done, 1 fault inside mete, 2 wrong line or name, 3 refused, 4 the machine lacks something.\n"
    "No GPU here? `mete emulate up --gpus A100-SXM4-40GB` makes an emulated node to try everything on.\n";

struct Title {
  Group group;
  std::string_view text;
};
constexpr Title kTitles[] = {
    {Group::kShare, "Share a GPU"}, {Group::kLook, "Look and understand"}, {Group::kNode, "The node and mete itself"}};

std::string Help() {
  std::string text(kIntroduction);
  for (const Title& title : kTitles) {
    Table table({{""}, {"", Align::kLeft, true}});
    for (const Command* command : Commands()) {
      if (command->group == title.group) table.AddRow({std::string(command->name), std::string(command->summary)});
    }
    if (!table.empty()) text += fmt::format("\n{}:\n{}", title.text, table.Render(TerminalWidth(STDOUT_FILENO), 2));
  }
  text += kClosing;
  return text;
}

StatusOr<const Command*> FindCommand(std::string_view name) {
  std::vector<std::string> names;
  for (const Command* command : Commands()) {
    if (command->name == name) return command;
    if (command->group != Group::kInternal) names.emplace_back(command->name);
  }
  const auto near = NearestNames(name, names);
  if (near.empty()) return Usage("no command is called \"{}\"; `mete --help` lists them", name);
  return Usage("no command is called \"{}\"; did you mean {}?", name, JoinNames(near, "or"));
}

StatusOr<int> Dispatch(const std::vector<std::string>& words) {
  if (words.empty()) {
    Print(Help());
    return Usage("name a command");
  }
  const std::string& first = words.front();
  if (first == "--help" || first == "-h" || (first == "help" && words.size() == 1)) {
    Print(Help());
    return 0;
  }
  if (first == "--version") return (*FindCommand("version"))->run({});
  if (first == "help") {
    METE_ASSIGN_OR_RETURN(const Command* command, FindCommand(words[1]));
    return command->run({"--help"});
  }
  if (!first.empty() && first.front() == '-')
    return Usage("{} stands before the command; write `mete COMMAND {}`", first, first);
  METE_ASSIGN_OR_RETURN(const Command* command, FindCommand(first));
  return command->run({words.begin() + 1, words.end()});
}

// An exception can come only from below us (memory, the standard library): a fault of mete, told like any other.
StatusOr<int> Guarded(const std::vector<std::string>& words) {
  try {
    return Dispatch(words);
  } catch (const std::exception& error) {
    return Fault("{}", error.what());
  }
}

}  // namespace

void AddJson(CLI::App& app, Common& common) { app.add_flag("--json", common.json, "Print JSON"); }

void AddCommon(CLI::App& app, Common& common) {
  AddJson(app, common);
  app.add_option("--driver-root", common.driver_root,
                 "Where the NVIDIA driver is (else $METE_DRIVER_ROOT, /, or the emulated node that is up)")
      ->option_text("DIR");
}

StatusOr<bool> ParseWords(CLI::App& app, std::string_view command, const std::vector<std::string>& words) {
  const std::string name = fmt::format("mete {}", command);
  app.name(name);
  app.get_formatter()->column_width(28);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
    return true;
  } catch (const CLI::CallForHelp&) {
    Print(app.help());
    return false;
  } catch (const CLI::CallForAllHelp&) {
    Print(app.help("", CLI::AppFormatMode::All));
    return false;
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    while (!what.empty() && what.back() == '\n') what.pop_back();
    return Usage("{}; `{} --help` shows what it takes", what, name);
  }
}

std::string SizeText(uint64_t bytes) {
  constexpr uint64_t kGiB = uint64_t{1} << 30, kFrom = 10 * kGiB;
  if (bytes >= kFrom && bytes % kGiB != 0) {
    return fmt::format("{}.{} GiB", bytes / kGiB, bytes % kGiB * 10 / kGiB);
  }
  return ToString(Bytes{bytes >= kMiB ? bytes / kMiB * kMiB : bytes});
}

void Print(std::string_view text) { mete::Print(text); }

void PrintJson(const Json& value) { Print(ToText(value)); }

std::string FailureText(std::string_view word, const std::string& message) {
  const size_t first_end = message.find('\n');
  if (first_end == std::string::npos) return fmt::format("mete: {}: {}\n", word, message);
  std::string conclusion = message.substr(0, first_end);
  if (!conclusion.empty() && conclusion.back() == ':') conclusion.pop_back();
  std::string details = message.substr(first_end + 1);
  while (!details.empty() && details.back() == '\n') details.pop_back();
  return fmt::format("{}\nmete: {}: {} (reasons above)\n", details, word, conclusion);
}

int Main(const std::vector<std::string>& words) {
  StatusOr<int> result = Guarded(words);
  if (const Status written = FinishOutput(); !written.ok() && result.ok()) result = written;
  if (result.ok()) return *result;
  const ExitCode code = ExitCodeFor(result.status());
  fmt::print(stderr, "{}", FailureText(ExitWord(code), Message(result.status())));
  return static_cast<int>(code);
}

}  // namespace mete::cli
