// Whether one mechanism has room on one GPU for a request, and what it would give. Pure; any thread.
#ifndef METE_PLAN_CHOICE_ROOM_H_
#define METE_PLAN_CHOICE_ROOM_H_

#include <optional>
#include <string>

#include "plan/choice.h"

namespace mete::plan {

struct Room {
  std::string gives;   // "3g.20gb at 4"
  std::string remark;  // what a person should know: a mode to switch, a profile larger than its name suggests
  std::optional<Instance> instance;  // mig: where it stands
  bool adopts = false;               // mig: the instance is there and free
  double cost = 0;                   // among GPUs of one mechanism: what the choice takes from later requests
};

// "GPU 0 (NVIDIA A100-SXM4-40GB)"
std::string NameOf(const GpuView& gpu);
// Who is on the GPU as a whole, for a sentence; empty: nobody. Instances are counted apart.
std::string WhoIsThere(const GpuView& gpu);

// Refused, saying who holds what and what would fit.
StatusOr<Room> RoomFor(gpu::Mechanism mechanism, const Ask& ask, const GpuView& gpu);

}  // namespace mete::plan

#endif  // METE_PLAN_CHOICE_ROOM_H_
