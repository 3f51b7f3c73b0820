#include "emulator/nvml/pci.h"

#include <cstdio>

namespace mete::emulator {

namespace {

// Reads 1 to `most` hexadecimal digits off the front.
bool TakeHex(std::string_view* text, size_t most, uint32_t* value) {
  size_t digits = 0;
  *value = 0;
  while (digits < text->size() && digits < most) {
    char c = (*text)[digits];
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A' + 10);
    } else {
      break;
    }
    *value = *value << 4 | digit;
    ++digits;
  }
  text->remove_prefix(digits);
  return digits != 0;
}

bool Take(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

bool ParsePciAddress(std::string_view text, PciAddress* address) {
  PciAddress result;
  size_t colons = 0;
  for (char c : text) colons += c == ':';
  if (colons == 2 && (!TakeHex(&text, 8, &result.domain) || !Take(&text, ':'))) return false;
  if (colons != 1 && colons != 2) return false;
  if (!TakeHex(&text, 2, &result.bus) || !Take(&text, ':')) return false;
  if (!TakeHex(&text, 2, &result.device) || result.device > 31) return false;
  if (!text.empty() && (!Take(&text, '.') || !TakeHex(&text, 1, &result.function) || result.function > 7)) return false;
  if (!text.empty()) return false;
  *address = result;
  return true;
}

std::string ToPciBusId(const PciAddress& address) {
  char text[32];
  snprintf(text, sizeof(text), "%08X:%02X:%02X.%X", address.domain, address.bus, address.device, address.function);
  return text;
}

std::string ToLegacyPciBusId(const PciAddress& address) {
  char text[32];
  snprintf(text, sizeof(text), "%04X:%02X:%02X.%X", address.domain & 0xffff, address.bus, address.device,
           address.function);
  return text;
}

}  // namespace mete::emulator
