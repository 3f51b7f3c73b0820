// Whatever is accepted as a PCI bus id is printed in a form that is read back as the same address.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "emulator/nvml/pci.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mete::emulator::PciAddress address, again;
  if (!mete::emulator::ParsePciAddress({reinterpret_cast<const char*>(data), size}, &address)) return 0;
  if (!mete::emulator::ParsePciAddress(mete::emulator::ToPciBusId(address), &again) || !(address == again)) abort();
  return 0;
}
