// Which profile a request needs: memory first, by what the profile really holds. A profile's name rounds up (1g.5gb on
// an A100-40GB holds 4864 MiB), so a request that its name seems to satisfy may need the next one, and the choice says
// so. Pure; any thread. Errors: Refused, naming the largest that would do.
#ifndef METE_PLAN_MIG_PROFILE_CHOICE_H_
#define METE_PLAN_MIG_PROFILE_CHOICE_H_

#include <optional>
#include <string>

#include "base/quantities.h"
#include "base/status.h"
#include "gpu/mig.h"
#include "plan/values.h"

namespace mete::plan::mig {

struct ProfileRequest {
  std::optional<Bytes> memory;     // at least this much in the instance
  std::optional<Compute> compute;  // hard: no more than this part of the board's compute slices; soft: no less
};

struct ProfileChoice {
  int profile = 0;   // index into MigBoard::profiles
  std::string why;   // one line
  std::string hint;  // what to ask for to get by with less; empty: nothing
};

// The fewest memory slices that hold the memory, then the fewest compute slices; with a cap the most compute slices
// within it. Profiles for media engines or graphics (`+me`, `+gfx`, `-me`) are left to those who name them.
StatusOr<ProfileChoice> ChooseProfile(const gpu::MigBoard& board, const ProfileRequest& request);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_PROFILE_CHOICE_H_
