// Chooses a mechanism from promises: for every GPU × mechanism whether it keeps what is asked and has room, the
// cheapest that does, or a refusal that names the promise, the GPU, the reason and the nearest request that would
// succeed.
//
//   const Choice choice = Choose({request, {gpu::Promise::kFaultContainment}}, views);
//   if (!choice.status.ok()) …  // Refused, Usage, NoSuch or Lacks
//
// Pure: what a GPU can do here (GpuView::ways) is found out by the layer above. Any thread.
#ifndef METE_PLAN_CHOICE_H_
#define METE_PLAN_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpu/mig.h"
#include "gpu/promises.h"
#include "plan/values.h"

namespace mete::plan {

namespace mig {
class Planner;
}

// How far GPU, driver and configuration let a mechanism keep a promise.
enum class Keeps { kAlways, kWhileInForce, kWhileAllGranted, kNot };

struct PromiseView {
  gpu::Promise promise = gpu::Promise::kMemoryQuota;
  Keeps keeps = Keeps::kNot;
  std::string why;
};

// One way of sharing a GPU, as it stands here.
struct WayView {
  const gpu::Variant* variant = nullptr;  // never null
  enum class Standing { kSupported, kNotBuilt, kNotPossible } standing = Standing::kNotPossible;
  std::string why;  // why not, or a remark
  std::vector<PromiseView> promises;
  bool lacks = false;  // not possible for want of something that can be had: a library, a tool
};

// A GPU instance that is there, whoever made it.
struct InstanceView {
  std::string profile;  // "1g.5gb"
  int start = 0;
  std::string uuid;      // of its MIG device; empty while it has none
  std::string tenant;    // the share or process that has it; empty: nobody, it can be adopted
  bool movable = false;  // a share of this book has it, and mete made it: a person may decide to move it
};

struct GpuView {
  GpuOccupancy occupancy;
  // A MIG device instead of a GPU: the instance it belongs to. Only a request that names it gets it; `occupancy` is
  // then the device's, but for the index, which is the GPU's.
  std::optional<Instance> device;
  std::string parent;                  // of such a device: the GPU's UUID
  const gpu::MigBoard* mig = nullptr;  // its table, when the board has MIG
  bool mig_pending = false;            // a change of mode waits for a reset
  bool mig_needs_reset = false;        // switching the mode does (before Hopper)
  std::vector<InstanceView> instances;
  const mig::Planner* planner = nullptr;  // that has learnt what is asked for; null: all profiles alike
  bool instances_known = true;            // false: nobody looked which there are
  std::string exclusive_tenant;           // the share that has the whole GPU; empty: none
  std::vector<WayView> ways;              // a row of the promise table each
};

struct Ask {
  Request request;
  std::vector<gpu::Promise> need;  // beside what --memory and --compute ask
};

struct PromiseReason {
  gpu::Promise promise = gpu::Promise::kMemoryQuota;
  // kCapOnly: a cap, which is no promise while strangers are there. Enough where --memory or --compute asked, and shown
  // as not kept until they end; not where --need did.
  enum class Holds { kKept, kWhileInForce, kLiftedByBook, kCapOnly, kNot } holds = Holds::kNot;
  std::string because;
};

// What one mechanism on one GPU would be for the request.
struct Reason {
  uint32_t gpu = 0;
  size_t view = 0;     // which of the GpuViews
  bool lacks = false;  // it would do but for something that the machine lacks
  std::string gpu_name;
  gpu::Mechanism mechanism = gpu::Mechanism::kIntercept;
  std::string variant;
  enum class Verdict {
    kChosen,
    kWouldDo,
    kBreaksPromise,
    kNoRoom,
    kNotPossible,
    kNotBuilt,
    kNotAsked
  } verdict = Verdict::kNotPossible;
  std::string why;                      // for what was refused; a remark otherwise
  std::string gives;                    // "3g.20gb at 4", "8 GiB"; empty when refused
  std::optional<Instance> instance;     // mig: where it would stand
  bool adopts = false;                  // mig: it is there and free
  std::vector<PromiseReason> promises;  // one for each promise asked
};

struct Choice {
  Status status;                // OK: granted
  std::vector<Reason> reasons;  // every GPU × variant, in the order of GPUs and of cost
  gpu::Mechanism mechanism = gpu::Mechanism::kIntercept;
  std::vector<size_t> chosen;          // indices into reasons, one a GPU
  std::string nearest;                 // when refused: the request nearest to it that would succeed; empty: none
  std::vector<std::string> proposals;  // when refused for holes between instances: what could be moved, and its price
};

Choice Choose(const Ask& ask, const std::vector<GpuView>& gpus);
// What a choice that succeeded grants; without an id. `gpus` are those it was made from.
Grant GrantOf(const Ask& ask, const Choice& choice, const std::vector<GpuView>& gpus);

// What is asked in all: --need, and what --memory and --compute ask.
std::vector<gpu::Promise> NeedsOf(const Ask& ask);
// What --need takes: promises separated by commas. NoSuch names the nearest.
StatusOr<std::vector<gpu::Promise>> ParseNeed(std::string_view text);
std::string_view Name(Reason::Verdict verdict);
std::string_view Name(PromiseReason::Holds holds);

}  // namespace mete::plan

#endif  // METE_PLAN_CHOICE_H_
