// `mete apply`: the node's MIG layout as a file of mig-parted's format says.
#include "base/files.h"
#include "cli/broker_client.h"
#include "cli/commands.h"
#include "plan/mig/parted.h"

namespace mete::cli {
namespace {

std::string PlacesText(const Json& places) {
  std::string text;
  for (const Json& place : places) {
    text += fmt::format("{}{} at {}", text.empty() ? "" : ", ", place["profile"].get<std::string>(),
                        place["start"].get<int>());
  }
  return text.empty() ? "nothing" : text;
}

void PrintApplied(const Json& reply, bool dry_run) {
  for (const Json& gpu : reply["gpus"]) {
    Print(fmt::format("GPU {} ({})\n", gpu["index"].get<uint32_t>(), gpu["name"].get<std::string>()));
    if (gpu["mode"] != "as it is") Print(fmt::format("  MIG: {}\n", gpu["mode"].get<std::string>()));
    Print(fmt::format("  stays: {}\n  goes: {}\n  {}: {}\n", PlacesText(gpu["keep"]), PlacesText(gpu["remove"]),
                      dry_run ? "would be made" : "made", PlacesText(gpu["add"])));
  }
  if (!reply["changed"].get<bool>()) Print("Nothing to change.\n");
}

StatusOr<int> RunApply(const std::vector<std::string>& words) {
  CLI::App app(
      "Brings the node's MIG instances to what a configuration says. What a tenant uses and what mete did not make "
      "stays, or nothing is changed; applied again it changes nothing.");
  Common common;
  AddCommon(app, common);
  std::string file, config;
  share::Command command;
  command.op = share::Op::kApply;
  app.add_option("--mig-parted", file, "A file in the format of NVIDIA's mig-parted")->option_text("FILE")->required();
  app.add_option("--config", config, "Which of its configurations (else the only one)")->option_text("NAME");
  app.add_flag("--dry-run", command.dry_run, "Say what would be done, and do nothing");
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "apply", words));
  if (!go) return 0;
  METE_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  METE_ASSIGN_OR_RETURN(plan::mig::PartedFile parted, plan::mig::ParseParted(text, file));
  if (config.empty()) {
    if (parted.configs.size() != 1) {
      return Usage("{} has {} configurations: name one with --config", file, parted.configs.size());
    }
    config = parted.configs.front().first;
  }
  METE_ASSIGN_OR_RETURN(const std::vector<plan::mig::PartedEntry>* entries, parted.Find(config));
  command.text = plan::mig::WriteParted({{{config, *entries}}});
  METE_ASSIGN_OR_RETURN(const share::Places places, PlacesOfNode(common.driver_root));
  share::Client client = ClientOf(places);
  METE_ASSIGN_OR_RETURN(const Json reply, client.Call(command));
  if (common.json) {
    PrintJson(reply);
  } else {
    PrintApplied(reply, command.dry_run);
  }
  return 0;
}

}  // namespace

const Command kApply{"apply", "the node's MIG instances as a file of mig-parted's says", Group::kNode, RunApply};

}  // namespace mete::cli
