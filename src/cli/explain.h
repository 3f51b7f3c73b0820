// What `mete explain` says about a board, a promise, a mechanism or one way to set it up, from the embedded tables.
// Pure; any thread.
#ifndef METE_CLI_EXPLAIN_H_
#define METE_CLI_EXPLAIN_H_

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace mete::cli {

// For people, `width` columns wide. NoSuch names what is near. Empty subject: everything that can be explained.
StatusOr<std::string> ExplainText(std::string_view subject, size_t width);
StatusOr<Json> ExplainJson(std::string_view subject);

}  // namespace mete::cli

#endif  // METE_CLI_EXPLAIN_H_
