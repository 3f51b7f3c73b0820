#include "base/quantities.h"

#include <array>
#include <limits>
#include <optional>

#include "base/text.h"

namespace mete {
namespace {

__extension__ using Wide = unsigned __int128;

// A plain decimal number in front of `rest`: no sign, no exponent, at most 20 digits before the point and 18 after it,
// so that whole times any unit stays below 2^128.
struct Decimal {
  Wide whole = 0;
  Wide fraction = 0;  // digits after the point, as a number
  Wide scale = 1;     // 10 to the number of those digits
  std::string_view rest;
};

// Moves up to `most` digits from the front of `text` into `value`; their number, or nothing if there are none or more.
std::optional<size_t> TakeDigits(std::string_view& text, size_t most, Wide& value) {
  size_t count = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    if (++count > most) return std::nullopt;
    value = value * 10 + static_cast<unsigned>(text.front() - '0');
    text.remove_prefix(1);
  }
  if (count == 0) return std::nullopt;
  return count;
}

std::optional<Decimal> ReadDecimal(std::string_view text) {
  Decimal result;
  if (!TakeDigits(text, 20, result.whole)) return std::nullopt;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    const auto digits = TakeDigits(text, 18, result.fraction);
    if (!digits) return std::nullopt;
    for (size_t i = 0; i < *digits; ++i) result.scale *= 10;
  }
  result.rest = text;
  return result;
}

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<Unit, 9> kUnits{{{"B", 1},
                                      {"KiB", uint64_t{1} << 10},
                                      {"MiB", kMiB},
                                      {"GiB", kGiB},
                                      {"TiB", uint64_t{1} << 40},
                                      {"KB", 1'000},
                                      {"MB", 1'000'000},
                                      {"GB", 1'000'000'000},
                                      {"TB", 1'000'000'000'000}}};

const Unit* FindUnit(std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (EqualsIgnoringCase(unit.name, name)) return &unit;
  }
  return nullptr;
}

}  // namespace

StatusOr<Bytes> ParseBytes(std::string_view text) {
  const auto number = ReadDecimal(text);
  if (!number) {
    return Usage("\"{}\" is not a size: write a positive number and a unit, such as 4GiB or 20GB", text);
  }
  std::string_view name = number->rest;
  if (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  if (name.empty()) {
    return Usage("the size \"{}\" has no unit: write {}GiB (2^30 bytes), {}GB (10^9), MiB, MB or B", text, text, text);
  }
  const Unit* unit = FindUnit(name);
  if (unit == nullptr) {
    return Usage(
        "the size \"{}\" has an unknown unit \"{}\": use GiB or MiB (powers of 2), GB or MB (powers of 10), or B", text,
        name);
  }
  const Wide bytes = number->whole * unit->bytes + number->fraction * unit->bytes / number->scale;
  if (bytes > std::numeric_limits<uint64_t>::max()) {
    return Usage("the size \"{}\" is larger than any memory (2^64 bytes)", text);
  }
  if (bytes == 0) return Usage("the size \"{}\" is less than one byte: a size must be positive", text);
  return Bytes{static_cast<uint64_t>(bytes)};
}

std::string ToString(Bytes bytes) {
  constexpr std::array<std::string_view, 4> kBinary{"TiB", "GiB", "MiB", "KiB"};
  for (std::string_view name : kBinary) {
    const uint64_t unit = FindUnit(name)->bytes;
    if (bytes.count < unit) continue;
    if (bytes.count % unit == 0) return fmt::format("{} {}", bytes.count / unit, name);
    // A tenth of a power of two is a whole number of bytes only at one half.
    if (bytes.count % (unit / 2) == 0) return fmt::format("{}.5 {}", bytes.count / unit, name);
  }
  return fmt::format("{} B", bytes.count);
}

StatusOr<Percent> ParsePercent(std::string_view text) {
  const auto number = ReadDecimal(text);
  if (!number || (number->rest != "" && number->rest != "%" && number->rest != " %")) {
    return Usage("\"{}\" is not a percentage: write 30%, 30 or 12.5%", text);
  }
  // The first half of the condition keeps the product below 2^128.
  const Wide scaled = number->whole > 100 ? 0 : (number->whole * number->scale + number->fraction) * 100;
  if (number->whole > 100 || scaled > number->scale * 10'000)
    return Usage("\"{}\" is more than the whole GPU: at most 100%", text);
  if (scaled == 0) return Usage("\"{}\" is nothing: a share must be at least 0.01%", text);
  if (scaled % number->scale != 0) return Usage("\"{}\" is too fine: shares are counted in steps of 0.01%", text);
  return Percent{static_cast<uint32_t>(scaled / number->scale)};
}

std::string ToString(Percent percent) {
  const uint32_t whole = percent.hundredths / 100;
  const uint32_t fraction = percent.hundredths % 100;
  if (fraction == 0) return fmt::format("{} %", whole);
  if (fraction % 10 == 0) return fmt::format("{}.{} %", whole, fraction / 10);
  return fmt::format("{}.{:02} %", whole, fraction);
}

}  // namespace mete
