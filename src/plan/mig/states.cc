#include "plan/mig/states.h"

#include <algorithm>
#include <bit>

namespace mete::plan::mig {
namespace {

// Every board known has fewer than 6000; a board read from a stranger may not make us enumerate for ever.
constexpr size_t kMostStates = 1 << 17;

}  // namespace

StatusOr<States> States::Of(Geometry geometry) {
  States states;
  states.geometry_ = std::move(geometry);
  const Geometry& known = states.geometry_;
  // Legal sets are closed under removal, so each is reached by adding its placements in ascending order.
  states.layouts_.push_back(0);
  for (size_t next = 0; next < states.layouts_.size(); ++next) {
    const Layout layout = states.layouts_[next];
    const int first = layout == 0 ? 0 : 64 - std::countl_zero(layout);
    for (int i = first; i < known.placements(); ++i) {
      if (known.CanAdd(layout, i)) states.layouts_.push_back(layout | Layout{1} << i);
    }
    if (states.layouts_.size() > kMostStates) return Usage("{}: too many MIG layouts", known.board().id);
  }
  std::sort(states.layouts_.begin(), states.layouts_.end());
  states.stride_ = static_cast<uint32_t>(known.placements());
  states.with_.assign(states.layouts_.size() * states.stride_, kNone);
  states.without_ = states.with_;
  for (uint32_t state = 0; state < states.size(); ++state) {
    for (Layout rest = states.layouts_[state]; rest != 0; rest &= rest - 1) {
      const Layout bit = rest & -rest;
      const uint32_t before = states.Find(states.layouts_[state] & ~bit);
      const auto placement = static_cast<uint32_t>(std::countr_zero(bit));
      states.without_[state * states.stride_ + placement] = before;
      states.with_[before * states.stride_ + placement] = state;
    }
  }
  states.profiles_ = static_cast<size_t>(known.profiles());
  for (uint32_t state = 0; state < states.size(); ++state) {
    for (int profile = 0; profile < known.profiles(); ++profile) {
      states.first_addition_.push_back(static_cast<uint32_t>(states.additions_.size()));
      for (Layout places = known.OfProfile(profile); places != 0; places &= places - 1) {
        const int placement = std::countr_zero(places);
        const uint32_t next = states.With(state, placement);
        if (next != kNone) states.additions_.push_back({placement, next});
      }
    }
    states.first_removal_.push_back(static_cast<uint32_t>(states.removals_.size()));
    for (Layout held = states.layout(state); held != 0; held &= held - 1) {
      const int placement = std::countr_zero(held);
      states.removals_.push_back({placement, states.Without(state, placement)});
    }
  }
  states.first_addition_.push_back(static_cast<uint32_t>(states.additions_.size()));
  states.first_removal_.push_back(static_cast<uint32_t>(states.removals_.size()));
  return states;
}

uint32_t States::Find(Layout layout) const {
  const auto found = std::lower_bound(layouts_.begin(), layouts_.end(), layout);
  return found == layouts_.end() || *found != layout ? kNone : static_cast<uint32_t>(found - layouts_.begin());
}

uint32_t States::Without(uint32_t state, int placement) const {
  return without_[state * stride_ + static_cast<uint32_t>(placement)];
}

}  // namespace mete::plan::mig
