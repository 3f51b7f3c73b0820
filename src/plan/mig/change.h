// From the instances that a GPU has to those that a configuration wants: which stay, which go, which are made and
// where. As many stay as can; what is fixed (its tenant uses it, or somebody else made it) always stays, or nothing is
// changed.
//
//   METE_ASSIGN_OR_RETURN(const Change change, ChangeTo(states, present, entry.profiles));
//
// Pure; any thread. Errors: Usage for a profile that the board does not have; Refused when the wanted ones cannot stand
// beside each other, or not beside what is fixed: the message names it.
#ifndef METE_PLAN_MIG_CHANGE_H_
#define METE_PLAN_MIG_CHANGE_H_

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/mig/states.h"

namespace mete::plan::mig {

struct PresentInstance {
  int placement = 0;  // its number
  std::string fixed;  // why it may not go: "share team uses it"; empty: it may
};

struct Change {
  Layout keep = 0, remove = 0, add = 0;
  bool Nothing() const { return remove == 0 && add == 0; }
  friend bool operator==(const Change&, const Change&) = default;
};

// How often each profile of the board is wanted, by its index. Usage names a profile that the board does not have.
StatusOr<std::vector<int>> Counts(const Geometry& geometry, const std::vector<std::pair<std::string, int>>& profiles);

StatusOr<Change> ChangeTo(const States& states, std::span<const PresentInstance> present,
                          const std::vector<std::pair<std::string, int>>& profiles);

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_CHANGE_H_
