#include "plan/choice_room.h"

#include <algorithm>

#include "base/text.h"
#include "plan/mig/choice.h"
#include "plan/resolve.h"

namespace mete::plan {
namespace {

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

}  // namespace

std::string NameOf(const GpuView& gpu) { return fmt::format("GPU {} ({})", gpu.occupancy.index, gpu.occupancy.name); }

std::string WhoIsThere(const GpuView& gpu) {
  std::vector<std::string> names;
  for (const Holding& holding : gpu.occupancy.holdings) {
    if (holding.share != gpu.exclusive_tenant) names.push_back("share " + holding.share);
  }
  for (const Foreigner& other : gpu.occupancy.foreigners) {
    names.push_back(fmt::format("process {}{}, of no share", other.pid,
                                other.program.empty() ? "" : fmt::format(" ({})", other.program)));
  }
  if (!gpu.exclusive_tenant.empty()) names.push_back("share " + gpu.exclusive_tenant + ", alone");
  return names.empty() ? std::string() : JoinNames(names, "and");
}

StatusOr<Room> RoomFor(gpu::Mechanism mechanism, const Ask& ask, const GpuView& gpu) {
  switch (mechanism) {
    case gpu::Mechanism::kExclusive: return WholeGpu(ask, gpu);
    case gpu::Mechanism::kTimeSlicing: return Sliced(ask, gpu);
    case gpu::Mechanism::kMig: return mig::RoomFor(ask, gpu);
    case gpu::Mechanism::kIntercept: return Intercepted(ask, gpu);
    case gpu::Mechanism::kMps:
    case gpu::Mechanism::kVgpu: break;
  }
  return Refused("the mechanism {} is not built yet", gpu::Name(mechanism));
}

}  // namespace mete::plan
