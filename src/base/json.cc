#include "base/json.h"

namespace mete {
namespace {

// nlohmann's parser keeps its own stack, but destroying a deep value recurses: refuse depth before parsing.
bool DeeperThan(std::string_view text, int most_depth) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most_depth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

std::string ToText(const Json& value) { return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

StatusOr<Json> ParseJson(std::string_view text, std::string_view what, int most_depth) {
  if (DeeperThan(text, most_depth)) return Usage("{}: JSON nested deeper than {} levels", what, most_depth);
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return Usage("{}: not valid JSON", what);
  return value;
}

}  // namespace mete
