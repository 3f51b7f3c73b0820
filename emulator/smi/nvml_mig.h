// MIG through NVML, for nvml_source.cc: MIG devices of a snapshot, and the instances behind `mig`. One thread.
#ifndef METE_EMULATOR_SMI_NVML_MIG_H_
#define METE_EMULATOR_SMI_NVML_MIG_H_

#include "emulator/smi/mig.h"
#include "emulator/smi/nvml_calls.h"
#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

// The MIG devices of a GPU whose MIG mode is known.
void ReadMigDevices(const Calls& calls, nvml::abi::nvmlDevice_t device, SmiGpu* gpu);

class NvmlMig : public MigSource {
 public:
  explicit NvmlMig(const Calls& calls) : nvml_(calls) {}
  Exit ReadMig(uint32_t gpu, bool instances, MigNode* node, std::string* why) override;
  Exit CreateGpuInstance(uint32_t gpu, uint32_t profile, std::optional<uint32_t> start, uint32_t* id,
                         std::string* why) override;
  Exit DestroyGpuInstance(uint32_t gpu, uint32_t id, std::string* why) override;
  Exit CreateComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t profile, std::optional<uint32_t> start,
                             uint32_t* id, std::string* why) override;
  Exit DestroyComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t id, std::string* why) override;
  Exit SetMigMode(uint32_t gpu, bool enable, std::string* pending, std::string* why) override;

 private:
  nvml::abi::nvmlReturn_t ReadProfiles(nvml::abi::nvmlDevice_t device, MigNode* node) const;
  nvml::abi::nvmlReturn_t ReadInstances(nvml::abi::nvmlDevice_t device, MigNode* node) const;
  nvml::abi::nvmlReturn_t ReadComputeProfiles(nvml::abi::nvmlGpuInstance_t instance, MigGpuInstance* out) const;
  nvml::abi::nvmlReturn_t ReadComputeInstances(nvml::abi::nvmlGpuInstance_t instance, MigGpuInstance* out) const;
  nvml::abi::nvmlReturn_t Find(uint32_t gpu, uint32_t gpu_instance, nvml::abi::nvmlGpuInstance_t* instance) const;
  Exit Judge(nvml::abi::nvmlReturn_t code, std::string* why) const;

  const Calls& nvml_;
};

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_NVML_MIG_H_
