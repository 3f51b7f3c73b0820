#include "cli/commands.h"

namespace mete::cli {
namespace {

StatusOr<int> RunVersion(const std::vector<std::string>& words) {
  CLI::App app("Prints the version of mete.");
  Common common;
  AddJson(app, common);
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "version", words));
  if (!go) return 0;
  if (common.json) {
    PrintJson({{"version", METE_VERSION}});
  } else {
    Print("mete " METE_VERSION "\n");
  }
  return 0;
}

}  // namespace

const Command kVersion{"version", "print the version", Group::kNode, RunVersion};

}  // namespace mete::cli
