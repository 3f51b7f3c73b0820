#include "cli/broker_client.h"

#include <filesystem>

#include "mechanism/node.h"
#include "share/daemon.h"

namespace mete::cli {

StatusOr<share::Places> PlacesOfNode(const std::string& driver_root) {
  METE_ASSIGN_OR_RETURN(const mechanism::Node node, mechanism::FindNode(driver_root));
  std::error_code error;
  // The broker works from another directory, and one node has one spelling.
  const std::filesystem::path root = std::filesystem::canonical(node.roots.driver, error);
  if (error) return Lacks("the driver root {} cannot be read: {}", node.roots.driver, error.message());
  return share::PlacesFor(root.string());
}

share::Client ClientOf(const share::Places& places) {
  return {places, [places] { return share::StartBroker(places); }};
}

}  // namespace mete::cli
