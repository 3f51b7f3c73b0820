// The command line of mete-load: reading it, and saying a result to a person.
#ifndef METE_LAB_LOAD_COMMAND_LINE_H_
#define METE_LAB_LOAD_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "lab/load/options.h"

namespace mete::lab {

struct CommandLine {
  LoadOptions options;
  std::string help;  // not empty: print it and end
};

// `arguments` without the program's name. Usage says what is wrong.
StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// One line for a person.
std::string ForPeople(const Json& result);

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_COMMAND_LINE_H_
