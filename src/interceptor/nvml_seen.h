// Which of the driver's devices a tenant sees through NVML, and where: its whole GPUs, and the GPUs that its MIG
// devices are on, each with those MIG devices only. Pure; one thread fills it, then any reads. libc only.
#ifndef METE_INTERCEPTOR_NVML_SEEN_H_
#define METE_INTERCEPTOR_NVML_SEEN_H_

#include <cstdint>

#include "ledger/layout.h"
#include "nvml/abi.h"

namespace mete::interceptor {

struct SeenDevices {
  using nvmlDevice_t = nvml::abi::nvmlDevice_t;
  // The share's, in the order of its pages.
  nvmlDevice_t device[ledger::kMaxGpus] = {};
  nvmlDevice_t parent[ledger::kMaxGpus] = {};  // the GPU of a MIG device; null: it is a whole GPU
  uint32_t gpu[ledger::kMaxGpus] = {};         // its index in the pages
  uint32_t count = 0;
  // The tenant's list of GPUs.
  nvmlDevice_t top[ledger::kMaxGpus] = {};
  uint32_t tops = 0;

  void Add(nvmlDevice_t added, nvmlDevice_t its_parent, uint32_t page) {
    device[count] = added;
    parent[count] = its_parent;
    gpu[count++] = page;
    const nvmlDevice_t listed = its_parent != nullptr ? its_parent : added;
    if (TopIndex(listed) < 0) top[tops++] = listed;
  }

  // The pages' index of a share's own device, -1 for anything else.
  int PageOf(nvmlDevice_t asked) const {
    for (uint32_t i = 0; i < count; ++i) {
      if (device[i] == asked) return static_cast<int>(gpu[i]);
    }
    return -1;
  }
  int TopIndex(nvmlDevice_t asked) const {
    for (uint32_t i = 0; i < tops; ++i) {
      if (top[i] == asked) return static_cast<int>(i);
    }
    return -1;
  }
  bool Has(nvmlDevice_t asked) const { return PageOf(asked) >= 0 || TopIndex(asked) >= 0; }

  // A GPU of which the tenant has parts only.
  bool InParts(nvmlDevice_t asked) const { return MigCount(asked) != 0; }
  uint32_t MigCount(nvmlDevice_t asked) const {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; ++i) found += asked != nullptr && parent[i] == asked ? 1 : 0;
    return found;
  }
  // The tenant's MIG devices of a GPU count from 0; null: there is none of that number.
  nvmlDevice_t MigAt(nvmlDevice_t asked, uint32_t index) const {
    for (uint32_t i = 0; i < count; ++i) {
      if (asked != nullptr && parent[i] == asked && index-- == 0) return device[i];
    }
    return nullptr;
  }
  // Its number on its GPU, -1 for anything but a MIG device of the share.
  int MigIndex(nvmlDevice_t asked) const {
    int before = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (device[i] != asked) continue;
      if (parent[i] == nullptr) return -1;
      for (uint32_t j = 0; j < i; ++j) before += parent[j] == parent[i] ? 1 : 0;
      return before;
    }
    return -1;
  }

  // visit(page) for the device itself, or for each part of a GPU that the tenant has in parts.
  template <typename Visit>
  void EachPage(nvmlDevice_t asked, Visit visit) const {
    for (uint32_t i = 0; i < count; ++i) {
      if (asked != nullptr && (device[i] == asked || parent[i] == asked)) visit(static_cast<int>(gpu[i]));
    }
  }
};

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_NVML_SEEN_H_
