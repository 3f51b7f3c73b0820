#include "cli/commands.h"

namespace mete::cli {

const std::vector<const Command*>& Commands() {
  static const std::vector<const Command*> commands{&kRun,   &kShare,   &kTop,     &kInventory, &kExplain,
                                                    &kApply, &kEmulate, &kVersion, &kBroker};
  return commands;
}

}  // namespace mete::cli
