#include "plan/choice.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <set>

#include "base/text.h"
#include "plan/choice_room.h"
#include "plan/mig/choice.h"
#include "plan/resolve.h"

namespace mete::plan {
namespace {

using gpu::Mechanism;
using gpu::Promise;
using Verdict = Reason::Verdict;

// Cheapest first. Interception sets nothing aside and keeps others' promises; bare time-slicing leaves a tenant without
// limits; the others set parts of the GPU aside, and exclusive all of it.
constexpr std::array<Mechanism, 6> kByCost{Mechanism::kIntercept, Mechanism::kTimeSlicing, Mechanism::kMps,
                                           Mechanism::kMig,       Mechanism::kVgpu,        Mechanism::kExclusive};

bool AsksForWholeGpus(const Request& request) { return request.gpus_given && !request.memory && !request.compute; }

PromiseReason Judge(Promise promise, const WayView& way, const GpuOccupancy& gpu) {
  PromiseReason reason{promise, PromiseReason::Holds::kNot, "nothing is known about it here"};
  for (const PromiseView& view : way.promises) {
    if (view.promise != promise) continue;
    reason.because = view.why;
    switch (view.keeps) {
      case Keeps::kAlways: reason.holds = PromiseReason::Holds::kKept; break;
      case Keeps::kWhileInForce:
        reason.holds = PromiseReason::Holds::kWhileInForce;
        reason.because += "; while its limits are seen in force in every process of the tenant";
        break;
      case Keeps::kWhileAllGranted:
        if (const Holding* unlimited = Unlimited(gpu); unlimited != nullptr) {
          reason.because =
              fmt::format("a cap only, because nothing limits share {} there, which is time-sliced", unlimited->share);
        } else if (gpu.foreigners.empty()) {
          reason.holds = PromiseReason::Holds::kLiftedByBook;
          reason.because =
              "a cap by itself; every tenant of the GPU holds a grant, so the caps are promises to all, "
              "until a process of no share comes";
        } else {
          reason.holds = PromiseReason::Holds::kCapOnly;
          reason.because =
              fmt::format("a cap only, because process {}, of no share, uses the GPU", gpu.foreigners[0].pid);
        }
        break;
      case Keeps::kNot: break;
    }
  }
  return reason;
}

// Interception keeps an amount or nothing: what is needed of it has to be said. Empty: nothing is missing.
std::string NeedWithoutAmount(const Ask& ask) {
  const auto needs = [&ask](Promise promise) {
    return std::find(ask.need.begin(), ask.need.end(), promise) != ask.need.end();
  };
  const auto& compute = ask.request.compute;
  if (needs(Promise::kMemoryQuota) && !ask.request.memory) return "memory-quota: how much is not said: give --memory";
  if (needs(Promise::kComputeCap) && (!compute || compute->mode != ComputeMode::kHard))
    return "compute-cap: at what is not said: give --compute PCT";
  if (needs(Promise::kComputeReservation) && (!compute || compute->mode == ComputeMode::kWorkConserving))
    return "compute-reservation: how much is not said: give --compute PCT,soft";
  return {};
}

Reason Weigh(const Ask& ask, const std::vector<Promise>& needs, const GpuView& gpu, const WayView& way, double* cost) {
  Reason reason;
  reason.gpu = gpu.occupancy.index;
  reason.gpu_name = gpu.occupancy.name;
  reason.mechanism = way.variant->mechanism;
  reason.variant = way.variant->name;
  reason.why = way.why;
  for (const Promise promise : needs) reason.promises.push_back(Judge(promise, way, gpu.occupancy));
  const std::string_view name = gpu::Name(reason.mechanism);
  if (!ask.request.via.empty() && name != ask.request.via) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = "--via " + ask.request.via + " was given";
    return reason;
  }
  if (ask.request.time_slice && reason.mechanism != Mechanism::kTimeSlicing) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = "--time-slice was given, which only time-slicing has";
    return reason;
  }
  if (ask.request.processes && reason.mechanism != Mechanism::kExclusive &&
      reason.mechanism != Mechanism::kTimeSlicing) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = fmt::format("--processes was given, and {} does not limit how many a tenant runs", name);
    return reason;
  }
  if (reason.mechanism == Mechanism::kIntercept) {
    if (const std::string missing = NeedWithoutAmount(ask); !missing.empty()) {
      reason.verdict = Verdict::kBreaksPromise;
      reason.why = missing;
      return reason;
    }
  }
  const auto broken =
      std::find_if(reason.promises.begin(), reason.promises.end(), [&ask](const PromiseReason& promise) {
        const bool needed = std::find(ask.need.begin(), ask.need.end(), promise.promise) != ask.need.end();
        return promise.holds == PromiseReason::Holds::kNot ||
               (needed && promise.holds == PromiseReason::Holds::kCapOnly);
      });
  if (way.standing == WayView::Standing::kNotPossible) {
    reason.lacks = way.lacks && broken == reason.promises.end();
    return reason;
  }
  if (broken != reason.promises.end()) {
    reason.verdict = Verdict::kBreaksPromise;
    reason.why = fmt::format("{}: {}", gpu::Name(broken->promise), broken->because);
    return reason;
  }
  const bool any_limits = !ask.need.empty() || !ask.request.via.empty() || ask.request.time_slice;
  if (reason.mechanism == Mechanism::kTimeSlicing && !any_limits) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = "it leaves the tenant without limits: chosen only with --via, --time-slice or --need";
    return reason;
  }
  const bool cut_anew = reason.mechanism == Mechanism::kMig && !gpu.device && !gpu.occupancy.mig_enabled;
  if (cut_anew && ask.need.empty() && ask.request.via.empty()) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = "MIG is off; it is switched on only for a promise that needs it (--need), or with --via mig";
    return reason;
  }
  const bool whole = AsksForWholeGpus(ask.request) || ask.request.via == "exclusive";
  if (reason.mechanism == Mechanism::kExclusive && !whole) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = "chosen only when the whole GPU is asked for: --via exclusive, or --gpus alone";
    return reason;
  }
  if (reason.mechanism != Mechanism::kExclusive && AsksForWholeGpus(ask.request) && ask.request.via.empty()) {
    reason.verdict = Verdict::kNotAsked;
    reason.why = "--gpus alone asks for whole GPUs";
    return reason;
  }
  const bool built = way.standing == WayView::Standing::kSupported;
  if (!built && (reason.mechanism == Mechanism::kMps || reason.mechanism == Mechanism::kVgpu)) {
    reason.verdict = Verdict::kNotBuilt;
    return reason;
  }
  const StatusOr<Room> room = RoomFor(reason.mechanism, ask, gpu);
  if (!room.ok()) {
    reason.verdict = Verdict::kNoRoom;
    reason.why = Message(room.status());
    return reason;
  }
  reason.gives = room->gives;
  reason.instance = room->instance;
  reason.adopts = room->adopts;
  *cost = room->cost;
  const auto& remark = room->remark;
  if (!remark.empty()) reason.why += (reason.why.empty() ? "" : "; ") + remark;
  reason.verdict = built ? Verdict::kWouldDo : Verdict::kNotBuilt;
  return reason;
}

