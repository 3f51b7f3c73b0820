// What names a GPU of the node. Pure functions of its description.
#ifndef METE_EMULATOR_NVML_IDENTITY_H_
#define METE_EMULATOR_NVML_IDENTITY_H_

#include <string>

#include "emulator/engine/client.h"
#include "emulator/nvml/pci.h"

namespace mete::emulator {

std::string UuidTextOf(const char* prefix, const uint8_t (&uuid)[16]);
std::string UuidTextOf(const GpuInfo& info);  // "GPU-xxxxxxxx-…"
std::string SerialTextOf(const GpuInfo& info);
PciAddress AddressOf(const GpuInfo& info);
std::string NameOf(const GpuInfo& info);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_IDENTITY_H_
