// What nvidia-smi prints without options, and its list -L. Pure functions; any thread.
#ifndef METE_EMULATOR_SMI_TABLE_H_
#define METE_EMULATOR_SMI_TABLE_H_

#include <string>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

// The summary of the chosen GPUs and their processes, as programs that read it expect it. `date`: its first line.
std::string Table(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, const std::string& date);

std::string List(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_TABLE_H_
