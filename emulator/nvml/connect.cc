// The real way from this library to its node; the unit tests link a fake in its place.
#include "emulator/nvml/state.h"

namespace mete::emulator {

bool ConnectToNode(std::unique_ptr<Client>* client, std::string* why) {
  std::string root = NodeRootOf(reinterpret_cast<const void*>(&ConnectToNode));
  if (root.empty()) {
    *why = "this libnvidia-ml.so.1 is not part of an emulated node; start one with 'mete emulate up'";
    return false;
  }
  Client* connected = nullptr;
  if (!Client::Connect(root.c_str(), &connected, why)) return false;
  client->reset(connected);
  return true;
}

}  // namespace mete::emulator
