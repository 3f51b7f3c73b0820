// What nvidia-smi does that has no NVML call: the library exports one name of its own for it, for the node's own
// nvidia-smi only. Plain C interface.
#ifndef METE_EMULATOR_NVML_CONTROL_H_
#define METE_EMULATOR_NVML_CONTROL_H_

#include "nvml/abi.h"

namespace mete::nvml::abi {

enum EmulatedControl : int {
  kGetTimeSlice = 1,  // *value: class of compute-policy, 0 to 3
  kSetTimeSlice,      // *value; NOT_SUPPORTED before Turing
  kResetGpu,          // IN_USE while a process holds a context
};

extern "C" __attribute__((visibility("default"))) nvmlReturn_t mete_emulated_control(nvmlDevice_t device, int what,
                                                                                     unsigned* value);

}  // namespace mete::nvml::abi

#endif  // METE_EMULATOR_NVML_CONTROL_H_