Status CheckLine(const Ask& ask, const std::vector<GpuView>& gpus) {
  const Request& request = ask.request;
  if (!request.via.empty()) METE_RETURN_IF_ERROR(gpu::ParseMechanism(request.via).status());
  if (request.time_slice && !request.via.empty() && request.via != "time-slicing") {
    return Usage("--time-slice is a setting of time-slicing; --via {} has none", request.via);
  }
  if (request.processes && *request.processes < 1) return Usage("--processes {}: at least one", *request.processes);
  if (request.gpus < 1) return Usage("--gpus {}: at least one GPU", request.gpus);
  if (gpus.empty()) return Lacks("the driver reports no GPU on this node");
  if (!request.gpu.empty() && request.gpus != 1) {
    return Usage("--gpu {} names one GPU and --gpus {} asks for several: give one of them", request.gpu, request.gpus);
  }
  return OkStatus();
}

bool IsNamed(const std::string& name, const GpuView& gpu) {
  const bool by_index = !gpu.device && name == std::to_string(gpu.occupancy.index);
  return by_index || EqualsIgnoringCase(name, gpu.occupancy.uuid);
}

// One line for each GPU: the mechanism that came closest last, with what it lacks.
std::string WhyNothing(const std::vector<Reason>& reasons) {
  std::string text;
  std::set<uint32_t> told;
  for (const Reason& first : reasons) {
    if (!told.insert(first.gpu).second) continue;
    std::string line;
    std::set<std::string> said;
    for (const Reason& reason : reasons) {
      if (reason.gpu != first.gpu || reason.verdict == Verdict::kNotAsked) continue;
      const std::string words =
          fmt::format("{} {}", reason.variant,
                      reason.verdict == Verdict::kBreaksPromise ? "does not keep " + reason.why
                      : reason.verdict == Verdict::kNotBuilt
                          ? "is not built yet" + (reason.gives.empty() ? "" : " (it would give " + reason.gives + ")")
                      : reason.verdict == Verdict::kNoRoom ? "has no room: " + reason.why
                                                           : "cannot: " + reason.why);
      if (!said.insert(words).second) continue;
      line += "\n    " + words;
    }
    text += fmt::format("\n  GPU {} ({}):{}", first.gpu, first.gpu_name, line.empty() ? " not asked" : line);
  }
  return text;
}

