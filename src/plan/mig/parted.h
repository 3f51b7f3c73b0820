// The configuration file of NVIDIA's mig-parted, read and written as values: named configurations, each a list of what
// some of a node's GPUs are to hold. Pure; any thread. Errors: Usage with the line of the first problem.
//
// The format (version v1): `mig-configs` maps a name to entries of `devices` ("all" or indices), an optional
// `device-filter` (PCI ids, device then vendor), `mig-enabled` and, with it, `mig-devices` (profile → count). Source:
// NVIDIA/mig-parted, api/spec/v1 and examples.
#ifndef METE_PLAN_MIG_PARTED_H_
#define METE_PLAN_MIG_PARTED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace mete::plan::mig {

struct PartedEntry {
  std::vector<uint32_t> device_filter;      // 0x20B010DE; empty: every model
  std::optional<std::vector<int>> devices;  // nothing: all
  bool mig_enabled = false;
  std::vector<std::pair<std::string, int>> profiles;  // "1g.5gb" → 7; a "1c.3g.20gb" asks for a compute instance
  friend bool operator==(const PartedEntry&, const PartedEntry&) = default;

  // Is this entry for the GPU with this index and PCI id?
  bool Matches(int index, uint32_t pci_device_id) const;
};

struct PartedFile {
  std::vector<std::pair<std::string, std::vector<PartedEntry>>> configs;  // by name
  friend bool operator==(const PartedFile&, const PartedFile&) = default;

  // NoSuch lists the names.
  StatusOr<const std::vector<PartedEntry>*> Find(std::string_view name) const;
};

StatusOr<PartedFile> ParseParted(std::string_view text, std::string_view file);
// ParseParted reads back what this writes.
std::string WriteParted(const PartedFile& file);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_PARTED_H_
