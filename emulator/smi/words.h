// Values as nvidia-smi writes and reads them; what is absent is "N/A". Pure functions.
#ifndef METE_EMULATOR_SMI_WORDS_H_
#define METE_EMULATOR_SMI_WORDS_H_

#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace mete::emulator::smi {

__attribute__((format(printf, 1, 2))) inline std::string Printed(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[512];
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}
inline bool ParseWhole(std::string_view text, uint32_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}
template <typename T>
std::string UnitText(const std::optional<T>& value, const char* unit) {
  return value ? std::to_string(*value) + unit : "N/A";
}
template <typename T>
std::string NumberText(const std::optional<T>& value) {
  return UnitText(value, "");
}
inline std::string MibText(const std::optional<uint64_t>& bytes) {
  return bytes ? std::to_string(*bytes >> 20) + " MiB" : "N/A";
}
inline std::string WattText(const std::optional<uint32_t>& milliwatts) {
  char text[32] = "N/A";
  if (milliwatts) snprintf(text, sizeof(text), "%.2f W", *milliwatts / 1000.0);
  return text;
}
template <typename T>
std::string EnabledWord(const std::optional<T>& mode) {
  return !mode ? "N/A" : *mode != 0 ? "Enabled" : "Disabled";
}
template <typename T>
std::string YesWord(const std::optional<T>& flag) {
  return !flag ? "N/A" : *flag != 0 ? "Yes" : "No";
}
inline std::string HexText(uint32_t value, int digits, bool upper = true) {
  char text[32];
  snprintf(text, sizeof(text), upper ? "0x%0*X" : "0x%0*x", digits, value);
  return text;
}
inline std::string ComputeModeWord(const std::optional<int>& mode) {
  constexpr const char* kNames[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
  return mode && *mode >= 0 && *mode < 4 ? kNames[*mode] : "N/A";
}

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_WORDS_H_
