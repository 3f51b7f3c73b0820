#include "plan/mig/choice.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "plan/mig/defragment.h"
#include "plan/mig/planner.h"
#include "plan/mig/profile_choice.h"

namespace mete::plan::mig {
namespace {

constexpr double kSwitchingOn = 1000;  // more compute slices than any board has

// Computing a board's tables takes a moment, so they are kept; they depend on the board alone.
struct Board {
  States states;
  Planner planner;
  explicit Board(States all) : states(std::move(all)), planner(states, Demand::Uniform(states.geometry())) {}
};
StatusOr<std::shared_ptr<const Board>> BoardOf(const gpu::MigBoard& board) {
  static std::mutex mutex;
  static auto& known = *new std::map<const gpu::MigBoard*, std::shared_ptr<const Board>>();
  const bool built_in = gpu::MigTables::BuiltIn().Find(board.id) == &board;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(&board); built_in && found != known.end()) return found->second;
  METE_ASSIGN_OR_RETURN(Geometry geometry, Geometry::Of(board));
  METE_ASSIGN_OR_RETURN(States states, States::Of(std::move(geometry)));
  auto made = std::make_shared<const Board>(std::move(states));
  if (built_in) known[&board] = made;
  return made;
}

// Where a GPU's instances stand, and who knows what that is worth.
struct Standing {
  std::shared_ptr<const Board> board;  // keeps what the planner looks at, unless the view brought its own
  const Planner* planner = nullptr;
  uint32_t state = 0;
};
StatusOr<Standing> StandingOf(const GpuView& gpu) {
  Standing standing;
  if (gpu.planner != nullptr) {
    standing.planner = gpu.planner;
  } else {
    METE_ASSIGN_OR_RETURN(standing.board, BoardOf(*gpu.mig));
    standing.planner = &standing.board->planner;
  }
  const States& states = standing.planner->states();
  const Geometry& geometry = states.geometry();
  Layout layout = 0;
  for (const InstanceView& instance : gpu.instances) {
    const int placement = geometry.Find(geometry.ProfileIndex(instance.profile), instance.start);
    if (placement < 0) {
      return Refused("{} holds {} at {}, which mete's table of the board does not know", NameOf(gpu), instance.profile,
                     instance.start);
    }
    layout |= Layout{1} << placement;
  }
  standing.state = states.Find(layout);
  if (standing.state == States::kNone) {
    return Refused("{} holds {}, which mete's table says cannot be", NameOf(gpu), geometry.ToString(layout));
  }
  return standing;
}

// A MIG device that was named: had whole, as it is.
StatusOr<Room> NamedDevice(const Ask& ask, const GpuView& gpu, const Instance& device) {
  if (const std::string who = WhoIsThere(gpu); !who.empty()) {
    return Refused("MIG device {} is not free: {} use it; --via intercept shares it", gpu.occupancy.uuid, who);
  }
  const gpu::MigProfile* profile = gpu.mig == nullptr ? nullptr : gpu.mig->Find(device.profile);
  const Bytes memory = profile == nullptr ? gpu.occupancy.total : profile->memory;
  if (ask.request.memory && *ask.request.memory > memory) {
    return Refused("MIG device {} is a {}, which holds {} MiB, less than {}", gpu.occupancy.uuid, device.profile,
                   memory.count / kMiB, mete::ToString(*ask.request.memory));
  }
  if (ask.request.compute) {
    return Refused("MIG device {} has the compute slices that it has; leave --compute out, or do not name a device",
                   gpu.occupancy.uuid);
  }
  Room room;
  room.gives = fmt::format("{} at {}, which is there and free", device.profile, device.start);
  room.instance = gpu.device;
  room.adopts = true;
  return room;
}

StatusOr<Room> NewInstance(const Ask& ask, const GpuView& gpu) {
  if (gpu.mig == nullptr) return Refused("{}: mete has no MIG table of this board", NameOf(gpu));
  if (ask.request.gpus > 1) {
    return Refused("a CUDA process opens one MIG instance only, and {} GPUs are asked; give each its own run",
                   ask.request.gpus);
  }
  METE_ASSIGN_OR_RETURN(const ProfileChoice choice, ChooseProfile(*gpu.mig, {ask.request.memory, ask.request.compute}));
  const gpu::MigProfile& profile = gpu.mig->profiles[static_cast<size_t>(choice.profile)];
  Room room;
  room.remark = choice.hint.empty() ? choice.why : choice.why + "; " + choice.hint;
  if (!gpu.occupancy.mig_enabled) {
    if (gpu.mig_pending) return Refused("{}: a change of MIG mode waits for a reset of the GPU", NameOf(gpu));
    if (const std::string who = WhoIsThere(gpu); !who.empty()) {
      return Refused("{}: MIG is off, and it can be switched on only while the GPU is idle: {} use it", NameOf(gpu),
                     who);
    }
    room.remark +=
        fmt::format("; MIG must be switched on first{}", gpu.mig_needs_reset ? ", with a reset of the GPU" : "");
  }
  if (gpu.occupancy.mig_enabled && !gpu.instances_known) {
    room.remark += "; taking it that the GPU holds no instances, which were not looked at";
  }
  // Adopt what is there rather than cut anew.
  for (const InstanceView& instance : gpu.instances) {
    if (instance.tenant.empty() && gpu.mig->Find(instance.profile) == &profile) {
      room.gives = fmt::format("{} at {}, which is there and free", profile.name, instance.start);
      room.instance = Instance{profile.name, instance.start, profile.memory_slices};
      room.adopts = true;
      room.cost = -1;
      return room;
    }
  }
  METE_ASSIGN_OR_RETURN(const Standing standing, StandingOf(gpu));
  const Planner& planner = *standing.planner;
  const uint32_t state = standing.state;
  const Geometry& geometry = planner.states().geometry();
  const auto place = planner.Choose({&state, 1}, choice.profile);
  if (!place) {
    // The largest instance that would still fit, by memory and then compute.
    const gpu::MigProfile* largest = nullptr;
    for (const gpu::MigProfile& other : gpu.mig->profiles) {
      const int index = geometry.ProfileIndex(other.name);
      if (other.name.find_first_of("+-") != std::string::npos || !planner.Choose({&state, 1}, index)) continue;
      if (largest == nullptr || other.memory >= largest->memory) largest = &other;
    }
    return Refused("{} has no place for {}: {}; {}", NameOf(gpu), profile.name,
                   geometry.WhyNot(planner.states().layout(state), choice.profile),
                   largest == nullptr ? "no instance fits there now"
                                      : fmt::format("the largest that fits is {}, --memory {}MiB", largest->name,
                                                    largest->memory.count / kMiB));
  }
  const Placement& at = geometry.at(place->placement);
  room.gives = fmt::format("{} at {}", profile.name, at.start);
  room.instance = Instance{profile.name, at.start, at.size};
  // A GPU that is cut already goes first: the other can still be had whole.
  room.cost = place->cost + (gpu.occupancy.mig_enabled ? 0 : kSwitchingOn);
  return room;
}

// The placements of a GPU's instances that may not be touched: of nobody's share of this book.
Layout Fixed(const GpuView& gpu, const Geometry& geometry) {
  Layout fixed = 0;
  for (const InstanceView& instance : gpu.instances) {
    if (instance.movable) continue;
    fixed |= Layout{1} << geometry.Find(geometry.ProfileIndex(instance.profile), instance.start);
  }
  return fixed;
}

// The GPUs of one board that are in MIG mode and hold what the table knows.
struct Fleet {
  std::vector<size_t> views;
  std::vector<uint32_t> states;
  std::vector<Standing> standings;
};
std::map<const gpu::MigBoard*, Fleet> FleetsOf(const std::vector<GpuView>& gpus) {
  std::map<const gpu::MigBoard*, Fleet> fleets;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const GpuView& gpu = gpus[i];
    if (gpu.mig == nullptr || gpu.device || !gpu.occupancy.mig_enabled || !gpu.instances_known) continue;
    StatusOr<Standing> standing = StandingOf(gpu);
    if (!standing.ok()) continue;
    Fleet& fleet = fleets[gpu.mig];
    fleet.views.push_back(i);
    fleet.states.push_back(standing->state);
    fleet.standings.push_back(*std::move(standing));
  }
  return fleets;
}

