// A command of `mete`, and what all of them share: how arguments are read, how results and failures leave the program.
//
//   namespace {
//   StatusOr<int> Run(const std::vector<std::string>& words) {
//     CLI::App app("What each GPU can do");
//     Common common;
//     AddCommon(app, common);
//     METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "inventory", words));
//     if (!go) return 0;  // --help was asked and printed
//     …
//     return 0;
//   }
//   }  // namespace
//   const Command kInventory{"inventory", "what each GPU can do, and what it cannot and why", Group::kLook, Run};
//
// A command returns its exit status, or a failure: Main prints that as the last line on stderr, `mete: WORD: message`,
// and ends with the exit status that belongs to it. Single-threaded; text for people and JSON go to stdout.
#ifndef METE_CLI_COMMAND_H_
#define METE_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace mete::cli {

// The paragraph of `mete --help` that lists a command; kInternal: none.
enum class Group { kShare, kLook, kNode, kInternal };

struct Command {
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  Group group;
  // `words` are the arguments after the command's name.
  StatusOr<int> (*run)(const std::vector<std::string>& words);
};

// Every command, in the order of `mete --help`. A new one is a file that defines a Command and a line in commands.cc.
const std::vector<const Command*>& Commands();

struct Common {
  bool json = false;
  std::string driver_root;  // empty: found as `mechanism::FindNode` finds it
};
void AddJson(CLI::App& app, Common& common);
// --json and --driver-root.
void AddCommon(CLI::App& app, Common& common);

// Reads `words` into what `app` declares. False: help was asked for and is printed, end with 0. Usage otherwise, naming
// the argument and how to get help.
StatusOr<bool> ParseWords(CLI::App& app, std::string_view command, const std::vector<std::string>& words);

// Memory for people: to the MiB, above one. Exact byte counts are for --json.
std::string SizeText(uint64_t bytes);

// To stdout.
void Print(std::string_view text);
void PrintJson(const Json& value);

// The whole program: `words` without the program's own name. Returns the exit status.
// How a command that failed ends on stderr. Programs read the last line, which says how; what a message has in further
// lines are the reasons, and they come before it.
std::string FailureText(std::string_view word, const std::string& message);

int Main(const std::vector<std::string>& words);

}  // namespace mete::cli

#endif  // METE_CLI_COMMAND_H_
