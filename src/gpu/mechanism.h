// The ways of sharing a GPU, and what is known of each. Values; any thread.
#ifndef METE_GPU_MECHANISM_H_
#define METE_GPU_MECHANISM_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mete::gpu {

enum class Mechanism { kExclusive, kTimeSlicing, kMps, kMig, kVgpu, kIntercept };

inline constexpr std::array<Mechanism, 6> kMechanisms{Mechanism::kExclusive, Mechanism::kTimeSlicing,
                                                      Mechanism::kMps,       Mechanism::kMig,
                                                      Mechanism::kVgpu,      Mechanism::kIntercept};

std::string_view Name(Mechanism mechanism);  // "time-slicing"
// NoSuch lists the names.
StatusOr<Mechanism> ParseMechanism(std::string_view name);

struct Fact {
  std::string text;
  std::vector<std::string> sources;  // ids
};

struct MechanismNote {
  std::string summary;  // one line
  std::string how;      // a sentence or two
  std::vector<Fact> facts;
};

// From data/mechanisms.yaml, compiled into this program.
class MechanismNotes {
 public:
  static const MechanismNotes& BuiltIn();
  static StatusOr<MechanismNotes> Parse(std::string_view yaml);

  const MechanismNote& operator[](Mechanism mechanism) const { return notes_[static_cast<size_t>(mechanism)]; }
  // What a source id means; empty if unknown.
  std::string Source(std::string_view id) const;

 private:
  std::array<MechanismNote, kMechanisms.size()> notes_;
  std::vector<std::pair<std::string, std::string>> sources_;
};

}  // namespace mete::gpu

#endif  // METE_GPU_MECHANISM_H_
