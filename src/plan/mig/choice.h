// MIG's part of the choice (plan/choice.h): whether an instance has room on a GPU and where, which of several GPUs it
// costs the least, and what could be moved when holes keep it out. Pure; any thread. Errors: Refused, with what would
// fit.
#ifndef METE_PLAN_MIG_CHOICE_H_
#define METE_PLAN_MIG_CHOICE_H_

#include <string>
#include <vector>

#include "plan/choice.h"
#include "plan/choice_room.h"

namespace mete::plan::mig {

StatusOr<Room> RoomFor(const Ask& ask, const GpuView& gpu);

// Among GPUs of one board the planner weighs the node as a whole: it changes the place and the cost of the reason that
// it would take. `costs` belong to `reasons`.
void ChooseAmong(const Ask& ask, const std::vector<GpuView>& gpus, std::vector<Reason>& reasons,
                 std::vector<double>& costs);

// Which instances could be moved so that the request fits, with their price, cheapest first; none when nothing helps or
// nothing need be moved. Nothing is ever moved by mete.
std::vector<std::string> Proposals(const Ask& ask, const std::vector<GpuView>& gpus);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_CHOICE_H_
