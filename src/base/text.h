// Small questions about text: case, nearness of names, wrapping, width on a terminal. Pure functions; any thread.
// Case is ASCII case only; widths count one column per UTF-8 code point.
#ifndef METE_BASE_TEXT_H_
#define METE_BASE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mete {

bool EqualsIgnoringCase(std::string_view a, std::string_view b);
std::string ToLower(std::string_view text);

// Single edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`, ignoring case.
size_t EditDistance(std::string_view a, std::string_view b);

// The names that somebody who wrote `word` may have meant, best first: those that contain it or lie within about a
// third of its length in edits. At most `most`; empty if nothing is near.
std::vector<std::string> NearestNames(std::string_view word, const std::vector<std::string>& names, size_t most = 3);

// "a", "a or b", "a, b or c" with the given last conjunction.
std::string JoinNames(const std::vector<std::string>& names, std::string_view conjunction);

// Columns that `text` takes on a terminal.
size_t DisplayWidth(std::string_view text);

// Breaks `text` at spaces into lines of at most `width` columns (a longer word is cut); newlines in it are kept.
// Width 0 means no limit. Always returns at least one line.
std::vector<std::string> Wrap(std::string_view text, size_t width);

}  // namespace mete

#endif  // METE_BASE_TEXT_H_
