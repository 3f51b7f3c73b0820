#include "mechanism/time_slicing/compute_policy.h"

#include <charconv>
#include <string>

#include "base/text.h"
#include "plan/resolve.h"

namespace mete::mechanism {
namespace {

// The words between bars of "|   0  Timeslice       Short          |", separated by single spaces.
std::string Words(std::string_view line) {
  std::string words;
  for (const char c : line) {
    const bool space = c == ' ' || c == '\t' || c == '|' || c == '\r';
    if (!space) words += c;
    if (space && !words.empty() && words.back() != ' ') words += ' ';
  }
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

}  // namespace

std::map<uint32_t, std::optional<plan::TimeSlice>> ParseComputePolicies(std::string_view text) {
  std::map<uint32_t, std::optional<plan::TimeSlice>> policies;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string words = Words(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    uint32_t index = 0;
    const char* last = words.data() + words.size();
    const auto [rest, error] = std::from_chars(words.data(), last, index);
    constexpr std::string_view kName = " timeslice ";
    const std::string after = ToLower(std::string_view(rest, static_cast<size_t>(last - rest)));
    if (error != std::errc() || after.rfind(kName, 0) != 0) continue;
    const auto slice = plan::ParseTimeSlice(after.substr(kName.size()));
    policies[index] = slice.ok() ? std::optional(*slice) : std::nullopt;
  }
  return policies;
}

}  // namespace mete::mechanism
