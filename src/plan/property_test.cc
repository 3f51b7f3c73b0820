// What must be true of every sequence of requests and departures, whatever they are.
#include <rapidcheck.h>

#include <algorithm>

#include "plan/promises.h"
#include "plan/resolve.h"

namespace mete::plan {
namespace {

struct World {
  Occupancy occupancy;
  int names = 0;
};

GpuOccupancy* Find(World& world, const std::string& uuid) {
  for (GpuOccupancy& gpu : world.occupancy.gpus) {
    if (gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

World AnyNode() {
  World world;
  const int gpus = *rc::gen::inRange(1, 4);
  for (int i = 0; i < gpus; ++i) {
    GpuOccupancy gpu;
    gpu.index = static_cast<uint32_t>(i);
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.name = "board";
    gpu.total = Bytes{*rc::gen::inRange<uint64_t>(1, 96) * kGiB};
    gpu.reserved = Bytes{*rc::gen::inRange<uint64_t>(0, 2 * kGiB)};
    world.occupancy.gpus.push_back(gpu);
  }
  return world;
}

Request AnyRequest(World& world) {
  Request request;
  request.share = "s" + std::to_string(world.names++);
  if (*rc::gen::arbitrary<bool>()) request.memory = Bytes{*rc::gen::inRange<uint64_t>(1, 64 * kGiB)};
  if (*rc::gen::arbitrary<bool>()) {
    request.compute = Compute{*rc::gen::element(ComputeMode::kHard, ComputeMode::kSoft),
                              Percent{*rc::gen::inRange<uint32_t>(1, 10001)}};
  }
  if (*rc::gen::arbitrary<bool>()) request.gpu = std::to_string(*rc::gen::inRange(0, 4));
  if (request.gpu.empty()) request.gpus = *rc::gen::inRange(1, 3);
  return request;
}

void CheckGpu(const GpuOccupancy& gpu) {
  const std::vector<Allotment> allotments = Allot(gpu);
  RC_ASSERT(allotments.size() == gpu.holdings.size());
  uint64_t promised = 0, compute = 0, weights_without = 0;
  for (size_t i = 0; i < allotments.size(); ++i) {
    const Holding& holding = gpu.holdings[i];
    RC_ASSERT(allotments[i].weight >= 1 && allotments[i].weight <= 10000);
    RC_ASSERT(allotments[i].share >= 1 && allotments[i].share <= 10000);
    if (holding.memory) {
      promised += holding.memory->count;
      RC_ASSERT(allotments[i].quota == *holding.memory);
    } else {
      RC_ASSERT(allotments[i].quota.count <= Usable(gpu).count);
    }
    if (holding.compute)
      compute += holding.compute->percent.hundredths;
    else
      weights_without += allotments[i].weight;
  }
  RC_ASSERT(promised <= Usable(gpu).count);
  RC_ASSERT(compute <= 10000u);
  // The others together never weigh more than what was not promised (but for the 1 that each has at least).
  RC_ASSERT(weights_without <= std::max<uint64_t>(10000 - compute, gpu.holdings.size()));
  // Nobody holds anything yet: every quota asked is kept, by every share at once.
  for (size_t i = 0; i < gpu.holdings.size(); ++i) {
    for (const PromiseState& state : PromisesNow(gpu, i, {})) {
      if (state.promise == "memory-quota" && state.asked) RC_ASSERT(state.kept);
    }
  }
}

bool Run() {
  return rc::check("no sequence of grants and releases promises more than there is",
                   [] {
                     World world = AnyNode();
                     const int steps = *rc::gen::inRange(1, 25);
                     for (int step = 0; step < steps; ++step) {
                       if (*rc::gen::inRange(0, 4) == 0) {
                         GpuOccupancy& gpu =
                             world.occupancy.gpus[*rc::gen::inRange<size_t>(0, world.occupancy.gpus.size())];
                         if (!gpu.holdings.empty()) gpu.holdings.erase(gpu.holdings.begin());
                         continue;
                       }
                       const Request request = AnyRequest(world);
                       const Occupancy before = world.occupancy;
                       const StatusOr<Grant> grant = Resolve(request, before);
                       if (!grant.ok()) {
                         const ExitCode code = ExitCodeFor(grant.status());
                         RC_ASSERT(code == ExitCode::kRefused || code == ExitCode::kUsage);
                         continue;
                       }
                       RC_ASSERT(static_cast<int>(grant->gpus.size()) == request.gpus);
                       for (const GpuGrant& part : grant->gpus) {
                         GpuOccupancy* gpu = Find(world, part.uuid);
                         RC_ASSERT(gpu != nullptr);
                         gpu->holdings.push_back({request.share, request.memory, request.compute, {}});
                         RC_ASSERT(Allot(*gpu).back() == part.allotment);
                       }
                       for (const GpuOccupancy& gpu : world.occupancy.gpus) CheckGpu(gpu);
                     }
                   }) &&
         rc::check("a refusal is right: the largest request named fits, and a byte more does not", [] {
           World world = AnyNode();
           GpuOccupancy& gpu = world.occupancy.gpus[0];
           world.occupancy.gpus.resize(1);
           const int holders = *rc::gen::inRange(0, 5);
           for (int i = 0; i < holders; ++i) {
             gpu.holdings.push_back({"h" + std::to_string(i), std::nullopt, std::nullopt,
                                     Bytes{*rc::gen::inRange<uint64_t>(0, 8 * kGiB)}});
           }
           Request request;
           request.share = "new";
           const uint64_t largest = LargestQuota(gpu).count;
           request.memory = Bytes{largest + 1};
           RC_ASSERT(!Resolve(request, world.occupancy).ok());
           if (largest > 0) {
             request.memory = Bytes{largest};
             RC_ASSERT(Resolve(request, world.occupancy).ok());
           }
         });
}

}  // namespace
}  // namespace mete::plan

int main() { return mete::plan::Run() ? 0 : 1; }
