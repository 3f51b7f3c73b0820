// Runs a tool of the driver and takes what it prints, where there is no library call for something.
//
// Thread rule: any thread. Errors: Lacks when it cannot be started or does not end in time. The tool's own exit status
// is a result.
#ifndef METE_MECHANISM_TOOL_H_
#define METE_MECHANISM_TOOL_H_

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"

namespace mete::mechanism {

struct ToolResult {
  int exit_status = 0;  // 128 + n after signal n
  std::string printed;  // standard output and error together, the first megabyte
};

// `library_path`: where its loader looks first; empty: as for this process. It gets nothing to read.
StatusOr<ToolResult> RunTool(const std::vector<std::string>& words, const std::string& library_path,
                             std::chrono::milliseconds patience = std::chrono::seconds(30));

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_TOOL_H_