Choice Decide(const Ask& ask, const std::vector<GpuView>& gpus) {
  Choice choice;
  choice.status = CheckLine(ask, gpus);
  if (!choice.status.ok()) return choice;
  const std::vector<Promise> needs = NeedsOf(ask);
  std::vector<double> costs;
  bool named = ask.request.gpu.empty();
  for (const GpuView& gpu : gpus) {
    if (ask.request.gpu.empty() ? gpu.device.has_value() : !IsNamed(ask.request.gpu, gpu)) continue;
    named = true;
    for (const Mechanism mechanism : kByCost) {
      for (const WayView& way : gpu.ways) {
        if (way.variant->mechanism != mechanism) continue;
        double cost = 0;
        choice.reasons.push_back(Weigh(ask, needs, gpu, way, &cost));
        choice.reasons.back().view = static_cast<size_t>(&gpu - gpus.data());
        costs.push_back(cost);
      }
    }
  }
  if (!named) {
    std::vector<std::string> known;
    for (const GpuView& gpu : gpus) known.push_back(fmt::format("{} ({})", gpu.occupancy.index, gpu.occupancy.uuid));
    choice.status = NoSuch("there is no GPU {} here; there are {}", ask.request.gpu, JoinNames(known, "and"));
    return choice;
  }
  mig::ChooseAmong(ask, gpus, choice.reasons, costs);
  const auto wanted = static_cast<size_t>(ask.request.gpus);
  for (const Mechanism mechanism : kByCost) {
    std::vector<size_t> found;  // the first variant of a GPU that does
    for (size_t i = 0; i < choice.reasons.size(); ++i) {
      const Reason& reason = choice.reasons[i];
      if (reason.mechanism != mechanism || reason.verdict != Verdict::kWouldDo) continue;
      if (found.empty() || choice.reasons[found.back()].gpu != reason.gpu) found.push_back(i);
    }
    if (found.size() < wanted) continue;
    std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) { return costs[a] < costs[b]; });
    found.resize(wanted);
    std::sort(found.begin(), found.end());
    for (const size_t i : found) choice.reasons[i].verdict = Verdict::kChosen;
    choice.mechanism = mechanism;
    choice.chosen = std::move(found);
    return choice;
  }
  std::vector<std::string> names;
  for (const Promise promise : needs) names.emplace_back(gpu::Name(promise));
  const std::string text =
      fmt::format("{} by one mechanism on {}:{}",
                  names.empty() ? "this cannot be given" : JoinNames(names, "and") + " cannot be kept",
                  wanted == 1 ? "any GPU asked for" : fmt::format("{} GPUs", wanted), WhyNothing(choice.reasons));
  const bool lacks =
      std::any_of(choice.reasons.begin(), choice.reasons.end(), [](const Reason& reason) { return reason.lacks; });
  choice.status = lacks ? Lacks("{}", text) : Refused("{}", text);
  return choice;
}

// Smaller requests, the nearest first: each names what it changes.
std::vector<std::pair<std::string, Ask>> Relaxed(const Ask& ask, const std::vector<GpuView>& gpus) {
  std::vector<std::pair<std::string, Ask>> relaxed;
  const auto add = [&](std::string what, const std::function<void(Ask*)>& change) {
    Ask other = ask;
    change(&other);
    relaxed.emplace_back(std::move(what), std::move(other));
  };
  if (!ask.request.gpu.empty()) add("without --gpu " + ask.request.gpu, [](Ask* a) { a->request.gpu.clear(); });
  if (!ask.request.via.empty()) add("without --via " + ask.request.via, [](Ask* a) { a->request.via.clear(); });
  if (ask.request.memory) {
    std::set<uint64_t, std::greater<>> sizes;
    for (const GpuView& gpu : gpus) {
      sizes.insert(LargestQuota(gpu.occupancy).count / kMiB * kMiB);
      if (gpu.mig == nullptr) continue;
      for (const gpu::MigProfile& profile : gpu.mig->profiles) sizes.insert(profile.memory.count);
    }
    for (const uint64_t size : sizes) {
      if (size == 0 || size >= ask.request.memory->count) continue;
      add("--memory " + (size % kGiB == 0 ? fmt::format("{}GiB", size / kGiB) : fmt::format("{}MiB", size / kMiB)),
          [size](Ask* a) { a->request.memory = Bytes{size}; });
    }
  }
  for (size_t i = 0; i < ask.need.size(); ++i) {
    add(fmt::format("without --need {}", gpu::Name(ask.need[i])),
        [i](Ask* a) { a->need.erase(a->need.begin() + static_cast<ptrdiff_t>(i)); });
  }
  if (ask.request.compute) add("without --compute", [](Ask* a) { a->request.compute.reset(); });
  for (int count = ask.request.gpus - 1; count >= 1; --count) {
    add(fmt::format("--gpus {}", count), [count](Ask* a) { a->request.gpus = count; });
  }
  add("the whole GPU, --via exclusive", [](Ask* a) {
    a->request.via = "exclusive";
    a->request.memory.reset();
    a->request.compute.reset();
  });
  return relaxed;
}

}  // namespace

