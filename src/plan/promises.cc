#include "plan/promises.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/resolve.h"

namespace mete::plan {
namespace {

// Why caps on this GPU do not amount to quotas for all; empty when they do.
std::string WhyNotForAll(const GpuOccupancy& gpu) {
  if (const Holding* other = Unlimited(gpu); other != nullptr) {
    return fmt::format("nothing limits share {} on GPU {}, which is time-sliced", other->share, gpu.index);
  }
  if (!gpu.foreigners.empty()) {
    const Foreigner& first = gpu.foreigners.front();
    const std::string program = first.program.empty() ? "" : fmt::format(" ({})", first.program);
    const std::string more =
        gpu.foreigners.size() > 1 ? fmt::format(" and {} more", gpu.foreigners.size() - 1) : std::string();
    return fmt::format("process {}{}{} uses GPU {} without a share; not kept until it ends", first.pid, program, more,
                       gpu.index);
  }
  uint64_t sum = 0;
  const std::vector<Allotment> allotments = Allot(gpu);
  for (size_t i = 0; i < allotments.size(); ++i) {
    sum += std::max(allotments[i].quota.count, gpu.holdings[i].used.count);
  }
  if (sum > Usable(gpu).count) {
    return fmt::format("the caps of the {} shares on GPU {} add up to {}, and {} can be shared", allotments.size(),
                       gpu.index, mete::ToString(Bytes{sum}), mete::ToString(Usable(gpu)));
  }
  return {};
}

}  // namespace

std::vector<PromiseState> PromisesNow(const GpuOccupancy& gpu, size_t which, const Enforcement& enforcement) {
  const Holding& holding = gpu.holdings[which];
  const std::string obstacle = WhyNotForAll(gpu);
  const bool hard = holding.compute && holding.compute->mode == ComputeMode::kHard;
  const bool soft = holding.compute && holding.compute->mode == ComputeMode::kSoft;
  uint32_t promised = 0;
  for (const Holding& other : gpu.holdings) promised += other.compute ? other.compute->percent.hundredths : 0;

  std::vector<PromiseState> states;
  auto add = [&](std::string promise, bool asked, bool kept, std::string because) {
    if (kept && !enforcement.in_force) {
      kept = false;
      because = enforcement.because;
    }
    states.push_back({std::move(promise), asked, kept, std::move(because)});
  };
  const std::string all = "every process on the GPU belongs to a share, until one does not";
  if (!holding.memory) {
    add("memory-quota", false, false, "not asked; capped at the memory not promised to others");
  } else {
    add("memory-quota", true, obstacle.empty(), obstacle.empty() ? "the quotas fit and " + all : obstacle);
  }
  add("compute-cap", hard, hard, hard ? "while its launches pass the interceptor" : "not asked");
  if (!soft && !hard) {
    add("compute-reservation", false, false, "not asked");
  } else if (!gpu.foreigners.empty() || Unlimited(gpu) != nullptr) {
    add("compute-reservation", soft, false, obstacle);
  } else {
    const bool fits = promised <= 10000;
    add("compute-reservation", soft, fits,
        fits ? "promises fit, windows are weighted and " + all : "compute promises add up to more than 100 %");
  }
  states.push_back({"enforced-outside", false, false, "intercept works inside the tenant and stops accidents only"});
  return states;
}

std::vector<PromiseState> PromisesByTable(const GpuOccupancy& gpu, const WayView& way,
                                          const std::vector<gpu::Promise>& asked, const Enforcement& enforcement) {
  std::vector<PromiseState> states;
  const bool alone = way.variant->mechanism == gpu::Mechanism::kExclusive;
  for (const PromiseView& view : way.promises) {
    PromiseState state{std::string(gpu::Name(view.promise)), false, view.keeps == Keeps::kAlways, view.why};
    state.asked = std::find(asked.begin(), asked.end(), view.promise) != asked.end();
    if (state.kept && !enforcement.in_force) {
      state.kept = false;
      state.because = enforcement.because;
    } else if (state.kept && alone && !gpu.foreigners.empty()) {
      state.kept = false;
      state.because = fmt::format("process {} of no share uses the GPU; not kept until it ends", gpu.foreigners[0].pid);
    }
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace mete::plan