// False: no GPU has a place.
bool Placed(const Planner& planner, const std::vector<uint32_t>& states, int profile, Planner::Choice* place) {
  const auto found = planner.Choose(states, profile);
  if (found) *place = *found;
  return found.has_value();
}

}  // namespace

StatusOr<Room> RoomFor(const Ask& ask, const GpuView& gpu) {
  return gpu.device ? NamedDevice(ask, gpu, *gpu.device) : NewInstance(ask, gpu);
}

void ChooseAmong(const Ask& ask, const std::vector<GpuView>& gpus, std::vector<Reason>& reasons,
                 std::vector<double>& costs) {
  for (const auto& entry : FleetsOf(gpus)) {
    const gpu::MigBoard& board = *entry.first;
    const Fleet& fleet = entry.second;
    const auto wanted = ChooseProfile(board, {ask.request.memory, ask.request.compute});
    if (!wanted.ok()) continue;
    // Those that could take a new instance; who has a free one at hand is cheapest as it is.
    std::vector<size_t> able;
    std::vector<uint32_t> states;
    for (size_t i = 0; i < reasons.size(); ++i) {
      const Reason& reason = reasons[i];
      const auto at = std::find(fleet.views.begin(), fleet.views.end(), reason.view);
      if (reason.mechanism != gpu::Mechanism::kMig || reason.verdict != Reason::Verdict::kWouldDo ||
          at == fleet.views.end() || reason.adopts) {
        continue;
      }
      able.push_back(i);
      states.push_back(fleet.states[static_cast<size_t>(at - fleet.views.begin())]);
    }
    if (able.size() < 2) continue;
    const Planner& planner = *fleet.standings.front().planner;
    Planner::Choice place;
    if (!Placed(planner, states, wanted->profile, &place)) continue;
    // The planner sees the whole node: its choice goes before what each GPU costs by itself.
    const size_t best = able[static_cast<size_t>(place.gpu)];
    const Placement& at = planner.states().geometry().at(place.placement);
    const std::string& profile = board.profiles[static_cast<size_t>(at.profile)].name;
    reasons[best].instance = Instance{profile, at.start, at.size};
    reasons[best].gives = fmt::format("{} at {}", profile, at.start);
    for (const size_t i : able) costs[i] += 1;
    costs[best] = place.cost;
  }
}

std::vector<std::string> Proposals(const Ask& ask, const std::vector<GpuView>& gpus) {
  std::vector<std::string> texts;
  for (const auto& [board, fleet] : FleetsOf(gpus)) {
    const auto wanted = ChooseProfile(*board, {ask.request.memory, ask.request.compute});
    if (!wanted.ok()) continue;
    const Planner& planner = *fleet.standings.front().planner;
    const Geometry& geometry = planner.states().geometry();
    std::vector<Layout> fixed;
    for (const size_t view : fleet.views) fixed.push_back(Fixed(gpus[view], geometry));
    for (Proposal proposal : ProposeMoves(planner, fleet.states, fixed, wanted->profile)) {
      const auto index = [&](int gpu) {
        return static_cast<int>(gpus[fleet.views[static_cast<size_t>(gpu)]].occupancy.index);
      };
      proposal.gpu = index(proposal.gpu);
      for (Move& move : proposal.moves) {
        move.from_gpu = index(move.from_gpu);
        move.to_gpu = index(move.to_gpu);
      }
      texts.push_back(proposal.ToString(geometry));
    }
  }
  return texts;
}

}  // namespace mete::plan::mig
