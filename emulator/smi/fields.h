// A field of a CSV query, and printing of any table of them. Used by query.cc and gpu_fields.cc only.
#ifndef METE_EMULATOR_SMI_FIELDS_H_
#define METE_EMULATOR_SMI_FIELDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/smi/query.h"
#include "emulator/smi/words.h"

namespace mete::emulator::smi {

// A value and its unit, so that "nounits" can leave the second away.
struct Value {
  std::string text = "[N/A]";
  bool known = false;
  Value() = default;
  Value(std::string given) : text(std::move(given)), known(true) {}  // NOLINT(google-explicit-constructor)
};

template <typename T>
Value Number(const std::optional<T>& value) {
  return value ? Value(std::to_string(*value)) : Value();
}
inline Value Mib(const std::optional<uint64_t>& bytes) { return bytes ? Value(std::to_string(*bytes >> 20)) : Value(); }
Value Watts(const std::optional<uint32_t>& milliwatts);
template <typename T>
Value OnOff(const std::optional<T>& mode) {
  return mode ? Value(EnabledWord(mode)) : Value();
}
template <typename T>
Value YesNo(const std::optional<T>& flag) {
  return flag ? Value(YesWord(flag)) : Value();
}
inline Value Text(const std::string& text) { return text.empty() ? Value() : Value(text); }
Value Now();

template <typename Row>
struct Field {
  const char* name;
  const char* other;  // further names with spaces between, or null
  const char* unit;   // or null
  Value (*value)(const SmiSnapshot&, const Row&);
  const char* meaning;

  bool Named(std::string_view word) const {
    if (word == name) return true;
    for (std::string_view rest = other == nullptr ? "" : other; !rest.empty();) {
      const size_t space = std::min(rest.find(' '), rest.size());
      if (word == rest.substr(0, space)) return true;
      rest.remove_prefix(std::min(space + 1, rest.size()));
    }
    return false;
  }
};

// Defines the value of a field from `node` and a row under the name that the table gives it.
#define SMI_VALUE(Row, row, expression)                  \
  [](const SmiSnapshot& node, const Row& row) -> Value { \
    (void)node;                                          \
    (void)row;                                           \
    return expression;                                   \
  }

using GpuField = Field<SmiGpu>;
const std::vector<GpuField>& GpuFields();

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_FIELDS_H_
