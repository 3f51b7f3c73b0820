// The few shapes that NVML's calls have, so that an entry point says only what it answers. Each checks its device and
// its pointers as NVML does: not initialised, then no such device, then no place for the answer.
#ifndef METE_EMULATOR_NVML_GIVE_H_
#define METE_EMULATOR_NVML_GIVE_H_

#include <vector>

#include "emulator/nvml/state.h"
#include "nvml/abi_details.h"

namespace mete::emulator {

uint64_t WallClockUs();

// *out = value(info, state).
template <typename T, typename Value>
nvml::abi::nvmlReturn_t GiveState(nvml::abi::nvmlDevice_t device, T* out, Value value) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (out == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    *out = static_cast<T>(value(info, state));
    return nvml::abi::NVML_SUCCESS;
  });
}

// *out = value(info, gpu), which no state of the GPU changes.
template <typename T, typename Value>
nvml::abi::nvmlReturn_t GiveInfo(nvml::abi::nvmlDevice_t device, T* out, Value value) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (out == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    *out = static_cast<T>(value(session.gpus()[gpu], gpu));
    return nvml::abi::NVML_SUCCESS;
  });
}

// The same for boards that have it; NOT_SUPPORTED on others.
template <typename T, typename Has, typename Value>
nvml::abi::nvmlReturn_t GiveIf(nvml::abi::nvmlDevice_t device, T* out, Has has, Value value) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (out == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    if (!has(info)) return nvml::abi::NVML_ERROR_NOT_SUPPORTED;
    *out = static_cast<T>(value(info, state));
    return nvml::abi::NVML_SUCCESS;
  });
}

template <typename T>
nvml::abi::nvmlReturn_t GiveSame(nvml::abi::nvmlDevice_t device, T* out, T value) {
  return GiveInfo(device, out, [&](const GpuInfo&, unsigned) { return value; });
}

template <typename Value>
nvml::abi::nvmlReturn_t GiveText(nvml::abi::nvmlDevice_t device, char* out, unsigned length, Value value) {
  return WithGpu(device,
                 [&](NvmlSession& session, unsigned gpu) { return CopyText(value(session.gpus()[gpu]), out, length); });
}

// A structure that says its own version: fill(info, state) gives it whole, and the version stays the caller's.
template <typename T, typename Fill>
nvml::abi::nvmlReturn_t GiveVersioned(nvml::abi::nvmlDevice_t device, T* out, unsigned version, Fill fill) {
  return WithState(device, [&](const GpuInfo& info, const GpuState& state) {
    if (out == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    if (out->version != nvml::abi::StructVersion<T>(version)) return nvml::abi::NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    T filled = {};
    nvml::abi::nvmlReturn_t code = fill(info, state, &filled);
    if (code != nvml::abi::NVML_SUCCESS) return code;
    filled.version = out->version;
    *out = filled;
    return code;
  });
}

// NVML's way of returning lists: *count is the room on the way in and the number on the way out; too little room says
// so with the number needed, and asking with none is how a caller learns it.
template <typename T>
nvml::abi::nvmlReturn_t GiveList(const std::vector<T>& list, unsigned* count, T* out) {
  if (count == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
  const unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (list.empty()) return nvml::abi::NVML_SUCCESS;
  if (room < list.size()) return nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE;
  if (out == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < list.size(); ++i) out[i] = list[i];
  return nvml::abi::NVML_SUCCESS;
}

// The same where the caller's room is known to be enough: *count is only the number, and asking without a place for the
// elements is how a caller learns it.
template <typename T>
nvml::abi::nvmlReturn_t GiveAll(const std::vector<T>& list, unsigned* count, T* out) {
  if (count == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(list.size());
  for (size_t i = 0; i < list.size() && out != nullptr; ++i) out[i] = list[i];
  return nvml::abi::NVML_SUCCESS;
}

// What only the node's owner may.
inline nvml::abi::nvmlReturn_t Change(nvml::abi::nvmlDevice_t device, GpuSetting setting, uint64_t value) {
  return WithGpu(
      device, [&](NvmlSession& session, unsigned gpu) { return FromResult(session.client->Set(gpu, setting, value)); });
}

// Facts of boards that several kinds of calls ask for.
inline unsigned ComputeOf(const GpuInfo& info) { return info.compute_major * 10 + info.compute_minor; }
inline bool AmpereOrNewer(const GpuInfo& info) { return info.compute_major >= 8; }
inline bool HopperOrNewer(const GpuInfo& info) { return info.compute_major >= 9; }
// Superchips have no PCIe between processor and GPU, and one page table for both.
inline bool Superchip(const GpuInfo& info) { return info.pcie_lanes == 0; }
// All but the GeForce boards.
bool HasEcc(const GpuInfo& info);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_GIVE_H_
