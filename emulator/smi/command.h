// nvidia-smi's command line and what it does, over any source of values.
#ifndef METE_EMULATOR_SMI_COMMAND_H_
#define METE_EMULATOR_SMI_COMMAND_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/smi/query.h"
#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

enum class Action { kTable, kList, kQueryGpu, kQueryApps, kHelp, kHelpGpuFields, kHelpAppFields, kSetComputeMode };

struct Request {
  Action action = Action::kTable;
  std::vector<std::string> gpus;  // -i: index, UUID or bus id; empty: all
  std::string fields;
  std::optional<CsvFormat> format;
  std::optional<int> loop_ms;
  int compute_mode = 0;
};

// Words after the program's name. kOk, or an exit status and why.
Exit ParseRequest(const std::vector<std::string>& words, Request* request, std::string* message);

// One answer to the request, without its loop. `text` goes to stdout whatever the status.
Exit Answer(const Request& request, SmiSource* source, std::string* text, std::string* message);

std::string Usage();

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_COMMAND_H_
