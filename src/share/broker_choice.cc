// Which mechanism a share gets, on which GPU: what the plan chooses from, and the mechanisms themselves.
#include <algorithm>
#include <iterator>
#include <utility>

#include "mechanism/exclusive/exclusive.h"
#include "mechanism/mig/mig.h"
#include "mechanism/time_slicing/time_slicing.h"
#include "plan/resolve.h"
#include "share/broker.h"
#include "share/choice_json.h"

namespace mete::share {

class Broker::BookJournal final : public mechanism::Journal {
 public:
  explicit BookJournal(const Broker& broker) : broker_(broker) {}
  StatusOr<std::vector<mechanism::Object>> Objects(const std::string& kind, const std::string& gpu) const override {
    return broker_.book_->Objects(kind, gpu);
  }
  Status Put(const mechanism::Object& object) override { return broker_.book_->PutObject(object); }
  Status Drop(const mechanism::Object& object) override { return broker_.book_->DropObject(object); }
  void Reached(const char* point) override { broker_.options_.reached(point); }

 private:
  const Broker& broker_;
};

void Broker::MakeMechanisms() {
  const std::string& root = options_.places.driver_root;
  const std::string& grants = options_.places.grants;
  const auto add = [this](std::unique_ptr<mechanism::Mechanism> one) {
    const std::string name(one->name());
    mechanisms_[name] = std::move(one);
  };
  add(std::make_unique<mechanism::Intercept>(mechanism::Intercept::Options{root, options_.interceptor_dir, grants}));
  add(std::make_unique<mechanism::Exclusive>(*nvml_, mechanism::Exclusive::Options{root, grants}));
  add(std::make_unique<mechanism::Mig>(*nvml_, mechanism::Mig::Options{root, grants, BootId()}));
  add(std::make_unique<mechanism::TimeSlicing>(*nvml_, mechanism::TimeSlicing::Options{root, grants}));
  journal_ = std::make_unique<BookJournal>(*this);
}

const mechanism::Mechanism* Broker::MechanismOf(const plan::Grant& grant) const {
  const auto found = mechanisms_.find(grant.mechanism);
  return found == mechanisms_.end() ? nullptr : found->second.get();
}

std::string Broker::Directory(const plan::Grant& grant) const {
  return mechanism::GrantDirectory(options_.places.grants, grant);
}

plan::GpuOccupancy Broker::OccupancyOf(const std::string& uuid) const {
  plan::GpuOccupancy occupancy;
  const Gpu& gpu = gpus_.at(uuid);
  occupancy.index = gpu.reading.index;
  occupancy.uuid = uuid;
  occupancy.name = gpu.reading.name;
  occupancy.total = gpu.reading.memory.total;
  occupancy.reserved = gpu.reading.memory.reserved;
  occupancy.mig_enabled = gpu.reading.mig.current == nvml::MigMode::kEnabled;
  for (const auto& entry : shares_) {
    const Share& share = *entry.second;
    for (size_t i = 0; i < share.row.grant.gpus.size(); ++i) {
      const plan::GpuGrant& part = share.row.grant.gpus[i];
      if (part.uuid != uuid || part.instance) continue;  // an instance is not a part of what the others share
      plan::Holding holding;
      holding.share = share.row.grant.share;
      holding.memory = part.memory;
      holding.compute = part.compute;
      holding.used = Bytes{UsedOn(share, i)};
      holding.mechanism = share.row.grant.mechanism;
      holding.time_slice = share.row.grant.time_slice;
      occupancy.holdings.push_back(std::move(holding));
    }
  }
  for (const auto& entry : gpu.foreigners) occupancy.foreigners.push_back(entry.second);
  return occupancy;
}

plan::GpuView Broker::ViewOfGpu(const Gpu& gpu) const {
  mechanism::GpuFacts facts = gpu.facts;
  facts.mig = gpu.reading.mig;
  plan::GpuView view = mechanism::ViewOf(facts, OccupancyOf(gpu.reading.uuid));
  for (plan::WayView& way : view.ways) {
    if (way.standing != plan::WayView::Standing::kSupported) continue;
    const auto mechanism = mechanisms_.find(std::string(gpu::Name(way.variant->mechanism)));
    if (mechanism == mechanisms_.end()) continue;
    const mechanism::Support support = mechanism->second->Probe(view.occupancy);
    if (support.supported) continue;
    way.standing = plan::WayView::Standing::kNotPossible;
    way.lacks = true;
    way.why = support.because;
  }
  for (const plan::Holding& holding : view.occupancy.holdings) {
    if (holding.mechanism == "exclusive") view.exclusive_tenant = holding.share;
  }
  AddInstances(gpu, &view);
  return view;
}

std::vector<plan::GpuView> Broker::Views() const {
  std::vector<plan::GpuView> views, devices;
  for (const auto& entry : gpus_) {
    if (!entry.second.reading.parent.empty()) continue;
    views.push_back(ViewOfGpu(entry.second));
    for (plan::GpuView& device : MigDevicesOf(entry.second, views.back())) devices.push_back(std::move(device));
  }
  std::sort(views.begin(), views.end(),
            [](const plan::GpuView& a, const plan::GpuView& b) { return a.occupancy.index < b.occupancy.index; });
  std::move(devices.begin(), devices.end(), std::back_inserter(views));
  return views;
}

StatusOr<Json> Broker::Plan(const Command& command) {
  METE_RETURN_IF_ERROR(Refresh());
  plan::Ask ask{command.request, command.need};
  if (ask.request.share.empty()) ask.request.share = "the new share";
  return ToJson(plan::Choose(ask, Views()));
}

}  // namespace mete::share