Choice Choose(const Ask& ask, const std::vector<GpuView>& gpus) {
  Choice choice = Decide(ask, gpus);
  if (ExitCodeFor(choice.status) != ExitCode::kRefused) return choice;
  for (const auto& [what, smaller] : Relaxed(ask, gpus)) {
    const Choice other = Decide(smaller, gpus);
    if (!other.status.ok()) continue;
    const Reason& reason = other.reasons[other.chosen.front()];
    choice.nearest =
        fmt::format("{} would get {} by {} on GPU {}", what, reason.gives, gpu::Name(other.mechanism), reason.gpu);
    break;
  }
  // Into the first line, which is the one that says how it ended; the others are the reasons.
  std::string text = Message(choice.status);
  const size_t first = std::min(text.find(":\n"), text.size());
  text.insert(first,
              choice.nearest.empty() ? "; no smaller request would succeed now" : "; nearest: " + choice.nearest);
  choice.proposals = mig::Proposals(ask, gpus);
  for (const std::string& proposal : choice.proposals) text += "\n  it could be made possible: " + proposal;
  choice.status = Refused("{}", text);
  return choice;
}

Grant GrantOf(const Ask& ask, const Choice& choice, const std::vector<GpuView>& gpus) {
  Grant grant;
  grant.share = ask.request.share;
  grant.mechanism = gpu::Name(choice.mechanism);
  grant.need = ask.need;
  grant.time_slice = ask.request.time_slice;
  grant.processes = ask.request.processes;
  for (const size_t chosen : choice.chosen) {
    const Reason& reason = choice.reasons[chosen];
    const GpuView& view = gpus[reason.view];
    GpuGrant part;
    part.index = view.occupancy.index;
    // An instance is granted by where it stands on its GPU: a MIG device's UUID is another each time it is made.
    part.uuid = reason.instance && view.device ? view.parent : view.occupancy.uuid;
    part.instance = reason.instance;
    part.memory = ask.request.memory;
    part.compute = ask.request.compute;
    grant.gpus.push_back(std::move(part));
  }
  return grant;
}

std::vector<Promise> NeedsOf(const Ask& ask) {
  std::vector<Promise> needs = ask.need;
  const auto add = [&needs](Promise promise) {
    if (std::find(needs.begin(), needs.end(), promise) == needs.end()) needs.push_back(promise);
  };
  if (ask.request.memory) add(Promise::kMemoryQuota);
  if (ask.request.compute) {
    add(ask.request.compute->mode == ComputeMode::kHard ? Promise::kComputeCap : Promise::kComputeReservation);
  }
  return needs;
}

StatusOr<std::vector<Promise>> ParseNeed(std::string_view text) {
  std::vector<Promise> needs;
  while (true) {
    const size_t comma = text.find(',');
    METE_ASSIGN_OR_RETURN(const Promise promise, gpu::ParsePromise(text.substr(0, comma)));
    if (std::find(needs.begin(), needs.end(), promise) == needs.end()) needs.push_back(promise);
    if (comma == std::string_view::npos) return needs;
    text.remove_prefix(comma + 1);
  }
}

std::string_view Name(Reason::Verdict verdict) {
  switch (verdict) {
    case Verdict::kChosen: return "chosen";
    case Verdict::kWouldDo: return "would do";
    case Verdict::kBreaksPromise: return "breaks a promise";
    case Verdict::kNoRoom: return "no room";
    case Verdict::kNotPossible: return "not possible";
    case Verdict::kNotBuilt: return "not built yet";
    case Verdict::kNotAsked: break;
  }
  return "not asked";
}

std::string_view Name(PromiseReason::Holds holds) {
  switch (holds) {
    case PromiseReason::Holds::kKept: return "kept";
    case PromiseReason::Holds::kWhileInForce: return "kept while in force";
    case PromiseReason::Holds::kLiftedByBook: return "kept by the book";
    case PromiseReason::Holds::kCapOnly: return "a cap only";
    case PromiseReason::Holds::kNot: break;
  }
  return "not kept";
}

}  // namespace mete::plan
