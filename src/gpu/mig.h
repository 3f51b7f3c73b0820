// The MIG tables: profiles, placements and compute instances of every board that has MIG, embedded from data/mig.yaml
// with its sources. A MigBoard is a plain value, so that a caller who has read a live board's own placements (a
// floor-swept die may lack one) can make one too.
//
//   const MigBoard* board = MigTables::BuiltIn().Find("a100-sxm4-40gb");   // null: the board has no MIG
//
// Placements count memory slices, compute-instance starts compute slices; memory is what NVML reports for the profile,
// which is less than its name says. Immutable after the first call of BuiltIn(); any thread.
#ifndef METE_GPU_MIG_H_
#define METE_GPU_MIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/status.h"

namespace mete::gpu {

struct MigComputeProfile {
  std::string name;            // "1c.3g.20gb"; the one that fills its GPU instance is called as that is, "3g.20gb"
  uint32_t id = 0;             // as `nvidia-smi mig -lcip` prints it; equal to NVML's enum value
  int compute_slices = 0;      // of the GPU instance's
  int sm_count = 0;            // 0: no source gives it
  int max_instances = 0;       // in one GPU instance
  std::vector<int> starts;     // in compute slices of the GPU instance
  std::string nvml_enum_name;  // "NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE"
};

struct MigEngines {
  int decoder = 0, encoder = 0, jpeg = 0, ofa = 0;
};

struct MigProfile {
  std::string name;                       // "1g.5gb", "1g.5gb+me"
  std::vector<std::string> also_seen_as;  // what other drivers call it
  uint32_t id = 0;                        // as `nvidia-smi mig -lgip` prints it and -cgi takes it
  uint32_t nvml_profile = 0;              // NVML_GPU_INSTANCE_PROFILE_*: another number
  std::string nvml_enum_name;
  int compute_slices = 0, memory_slices = 0;
  Bytes memory;
  int sm_count = 0;  // 0: no source gives it
  int copy_engines = 0;
  MigEngines engines;
  bool graphics = false;
  int max_instances = 0;
  std::vector<int> starts;  // every placement is memory_slices wide
  std::vector<MigComputeProfile> compute;
  std::vector<std::string> estimated;  // fields that are estimates
};

struct MigBoard {
  std::string id;  // of the board in the catalogue
  int memory_slices = 0, compute_slices = 0;
  int max_gpu_instances = 0;
  std::map<int, uint32_t> first_instance_id;  // size in memory slices → id of the GPU instance at start 0
  std::vector<MigProfile> profiles;           // in the table's order: small to large

  // By name or a name another driver prints for it, ignoring case; null if there is none.
  const MigProfile* Find(std::string_view name) const;
  const MigProfile* FindById(uint32_t id) const;
  // The id that the driver gives a GPU instance of this profile at this start.
  uint32_t InstanceId(const MigProfile& profile, int start) const;
};

class MigTables {
 public:
  static const MigTables& BuiltIn();
  // The same format from elsewhere; Usage with the line of the first problem.
  static StatusOr<MigTables> Parse(std::string_view yaml);

  const std::vector<MigBoard>& boards() const { return boards_; }
  const MigBoard* Find(std::string_view board_id) const;

 private:
  std::vector<MigBoard> boards_;
};

}  // namespace mete::gpu

#endif  // METE_GPU_MIG_H_
