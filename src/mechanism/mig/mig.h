// The mechanism `mig`: a GPU instance with one compute instance for each tenant, at the placement that the plan chose.
//
// What is there is adopted, and only what mete made is ever destroyed: an instance is in the journal before it is made
// and with its ids and UUID after; it is recognised by place and profile, and by its UUID once that is known. A GPU
// instance whose compute instance cannot be made is taken back at once. MIG mode is switched on for the first instance
// of an idle GPU, and back off after the last if it was mete that switched it on. Where a change of mode waits for a
// reset of the GPU, that is a state: the request is refused, says what to do, and can be made again.
//
// Rights are NVML's to give: what it does not permit is Lacks. Refused: something uses an instance, or there is no room
// any more. See mechanism.h for ownership and threads.
#ifndef METE_MECHANISM_MIG_MIG_H_
#define METE_MECHANISM_MIG_MIG_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/mig.h"
#include "mechanism/mechanism.h"
#include "nvml/library.h"

namespace mete::mechanism {

// The table of the board that the device is; Lacks when mete has none.
StatusOr<const gpu::MigBoard*> MigBoardOf(const nvml::Device& device);
// The profile of an instance and where it stands, also where NVML tells only its id. Nothing when the table does not
// know it.
std::optional<plan::Instance> PlaceOf(const gpu::MigBoard& board, const nvml::GpuInstance& instance);

// An instance of the journal.
struct OwnInstance {
  plan::Instance place;
  std::optional<uint32_t> gpu_instance, compute_instance;  // once made
  std::string uuid;
  bool made = false;  // by mete, which may destroy it
  std::string boot;   // during which
  Object object;      // that says so
};
StatusOr<OwnInstance> OwnInstanceOf(const Object& object);

class Mig final : public Mechanism {
 public:
  struct Options {
    std::string driver_root;
    std::string grants_dir;
    std::string boot_id;  // instances end with it
    std::string proc_root = "/proc";
  };
  // The library must outlive it.
  Mig(const nvml::Library& library, Options options) : library_(library), options_(std::move(options)) {}

  std::string_view name() const override { return "mig"; }
  Support Probe(const plan::GpuOccupancy& gpu) const override;
  StatusOr<Edits> Prepare(const plan::Grant& grant, Journal& journal) const override;
  StatusOr<Evidence> Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                            const Journal& journal) const override;
  Status Release(const plan::Grant& grant, Journal& journal) const override;

  // Steps of these, for whole layouts (`share_id` empty: of no share).
  Status SwitchOn(const nvml::Device& device, Journal& journal) const;
  Status SwitchOffIfOurs(const nvml::Device& device, Journal& journal) const;
  // Adopts what stands there, or makes it.
  StatusOr<OwnInstance> Make(const nvml::Device& device, const plan::Instance& place, const std::string& share_id,
                             Journal& journal) const;
  Status Destroy(const nvml::Device& device, const OwnInstance& own, Journal& journal) const;

 private:
  StatusOr<std::optional<nvml::GpuInstance>> At(const nvml::Device& device, const plan::Instance& place) const;
  Status Complete(const nvml::Device& device, const gpu::MigProfile& profile, uint32_t gpu_instance, OwnInstance& own,
                  Journal& journal) const;
  Status Write(const OwnInstance& own, Journal& journal) const;

  const nvml::Library& library_;
  Options options_;
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_MIG_MIG_H_
