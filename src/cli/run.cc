// `mete run`: a command in a share. The share made for it ends when its last process has gone.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/table.h"
#include "cli/broker_client.h"
#include "cli/choice_view.h"
#include "cli/commands.h"
#include "cli/request_options.h"
#include "cli/supervise.h"
#include "mechanism/mechanism.h"

extern char** environ;

namespace mete::cli {
namespace {

constexpr int kFaultInside = 125;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

struct Options {
  std::string share, name, status_file, driver_root;
  bool dry_run = false, json = false;
  RequestOptions request;
};

// Whole or not at all, so that a reader never sees a part.
Status WriteStatusFile(const std::string& path, const Json& json) {
  if (path.empty()) return OkStatus();
  const std::string part = fmt::format("{}.{}", path, getpid());
  std::ofstream file(part);
  file << ToText(json);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) {
    std::filesystem::remove(part, error);
    return Lacks("the status file {} cannot be written", path);
  }
  return OkStatus();
}

StatusOr<share::Command> CommandOf(const Options& options, const std::vector<std::string>& program) {
  share::Command command;
  if (!options.share.empty()) {
    if (!options.name.empty() || options.request.any() || options.request.preload ||
        !options.request.on_bypass.empty()) {
      return Usage(
          "--share {} joins a share as it is; --name, --gpu, --gpus, --memory, --compute, --need, --via, --time-slice, "
          "--processes, --on-bypass and --preload make a new one",
          options.share);
    }
    command.op = share::Op::kJoin;
    command.share = options.share;
    return command;
  }
  command.op = share::Op::kMake;
  command.run = true;
  command.id = share::RandomId();
  command.request.share = options.name;
  command.hint = std::filesystem::path(program[0]).filename().string();
  METE_RETURN_IF_ERROR(options.request.Read(&command));
  return command;
}

// Leaves the share; the broker ends it unless a process of it is left.
void Leave(share::Client& client, const std::string& id) {
  share::Command leave;
  leave.op = share::Op::kLeave;
  leave.id = id;
  const StatusOr<Json> left = client.Call(leave);
  if (!left.ok()) fmt::print(stderr, "mete: the share could not be left: {}\n", Message(left.status()));
}

// The broker has died while the program runs: another one takes its place and heals.
int Revive(share::Client& client) {
  client.Close();
  share::Command hello;
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (client.Call(hello).ok()) return client.fd();
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
  }
  fmt::print(stderr,
             "mete: the broker ended and cannot be started again; limits stay in force, new processes of the "
             "share are refused\n");
  return -1;
}

StatusOr<int> DryRun(const Options& options) {
  METE_ASSIGN_OR_RETURN(const share::Places places, PlacesOfNode(options.driver_root));
  share::Client client = ClientOf(places);
  share::Command command;
  METE_RETURN_IF_ERROR(options.request.Read(&command));
  command.op = share::Op::kPlan;
  METE_ASSIGN_OR_RETURN(const Json choice, client.Call(command));
  if (options.json) {
    PrintJson(choice);
  } else {
    Print(ChoiceText(choice, TerminalWidth(STDOUT_FILENO)));
  }
  METE_RETURN_IF_ERROR(ChoiceStatus(choice));
  return 0;
}

StatusOr<int> RunProgram(const Options& options, const std::vector<std::string>& program, Json* report) {
  METE_ASSIGN_OR_RETURN(share::Command command, CommandOf(options, program));
  METE_ASSIGN_OR_RETURN(const share::Places places, PlacesOfNode(options.driver_root));
  share::Client client = ClientOf(places);
  METE_ASSIGN_OR_RETURN(const Json grant, client.Call(command));
  (*report)["share"] = grant.value("name", std::string());
  (*report)["id"] = grant.value("id", std::string());
  const std::string id = grant.value("id", std::string());
  METE_ASSIGN_OR_RETURN(const mechanism::Edits edits,
                        mechanism::EditsFromJson(grant.contains("edits") ? grant["edits"] : Json()));
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);

  SideWatch side{client.fd(), [&client] { return Revive(client); }};
  const StatusOr<Outcome> outcome = Supervise(program, edits.Apply(environment), side);
  Leave(client, id);
  METE_RETURN_IF_ERROR(outcome.status());
  (*report)["started"] = outcome->started;
  if (!outcome->started) {
    const int status = outcome->start_errno == ENOENT || outcome->start_errno == ENOTDIR ? kNotFound : kNotExecutable;
    fmt::print(stderr, "mete: usage: cannot run {}: {}\n", program[0], std::strerror(outcome->start_errno));
    return status;
  }
  if (outcome->signal != 0) (*report)["signal"] = outcome->signal;
  return outcome->exit_status;
}

StatusOr<int> RunCommand(const std::vector<std::string>& words) {
  CLI::App app("Runs a command in a share of a GPU: mete run [OPTION…] -- CMD [ARG…]");
  Options options;
  app.add_option("--share", options.share, "In this share, made by 'mete share create' or by another run")
      ->option_text("NAME");
  app.add_option("--name", options.name, "Name of the share that is made (else one is found)")
      ->option_text("NAME")
      ->check([](const std::string& name) { return name.empty() ? "the name is empty" : ""; });
  options.request.AddTo(app);
  app.add_flag("--dry-run", options.dry_run, "Say for every GPU and mechanism what it would be, and run nothing");
  app.add_flag("--json", options.json, "The dry run as JSON");
  app.add_option("--status-file", options.status_file, "Write how it ended into this file, as JSON")
      ->option_text("FILE");
  app.add_option("--driver-root", options.driver_root, "Where the NVIDIA driver is")->option_text("DIR");
  const auto dashes = std::find(words.begin(), words.end(), "--");
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "run", {words.begin(), dashes}));
  if (!go) return 0;
  if (options.json && !options.dry_run) return Usage("--json is for --dry-run; else the output is the command's own");
  if (options.dry_run) {
    if (!options.share.empty())
      return Usage("--dry-run is for a new share; 'mete share show {}' shows one", options.share);
    return DryRun(options);
  }
  if (dashes == words.end() || dashes + 1 == words.end()) {
    return Usage("no command to run: 'mete run [OPTION…] -- CMD [ARG…]'");
  }
  Json report = {{"started", false}};
  StatusOr<int> result = RunProgram(options, {dashes + 1, words.end()}, &report);
  const ExitCode code = result.ok() ? ExitCode::kDone : ExitCodeFor(result.status());
  if (!result.ok()) {
    report["error"] = {{"word", ExitWord(code)}, {"message", Message(result.status())}};
    if (code == ExitCode::kFault) {
      // CMD's own 1 must not be taken for a fault of mete.
      fmt::print(stderr, "mete: fault: {}\n", Message(result.status()));
      result = kFaultInside;
    }
  }
  report["exit_status"] = result.ok() ? *result : static_cast<int>(code);
  const Status written = WriteStatusFile(options.status_file, report);
  if (!written.ok()) fmt::print(stderr, "mete: {}\n", Message(written));
  return result;
}

}  // namespace

const Command kRun{"run", "run a command in a share of a GPU", Group::kShare, RunCommand};

}  // namespace mete::cli
