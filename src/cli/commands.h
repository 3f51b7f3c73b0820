// The commands, each defined in the file of its name.
#ifndef METE_CLI_COMMANDS_H_
#define METE_CLI_COMMANDS_H_

#include "cli/command.h"

namespace mete::cli {

extern const Command kApply;
extern const Command kBroker;
extern const Command kEmulate;
extern const Command kExplain;
extern const Command kInventory;
extern const Command kRun;
extern const Command kShare;
extern const Command kTop;
extern const Command kVersion;

}  // namespace mete::cli

#endif  // METE_CLI_COMMANDS_H_
