#include "plan/choice_room.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/text.h"
#include "plan/mig/planner.h"
#include "plan/mig/profile_choice.h"
#include "plan/resolve.h"

namespace mete::plan {
namespace {

std::string NameOf(const GpuView& gpu) { return fmt::format("GPU {} ({})", gpu.occupancy.index, gpu.occupancy.name); }

// Who is on the GPU as a whole; empty: nobody. Instances are counted apart.
std::string WhoIsThere(const GpuView& gpu) {
  std::vector<std::string> names;
  for (const Holding& holding : gpu.occupancy.holdings) names.push_back("share " + holding.share);
  for (const Foreigner& other : gpu.occupancy.foreigners) {
    names.push_back(fmt::format("process {}{}, of no share", other.pid,
                                other.program.empty() ? "" : fmt::format(" ({})", other.program)));
  }
  if (!gpu.exclusive_tenant.empty()) names.push_back("share " + gpu.exclusive_tenant + ", alone,");
  return names.empty() ? std::string() : JoinNames(names, "and");
}

StatusOr<Room> WholeGpu(const Ask& ask, const GpuView& gpu) {
  if (const std::string who = WhoIsThere(gpu); !who.empty()) {
    return Refused("{} is not free as a whole: {} use it; wait for them, or ask for a part", NameOf(gpu), who);
  }
  if (ask.request.processes.value_or(1) != 1) {
    return Refused("{}: a whole GPU is for one process or for any number; --processes {} is neither", NameOf(gpu),
                   *ask.request.processes);
  }
  Room room;
  room.gives = "the whole GPU";
  room.cost = static_cast<double>(gpu.occupancy.total.count);
  return room;
}

StatusOr<Room> Sliced(const Ask& ask, const GpuView& gpu) {
  if (!gpu.exclusive_tenant.empty()) return Refused("{} belongs to share {} alone", NameOf(gpu), gpu.exclusive_tenant);
  // A tenant that nothing caps may take what others were promised.
  for (const Holding& holding : gpu.occupancy.holdings) {
    if (ask.request.time_slice && holding.time_slice && *holding.time_slice != *ask.request.time_slice) {
      return Refused("{}: a GPU has one class of time slices, and share {} asked for {}; ask for that, or for none",
                     NameOf(gpu), holding.share, ToString(*holding.time_slice));
    }
    if (!holding.memory && !holding.compute) continue;
    return Refused(
        "{}: share {} was promised a part of it, which a tenant without limits could take; intercept gives "
        "this one limits too",
        NameOf(gpu), holding.share);
  }
  METE_RETURN_IF_ERROR(Fits(gpu.occupancy, ask.request.share, {}, {}));
  if (ask.request.processes) {
    return Refused("{}: nothing limits the processes of a time-sliced tenant; leave --processes out", NameOf(gpu));
  }
  Room room;
  room.gives = "turns on the whole GPU";
  if (ask.request.time_slice) room.gives += fmt::format(", {} time slices", ToString(*ask.request.time_slice));
  room.remark = "the driver shares out time by context: more processes get more";
  room.cost = static_cast<double>(gpu.occupancy.holdings.size());
  return room;
}

StatusOr<Room> Intercepted(const Ask& ask, const GpuView& gpu) {
  if (!gpu.exclusive_tenant.empty()) return Refused("{} belongs to share {} alone", NameOf(gpu), gpu.exclusive_tenant);
  const Request& request = ask.request;
  METE_RETURN_IF_ERROR(Fits(gpu.occupancy, request.share, request.memory, request.compute));
  Room room;
  room.gives = request.memory ? mete::ToString(*request.memory) : "the memory that is not promised to others";
  if (request.compute) room.gives += ", " + ToString(*request.compute);
  // A quota goes where it leaves the least over, so that large ones still fit elsewhere; else where the most is left.
  const auto left = static_cast<double>(LargestQuota(gpu.occupancy).count);
  room.cost = request.memory ? left : -left;
  return room;
}

// Computing a board's tables takes a moment, so they are kept; they depend on the board alone.
struct Board {
  mig::States states;
  mig::Planner planner;
  explicit Board(mig::States all) : states(std::move(all)), planner(states, mig::Demand::Uniform(states.geometry())) {}
};
StatusOr<std::shared_ptr<const Board>> BoardOf(const gpu::MigBoard& board) {
  static std::mutex mutex;
  static auto& known = *new std::map<const gpu::MigBoard*, std::shared_ptr<const Board>>();
  const bool built_in = gpu::MigTables::BuiltIn().Find(board.id) == &board;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(&board); built_in && found != known.end()) return found->second;
  METE_ASSIGN_OR_RETURN(mig::Geometry geometry, mig::Geometry::Of(board));
  METE_ASSIGN_OR_RETURN(mig::States states, mig::States::Of(std::move(geometry)));
  auto made = std::make_shared<const Board>(std::move(states));
  if (built_in) known[&board] = made;
  return made;
}

// A MIG device that was named: had whole, as it is.
StatusOr<Room> NamedDevice(const Ask& ask, const GpuView& gpu) {
  if (const std::string who = WhoIsThere(gpu); !who.empty()) {
    return Refused("MIG device {} is not free: {} use it; --via intercept shares it", gpu.occupancy.uuid, who);
  }
  const gpu::MigProfile* profile = gpu.mig == nullptr ? nullptr : gpu.mig->Find(gpu.device->profile);
  const Bytes memory = profile == nullptr ? gpu.occupancy.total : profile->memory;
  if (ask.request.memory && *ask.request.memory > memory) {
    return Refused("MIG device {} is a {}, which holds {} MiB, less than {}", gpu.occupancy.uuid, gpu.device->profile,
                   memory.count / kMiB, mete::ToString(*ask.request.memory));
  }
  if (ask.request.compute) {
    return Refused("MIG device {} has the compute slices that it has; leave --compute out, or do not name a device",
                   gpu.occupancy.uuid);
  }
  Room room;
  room.gives = fmt::format("{} at {}, which is there and free", gpu.device->profile, gpu.device->start);
  room.instance = gpu.device;
  return room;
}

StatusOr<Room> InstanceRoom(const Ask& ask, const GpuView& gpu) {
  if (gpu.mig == nullptr) return Refused("{}: mete has no MIG table of this board", NameOf(gpu));
  if (ask.request.gpus > 1) {
    return Refused("a CUDA process opens one MIG instance only, and {} GPUs are asked; give each its own run",
                   ask.request.gpus);
  }
  METE_ASSIGN_OR_RETURN(const mig::ProfileChoice choice,
                        mig::ChooseProfile(*gpu.mig, {ask.request.memory, ask.request.compute}));
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
      return room;
    }
  }
  METE_ASSIGN_OR_RETURN(const std::shared_ptr<const Board> board, BoardOf(*gpu.mig));
  const mig::Geometry& geometry = board->states.geometry();
  mig::Layout layout = 0;
  for (const InstanceView& instance : gpu.instances) {
    const int placement = geometry.Find(geometry.ProfileIndex(instance.profile), instance.start);
    if (placement < 0) {
      return Refused("{} holds {} at {}, which mete's table of the board does not know", NameOf(gpu), instance.profile,
                     instance.start);
    }
    layout |= mig::Layout{1} << placement;
  }
  const uint32_t state = board->states.Find(layout);
  if (state == mig::States::kNone) {
    return Refused("{} holds {}, which mete's table says cannot be", NameOf(gpu), geometry.ToString(layout));
  }
  const auto place = board->planner.Choose({&state, 1}, choice.profile);
  if (!place) {
    // The largest instance that would still fit, by memory and then compute.
    const gpu::MigProfile* largest = nullptr;
    for (const gpu::MigProfile& other : gpu.mig->profiles) {
      const int index = geometry.ProfileIndex(other.name);
      if (other.name.find_first_of("+-") != std::string::npos || !board->planner.Choose({&state, 1}, index)) continue;
      if (largest == nullptr || other.memory >= largest->memory) largest = &other;
    }
    return Refused("{} has no place for {}: {}; {}", NameOf(gpu), profile.name, geometry.WhyNot(layout, choice.profile),
                   largest == nullptr ? "no instance fits there now"
                                      : fmt::format("the largest that fits is {}, --memory {}MiB", largest->name,
                                                    largest->memory.count / kMiB));
  }
  const mig::Placement& at = geometry.at(place->placement);
  room.gives = fmt::format("{} at {}", profile.name, at.start);
  room.instance = Instance{profile.name, at.start, at.size};
  room.cost = place->cost;
  return room;
}

}  // namespace

StatusOr<Room> RoomFor(gpu::Mechanism mechanism, const Ask& ask, const GpuView& gpu) {
  switch (mechanism) {
    case gpu::Mechanism::kExclusive: return WholeGpu(ask, gpu);
    case gpu::Mechanism::kTimeSlicing: return Sliced(ask, gpu);
    case gpu::Mechanism::kMig: return gpu.device ? NamedDevice(ask, gpu) : InstanceRoom(ask, gpu);
    case gpu::Mechanism::kIntercept: return Intercepted(ask, gpu);
    case gpu::Mechanism::kMps:
    case gpu::Mechanism::kVgpu: break;
  }
  return Refused("the mechanism {} is not built yet", gpu::Name(mechanism));
}

}  // namespace mete::plan
