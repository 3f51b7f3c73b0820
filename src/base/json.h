// JSON for `--json` and for files that people read: keys stay in the order they were written.
// Values are plain data; not thread-safe while written to.
#ifndef METE_BASE_JSON_H_
#define METE_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mete {

using Json = nlohmann::ordered_json;

// Indented by two, ended by a newline; bytes that are not UTF-8 are replaced by U+FFFD instead of failing.
std::string ToText(const Json& value);

// Parses without exceptions. Usage, naming `what` (a file or a peer) and the place, if the text is not JSON.
// `most_depth` bounds nesting, so that a stranger's text cannot exhaust the stack.
StatusOr<Json> ParseJson(std::string_view text, std::string_view what, int most_depth = 64);

}  // namespace mete

#endif  // METE_BASE_JSON_H_
