#include "emulator/nvml/control.h"

#include "emulator/nvml/give.h"

namespace mete::nvml::abi {

using emulator::GpuState;
using emulator::NvmlSession;

extern "C" nvmlReturn_t mete_emulated_control(nvmlDevice_t device, int what, unsigned* value) {
  return emulator::WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    const bool has_policy = emulator::ComputeOf(session.gpus()[gpu]) >= 75;
    switch (what) {
      case kGetTimeSlice: {
        GpuState state = {};
        const emulator::Result result = session.client->State(gpu, &state);
        if (value == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        if (!has_policy) return NVML_ERROR_NOT_SUPPORTED;
        *value = state.time_slice_class;
        return emulator::FromResult(result);
      }
      case kSetTimeSlice:
        if (value == nullptr || *value > 3) return NVML_ERROR_INVALID_ARGUMENT;
        if (!has_policy) return NVML_ERROR_NOT_SUPPORTED;
        return emulator::FromResult(session.client->SetTimeSliceClass(gpu, *value));
      case kResetGpu: return emulator::FromResult(session.client->ResetGpu(gpu));
      default: return NVML_ERROR_INVALID_ARGUMENT;
    }
  });
}

}  // namespace mete::nvml::abi
