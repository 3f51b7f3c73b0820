// Whom an Xid hurts, as data/xid.yaml says (embedded). Immutable after the first call; any thread.
#ifndef METE_EMULATOR_ENGINE_FAULT_RULES_H_
#define METE_EMULATOR_ENGINE_FAULT_RULES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulator/engine/faults.h"

namespace mete::emulator {

struct XidRule {
  enum class Hurts { kNobody, kProcess, kBusy, kGpu };
  enum class Effect { kNone, kEccUncorrectable, kRowRemapPending, kRowRemapFailure, kLost };
  uint32_t xid = 0;
  std::string mnemonic, meaning, affected, action;  // for people
  Hurts hurts = Hurts::kNobody;
  uint32_t cuda = 0;  // CUresult of a context that is hurt; 0: nobody is
  Need need = Need::kNone;
  uint32_t from_major = 0;         // compute capability
  std::vector<uint32_t> followed;  // on compute capability 8.0 and newer
  Effect effect = Effect::kNone;
};
using XidRules = std::map<uint32_t, XidRule>;

// Usage with a line for a table that does not follow its schema.
StatusOr<XidRules> ReadXidRules(std::string_view text, std::string_view document);
// The embedded table, which a test reads; empty if it were broken.
const XidRules& BuiltInXidRules();

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_FAULT_RULES_H_
