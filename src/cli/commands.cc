#include "cli/commands.h"

namespace mete::cli {

const std::vector<const Command*>& Commands() {
  static const std::vector<const Command*> commands{&kEmulate, &kVersion};
  return commands;
}

}  // namespace mete::cli
