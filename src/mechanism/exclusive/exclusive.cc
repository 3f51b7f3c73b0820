#include "mechanism/exclusive/exclusive.h"

#include <algorithm>

#include "mechanism/grant_directory.h"

namespace mete::mechanism {
namespace {

using nvml::ComputeMode;

constexpr const char* kComputeMode = "compute-mode";

std::string_view WordOf(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::kDefault: return "DEFAULT";
    case ComputeMode::kExclusiveThread: return "EXCLUSIVE_THREAD";
    case ComputeMode::kProhibited: return "PROHIBITED";
    case ComputeMode::kExclusiveProcess: break;
  }
  return "EXCLUSIVE_PROCESS";
}

ComputeMode FoundIn(const Object& object) {
  const int found = object.data.value("found", 0);
  const bool known = found >= 0 && found <= static_cast<int>(ComputeMode::kExclusiveProcess);
  return known ? static_cast<ComputeMode>(found) : ComputeMode::kDefault;
}

bool WantsMode(const plan::Grant& grant) { return grant.processes == 1; }

// What this grant has written of the GPU's mode.
StatusOr<std::vector<Object>> ModeOf(const plan::Grant& grant, const std::string& gpu, const Journal& journal) {
  METE_ASSIGN_OR_RETURN(std::vector<Object> objects, journal.Objects(kComputeMode, gpu));
  std::erase_if(objects, [&grant](const Object& object) { return object.share_id != grant.id; });
  return objects;
}

Status SetMode(const nvml::Device& device, const plan::Grant& grant, Journal& journal) {
  METE_ASSIGN_OR_RETURN(const std::vector<Object> written, ModeOf(grant, device.uuid(), journal));
  METE_ASSIGN_OR_RETURN(const ComputeMode found, device.Mode());
  if (found == ComputeMode::kExclusiveProcess) return OkStatus();  // as it should be, whoever set it
  Object object{grant.id, kComputeMode, device.uuid(), {}, {}};
  object.data["found"] = static_cast<int>(found);
  // A second attempt must not take what the first has set for what it found; here it found something else.
  if (written.empty()) METE_RETURN_IF_ERROR(journal.Put(object));
  journal.Reached("exclusive: mode written down");
  const Status set = device.SetMode(ComputeMode::kExclusiveProcess);
  journal.Reached("exclusive: mode set");
  if (set.ok()) return OkStatus();
  METE_RETURN_IF_ERROR(journal.Drop(object));
  // Not permitted, or not offered: the audit watches alone, and Verify says so.
  if (nvml::Unsupported(set) || ExitCodeFor(set) == ExitCode::kLacks) return OkStatus();
  return set;
}

Status SetModeBack(const nvml::Library& library, const plan::Grant& grant, const std::string& gpu, Journal& journal) {
  METE_ASSIGN_OR_RETURN(const std::vector<Object> written, ModeOf(grant, gpu, journal));
  for (const Object& object : written) {
    // A GPU that is gone has no mode to set back.
    if (const auto device = library.FindDevice(gpu); device.ok()) {
      METE_ASSIGN_OR_RETURN(const ComputeMode now, (*device)->Mode());
      if (now == ComputeMode::kExclusiveProcess) METE_RETURN_IF_ERROR((*device)->SetMode(FoundIn(object)));
    }
    journal.Reached("exclusive: mode set back");
    METE_RETURN_IF_ERROR(journal.Drop(object));
  }
  return OkStatus();
}

Evidence::Item ModeItem(const nvml::Device& device, const plan::Grant& grant) {
  Evidence::Item item;
  item.what = fmt::format("the driver keeps others off GPU {}", device.index());
  const StatusOr<ComputeMode> mode = device.Mode();
  if (!mode.ok()) {
    item.because = Message(mode.status());
    return item;
  }
  item.holds = *mode == ComputeMode::kExclusiveProcess || !WantsMode(grant);
  item.because = fmt::format("compute mode {}", WordOf(*mode));
  if (!WantsMode(grant)) {
    item.what = fmt::format("GPU {} lets the processes of the share in", device.index());
    item.holds = *mode == ComputeMode::kDefault || *mode == ComputeMode::kExclusiveProcess;
    if (*mode == ComputeMode::kDefault) {
      item.because += "; the audit watches for others, and --processes 1 would have the driver turn them away";
    } else if (item.holds) {
      item.because += ", as somebody else set it: one at a time";
    }
  } else if (!item.holds) {
    // It could not be set: the share runs, and what watches is named.
    item.what = fmt::format("GPU {} lets the process of the share in", device.index());
    item.holds = *mode == ComputeMode::kDefault;
    item.because += "; this user may not change it, so that only the audit watches for others";
  }
  return item;
}

}  // namespace

Support Exclusive::Probe(const plan::GpuOccupancy& gpu) const {
  if (gpu.mig_enabled) return {false, "MIG is on: a process sees an instance, never the whole GPU"};
  if (const auto library = DriverLibrary(options_.driver_root, "libcuda.so.1"); !library.ok()) {
    return {false, Message(library.status())};
  }
  return {true, {}};
}

StatusOr<Edits> Exclusive::Prepare(const plan::Grant& grant, Journal& journal) const {
  const std::string directory = GrantDirectory(options_.grants_dir, grant);
  METE_RETURN_IF_ERROR(LinkDriver(options_.driver_root, directory));
  std::vector<std::string> visible;
  for (const plan::GpuGrant& part : grant.gpus) {
    visible.push_back(part.uuid);
    if (!WantsMode(grant)) continue;
    METE_ASSIGN_OR_RETURN(const auto device, library_.FindDevice(part.uuid));
    METE_RETURN_IF_ERROR(SetMode(*device, grant, journal));
  }
  return BareEdits(grant, directory, visible);
}

StatusOr<Evidence> Exclusive::Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                                     const Journal&) const {
  Evidence evidence;
  std::vector<std::string> visible;
  for (const plan::GpuGrant& part : grant.gpus) {
    visible.push_back(part.uuid);
    METE_ASSIGN_OR_RETURN(const auto device, library_.FindDevice(part.uuid));
    evidence.items.push_back(ModeItem(*device, grant));
    METE_ASSIGN_OR_RETURN(const std::vector<nvml::Process> processes, device->Processes());
    std::string others;
    for (const nvml::Process& process : processes) {
      const bool ours = std::any_of(tenants.begin(), tenants.end(),
                                    [&process](const Tenant& tenant) { return tenant.pid == process.pid; });
      if (!ours) others += fmt::format("{}{}", others.empty() ? "" : ", ", process.pid);
    }
    evidence.items.push_back({fmt::format("nobody else is on GPU {}", device->index()), others.empty(),
                              others.empty()
                                  ? fmt::format("NVML shows {} processes, all of the share", processes.size())
                                  : "NVML shows besides: " + others});
  }
  VerifyVisible(tenants, visible, options_.proc_root, &evidence);
  return evidence;
}

Status Exclusive::Release(const plan::Grant& grant, Journal& journal) const {
  for (const plan::GpuGrant& part : grant.gpus) {
    METE_RETURN_IF_ERROR(SetModeBack(library_, grant, part.uuid, journal));
  }
  return RemoveGrantDirectory(GrantDirectory(options_.grants_dir, grant), grant);
}

}  // namespace mete::mechanism
