// nvidia-smi's command line and what it does, over any source of values.
#ifndef METE_EMULATOR_SMI_COMMAND_H_
#define METE_EMULATOR_SMI_COMMAND_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/smi/mig.h"
#include "emulator/smi/query.h"
#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

enum class Action {
  kTable,
  kList,
  kDetails,
  kQuery,
  kHelp,
  kHelpFields,
  kSet,
  kTopology,
  kPeers,
  kDeviceMonitor,
  kProcessMonitor,
  kComputePolicy,
  kReadLimits,
  kSetLimits,
  kLinkStatus,
  kDrainState,
  kMig,
};

struct Change {
  SmiSetting setting;
  uint64_t value = 0;
};

struct Request {
  Action action = Action::kTable;
  std::vector<std::string> gpus;         // -i: index, UUID or bus id; empty: all
  QueryTable table = QueryTable::kGpus;  // kQuery, kHelpFields
  std::string fields;
  std::optional<CsvFormat> format;
  bool xml = false;
  std::vector<std::string> sections;  // -d of -q
  std::optional<int> loop_ms;
  std::optional<int> count;  // of rounds; none: until interrupted
  std::string file;          // -f; empty: stdout
  std::vector<Change> changes;
  std::optional<bool> mig_mode;  // -mig
  MigRequest mig;                // of the command mig
  std::string metrics, when;     // -s and -o of the monitors
  char peer_kind = 'r';
  std::string folder;  // -n of memory-limits
  SmiLimits limits;
  bool first = true;  // the round that prints headers
};

// Words after the program's name. kOk, or an exit status and why.
Exit ParseRequest(const std::vector<std::string>& words, Request* request, std::string* message);

// One answer to the request, without its loop. `text` goes to the output whatever the status.
Exit Answer(const Request& request, SmiSource* source, std::string* text, std::string* message);

// The GPUs that -i names, in the node's order; all without it. False: `unknown` fits none.
bool ChooseGpus(const SmiSnapshot& snapshot, const std::vector<std::string>& ids, std::vector<size_t>* chosen,
                std::string* unknown);

std::string Usage();

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_COMMAND_H_
