// What a way of sharing a GPU must be able to do, and the values it hands out. One interface for all mechanisms: no
// mechanism knows Kubernetes, and whoever starts a process or a container knows no mechanism, only Edits.
//
// Ownership: a Mechanism owns nothing but its configuration; what it makes on the node is named by the grant's id.
// Thread rule: const methods from any thread, not two at once for one grant. Errors as in base/status.h.
#ifndef METE_MECHANISM_MECHANISM_H_
#define METE_MECHANISM_MECHANISM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "mechanism/journal.h"
#include "plan/choice.h"
#include "plan/choice_room.h"
#include "plan/values.h"

namespace mete::mechanism {

// What must change around a program so that it runs in its share. Applied to a process by Apply, to a container by
// whoever writes its specification.
struct Edits {
  struct Variable {
    std::string name, value;
  };
  struct Mount {
    std::string host_path, path;
    bool read_only = true;
  };
  std::vector<Variable> set;      // variables with their new value
  std::vector<Variable> prepend;  // colon-separated lists that get `value` in front; order as wanted in the result
  std::vector<Mount> mounts;
  std::vector<std::string> device_nodes;

  // The environment ("NAME=value" entries) with these edits made. Mounts and device nodes are not a process's matter.
  std::vector<std::string> Apply(const std::vector<std::string>& environment) const;
};

Json ToJson(const Edits& edits);
// Usage if the text is not what ToJson writes.
StatusOr<Edits> EditsFromJson(const Json& json);

// Whether a share's limits are really in force, read back and not remembered.
struct Evidence {
  struct Item {
    std::string what;  // "process 4711 runs through the interceptor"
    bool holds = false;
    std::string because;  // what was seen
  };
  std::vector<Item> items;
  bool InForce() const;  // every item holds
};

struct Support {
  bool supported = false;
  std::string because;  // when not
};

// A process that holds a slot of the share.
struct Tenant {
  uint32_t pid = 0;
  uint64_t start_time = 0;  // /proc/PID/stat, field 22
};

class Mechanism {
 public:
  virtual ~Mechanism() = default;

  virtual std::string_view name() const = 0;

  // Can this GPU be shared this way here?
  virtual Support Probe(const plan::GpuOccupancy& gpu) const = 0;
  // Pure: what the request would get on this GPU, or why nothing.
  virtual StatusOr<plan::Room> Plan(const plan::Ask& ask, const plan::GpuView& gpu) const;
  // Makes on the node what the grant needs; each thing is in the journal before it is made. Idempotent; what a killed
  // attempt left is completed. After an error nothing of this attempt is left that Release would not remove.
  virtual StatusOr<Edits> Prepare(const plan::Grant& grant, Journal& journal) const = 0;
  // Reads back whether the grant is in force for these processes.
  virtual StatusOr<Evidence> Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                                    const Journal& journal) const = 0;
  // Removes what Prepare made, and sets back what it changed unless somebody else has changed it since. Idempotent.
  virtual Status Release(const plan::Grant& grant, Journal& journal) const = 0;
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_MECHANISM_H_
