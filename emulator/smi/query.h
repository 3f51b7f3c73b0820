// --query-gpu and --query-compute-apps: named fields as comma-separated values. Pure functions; any thread.
#ifndef METE_EMULATOR_SMI_QUERY_H_
#define METE_EMULATOR_SMI_QUERY_H_

#include <string>
#include <string_view>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

struct CsvFormat {
  bool header = true, units = true;
};

// "csv", "csv,noheader,nounits" in any order; false: something else, or no csv.
bool ParseFormat(std::string_view text, CsvFormat* format);

// The fields named in `list` ("index, name"), one line a GPU. False: `unknown` is the first name that is no field.
bool QueryGpus(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view list,
               const CsvFormat& format, std::string* text, std::string* unknown);
// One line a process.
bool QueryApps(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view list,
               const CsvFormat& format, std::string* text, std::string* unknown);

std::string GpuFieldHelp();
std::string AppFieldHelp();

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_QUERY_H_
