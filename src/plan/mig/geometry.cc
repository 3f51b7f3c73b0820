#include "plan/mig/geometry.h"

#include <algorithm>
#include <bit>

#include "base/text.h"

namespace mete::plan::mig {
namespace {

constexpr std::array<const char*, 6> kSumNames{"compute slices", "instances",    "decoders",
                                               "encoders",       "JPEG engines", "OFA engines"};

// Calls `visit` with each placement of the layout, lowest first.
template <typename Visit>
void ForEach(Layout layout, Visit visit) {
  for (; layout != 0; layout &= layout - 1) visit(std::countr_zero(layout));
}

}  // namespace

StatusOr<Geometry> Geometry::Of(const gpu::MigBoard& board) {
  Geometry geometry;
  geometry.board_ = board;
  geometry.has_ = {board.compute_slices, board.max_gpu_instances, 0, 0, 0, 0};
  for (int i = 0; i < geometry.profiles(); ++i) {
    const gpu::MigProfile& profile = board.profiles[static_cast<size_t>(i)];
    const Sums takes{profile.compute_slices, 1, profile.engines.decoder, profile.engines.encoder, profile.engines.jpeg,
                     profile.engines.ofa};
    // No source counts a board's media engines: the largest profile has them all.
    for (size_t sum = 2; sum < kSums; ++sum) geometry.has_[sum] = std::max(geometry.has_[sum], takes[sum]);
    Layout all = 0;
    for (const int start : profile.starts) {
      if (geometry.placements_.size() == 64) return Usage("{}: more than 64 MIG placements", board.id);
      all |= Layout{1} << geometry.placements_.size();
      Known known;
      known.where = {i, start, profile.memory_slices};
      known.slices = ((uint32_t{1} << profile.memory_slices) - 1) << start;
      known.takes = takes;
      geometry.placements_.push_back(known);
    }
    geometry.of_profile_.push_back(all);
  }
  for (Known& known : geometry.placements_) {
    for (size_t other = 0; other < geometry.placements_.size(); ++other) {
      if ((known.slices & geometry.placements_[other].slices) != 0) known.clashes |= Layout{1} << other;
    }
  }
  return geometry;
}

int Geometry::Find(int profile, int start) const {
  for (int i = 0; i < placements(); ++i) {
    if (at(i).profile == profile && at(i).start == start) return i;
  }
  return -1;
}

int Geometry::ProfileIndex(std::string_view name) const {
  const gpu::MigProfile* profile = board_.Find(name);
  return profile == nullptr ? -1 : static_cast<int>(profile - board_.profiles.data());
}

Geometry::Sums Geometry::SumOf(Layout layout) const {
  Sums sums{};
  ForEach(layout, [&](int i) {
    for (size_t sum = 0; sum < kSums; ++sum) sums[sum] += placements_[static_cast<size_t>(i)].takes[sum];
  });
  return sums;
}

bool Geometry::CanAdd(Layout layout, int placement) const {
  const Known& known = placements_[static_cast<size_t>(placement)];
  if ((layout & known.clashes) != 0) return false;
  const Sums sums = SumOf(layout);
  for (size_t sum = 0; sum < kSums; ++sum) {
    if (known.takes[sum] > 0 && sums[sum] + known.takes[sum] > has_[sum]) return false;
  }
  const auto profile = static_cast<size_t>(known.where.profile);
  return std::popcount(layout & of_profile_[profile]) < board_.profiles[profile].max_instances;
}

Layout Geometry::Addable(Layout layout) const {
  Layout addable = 0;
  for (int i = 0; i < placements(); ++i) {
    if (CanAdd(layout, i)) addable |= Layout{1} << i;
  }
  return addable;
}

bool Geometry::Legal(Layout layout) const {
  if (placements() < 64 && layout >> placements() != 0) return false;
  Layout before = 0;
  bool legal = true;
  ForEach(layout, [&](int i) {
    legal = legal && CanAdd(before, i);
    before |= Layout{1} << i;
  });
  return legal;
}

std::string Geometry::WhyNot(Layout layout, int profile, int start) const {
  const gpu::MigProfile& wanted = board_.profiles[static_cast<size_t>(profile)];
  const int only = start < 0 ? -1 : Find(profile, start);
  if (start >= 0 && only < 0) return fmt::format("{} cannot start at memory slice {}", wanted.name, start);
  const Layout places = only < 0 ? OfProfile(profile) : Layout{1} << only;
  Layout in_the_way = 0;
  bool free_place = false;
  ForEach(places, [&](int i) {
    const Layout clash = layout & placements_[static_cast<size_t>(i)].clashes;
    in_the_way |= clash;
    free_place = free_place || clash == 0;
  });
  if (!free_place) {
    return fmt::format("its {} in use: {}", places == OfProfile(profile) ? "placements are all" : "memory slices are",
                       ToString(in_the_way));
  }
  if (std::popcount(layout & OfProfile(profile)) >= wanted.max_instances) {
    return fmt::format("the board allows {} of {} and has them", wanted.max_instances, wanted.name);
  }
  const Sums sums = SumOf(layout);
  const Known& known = placements_[static_cast<size_t>(std::countr_zero(places))];
  for (size_t sum = 0; sum < kSums; ++sum) {
    if (known.takes[sum] > 0 && sums[sum] + known.takes[sum] > has_[sum]) {
      return fmt::format("it needs {} of the board's {} {}, and {} are in use", known.takes[sum], has_[sum],
                         kSumNames[sum], sums[sum]);
    }
  }
  return {};
}

int Geometry::UsedComputeSlices(Layout layout) const { return SumOf(layout)[0]; }

uint32_t Geometry::UsedMemorySlices(Layout layout) const {
  uint32_t slices = 0;
  ForEach(layout, [&](int i) { slices |= placements_[static_cast<size_t>(i)].slices; });
  return slices;
}

std::string Geometry::ToString(Layout layout) const {
  std::vector<int> order;
  ForEach(layout, [&](int i) { order.push_back(i); });
  std::sort(order.begin(), order.end(), [&](int a, int b) { return at(a).start < at(b).start; });
  std::vector<std::string> words;
  for (const int i : order) {
    words.push_back(fmt::format("{} at {}", board_.profiles[static_cast<size_t>(at(i).profile)].name, at(i).start));
  }
  return words.empty() ? "nothing" : JoinNames(words, "and");
}

}  // namespace mete::plan::mig
