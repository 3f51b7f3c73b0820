#include "emulator/simulate/placement.h"

#include <algorithm>
#include <charconv>

#include "base/quantities.h"
#include "emulator/engine/boards.h"
#include "emulator/simulate/instances.h"
#include "plan/resolve.h"

namespace mete::emulator {
namespace {

using ledger::ComputeMode;

plan::Occupancy Empty(const std::vector<EngineSettings::Gpu>& node) {
  plan::Occupancy occupancy;
  for (uint32_t i = 0; i < node.size(); ++i) {
    plan::GpuOccupancy gpu;
    gpu.index = i;
    gpu.uuid = UuidText(node[i].info.uuid);
    gpu.name = node[i].info.name;
    gpu.total = Bytes{node[i].info.memory_bytes};
    gpu.reserved = Bytes{node[i].info.reserved_bytes};
    occupancy.gpus.push_back(std::move(gpu));
  }
  return occupancy;
}

StatusOr<std::vector<Placed>> ByPlan(const std::vector<EngineSettings::Gpu>& node, Scenario* scenario) {
  plan::Occupancy occupancy = Empty(node);
  std::vector<Placed> placed;
  for (const ShareSpec& share : scenario->shares) {
    plan::Request request;
    request.share = share.name;
    request.gpu = share.gpu;
    if (!share.memory.empty()) {
      METE_ASSIGN_OR_RETURN(request.memory, ParseBytes(share.memory));
    }
    if (!share.compute.empty()) {
      METE_ASSIGN_OR_RETURN(request.compute, plan::ParseCompute(share.compute));
    }
    const StatusOr<plan::Grant> grant = plan::Resolve(request, occupancy);
    if (!grant.ok()) {
      if (ExitCodeFor(grant.status()) != ExitCode::kRefused) return grant.status();
      placed.push_back({0, Message(grant.status())});
      continue;
    }
    const plan::GpuGrant& given = grant->gpus.front();
    plan::Holding holding;
    holding.share = share.name;
    holding.memory = given.memory;
    holding.compute = given.compute;
    occupancy.gpus[given.index].holdings.push_back(holding);
    placed.push_back({given.index, {}});
  }
  // What each got follows from all that are there.
  for (const plan::GpuOccupancy& gpu : occupancy.gpus) {
    const std::vector<plan::Allotment> allotments = plan::Allot(gpu);
    for (size_t i = 0; i < allotments.size(); ++i) {
      for (ShareSpec& share : scenario->shares) {
        if (share.name != gpu.holdings[i].share) continue;
        share.mode = allotments[i].mode == plan::ComputeMode::kHard   ? ComputeMode::kHard
                     : allotments[i].mode == plan::ComputeMode::kSoft ? ComputeMode::kSoft
                                                                      : ComputeMode::kWorkConserving;
        share.share = allotments[i].share;
        share.weight = allotments[i].weight;
      }
    }
  }
  return placed;
}

// The GPU that a share names by its index, else the one with the fewest shares; `alone`: it must have none.
StatusOr<Placed> ByCount(const ShareSpec& share, const std::vector<uint32_t>& count, bool alone) {
  uint32_t gpu = static_cast<uint32_t>(std::min_element(count.begin(), count.end()) - count.begin());
  if (!share.gpu.empty()) {
    const auto read = std::from_chars(share.gpu.data(), share.gpu.data() + share.gpu.size(), gpu);
    if (read.ec != std::errc() || read.ptr != share.gpu.data() + share.gpu.size() || gpu >= count.size()) {
      return NoSuch("share {}: there is no GPU '{}'; the scenario has 0 to {}", share.name, share.gpu,
                    count.size() - 1);
    }
  }
  if (!alone || count[gpu] == 0) return Placed{gpu, {}};
  return Placed{gpu, fmt::format("GPU {} belongs to another share as a whole, and no GPU is left", gpu)};
}

}  // namespace

StatusOr<std::vector<EngineSettings::Gpu>> NodeOf(const Scenario& scenario, const GpuParameters& fallback) {
  std::vector<EngineSettings::Gpu> node;
  if (scenario.boards.empty()) {
    node.emplace_back();
    node.back().model = fallback;
    node.back().info.compute_major = 8;
  } else {
    METE_ASSIGN_OR_RETURN(
        node, GpusByName(fmt::format("{}", fmt::join(scenario.boards, ",")), "/simulated", scenario.more_boards));
  }
  for (EngineSettings::Gpu& gpu : node) {
    gpu.model.without_slices = fallback.without_slices;
    gpu.model.without_bandwidth = fallback.without_bandwidth;
    if (scenario.time_slice_ns > 0) gpu.model.time_slice_ns = scenario.time_slice_ns;
  }
  return node;
}

StatusOr<std::vector<Placed>> Place(const std::vector<EngineSettings::Gpu>& node, Scenario* scenario) {
  if (scenario->boards.empty()) return std::vector<Placed>(scenario->shares.size());
  if (scenario->mechanism == SharingMechanism::kIntercept) return ByPlan(node, scenario);
  if (scenario->mechanism == SharingMechanism::kMig) return PlaceInInstances(node, scenario);
  std::vector<uint32_t> count(node.size());
  std::vector<Placed> placed;
  for (const ShareSpec& share : scenario->shares) {
    const bool exclusive = scenario->mechanism == SharingMechanism::kExclusive;
    if (!exclusive && (!share.memory.empty() || !share.compute.empty())) {
      placed.push_back({0, "time-slicing keeps neither a memory quota nor a compute promise; ask for it of intercept"});
      continue;
    }
    METE_ASSIGN_OR_RETURN(Placed where, ByCount(share, count, exclusive));
    if (where.refused.empty()) ++count[where.gpu];
    placed.push_back(std::move(where));
  }
  return placed;
}

}  // namespace mete::emulator
