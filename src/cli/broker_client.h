// How commands reach the broker of the node they work on. One thread.
#ifndef METE_CLI_BROKER_CLIENT_H_
#define METE_CLI_BROKER_CLIENT_H_

#include <string>

#include "base/status.h"
#include "share/client.h"
#include "share/places.h"

namespace mete::cli {

// The places of the node that `driver_root` names, or that is found when it is empty.
StatusOr<share::Places> PlacesOfNode(const std::string& driver_root);

// A client that starts the broker by need.
share::Client ClientOf(const share::Places& places);

}  // namespace mete::cli

#endif  // METE_CLI_BROKER_CLIENT_H_
