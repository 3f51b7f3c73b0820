// Every layout a MIG board can be in, numbered, with the way from each to each neighbour: the few hundred to few
// thousand nodes on which values are computed. Immutable after Of; any thread. About 1 MB a board.
#ifndef METE_PLAN_MIG_STATES_H_
#define METE_PLAN_MIG_STATES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "plan/mig/geometry.h"

namespace mete::plan::mig {

class States {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Usage for a board with more layouts than a table should hold.
  static StatusOr<States> Of(Geometry geometry);

  const Geometry& geometry() const { return geometry_; }
  uint32_t size() const { return static_cast<uint32_t>(layouts_.size()); }
  static constexpr uint32_t empty() { return 0; }
  Layout layout(uint32_t state) const { return layouts_[state]; }
  uint32_t Find(Layout layout) const;  // kNone: not legal

  // The state with this placement added or removed; kNone where that cannot be.
  uint32_t With(uint32_t state, int placement) const {
    return with_[state * stride_ + static_cast<uint32_t>(placement)];
  }
  uint32_t Without(uint32_t state, int placement) const;

  struct Step {
    int placement = 0;
    uint32_t to = 0;  // the state it leads to
  };
  // The placements free for a profile, lowest first, and the instances that may go.
  std::span<const Step> Additions(uint32_t state, int profile) const {
    const size_t at = static_cast<size_t>(state) * profiles_ + static_cast<size_t>(profile);
    return {additions_.data() + first_addition_[at], additions_.data() + first_addition_[at + 1]};
  }
  std::span<const Step> Removals(uint32_t state) const {
    return {removals_.data() + first_removal_[state], removals_.data() + first_removal_[state + 1]};
  }

 private:
  Geometry geometry_;
  uint32_t stride_ = 0;
  size_t profiles_ = 0;
  std::vector<Step> additions_, removals_;
  std::vector<uint32_t> first_addition_, first_removal_;  // indices into them; one more than there are lists
  std::vector<Layout> layouts_;                           // sorted, the empty one first
  std::vector<uint32_t> with_;                            // [state × placement]
  std::vector<uint32_t> without_;                         // [state × placement]
};

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_STATES_H_
