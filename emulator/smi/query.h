// The CSV queries of nvidia-smi: fields by name, in the order asked for. Pure functions of a snapshot.
#ifndef METE_EMULATOR_SMI_QUERY_H_
#define METE_EMULATOR_SMI_QUERY_H_

#include <string>
#include <string_view>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

struct CsvFormat {
  bool header = true;
  bool units = true;
};

enum class QueryTable { kGpus, kComputeApps, kAccountedApps, kRemappedRows, kSupportedClocks };

// "csv", "noheader", "nounits" in any order; csv is required. False: something else.
bool ParseFormat(std::string_view text, CsvFormat* format);

// `list` is fields with commas between. False: `unknown` is no field, and nothing was written.
bool Query(QueryTable table, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view list,
           const CsvFormat& format, std::string* text, std::string* unknown);

std::string FieldHelp(QueryTable table);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_QUERY_H_
