// `mete _broker`: the background process that other commands start by need. Not for people.
#include "cli/broker_client.h"
#include "cli/commands.h"
#include "share/daemon.h"

namespace mete::cli {
namespace {

StatusOr<int> RunBroker(const std::vector<std::string>& words) {
  share::HideMemory();
  CLI::App app("The broker of one node; started by other commands.");
  Common common;
  AddCommon(app, common);
  int ready_fd = -1;
  app.add_option("--ready-fd", ready_fd, "Where to say that it listens");
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "_broker", words));
  if (!go) return 0;
  METE_RETURN_IF_ERROR(share::RunBroker(PlacesOfNode(common.driver_root), ready_fd));
  return 0;
}

}  // namespace

const Command kBroker{"_broker", "the background process of a node", Group::kInternal, RunBroker};

}  // namespace mete::cli
