// Looks at a GPU, and makes of it what the plan chooses from. Plain values; any thread that may use the device.
#ifndef METE_MECHANISM_GPU_VIEW_H_
#define METE_MECHANISM_GPU_VIEW_H_

#include <optional>
#include <string>

#include "gpu/roots.h"
#include "mechanism/probe.h"
#include "nvml/library.h"
#include "plan/choice.h"

namespace mete::mechanism {

struct GpuLook {
  GpuFacts facts;
  std::string pci_bus_id;                 // empty when NVML does not tell
  std::optional<nvml::MemoryUse> memory;  // nothing when NVML does not tell
  std::string trouble;                    // what NVML could not answer; empty: nothing
};

GpuLook LookAt(const nvml::Device& device, const std::string& sys_root, int driver_major,
               const KernelLimitFacts& limits);

// With what the table of promises says of every way to share it here; who is on it is the caller's to fill in.
plan::GpuView ViewOf(const GpuFacts& facts, plan::GpuOccupancy occupancy);
// A MIG device of that GPU: interception can share it, or it is had whole; everything else is refused with the reason.
plan::GpuView ViewOfMigDevice(const plan::GpuView& parent, plan::GpuOccupancy occupancy, plan::Instance instance);

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_GPU_VIEW_H_
