// The placements of a MIG board, numbered, and which of them can stand beside each other. A layout is the set of
// placements in use, a bit for each; every question is a few operations on words.
//
//   METE_ASSIGN_OR_RETURN(const Geometry geometry, Geometry::Of(board));
//   Layout free = geometry.Addable(layout) & geometry.OfProfile(profile);
//
// The rules, from data/mig.yaml: instances share no memory slice; compute slices, instances, instances of a profile and
// each kind of media engine stay within what the board has (which is why there is one `+me`, and why a `+me.all` leaves
// only `-me`). Immutable; any thread. Starts and sizes are memory slices.
#ifndef METE_PLAN_MIG_GEOMETRY_H_
#define METE_PLAN_MIG_GEOMETRY_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpu/mig.h"

namespace mete::plan::mig {

// Bit i: the placement with number i is in use.
using Layout = uint64_t;

struct Placement {
  int profile = 0;  // index into MigBoard::profiles
  int start = 0, size = 0;
  friend bool operator==(const Placement&, const Placement&) = default;
};

class Geometry {
 public:
  // Usage for a board with more than 64 placements.
  static StatusOr<Geometry> Of(const gpu::MigBoard& board);

  const gpu::MigBoard& board() const { return board_; }
  int profiles() const { return static_cast<int>(board_.profiles.size()); }
  int placements() const { return static_cast<int>(placements_.size()); }
  const Placement& at(int placement) const { return placements_[static_cast<size_t>(placement)].where; }
  // The number of a placement; -1 if the board has none there.
  int Find(int profile, int start) const;
  int ProfileIndex(std::string_view name) const;  // -1
  // All placements of a profile, whatever is in use.
  Layout OfProfile(int profile) const { return of_profile_[static_cast<size_t>(profile)]; }

  // Can `placement` be added to the legal layout?
  bool CanAdd(Layout layout, int placement) const;
  Layout Addable(Layout layout) const;
  bool Legal(Layout layout) const;
  // In words, why an instance of this profile cannot be made beside `layout`, at `start` or (with -1) anywhere.
  std::string WhyNot(Layout layout, int profile, int start = -1) const;

  int UsedComputeSlices(Layout layout) const;
  uint32_t UsedMemorySlices(Layout layout) const;  // a bit for each
  // "1g.5gb at 0, 3g.20gb at 4"; "nothing".
  std::string ToString(Layout layout) const;

 private:
  // Sums that a layout may not exceed: compute slices, instances, and the media engines.
  static constexpr size_t kSums = 6;
  using Sums = std::array<int, kSums>;
  struct Known {
    Placement where;
    uint32_t slices = 0;  // memory slices taken
    Layout clashes = 0;   // placements that share a memory slice, and itself
    Sums takes{};
  };
  Sums SumOf(Layout layout) const;

  gpu::MigBoard board_;
  std::vector<Known> placements_;
  std::vector<Layout> of_profile_;
  Sums has_{};
};

}  // namespace mete::plan::mig

#endif  // METE_PLAN_MIG_GEOMETRY_H_
