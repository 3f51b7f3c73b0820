#include "base/text.h"

#include <algorithm>
#include <utility>

namespace mete {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// Bytes of the first `columns` code points of `text`.
size_t PrefixBytes(std::string_view text, size_t columns) {
  size_t at = 0;
  while (at < text.size() && columns > 0) {
    ++at;
    while (at < text.size() && IsContinuation(text[at])) ++at;
    --columns;
  }
  return at;
}

void WrapLine(std::string_view text, size_t width, std::vector<std::string>& lines) {
  std::string line;
  size_t line_width = 0;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    std::string_view word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    if (word.empty()) continue;
    if (line_width > 0 && line_width + 1 + DisplayWidth(word) > width) {
      lines.push_back(std::exchange(line, {}));
      line_width = 0;
    }
    while (line_width == 0 && DisplayWidth(word) > width) {
      const size_t cut = PrefixBytes(word, width);
      lines.emplace_back(word.substr(0, cut));
      word.remove_prefix(cut);
    }
    if (line_width > 0) {
      line += ' ';
      ++line_width;
    }
    line += word;
    line_width += DisplayWidth(word);
  }
  lines.push_back(std::move(line));
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}

std::string ToLower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), Lower);
  return result;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the optimal-string-alignment table: a swap looks two rows back.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) && Lower(a[i - 2]) == Lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::vector<std::string> NearestNames(std::string_view word, const std::vector<std::string>& names, size_t most) {
  constexpr size_t kLongest = 64;  // longer words are not misspelt names, and the table is quadratic
  if (word.empty() || word.size() > kLongest) return {};
  const std::string wanted = ToLower(word);
  const size_t reach = std::max<size_t>(1, wanted.size() / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : names) {
    const bool contains = wanted.size() >= 2 && ToLower(name).find(wanted) != std::string::npos;
    const size_t distance = contains ? 0 : EditDistance(wanted, name);
    if (distance <= reach) near.emplace_back(distance, name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (auto& [distance, name] : near) {
    if (result.size() == most) break;
    if (std::find(result.begin(), result.end(), name) == result.end()) result.push_back(std::move(name));
  }
  return result;
}

std::string JoinNames(const std::vector<std::string>& names, std::string_view conjunction) {
  std::string result;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) {
      if (i + 1 == names.size()) {
        result.append(" ").append(conjunction).append(" ");
      } else {
        result += ", ";
      }
    }
    result += names[i];
  }
  return result;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

std::vector<std::string> Wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (true) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    if (width == 0 || DisplayWidth(line) <= width) {
      lines.emplace_back(line);
    } else {
      WrapLine(line, width, lines);
    }
    if (newline == std::string_view::npos) return lines;
    text.remove_prefix(newline + 1);
  }
}

}  // namespace mete
