#include "plan/mig/profile_choice.h"

#include <cstdlib>
#include <tuple>
#include <vector>

#include "base/text.h"

namespace mete::plan::mig {
namespace {

bool IsPlain(const gpu::MigProfile& profile) { return profile.name.find_first_of("+-") == std::string::npos; }

// 5 of "1g.5gb": what the name promises, in whatever unit the reader takes it for.
uint64_t NamedGigabytes(const gpu::MigProfile& profile) {
  const size_t dot = profile.name.find('.');
  return dot == std::string::npos ? 0 : std::strtoull(profile.name.c_str() + dot + 1, nullptr, 10);
}

// Hundredths of a percent of the board, rounded down.
uint32_t PartOf(const gpu::MigBoard& board, const gpu::MigProfile& profile) {
  return static_cast<uint32_t>(10000 * profile.compute_slices / board.compute_slices);
}

std::string PartText(const gpu::MigBoard& board, const gpu::MigProfile& profile) {
  return fmt::format("{} of {} compute slices", profile.compute_slices, board.compute_slices);
}

// Whole tenths of a GiB would hide the point ("4.8 GiB"), so odd sizes are in MiB.
std::string Holds(const gpu::MigProfile& profile) {
  return fmt::format("{} holds {} MiB", profile.name, profile.memory.count / kMiB);
}

}  // namespace

StatusOr<ProfileChoice> ChooseProfile(const gpu::MigBoard& board, const ProfileRequest& request) {
  const uint64_t memory = request.memory ? request.memory->count : 0;
  const bool capped = request.compute && request.compute->mode == ComputeMode::kHard;
  const uint32_t percent = request.compute ? request.compute->percent.hundredths : 0;
  const gpu::MigProfile* best = nullptr;
  const gpu::MigProfile* largest = nullptr;   // by memory
  const gpu::MigProfile* smallest = nullptr;  // by compute, of those that hold the memory
  const auto rank = [&](const gpu::MigProfile& profile) {
    return std::tuple(capped ? -profile.compute_slices : 0, profile.memory_slices, profile.compute_slices);
  };
  for (const gpu::MigProfile& profile : board.profiles) {
    if (!IsPlain(profile)) continue;
    if (largest == nullptr || profile.memory > largest->memory) largest = &profile;
    if (profile.memory.count < memory) continue;
    if (smallest == nullptr || profile.compute_slices < smallest->compute_slices) smallest = &profile;
    // A cap named to the percent means the slice of that size: 14 % is 1 of 7 (14.28 %).
    if (capped && PartOf(board, profile) / 100 * 100 > percent) continue;
    if (request.compute && !capped && PartOf(board, profile) < percent / 100 * 100) continue;
    if (best == nullptr || rank(profile) < rank(*best)) best = &profile;
  }
  if (largest == nullptr) return Refused("the board {} has no MIG profile for compute", board.id);
  if (smallest == nullptr) {
    return Refused("no MIG profile of the board holds {}; the largest, {}", mete::ToString(*request.memory),
                   Holds(*largest));
  }
  if (best == nullptr && capped) {
    return Refused("no MIG profile that holds enough memory stays within {}; the smallest such is {} ({})",
                   mete::ToString(request.compute->percent), smallest->name, PartText(board, *smallest));
  }
  if (best == nullptr) {
    return Refused("no MIG profile that holds enough memory has {}; the largest is {} ({})",
                   mete::ToString(request.compute->percent), largest->name, PartText(board, *largest));
  }

  ProfileChoice choice;
  choice.profile = static_cast<int>(best - board.profiles.data());
  choice.why = Holds(*best);
  if (request.compute) choice.why += fmt::format(" and has {}", PartText(board, *best));
  // Smaller profiles whose name seems to promise enough.
  std::vector<std::string> seeming;
  Bytes most;
  for (const gpu::MigProfile& profile : board.profiles) {
    if (!IsPlain(profile) || profile.memory_slices >= best->memory_slices || profile.memory.count >= memory) continue;
    if (NamedGigabytes(profile) * kGiB < memory) continue;
    seeming.push_back(profile.name);
    if (profile.memory > most) most = profile.memory;
  }
  if (!seeming.empty()) {
    choice.why +=
        fmt::format("; {} {} only {} MiB, less than {}", JoinNames(seeming, "and"),
                    seeming.size() == 1 ? "holds" : "hold", most.count / kMiB, mete::ToString(*request.memory));
    choice.hint = fmt::format("--memory {}MiB would get by with {}", most.count / kMiB, seeming.front());
  }
  return choice;
}

}  // namespace mete::plan::mig
