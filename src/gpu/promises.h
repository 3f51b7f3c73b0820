// What can be promised to a tenant, and which mechanism keeps which promise, with reasons and sources.
//
//   const PromiseTable& table = PromiseTable::BuiltIn();
//   const Verdict& verdict = table.Find("mig").value()->Of(Promise::kMemoryQuota);
//
// A row of the table is a variant: one way a mechanism can be set up ("mps-limits"). Immutable; any thread.
#ifndef METE_GPU_PROMISES_H_
#define METE_GPU_PROMISES_H_

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gpu/mechanism.h"

namespace mete::gpu {

enum class Promise {
  kMemoryQuota,
  kMemoryPrivacy,
  kComputeCap,
  kComputeReservation,
  kBandwidthIsolation,
  kCacheIsolation,
  kConcurrency,
  kFaultContainment,
  kRecovery,
  kSeparateUsers,
  kEnforcedOutside,
};
inline constexpr size_t kPromiseCount = 11;
// All of them, in the order in which people read them.
const std::array<Promise, kPromiseCount>& Promises();
std::string_view Name(Promise promise);  // "memory-quota", as on the command line
// NoSuch names the nearest, or lists all.
StatusOr<Promise> ParsePromise(std::string_view name);

enum class Value {
  kYes,
  kNo,
  kConditional,  // counts as kept only where the condition can be checked and holds
  kCapOnly,      // an upper bound is enforced, but nothing is set aside
};
std::string_view Name(Value value);

// What mete can check about a conditional cell.
enum class Condition {
  kNone,       // the cell is not conditional
  kUnchecked,  // nothing mete could check beforehand: counts as not kept
  kVoltaOrNewer,
  kResetsAlone,
  kInForce,
  kAgent,
  kMultiUserServer,
  kServerLimits,
  kOwnPartition,
};

struct Verdict {
  Value value = Value::kNo;
  std::string why;
  Condition condition = Condition::kNone;
  std::vector<std::string> sources;  // ids
};

// Facts about a variant that are no promises: "maximum-tenants" → "1", because …
struct Property {
  std::string value, why;
  std::vector<std::string> sources;
};

struct Variant {
  std::string name;
  Mechanism mechanism = Mechanism::kExclusive;
  std::string summary;
  std::array<Verdict, kPromiseCount> promises;
  std::vector<std::pair<std::string, Property>> properties;  // in the table's order

  const Verdict& Of(Promise promise) const { return promises[static_cast<size_t>(promise)]; }
};

struct PromiseNote {
  std::string meaning;     // a clause: "the tenant gets …"
  std::string asked_with;  // option of `mete run`; empty: none of its own
};

class PromiseTable {
 public:
  // From data/promises.yaml, compiled into this program.
  static const PromiseTable& BuiltIn();
  static StatusOr<PromiseTable> Parse(std::string_view yaml);

  const std::vector<Variant>& variants() const { return variants_; }
  std::vector<const Variant*> Of(Mechanism mechanism) const;
  StatusOr<const Variant*> Find(std::string_view variant) const;
  const PromiseNote& Note(Promise promise) const { return notes_[static_cast<size_t>(promise)]; }
  // "the GPU is Volta or newer"; for kUnchecked what that means; empty for kNone.
  std::string Meaning(Condition condition) const;
  std::string Meaning(Value value) const;
  // What a source id means; empty if unknown.
  std::string Source(std::string_view id) const;

 private:
  std::vector<Variant> variants_;
  std::array<PromiseNote, kPromiseCount> notes_;
  std::map<std::string, std::string, std::less<>> conditions_, values_, sources_;
};

}  // namespace mete::gpu

#endif  // METE_GPU_PROMISES_H_
