// In tests no engine is linked in: there is no node to find.
#include "emulator/engine/client.h"

namespace mete::emulator {

bool Client::Connect(const char*, Client**, std::string* why) {
  *why = "this test has no engine";
  return false;
}

std::string NodeRootOf(const void*) { return ""; }

}  // namespace mete::emulator
