#include "mechanism/time_slicing/time_slicing.h"

#include <unistd.h>

#include <algorithm>

#include "mechanism/grant_directory.h"
#include "mechanism/time_slicing/compute_policy.h"
#include "mechanism/tool.h"
#include "plan/resolve.h"

namespace mete::mechanism {
namespace {

constexpr const char* kTimeSlice = "time-slice";

plan::TimeSlice SliceIn(const Object& object, const char* key) {
  const auto slice = plan::ParseTimeSlice(object.data.value(key, std::string("default")));
  return slice.ok() ? *slice : plan::TimeSlice::kDefault;
}

// The last line that says something: tools end with the reason.
std::string LastLine(const std::string& printed) {
  size_t end = printed.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "it printed nothing";
  const size_t start = printed.find_last_of('\n', end);
  return printed.substr(start == std::string::npos ? 0 : start + 1,
                        end + 1 - (start == std::string::npos ? 0 : start + 1));
}

StatusOr<std::string> ToolIn(const std::string& directory) {
  const std::string tool = directory + "/bin/nvidia-smi";
  if (access(tool.c_str(), X_OK) == 0) return tool;
  return Lacks(
      "the node has no nvidia-smi, and there is no other way to the class of time slices: install it, or leave "
      "--time-slice out");
}

}  // namespace

Support TimeSlicing::Probe(const plan::GpuOccupancy& gpu) const {
  if (gpu.mig_enabled) return {false, "MIG is on: time slices have no effect between instances"};
  if (const auto library = DriverLibrary(options_.driver_root, "libcuda.so.1"); !library.ok()) {
    return {false, Message(library.status())};
  }
  return {true, {}};
}

StatusOr<plan::TimeSlice> TimeSlicing::Read(const std::string& directory, const nvml::Device& gpu) const {
  METE_ASSIGN_OR_RETURN(const std::string tool, ToolIn(directory));
  METE_ASSIGN_OR_RETURN(const ToolResult result, RunTool({tool, "compute-policy", "-i", gpu.uuid(), "-l"}, directory));
  const auto policies = ParseComputePolicies(result.printed);
  const auto found = policies.find(gpu.index());
  if (result.exit_status != 0 || found == policies.end()) {
    return Lacks("GPU {}: nvidia-smi compute-policy -l ended {}: {}", gpu.index(), result.exit_status,
                 LastLine(result.printed));
  }
  if (!found->second) return Lacks("GPU {} ({}) has no classes of time slices", gpu.index(), gpu.name());
  return *found->second;
}

Status TimeSlicing::Set(const std::string& directory, const nvml::Device& gpu, plan::TimeSlice slice) const {
  METE_ASSIGN_OR_RETURN(const std::string tool, ToolIn(directory));
  METE_ASSIGN_OR_RETURN(const ToolResult result, RunTool({tool, "compute-policy", "-i", gpu.uuid(), "--set-timeslice",
                                                          std::to_string(static_cast<int>(slice))},
                                                         directory));
  if (result.exit_status == 0) return OkStatus();
  return Lacks(
      "GPU {}: the class of time slices cannot be set to {}: nvidia-smi ended {}: {}. It needs the right to "
      "change the GPU: run as root, or through the agent, or leave --time-slice out",
      gpu.index(), plan::ToString(slice), result.exit_status, LastLine(result.printed));
}

Status TimeSlicing::SetClass(const plan::Grant& grant, const std::string& directory, const std::string& gpu,
                             Journal& journal) const {
  METE_ASSIGN_OR_RETURN(const auto device, library_.FindDevice(gpu));
  METE_ASSIGN_OR_RETURN(const plan::TimeSlice now, Read(directory, *device));
  METE_ASSIGN_OR_RETURN(const std::vector<Object> written, journal.Objects(kTimeSlice, gpu));
  const bool ours = std::any_of(written.begin(), written.end(),
                                [&grant](const Object& object) { return object.share_id == grant.id; });
  if (!ours) {
    // What was there before the first of the shares that hold this class.
    const plan::TimeSlice found = written.empty() ? now : SliceIn(written.front(), "found");
    Object object{grant.id, kTimeSlice, gpu, {}, {}};
    object.data["found"] = plan::ToString(found);
    object.data["set"] = plan::ToString(*grant.time_slice);
    METE_RETURN_IF_ERROR(journal.Put(object));
  }
  journal.Reached("time-slicing: class written down");
  if (now != *grant.time_slice) METE_RETURN_IF_ERROR(Set(directory, *device, *grant.time_slice));
  journal.Reached("time-slicing: class set");
  return OkStatus();
}

Status TimeSlicing::SetClassBack(const plan::Grant& grant, const std::string& directory, const std::string& gpu,
                                 Journal& journal) const {
  METE_ASSIGN_OR_RETURN(const std::vector<Object> written, journal.Objects(kTimeSlice, gpu));
  for (const Object& object : written) {
    if (object.share_id != grant.id) continue;
    // A GPU that is gone has no class to set back.
    if (const auto device = library_.FindDevice(gpu); written.size() == 1 && device.ok()) {
      METE_RETURN_IF_ERROR(LinkDriver(options_.driver_root, directory));  // for the tool; a kill may have taken it away
      METE_ASSIGN_OR_RETURN(const plan::TimeSlice now, Read(directory, **device));
      const plan::TimeSlice found = SliceIn(object, "found");
      if (now == SliceIn(object, "set") && now != found) METE_RETURN_IF_ERROR(Set(directory, **device, found));
    }
    journal.Reached("time-slicing: class set back");
    METE_RETURN_IF_ERROR(journal.Drop(object));
  }
  return OkStatus();
}

StatusOr<Edits> TimeSlicing::Prepare(const plan::Grant& grant, Journal& journal) const {
  const std::string directory = GrantDirectory(options_.grants_dir, grant);
  METE_RETURN_IF_ERROR(LinkDriver(options_.driver_root, directory));
  std::vector<std::string> visible;
  for (const plan::GpuGrant& part : grant.gpus) {
    visible.push_back(part.uuid);
    if (grant.time_slice) METE_RETURN_IF_ERROR(SetClass(grant, directory, part.uuid, journal));
  }
  return BareEdits(grant, directory, visible);
}

StatusOr<Evidence> TimeSlicing::Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                                       const Journal&) const {
  const std::string directory = GrantDirectory(options_.grants_dir, grant);
  Evidence evidence;
  std::vector<std::string> visible;
  for (const plan::GpuGrant& part : grant.gpus) {
    visible.push_back(part.uuid);
    METE_ASSIGN_OR_RETURN(const auto device, library_.FindDevice(part.uuid));
    METE_ASSIGN_OR_RETURN(const nvml::ComputeMode mode, device->Mode());
    evidence.items.push_back(
        {fmt::format("GPU {} lets several processes in", device->index()), mode == nvml::ComputeMode::kDefault,
         mode == nvml::ComputeMode::kDefault ? "compute mode DEFAULT" : "its compute mode is not DEFAULT"});
    if (!grant.time_slice) continue;
    Evidence::Item item;
    item.what = fmt::format("GPU {} has {} time slices", device->index(), plan::ToString(*grant.time_slice));
    const StatusOr<plan::TimeSlice> now = Read(directory, *device);
    item.holds = now.ok() && *now == *grant.time_slice;
    item.because = now.ok()
                       ? fmt::format("nvidia-smi compute-policy says {}; it counts for contexts made since it was set",
                                     plan::ToString(*now))
                       : Message(now.status());
    evidence.items.push_back(std::move(item));
  }
  VerifyVisible(tenants, visible, options_.proc_root, &evidence);
  return evidence;
}

Status TimeSlicing::Release(const plan::Grant& grant, Journal& journal) const {
  const std::string directory = GrantDirectory(options_.grants_dir, grant);
  for (const plan::GpuGrant& part : grant.gpus) {
    METE_RETURN_IF_ERROR(SetClassBack(grant, directory, part.uuid, journal));
  }
  return RemoveGrantDirectory(directory, grant);
}

}  // namespace mete::mechanism
