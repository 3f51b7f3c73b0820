#include "mechanism/gpu_view.h"

#include <unistd.h>

#include "base/text.h"
#include "gpu/mig.h"

namespace mete::mechanism {
namespace {

// "00000000:07:00.0", as NVML writes it, is 0000:07:00.0 in sysfs.
std::string SysfsAddress(const std::string& bus_id) {
  const size_t domain = bus_id.find(':');
  if (domain == std::string::npos || domain < 4) return bus_id;
  return ToLower(bus_id.substr(domain - 4));
}

// A GPU whose host driver offers vGPU types shows them in one of these places, by kernel age.
bool OffersVgpu(const std::string& sys, const std::string& bus_id) {
  if (bus_id.empty()) return false;
  const std::string address = SysfsAddress(bus_id);
  for (const std::string& path : {fmt::format("{}/class/mdev_bus/{}", sys, address),
                                  fmt::format("{}/bus/pci/devices/{}/virtfn0/nvidia", sys, address)}) {
    if (access(path.c_str(), F_OK) == 0) return true;
  }
  return false;
}

plan::Keeps KeepsOf(Keeps keeps) {
  switch (keeps) {
    case Keeps::kAlways: return plan::Keeps::kAlways;
    case Keeps::kWhileInForce: return plan::Keeps::kWhileInForce;
    case Keeps::kWhileAllGranted: return plan::Keeps::kWhileAllGranted;
    case Keeps::kNot: break;
  }
  return plan::Keeps::kNot;
}

plan::WayView::Standing StandingOf(Standing standing) {
  switch (standing) {
    case Standing::kSupported: return plan::WayView::Standing::kSupported;
    case Standing::kNotBuilt: return plan::WayView::Standing::kNotBuilt;
    case Standing::kNotPossible: break;
  }
  return plan::WayView::Standing::kNotPossible;
}

constexpr int kResetsBefore = 9;  // compute capability: older boards change their MIG mode with a reset

}  // namespace

GpuLook LookAt(const nvml::Device& device, const std::string& sys_root, int driver_major,
               const KernelLimitFacts& limits) {
  GpuLook look;
  look.facts.name = device.name();
  look.facts.board = gpu::Catalogue::BuiltIn().ByDeviceName(device.name());
  look.facts.driver_major = driver_major;
  const auto note = [&look](const Status& status) {
    if (!status.ok() && !nvml::Unsupported(status) && look.trouble.empty()) look.trouble = Message(status);
  };
  if (const auto bus_id = device.PciBusId(); bus_id.ok()) {
    look.pci_bus_id = *bus_id;
  } else {
    note(bus_id.status());
  }
  if (const auto memory = device.Memory(); memory.ok()) {
    look.memory = *memory;
  } else {
    note(memory.status());
  }
  if (const auto capability = device.Capability(); capability.ok()) {
    look.facts.capability = *capability;
  } else {
    note(capability.status());
    if (look.facts.board != nullptr)
      look.facts.capability = {look.facts.board->compute_major, look.facts.board->compute_minor};
  }
  if (const auto mig = device.Mig(); mig.ok()) {
    look.facts.mig = *mig;
  } else {
    note(mig.status());
  }
  look.facts.vgpu_host_driver = OffersVgpu(sys_root, look.pci_bus_id);
  look.facts.kernel_limits = limits;
  return look;
}

plan::GpuView ViewOf(const GpuFacts& facts, plan::GpuOccupancy occupancy) {
  plan::GpuView view;
  view.occupancy = std::move(occupancy);
  view.occupancy.mig_enabled = facts.mig.current == nvml::MigMode::kEnabled;
  view.mig_pending = facts.mig.current != facts.mig.pending;
  view.mig_needs_reset = facts.capability.major < kResetsBefore;
  if (facts.board != nullptr) view.mig = gpu::MigTables::BuiltIn().Find(facts.board->id);
  for (const VariantHere& here : ProbeGpu(facts)) {
    plan::WayView way{here.variant, StandingOf(here.standing), here.why, {}, false};
    for (const auto& promise : here.promises) {
      way.promises.push_back({promise.promise, KeepsOf(promise.keeps), promise.why});
    }
    view.ways.push_back(std::move(way));
  }
  return view;
}

plan::GpuView ViewOfMigDevice(const plan::GpuView& parent, plan::GpuOccupancy occupancy, plan::Instance instance) {
  plan::GpuView view;
  view.parent = parent.occupancy.uuid;
  view.mig = parent.mig;
  view.occupancy = std::move(occupancy);
  view.occupancy.mig_enabled = false;  // of the device: it is no longer cut
  view.device = std::move(instance);
  for (plan::WayView way : parent.ways) {
    way.standing = plan::WayView::Standing::kNotPossible;
    switch (way.variant->mechanism) {
      case gpu::Mechanism::kIntercept:
        way.standing = plan::WayView::Standing::kSupported;
        way.why.clear();
        break;
      case gpu::Mechanism::kMig: way.standing = plan::WayView::Standing::kSupported; break;
      case gpu::Mechanism::kTimeSlicing:
        way.why = "a class of time slices has no effect on a MIG device: its processes take turns as the driver likes";
        break;
      case gpu::Mechanism::kExclusive: way.why = "a MIG device is not a whole GPU; --via mig gives it whole"; break;
      case gpu::Mechanism::kMps:
      case gpu::Mechanism::kVgpu: way.why = "not on a MIG device"; break;
    }
    view.ways.push_back(std::move(way));
  }
  return view;
}

}  // namespace mete::mechanism
