// `nvidia-smi mig`: GPU instances, compute instances and their profiles, as tables, and their making and ending.
//
// A profile has two numbers: the ID that -lgip prints and -cgi takes (19: 1g.5gb on an A100), which is also what NVML
// wants for a creation, and NVML's enumeration by which its description is found. Only the first appears here.
// Placements count memory slices for GPU instances and compute slices for compute instances.
//
// Shapes of tables, words of results: NVIDIA's MIG User Guide, "Getting Started with MIG". Plain data; one thread.
#ifndef METE_EMULATOR_SMI_MIG_H_
#define METE_EMULATOR_SMI_MIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

struct MigEngineCounts {
  uint32_t copy = 0, decoders = 0, encoders = 0, jpeg = 0, ofa = 0;
};

struct MigProfileRow {
  uint32_t id = 0;
  std::string name;  // "1g.5gb+me", "1c.3g.20gb"
  uint32_t slices = 0, sm_count = 0;
  uint64_t memory_mib = 0;  // of a GPU instance
  bool peer_to_peer = false;
  MigEngineCounts engines;
  uint32_t free = 0, total = 0;
  std::vector<uint32_t> starts;
  uint32_t size = 0;
};

struct MigComputeInstance {
  uint32_t id = 0, profile = 0, start = 0, size = 0;
};

struct MigGpuInstance {
  uint32_t id = 0, profile = 0, start = 0, size = 0;
  std::vector<MigProfileRow> compute_profiles;
  std::vector<MigComputeInstance> compute_instances;  // by id
};

struct MigNode {                              // of one GPU
  std::vector<MigProfileRow> profiles;        // small to large
  std::vector<MigGpuInstance> gpu_instances;  // by their profile's place, then by id
};

enum class MigAction {
  kNone,
  kGpuProfiles,
  kGpuPlacements,
  kGpuInstances,
  kCreateGpuInstances,
  kDestroyGpuInstances,
  kComputeProfiles,
  kComputePlacements,
  kComputeInstances,
  kCreateComputeInstances,
  kDestroyComputeInstances,
};

// "19", "3g.20gb", "MIG 3g.20gb", each perhaps with ":start".
struct MigSpec {
  std::string profile;
  std::optional<uint32_t> start;
};

struct MigRequest {
  MigAction action = MigAction::kNone;
  std::vector<MigSpec> specs;                              // none for compute instances: the default profile
  std::vector<uint32_t> gpu_instances, compute_instances;  // -gi, -ci; empty: all
  bool default_compute = false;                            // -C
};

// What NVML knows and does of one GPU's instances; the seam for tests. `why` is NVML's word for what went wrong.
class MigSource {
 public:
  virtual ~MigSource() = default;
  // `instances`: the instances too, which NVML tells only those who may change them.
  virtual Exit ReadMig(uint32_t gpu, bool instances, MigNode* node, std::string* why) = 0;
  virtual Exit CreateGpuInstance(uint32_t gpu, uint32_t profile, std::optional<uint32_t> start, uint32_t* id,
                                 std::string* why) = 0;
  virtual Exit DestroyGpuInstance(uint32_t gpu, uint32_t id, std::string* why) = 0;
  virtual Exit CreateComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t profile,
                                     std::optional<uint32_t> start, uint32_t* id, std::string* why) = 0;
  virtual Exit DestroyComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t id, std::string* why) = 0;
  // kOk with `pending` not empty: the mode waits for a reset, and why.
  virtual Exit SetMigMode(uint32_t gpu, bool enable, std::string* pending, std::string* why) = 0;
};

// "9,3g.20gb:4": false if a part is empty or its start no number.
bool ParseMigSpecs(const std::string& list, std::vector<MigSpec>* specs);

// The answer to `mig` on the chosen GPUs. Those without MIG, or with it off where instances are meant, are passed over.
Exit AnswerMig(const MigRequest& request, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen,
               MigSource* source, std::string* text, std::string* message);

// `-mig 0|1` on the chosen GPUs.
Exit SwitchMig(bool enable, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, MigSource* source,
               std::string* text, std::string* message);

// The tables of the listing actions (mig_tables.cc); `gpus` and `nodes` side by side, already narrowed by -gi.
std::string MigTable(MigAction action, const std::vector<uint32_t>& gpus, const std::vector<MigNode>& nodes);

// The compute instance that fills the GPU instance, which -C and -cci make; null if there is none.
const MigProfileRow* DefaultComputeProfile(const MigGpuInstance& instance);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_MIG_H_
