// PCI bus ids as NVML takes and gives them. Pure functions.
#ifndef METE_EMULATOR_NVML_PCI_H_
#define METE_EMULATOR_NVML_PCI_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace mete::emulator {

struct PciAddress {
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  friend bool operator==(const PciAddress&, const PciAddress&) = default;
};

// "00000000:07:00.0", "0000:07:00.0", "07:00.0", "07:00"; hexadecimal, either case. False: anything else.
bool ParsePciAddress(std::string_view text, PciAddress* address);

std::string ToPciBusId(const PciAddress& address);        // "00000000:07:00.0"
std::string ToLegacyPciBusId(const PciAddress& address);  // "0000:07:00.0"

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_PCI_H_
