// What `mete inventory` knows and prints, apart from the command so that tests can give it any driver.
// Plain values; single-threaded.
#ifndef METE_CLI_INVENTORY_H_
#define METE_CLI_INVENTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "mechanism/node.h"
#include "mechanism/probe.h"
#include "nvml/library.h"

namespace mete::cli {

struct InventoryGpu {
  uint32_t index = 0;
  std::string uuid, pci_bus_id;           // the bus id is empty when NVML does not tell
  std::optional<nvml::MemoryUse> memory;  // nothing when NVML does not tell
  mechanism::GpuFacts facts;
  std::vector<mechanism::VariantHere> variants;
  std::string trouble;  // what NVML could not answer; empty: nothing
};

struct Inventory {
  mechanism::Node node;
  std::string driver_version;
  uint32_t cuda_version = 0;  // 13000
  bool emulated = false;
  std::vector<InventoryGpu> gpus;
};

// Lacks if the driver shows no GPU. A GPU that does not answer is listed with its trouble.
StatusOr<Inventory> TakeInventory(const mechanism::Node& node, const nvml::Library& library);

std::string InventoryText(const Inventory& inventory, size_t width);
Json InventoryJson(const Inventory& inventory);

}  // namespace mete::cli

#endif  // METE_CLI_INVENTORY_H_
