// Device memory by cgroup, as the kernel's controller `dmem` counts and limits it: a charge counts in its group and in
// all above it, and is refused where one of them would pass its hard limit. A charge stays where it was made, wherever
// its process goes later.
//
// A plain value; groups are named by their path below the root of the tree ("mete/a"), the root by "" (it has no
// limits and no count). Not thread-safe. Units: bytes.
#ifndef METE_EMULATOR_ENGINE_CGROUPS_H_
#define METE_EMULATOR_ENGINE_CGROUPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mete::emulator {

inline constexpr uint64_t kNoMemoryLimit = UINT64_MAX;

struct MemoryLimits {
  uint64_t soft = 0, hard = kNoMemoryLimit;
};

class Cgroups {
 public:
  using Id = uint64_t;  // of a path, for good; 0: the root

  explicit Cgroups(size_t gpus) : gpus_(gpus) { groups_.emplace_back(); }

  Id IdOf(const std::string& path);
  const std::string& PathOf(Id id) const { return groups_[id].path; }
  Id ParentOf(Id id) const { return groups_[id].parent; }

  // False: one of the groups would pass its hard limit, and nothing has changed.
  bool Charge(Id id, uint32_t gpu, uint64_t bytes);
  void Uncharge(Id id, uint32_t gpu, uint64_t bytes);
  uint64_t Current(Id id, uint32_t gpu) const;

  MemoryLimits LimitsOf(Id id, uint32_t gpu) const;
  void SetLimits(Id id, uint32_t gpu, MemoryLimits limits);
  void ClearLimits(Id id);  // its directory was removed

  // What the group may have at most, and how much of it is left: the least over it and those above.
  struct Room {
    uint64_t most = kNoMemoryLimit, left = kNoMemoryLimit;
  };
  Room RoomOf(Id id, uint32_t gpu) const;

  // Those that have a limit.
  std::vector<Id> Limited() const;

 private:
  struct Group {
    std::string path;
    Id parent = 0;
    std::vector<uint64_t> current;  // by GPU
    std::vector<MemoryLimits> limits;
  };
  const size_t gpus_;
  std::vector<Group> groups_;  // by id
  std::map<std::string, Id> ids_;
};

// Where the tree is and who is in it: the seam to files.
class CgroupTree {
 public:
  virtual ~CgroupTree() = default;
  // The group that the process or its nearest ancestor in the tree is listed in; "": none.
  virtual std::string GroupOf(uint32_t pid) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // It exists, and the groups above it hand the controller down to it.
  virtual bool HasController(const std::string& path) = 0;
  // Writes the group's dmem files for one region; all of it for a GPU that is not named before.
  virtual void Show(const std::string& path, uint32_t gpu, const MemoryLimits& limits, uint64_t current) = 0;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_CGROUPS_H_
