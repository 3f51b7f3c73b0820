#include "plan/mig/change.h"

#include <fmt/format.h>

#include <bit>
#include <optional>

#include "base/text.h"

namespace mete::plan::mig {
namespace {

constexpr Layout Bit(int placement) { return Layout{1} << placement; }

bool HoldsExactly(const Geometry& geometry, Layout layout, const std::vector<int>& wanted) {
  for (int i = 0; i < geometry.profiles(); ++i) {
    if (std::popcount(layout & geometry.OfProfile(i)) != wanted[static_cast<size_t>(i)]) return false;
  }
  return true;
}

std::string InWords(const std::vector<std::pair<std::string, int>>& profiles) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : profiles) parts.push_back(fmt::format("{} × {}", count, name));
  return parts.empty() ? "nothing" : JoinNames(parts, "and");
}

}  // namespace

StatusOr<std::vector<int>> Counts(const Geometry& geometry, const std::vector<std::pair<std::string, int>>& profiles) {
  std::vector<int> counts(static_cast<size_t>(geometry.profiles()), 0);
  for (const auto& [name, count] : profiles) {
    const int profile = geometry.ProfileIndex(name);
    if (const size_t dot = name.find("c."); profile < 0 && dot != std::string::npos) {
      return Usage("{} asks for a part of a GPU instance; each has one compute instance here that fills it: write {}",
                   name, name.substr(dot + 2));
    }
    if (profile < 0) {
      std::vector<std::string> names;
      for (const gpu::MigProfile& known : geometry.board().profiles) names.push_back(known.name);
      return Usage("{} has no MIG profile {}; it has {}", geometry.board().id, name, JoinNames(names, "and"));
    }
    counts[static_cast<size_t>(profile)] += count;
  }
  return counts;
}

StatusOr<Change> ChangeTo(const States& states, std::span<const PresentInstance> present,
                          const std::vector<std::pair<std::string, int>>& profiles) {
  const Geometry& geometry = states.geometry();
  METE_ASSIGN_OR_RETURN(const std::vector<int> wanted, Counts(geometry, profiles));
  Layout there = 0, fixed = 0;
  std::vector<std::string> in_the_way;
  for (const PresentInstance& one : present) {
    there |= Bit(one.placement);
    if (one.fixed.empty()) continue;
    fixed |= Bit(one.placement);
    in_the_way.push_back(fmt::format("{} ({})", geometry.ToString(Bit(one.placement)), one.fixed));
  }
  std::optional<Layout> best;
  bool fits = false;
  for (uint32_t state = 0; state < states.size(); ++state) {
    const Layout layout = states.layout(state);
    if (!HoldsExactly(geometry, layout, wanted)) continue;
    fits = true;
    if ((layout & fixed) != fixed) continue;
    if (!best || std::popcount(layout & there) > std::popcount(*best & there)) best = layout;
  }
  if (best) return Change{there & *best, there & ~*best, *best & ~there};
  if (!fits) {
    return Refused("{} cannot hold {} at once: they do not fit beside each other at any placements",
                   geometry.board().id, InWords(profiles));
  }
  return Refused("{} cannot be had beside what has to stay: {}; nothing was changed", InWords(profiles),
                 JoinNames(in_the_way, "and"));
}

}  // namespace mete::plan::mig
