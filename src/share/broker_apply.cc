// `mete apply`: brings the node's MIG layout to what a configuration of mig-parted's format asks. All GPUs are looked
// at before the first is touched; what a tenant uses and what mete did not make stays, or nothing is changed. Applied
// again it changes nothing.
#include <algorithm>
#include <bit>
#include <utility>

#include "mechanism/mig/mig.h"
#include "plan/mig/change.h"
#include "plan/mig/parted.h"
#include "share/broker.h"

namespace mete::share {
namespace {

using plan::mig::Layout;

std::vector<plan::Instance> PlacesIn(const plan::mig::Geometry& geometry, Layout layout) {
  std::vector<plan::Instance> places;
  for (; layout != 0; layout &= layout - 1) {
    const plan::mig::Placement& at = geometry.at(std::countr_zero(layout));
    places.push_back({geometry.board().profiles[static_cast<size_t>(at.profile)].name, at.start, at.size});
  }
  return places;
}

Json InJson(const std::vector<plan::Instance>& places) {
  Json json = Json::array();
  for (const plan::Instance& place : places) json.push_back({{"profile", place.profile}, {"start", place.start}});
  return json;
}

}  // namespace

// What is to be done to one GPU.
struct Broker::LayoutChange {
  std::shared_ptr<const nvml::Device> device;
  bool switch_on = false, switch_off = false;
  std::vector<plan::Instance> keep, add;
  std::vector<mechanism::OwnInstance> remove;
};

// Instances of the book that belong to no share: a person applied them.
StatusOr<std::vector<mechanism::OwnInstance>> Broker::LayoutOf(const std::string& gpu) const {
  METE_ASSIGN_OR_RETURN(const std::vector<mechanism::Object> objects, book_->Objects("instance", gpu));
  std::vector<mechanism::OwnInstance> layout;
  for (const mechanism::Object& object : objects) {
    if (!object.share_id.empty()) continue;
    METE_ASSIGN_OR_RETURN(mechanism::OwnInstance own, mechanism::OwnInstanceOf(object));
    layout.push_back(std::move(own));
  }
  return layout;
}

StatusOr<Broker::LayoutChange> Broker::ChangeOf(const Gpu& gpu, const plan::mig::PartedEntry& wanted) const {
  LayoutChange change;
  METE_ASSIGN_OR_RETURN(change.device, nvml_->FindDevice(gpu.reading.uuid));
  const plan::GpuView view = ViewOfGpu(gpu);
  const std::string name = plan::NameOf(view);
  const bool on = gpu.reading.mig.current == nvml::MigMode::kEnabled;
  if (gpu.reading.mig.current == nvml::MigMode::kNotCapable) {
    if (wanted.mig_enabled) return Refused("{} has no MIG", name);
    return change;
  }
  if (gpu.reading.mig.current != gpu.reading.mig.pending) {
    return Refused("{}: a change of MIG mode waits for a reset of the GPU; reset it first, then apply again", name);
  }
  const std::string users = plan::WhoIsThere(view);
  if (wanted.mig_enabled && !on && !users.empty()) {
    return Refused("{}: MIG can be switched on only while the GPU is idle: {} use it", name, users);
  }
  const gpu::MigBoard* board = MigBoardOf(gpu);
  if (board == nullptr) return Refused("{}: mete has no MIG table of this board", name);
  METE_ASSIGN_OR_RETURN(plan::mig::Geometry geometry, plan::mig::Geometry::Of(*board));
  METE_ASSIGN_OR_RETURN(const plan::mig::States states, plan::mig::States::Of(std::move(geometry)));
  METE_ASSIGN_OR_RETURN(const std::vector<mechanism::OwnInstance> layout, LayoutOf(gpu.reading.uuid));
  std::vector<plan::mig::PresentInstance> present;
  for (const plan::InstanceView& one : view.instances) {
    const plan::mig::Geometry& known = states.geometry();
    plan::mig::PresentInstance instance{known.Find(known.ProfileIndex(one.profile), one.start), {}};
    if (instance.placement < 0) {
      return Refused("{} holds {} at {}, which mete's table of the board does not know", name, one.profile, one.start);
    }
    const bool ours = std::any_of(layout.begin(), layout.end(), [&one](const mechanism::OwnInstance& own) {
      return own.made && own.place.profile == one.profile && own.place.start == one.start && own.uuid == one.uuid;
    });
    if (!one.tenant.empty()) {
      instance.fixed = fmt::format("{} has it", one.tenant);
    } else if (!ours) {
      instance.fixed = "mete did not make it";
    }
    present.push_back(std::move(instance));
  }
  METE_ASSIGN_OR_RETURN(const plan::mig::Change wished, plan::mig::ChangeTo(states, present, wanted.profiles));
  change.switch_on = wanted.mig_enabled && !on;
  change.switch_off = !wanted.mig_enabled && on;
  change.keep = PlacesIn(states.geometry(), wished.keep);
  change.add = PlacesIn(states.geometry(), wished.add);
  for (const plan::Instance& place : PlacesIn(states.geometry(), wished.remove)) {
    const auto own = std::find_if(layout.begin(), layout.end(),
                                  [&place](const mechanism::OwnInstance& one) { return one.place == place; });
    if (own == layout.end()) return Fault("{}: {} at {} is not in the book", name, place.profile, place.start);
    change.remove.push_back(*own);
  }
  return change;
}

Status Broker::ApplyTo(const LayoutChange& change) {
  const auto& mig = static_cast<const mechanism::Mig&>(*mechanisms_.at("mig"));
  const nvml::Device& device = *change.device;
  for (const mechanism::OwnInstance& own : change.remove) METE_RETURN_IF_ERROR(mig.Destroy(device, own, *journal_));
  if (change.switch_on) METE_RETURN_IF_ERROR(mig.SwitchOn(device, *journal_));
  for (const plan::Instance& place : change.add) {
    METE_RETURN_IF_ERROR(mig.Make(device, place, {}, *journal_).status());
  }
  if (change.switch_on || change.switch_off) {
    // From here on the mode is as a person asked for it: no share's end sets it back.
    METE_ASSIGN_OR_RETURN(const std::vector<mechanism::Object> modes, book_->Objects("mig-mode", device.uuid()));
    for (const mechanism::Object& mode : modes) METE_RETURN_IF_ERROR(book_->DropObject(mode));
  }
  return change.switch_off ? device.SetMig(false).status() : OkStatus();
}

StatusOr<Json> Broker::Apply(const Command& command) {
  METE_ASSIGN_OR_RETURN(const plan::mig::PartedFile file, plan::mig::ParseParted(command.text, "the configuration"));
  if (file.configs.size() != 1) return Usage("one configuration is applied at a time, not {}", file.configs.size());
  METE_RETURN_IF_ERROR(Refresh());
  std::vector<std::pair<const Gpu*, LayoutChange>> changes;
  std::vector<const Gpu*> gpus;
  for (const auto& entry : gpus_) {
    if (entry.second.reading.parent.empty()) gpus.push_back(&entry.second);
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu* a, const Gpu* b) { return a->reading.index < b->reading.index; });
  for (const Gpu* gpu : gpus) {
    METE_ASSIGN_OR_RETURN(const auto device, nvml_->FindDevice(gpu->reading.uuid));
    const StatusOr<uint32_t> pci = device->PciDeviceId();
    const plan::mig::PartedEntry* wanted = nullptr;  // the last that speaks of it, as mig-parted takes them in turn
    for (const plan::mig::PartedEntry& entry : file.configs.front().second) {
      if (entry.Matches(static_cast<int>(gpu->reading.index), pci.ok() ? *pci : 0)) wanted = &entry;
    }
    if (wanted == nullptr) continue;
    METE_ASSIGN_OR_RETURN(LayoutChange change, ChangeOf(*gpu, *wanted));
    changes.emplace_back(gpu, std::move(change));
  }
  Json json;
  json["changed"] = false;
  json["gpus"] = Json::array();
  for (const auto& [gpu, change] : changes) {
    std::vector<plan::Instance> removed;
    for (const mechanism::OwnInstance& own : change.remove) removed.push_back(own.place);
    const char* mode = change.switch_on ? "switch on" : change.switch_off ? "switch off" : "as it is";
    json["gpus"].push_back({{"index", gpu->reading.index},
                            {"name", gpu->reading.name},
                            {"mode", mode},
                            {"keep", InJson(change.keep)},
                            {"remove", InJson(removed)},
                            {"add", InJson(change.add)}});
    const bool any = change.switch_on || change.switch_off || !change.add.empty() || !change.remove.empty();
    if (any) json["changed"] = true;
    if (any && !command.dry_run) METE_RETURN_IF_ERROR(ApplyTo(change));
  }
  if (!command.dry_run) METE_RETURN_IF_ERROR(Refresh());
  return json;
}

// After a reboot what a person applied is made again, as far as the device lets us.
void Broker::RestoreLayout() {
  const auto& mig = static_cast<const mechanism::Mig&>(*mechanisms_.at("mig"));
  for (const auto& entry : gpus_) {
    const StatusOr<std::vector<mechanism::OwnInstance>> layout = LayoutOf(entry.first);
    if (!layout.ok()) continue;
    for (const mechanism::OwnInstance& own : *layout) {
      if (own.boot == BootId()) continue;
      const auto device = nvml_->FindDevice(entry.first);
      Status made = device.ok() ? mig.SwitchOn(**device, *journal_) : device.status();
      if (made.ok()) made = mig.Make(**device, own.place, {}, *journal_).status();
      Note({}, entry.first, made.ok() ? "layout" : "layout-failed",
           made.ok() ? fmt::format("{} at {} is made again after a reboot", own.place.profile, own.place.start)
                     : Message(made));
    }
  }
}

}  // namespace mete::share
