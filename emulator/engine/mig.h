// MIG on one GPU as its driver keeps it: the mode, GPU instances and compute instances, and what may stand beside what.
// Rules from data/mig.yaml: instances share no slice and use the placements of the tables only; compute slices, media
// engines and numbers stay within what the board has.
//
// A plain value without the model: whoever makes or destroys an instance moves the parts of the model along (`made` and
// the ids of parts are for that). Not thread-safe. Errors: Result, and nothing has changed.
#ifndef METE_EMULATOR_ENGINE_MIG_H_
#define METE_EMULATOR_ENGINE_MIG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "emulator/engine/client.h"
#include "emulator/engine/mig_info.h"
#include "emulator/engine/model.h"
#include "gpu/mig.h"

namespace mete::emulator {

class MigGpu {
 public:
  struct Compute {
    MigComputeInstance info = {};
    const gpu::MigComputeProfile* profile = nullptr;
    PartitionId part = 0;
    uint64_t used = 0;  // bytes held through it
  };
  struct Instance {
    MigGpuInstance info = {};
    const gpu::MigProfile* profile = nullptr;
    InstanceId part = 0;
    std::vector<Compute> computes;  // by id
  };

  // `board`: null for one without MIG; it outlives this.
  MigGpu(const gpu::MigBoard* board, const GpuInfo& gpu) : board_(board), gpu_(gpu) {}

  bool capable() const { return board_ != nullptr; }
  bool on() const { return mode_; }
  bool pending() const { return pending_; }
  void Ask(bool on) { pending_ = on; }
  void Switch() { mode_ = pending_; }

  // kNotSupported: MIG is not on; kInvalid: no such profile or placement; kInsufficient: no room for it, there or (with
  // kAnyStart) anywhere; kNoSuchObject: no such instance; kInUse: something is in it.
  Result CreateGpuInstance(uint32_t profile_id, uint32_t start, Instance** made);
  Result CreateComputeInstance(uint32_t gpu_instance, uint32_t profile_id, uint32_t start, Compute** made);
  // What may go: its parts of the model are the caller's to remove, then Erase.
  Result MayDestroy(uint32_t gpu_instance) const;
  Result MayDestroy(uint32_t gpu_instance, uint32_t compute_instance) const;
  void Erase(uint32_t gpu_instance);
  void Erase(uint32_t gpu_instance, uint32_t compute_instance);

  std::vector<Instance>& instances() { return instances_; }  // by id
  const std::vector<Instance>& instances() const { return instances_; }
  Instance* Find(uint32_t gpu_instance);
  // By serial: contexts and memory remember where they are by it.
  Compute* FindPlace(uint32_t serial, Instance** instance = nullptr);

  std::vector<MigProfileInfo> Profiles() const;
  MigState State() const;
  // How many more of a profile could be made in what is left: GPU instances (gpu_instance: kNoInstance), or compute
  // instances of one.
  Result Room(uint32_t gpu_instance, uint32_t profile_id, uint32_t* count) const;
  // Starts where one could be made now.
  std::vector<uint32_t> FreeStarts(const gpu::MigProfile& profile) const;

 private:
  static constexpr size_t kSums = 6;
  bool Fits(const gpu::MigProfile& profile, uint32_t start) const;
  uint32_t ChooseStart(const gpu::MigProfile& profile) const;
  uint32_t SmsOf(const gpu::MigProfile& profile) const;
  uint32_t SmsOf(const gpu::MigProfile& profile, const gpu::MigComputeProfile& compute) const;

  const gpu::MigBoard* board_;
  GpuInfo gpu_;
  bool mode_ = false, pending_ = false;
  uint32_t last_serial_ = 0;
  std::vector<Instance> instances_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_MIG_H_
