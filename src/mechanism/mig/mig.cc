#include "mechanism/mig/mig.h"

#include <algorithm>

#include "gpu/catalogue.h"
#include "mechanism/grant_directory.h"

namespace mete::mechanism {
namespace {

using nvml::MigMode;

constexpr const char* kMigMode = "mig-mode";
constexpr const char* kInstance = "instance";

std::string KeyOf(const plan::Instance& place) { return fmt::format("{}@{}", place.profile, place.start); }

std::string NameOf(const nvml::Device& device) { return fmt::format("GPU {} ({})", device.index(), device.name()); }

Json NumberOrNull(const std::optional<uint32_t>& number) { return number ? Json(*number) : Json(nullptr); }
std::optional<uint32_t> NumberIn(const Json& data, const char* key) {
  const auto found = data.find(key);
  if (found == data.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint32_t>();
}

Status WaitsForReset(const nvml::Device& device) {
  return Refused(
      "{}: its change of MIG mode waits for a reset: with nothing running on the GPU, `nvidia-smi --gpu-reset -i {}`, "
      "or "
      "reboot; then ask again",
      NameOf(device), device.index());
}

// Is the instance that stands there the one of the journal, and not another that came in its place?
bool Same(const OwnInstance& own, const nvml::GpuInstance& there, const std::string& boot) {
  if (own.boot != boot || (own.gpu_instance && *own.gpu_instance != there.id)) return false;
  // Half-made, or half-destroyed, by a broker that was killed. The place was free when it was written down.
  if (own.uuid.empty() || there.compute.empty()) return true;
  return std::any_of(there.compute.begin(), there.compute.end(),
                     [&own](const nvml::ComputeInstance& compute) { return compute.uuid == own.uuid; });
}

}  // namespace

StatusOr<const gpu::MigBoard*> MigBoardOf(const nvml::Device& device) {
  const gpu::Board* board = gpu::Catalogue::BuiltIn().ByDeviceName(device.name());
  const gpu::MigBoard* table = board == nullptr ? nullptr : gpu::MigTables::BuiltIn().Find(board->id);
  if (table == nullptr) return Lacks("{}: mete has no MIG table of this board", NameOf(device));
  return table;
}

std::optional<plan::Instance> PlaceOf(const gpu::MigBoard& board, const nvml::GpuInstance& instance) {
  const gpu::MigProfile* profile =
      instance.profile_id ? board.FindById(*instance.profile_id) : board.Find(instance.profile);
  if (profile == nullptr) return std::nullopt;
  if (instance.start >= 0) return plan::Instance{profile->name, instance.start, profile->memory_slices};
  // Who may not ask NVML for the place knows it from the id.
  for (const int start : profile->starts) {
    if (board.InstanceId(*profile, start) == instance.id) {
      return plan::Instance{profile->name, start, profile->memory_slices};
    }
  }
  return std::nullopt;
}

StatusOr<OwnInstance> OwnInstanceOf(const Object& object) {
  OwnInstance own;
  own.object = object;
  const Json& data = object.data;
  const bool whole = data.is_object() && data.contains("profile") && data["profile"].is_string() &&
                     data.contains("start") && data["start"].is_number_integer() && data.contains("size") &&
                     data["size"].is_number_integer() && data.contains("uuid") && data["uuid"].is_string() &&
                     data.contains("boot") && data["boot"].is_string() && data.contains("made") &&
                     data["made"].is_boolean();
  if (!whole) return Fault("the book's object {} of GPU {} is not as mete writes it", object.key, object.gpu);
  own.place = {data["profile"].get<std::string>(), data["start"].get<int>(), data["size"].get<int>()};
  own.gpu_instance = NumberIn(data, "gpu_instance");
  own.compute_instance = NumberIn(data, "compute_instance");
  own.uuid = data["uuid"].get<std::string>();
  own.boot = data["boot"].get<std::string>();
  own.made = data["made"].get<bool>();
  return own;
}

Support Mig::Probe(const plan::GpuOccupancy&) const {
  if (const auto library = DriverLibrary(options_.driver_root, "libcuda.so.1"); !library.ok()) {
    return {false, Message(library.status())};
  }
  return {true, {}};
}

StatusOr<std::optional<nvml::GpuInstance>> Mig::At(const nvml::Device& device, const plan::Instance& place) const {
  METE_ASSIGN_OR_RETURN(const gpu::MigBoard* board, MigBoardOf(device));
  METE_ASSIGN_OR_RETURN(const std::vector<nvml::GpuInstance> instances, device.GpuInstances());
  for (const nvml::GpuInstance& instance : instances) {
    if (PlaceOf(*board, instance) == place) return std::optional(instance);
  }
  return std::optional<nvml::GpuInstance>();
}

Status Mig::Write(const OwnInstance& own, Journal& journal) const {
  Object object = own.object;
  object.data = {{"profile", own.place.profile},
                 {"start", own.place.start},
                 {"size", own.place.size},
                 {"gpu_instance", NumberOrNull(own.gpu_instance)},
                 {"compute_instance", NumberOrNull(own.compute_instance)},
                 {"uuid", own.uuid},
                 {"boot", own.boot},
                 {"made", own.made}};
  return journal.Put(object);
}

Status Mig::SwitchOn(const nvml::Device& device, Journal& journal) const {
  METE_ASSIGN_OR_RETURN(nvml::MigState mode, device.Mig());
  if (mode.current == MigMode::kNotCapable) return Refused("{} has no MIG", NameOf(device));
  if (mode.current == MigMode::kEnabled && mode.pending == MigMode::kEnabled) return OkStatus();
  if (mode.current != mode.pending) return WaitsForReset(device);
  const Object object{{}, kMigMode, device.uuid(), {}, {{"found", false}}};
  METE_RETURN_IF_ERROR(journal.Put(object));
  journal.Reached("mig: mode written down");
  const StatusOr<nvml::MigState> set = device.SetMig(true);
  journal.Reached("mig: mode set");
  if (set.ok() && set->current == MigMode::kEnabled) return OkStatus();
  // What waits for a reset is left so: it was asked for, and the next request finds it on.
  METE_RETURN_IF_ERROR(journal.Drop(object));
  if (!set.ok()) return set.status();
  return WaitsForReset(device);
}

Status Mig::SwitchOffIfOurs(const nvml::Device& device, Journal& journal) const {
  METE_ASSIGN_OR_RETURN(const std::vector<Object> modes, journal.Objects(kMigMode, device.uuid()));
  if (modes.empty()) return OkStatus();
  METE_ASSIGN_OR_RETURN(const std::vector<Object> instances, journal.Objects(kInstance, device.uuid()));
  if (!instances.empty()) return OkStatus();
  METE_ASSIGN_OR_RETURN(const nvml::MigState mode, device.Mig());
  if (mode.current == MigMode::kEnabled) {
    METE_ASSIGN_OR_RETURN(const std::vector<nvml::GpuInstance> there, device.GpuInstances());
    // Somebody else's instances keep the mode; then it is theirs.
    if (there.empty()) METE_RETURN_IF_ERROR(device.SetMig(false).status());
  }
  journal.Reached("mig: mode set back");
  return journal.Drop(modes.front());
}

// Makes the compute instance that fills the GPU instance, and writes both down.
Status Mig::Complete(const nvml::Device& device, const gpu::MigProfile& profile, uint32_t gpu_instance,
                     OwnInstance& own, Journal& journal) const {
  const StatusOr<nvml::ComputeInstance> compute = device.CreateComputeInstance(gpu_instance, profile.compute_slices);
  journal.Reached("mig: compute instance made");
  if (!compute.ok()) {
    // Half-made is not made.
    METE_RETURN_IF_ERROR(device.DestroyGpuInstance(gpu_instance));
    METE_RETURN_IF_ERROR(journal.Drop(own.object));
    return compute.status();
  }
  own.compute_instance = compute->id;
  own.uuid = compute->uuid;
  return Write(own, journal);
}

StatusOr<OwnInstance> Mig::Make(const nvml::Device& device, const plan::Instance& place, const std::string& share_id,
                                Journal& journal) const {
  METE_ASSIGN_OR_RETURN(const gpu::MigBoard* board, MigBoardOf(device));
  const gpu::MigProfile* profile = board->Find(place.profile);
  if (profile == nullptr) return Fault("{} has no profile {}", board->id, place.profile);
  OwnInstance own;
  own.place = place;
  own.boot = options_.boot_id;
  own.object = {share_id, kInstance, device.uuid(), KeyOf(place), {}};
  METE_ASSIGN_OR_RETURN(const std::vector<Object> written, journal.Objects(kInstance, device.uuid()));
  std::optional<OwnInstance> before;
  for (const Object& object : written) {
    if (object.share_id != share_id || object.key != own.object.key) continue;
    METE_ASSIGN_OR_RETURN(before, OwnInstanceOf(object));
  }
  METE_ASSIGN_OR_RETURN(const std::optional<nvml::GpuInstance> there, At(device, place));
  if (there) {
    own.made = before && before->made && Same(*before, *there, options_.boot_id);
    own.gpu_instance = there->id;
    if (there->compute.empty() && own.made) {
      METE_RETURN_IF_ERROR(Complete(device, *profile, there->id, own, journal));
      return own;
    }
    if (there->compute.size() != 1 || there->compute[0].uuid.empty()) {
      return Refused("{}: the instance {} at {} has {} compute instances that are not mete's: it cannot be adopted",
                     NameOf(device), place.profile, place.start, there->compute.size());
    }
    own.compute_instance = there->compute[0].id;
    own.uuid = there->compute[0].uuid;
    METE_RETURN_IF_ERROR(Write(own, journal));
    journal.Reached("mig: instance adopted");
    return own;
  }
  own.made = true;
  METE_RETURN_IF_ERROR(Write(own, journal));
  journal.Reached("mig: instance written down");
  const StatusOr<nvml::GpuInstance> made = device.CreateGpuInstance(profile->nvml_profile, place.start, place.size);
  journal.Reached("mig: GPU instance made");
  if (!made.ok()) {
    METE_RETURN_IF_ERROR(journal.Drop(own.object));
    return made.status();
  }
  own.gpu_instance = made->id;
  METE_RETURN_IF_ERROR(Write(own, journal));
  METE_RETURN_IF_ERROR(Complete(device, *profile, made->id, own, journal));
  return own;
}

Status Mig::Destroy(const nvml::Device& device, const OwnInstance& own, Journal& journal) const {
  METE_ASSIGN_OR_RETURN(const nvml::MigState mode, device.Mig());
  std::optional<nvml::GpuInstance> there;
  if (own.made && mode.current == MigMode::kEnabled) {
    METE_ASSIGN_OR_RETURN(there, At(device, own.place));
  }
  // One that stands in its place since a reboot is somebody else's, and so is a compute instance that came in besides.
  if (there && Same(own, *there, options_.boot_id)) {
    for (const nvml::ComputeInstance& compute : there->compute) {
      if (!own.uuid.empty() && compute.uuid != own.uuid) continue;
      METE_RETURN_IF_ERROR(device.DestroyComputeInstance(there->id, compute.id));
    }
    journal.Reached("mig: compute instance gone");
    METE_ASSIGN_OR_RETURN(const std::optional<nvml::GpuInstance> left, At(device, own.place));
    if (left && left->compute.empty()) METE_RETURN_IF_ERROR(device.DestroyGpuInstance(left->id));
  }
  journal.Reached("mig: GPU instance gone");
  return journal.Drop(own.object);
}

StatusOr<Edits> Mig::Prepare(const plan::Grant& grant, Journal& journal) const {
  const std::string directory = GrantDirectory(options_.grants_dir, grant);
  METE_RETURN_IF_ERROR(LinkDriver(options_.driver_root, directory));
  std::vector<std::string> visible;
  for (const plan::GpuGrant& part : grant.gpus) {
    if (!part.instance) return Fault("share {} has no instance on GPU {}", grant.share, part.uuid);
    METE_ASSIGN_OR_RETURN(const auto device, library_.FindDevice(part.uuid));
    METE_RETURN_IF_ERROR(SwitchOn(*device, journal));
    METE_ASSIGN_OR_RETURN(const OwnInstance own, Make(*device, *part.instance, grant.id, journal));
    visible.push_back(own.uuid);
  }
  return BareEdits(grant, directory, visible);
}

StatusOr<Evidence> Mig::Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                               const Journal& journal) const {
  Evidence evidence;
  std::vector<std::string> visible;
  for (const plan::GpuGrant& part : grant.gpus) {
    METE_ASSIGN_OR_RETURN(const auto device, library_.FindDevice(part.uuid));
    METE_ASSIGN_OR_RETURN(const std::vector<Object> objects, journal.Objects(kInstance, part.uuid));
    for (const Object& object : objects) {
      if (object.share_id != grant.id) continue;
      METE_ASSIGN_OR_RETURN(const OwnInstance own, OwnInstanceOf(object));
      visible.push_back(own.uuid);
      METE_ASSIGN_OR_RETURN(const nvml::MigState mode, device->Mig());
      evidence.items.push_back({fmt::format("MIG is on on GPU {}", device->index()), mode.current == MigMode::kEnabled,
                                mode.current == mode.pending ? "NVML says so now and for the next reset"
                                                             : "a change of mode waits for a reset"});
      if (mode.current != MigMode::kEnabled) {
        evidence.items.back().because = "NVML says that it is off";
        continue;
      }
      METE_ASSIGN_OR_RETURN(const std::optional<nvml::GpuInstance> there, At(*device, own.place));
      Evidence::Item item;
      item.what = fmt::format("{} stands at {} of GPU {}", own.place.profile, own.place.start, device->index());
      item.holds = there && !own.uuid.empty() && Same(own, *there, options_.boot_id);
      item.because = !there ? "NVML shows no such instance there"
                     : item.holds
                         ? fmt::format("GPU instance {}, {}{}", there->id, own.uuid, own.made ? "" : ", adopted")
                         : "another instance stands in its place";
      evidence.items.push_back(std::move(item));
      if (!there) continue;
      METE_ASSIGN_OR_RETURN(const std::vector<nvml::Process> processes, device->Processes());
      std::string others;
      size_t ours = 0;
      for (const nvml::Process& process : processes) {
        if (process.gpu_instance != there->id) continue;
        const bool tenant = std::any_of(tenants.begin(), tenants.end(),
                                        [&process](const Tenant& one) { return one.pid == process.pid; });
        ours += tenant ? 1 : 0;
        if (!tenant) others += fmt::format("{}{}", others.empty() ? "" : ", ", process.pid);
      }
      evidence.items.push_back({"nobody else is on the instance", others.empty(),
                                others.empty() ? fmt::format("NVML shows {} processes on it, all of the share", ours)
                                               : "NVML shows besides: " + others});
    }
  }
  if (visible.empty()) evidence.items.push_back({"it has an instance", false, "none is written down for it"});
  VerifyVisible(tenants, visible, options_.proc_root, &evidence);
  return evidence;
}

Status Mig::Release(const plan::Grant& grant, Journal& journal) const {
  for (const plan::GpuGrant& part : grant.gpus) {
    METE_ASSIGN_OR_RETURN(const std::vector<Object> objects, journal.Objects(kInstance, part.uuid));
    const auto device = library_.FindDevice(part.uuid);
    for (const Object& object : objects) {
      if (object.share_id != grant.id) continue;
      if (!device.ok()) {  // a GPU that is gone has no instances
        METE_RETURN_IF_ERROR(journal.Drop(object));
        continue;
      }
      METE_ASSIGN_OR_RETURN(const OwnInstance own, OwnInstanceOf(object));
      METE_RETURN_IF_ERROR(Destroy(**device, own, journal));
    }
    if (device.ok()) METE_RETURN_IF_ERROR(SwitchOffIfOurs(**device, journal));
  }
  return RemoveGrantDirectory(GrantDirectory(options_.grants_dir, grant), grant);
}

}  // namespace mete::mechanism
