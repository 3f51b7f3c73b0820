#include "cli/choice_view.h"

#include <cmath>
#include <map>

#include "base/table.h"

namespace mete::cli {
namespace {

plan::Keeps KeepsOf(mechanism::Keeps keeps) {
  switch (keeps) {
    case mechanism::Keeps::kAlways: return plan::Keeps::kAlways;
    case mechanism::Keeps::kWhileInForce: return plan::Keeps::kWhileInForce;
    case mechanism::Keeps::kWhileAllGranted: return plan::Keeps::kWhileAllGranted;
    case mechanism::Keeps::kNot: break;
  }
  return plan::Keeps::kNot;
}

plan::WayView::Standing StandingOf(mechanism::Standing standing) {
  switch (standing) {
    case mechanism::Standing::kSupported: return plan::WayView::Standing::kSupported;
    case mechanism::Standing::kNotBuilt: return plan::WayView::Standing::kNotBuilt;
    case mechanism::Standing::kNotPossible: break;
  }
  return plan::WayView::Standing::kNotPossible;
}

std::optional<plan::Compute> ComputeOf(const Json& compute) {
  if (!compute.contains("percent")) return std::nullopt;
  const auto mode = compute.value("mode", "hard") == "soft" ? plan::ComputeMode::kSoft : plan::ComputeMode::kHard;
  return plan::Compute{mode, Percent{static_cast<uint32_t>(std::lround(100 * compute["percent"].get<double>()))}};
}

void AddHoldings(const Json& shares, plan::GpuOccupancy* occupancy) {
  for (const Json& share : shares.at("shares")) {
    for (const Json& part : share.at("gpus")) {
      if (part.at("uuid") != occupancy->uuid) continue;
      plan::Holding holding;
      holding.share = share.at("name");
      if (part.value("quota_asked", false)) holding.memory = Bytes{part.at("quota_bytes").get<uint64_t>()};
      holding.compute = ComputeOf(part.at("compute"));
      holding.used = Bytes{part.value("used_bytes", uint64_t{0})};
      occupancy->holdings.push_back(std::move(holding));
    }
  }
  for (const Json& other : shares.at("foreign")) {
    if (other.at("gpu") != occupancy->index) continue;
    occupancy->foreigners.push_back(
        {other.at("pid"), other.value("program", std::string()), Bytes{other.value("used_bytes", uint64_t{0})}});
  }
}

std::string PromiseLines(const plan::Reason& reason) {
  std::string text;
  for (const plan::PromiseReason& promise : reason.promises) {
    text += fmt::format("{}{} {}: {}", text.empty() ? "" : "\n", gpu::Name(promise.promise), Name(promise.holds),
                        promise.because);
  }
  return text;
}

}  // namespace

std::vector<plan::GpuView> ViewsOf(const Inventory& inventory, const Json& shares) {
  std::vector<plan::GpuView> views;
  for (const InventoryGpu& gpu : inventory.gpus) {
    plan::GpuView view;
    view.occupancy.index = gpu.index;
    view.occupancy.uuid = gpu.uuid;
    view.occupancy.name = gpu.facts.name;
    if (gpu.memory) {
      view.occupancy.total = gpu.memory->total;
      view.occupancy.reserved = gpu.memory->reserved;
    }
    view.occupancy.mig_enabled = gpu.facts.mig.current == nvml::MigMode::kEnabled;
    view.mig_pending = gpu.facts.mig.current != gpu.facts.mig.pending;
    view.mig_needs_reset = gpu.facts.capability.major < 9;
    view.instances_known = false;
    if (gpu.facts.board != nullptr) view.mig = gpu::MigTables::BuiltIn().Find(gpu.facts.board->id);
    AddHoldings(shares, &view.occupancy);
    for (const mechanism::VariantHere& here : gpu.variants) {
      plan::WayView way{here.variant, StandingOf(here.standing), here.why, {}};
      for (const auto& promise : here.promises) {
        way.promises.push_back({promise.promise, KeepsOf(promise.keeps), promise.why});
      }
      view.ways.push_back(std::move(way));
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::string ChoiceText(const plan::Choice& choice, size_t width) {
  std::string text;
  for (size_t first = 0; first < choice.reasons.size();) {
    const uint32_t gpu = choice.reasons[first].gpu;
    Table table({{"mechanism"}, {"verdict"}, {"gives", Align::kLeft, true}, {"why", Align::kLeft, true}});
    size_t next = first;
    for (; next < choice.reasons.size() && choice.reasons[next].gpu == gpu; ++next) {
      const plan::Reason& reason = choice.reasons[next];
      std::string why = reason.why;
      // What breaks is already the reason; for what would do, every promise with its condition.
      const bool open = reason.verdict == plan::Reason::Verdict::kChosen ||
                        reason.verdict == plan::Reason::Verdict::kWouldDo ||
                        reason.verdict == plan::Reason::Verdict::kNotBuilt;
      const std::string promises = open ? PromiseLines(reason) : std::string();
      if (!promises.empty()) why += (why.empty() ? "" : "\n") + promises;
      table.AddRow({reason.variant, std::string(Name(reason.verdict)), reason.gives, why});
    }
    text += fmt::format("GPU {} ({})\n{}\n", gpu, choice.reasons[first].gpu_name, table.Render(width, 2));
    first = next;
  }
  for (const size_t index : choice.chosen) {
    const plan::Reason& reason = choice.reasons[index];
    text += fmt::format("would run by {} on GPU {}: {}\n", reason.variant, reason.gpu, reason.gives);
  }
  return text;
}

Json ChoiceJson(const plan::Choice& choice) {
  Json json;
  json["granted"] = choice.status.ok();
  if (choice.status.ok()) json["mechanism"] = gpu::Name(choice.mechanism);
  if (!choice.nearest.empty()) json["nearest"] = choice.nearest;
  json["reasons"] = Json::array();
  for (const plan::Reason& reason : choice.reasons) {
    Json promises = Json::array();
    for (const plan::PromiseReason& promise : reason.promises) {
      promises.push_back(
          {{"promise", gpu::Name(promise.promise)}, {"holds", Name(promise.holds)}, {"because", promise.because}});
    }
    json["reasons"].push_back({{"gpu", reason.gpu},
                               {"board", reason.gpu_name},
                               {"mechanism", gpu::Name(reason.mechanism)},
                               {"variant", reason.variant},
                               {"verdict", Name(reason.verdict)},
                               {"gives", reason.gives},
                               {"why", reason.why},
                               {"promises", promises}});
  }
  return json;
}

}  // namespace mete::cli
