// NVML's calls about the processes on a GPU. The node runs compute processes only: the graphics and MPS lists are
// empty.
#include <algorithm>

#include "emulator/nvml/mig.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::NvmlSession;
using emulator::ProcessInfo;
using emulator::ProcessSample;
using emulator::WithGpu;

void Fill(const ProcessInfo& from, nvmlProcessInfo_v1_t* to) { *to = {from.pid, from.memory_bytes}; }
void Fill(const ProcessInfo& from, nvmlProcessInfo_v2_t* to) {
  *to = {from.pid, from.memory_bytes, from.gpu_instance, from.compute_instance};
}
void Fill(const ProcessInfo& from, nvmlProcessDetail_v1_t* to) {
  *to = {from.pid, from.memory_bytes, from.gpu_instance, from.compute_instance, 0};
}

// `mig`: only those on that MIG device; null: all of the GPU's.
template <typename T>
nvmlReturn_t Give(NvmlSession& session, unsigned gpu, const emulator::MigAt* mig, unsigned* count, T* infos,
                  bool compute) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<ProcessInfo> processes;
  if (compute) {
    emulator::Result result = session.client->Processes(gpu, &processes);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
  }
  std::vector<T> list;
  for (const ProcessInfo& process : processes) {
    if (mig != nullptr && (process.gpu_instance != mig->instance->id || process.compute_instance != mig->compute->id)) {
      continue;
    }
    Fill(process, &list.emplace_back());
  }
  return emulator::GiveList(list, count, infos);
}

template <typename T>
nvmlReturn_t List(nvmlDevice_t device, unsigned* count, T* infos, bool compute) {
  return emulator::WithEither(
      device,
      [&](NvmlSession& session, const emulator::MigAt& at) {
        return Give(session, at.gpu, &at, count, infos, compute);
      },
      [&] {
        return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
          return Give(session, gpu, nullptr, count, infos, compute);
        });
      });
}

// Utilisation of each process since `since`; there being none is an error of its own.
template <typename T, typename Make>
nvmlReturn_t ProcessSamples(nvmlDevice_t device, unsigned* count, uint64_t since, T* out, Make make) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    emulator::GpuState state = {};
    emulator::Result result = session.client->State(gpu, &state);
    if (result == emulator::Result::kOk && state.mig_mode != 0) return NVML_ERROR_NOT_SUPPORTED;
    std::vector<ProcessSample> samples;
    if (result == emulator::Result::kOk) result = session.sampler.Read(*session.client, gpu, since, &samples);
    if (result != emulator::Result::kOk) return emulator::FromResult(result);
    const unsigned room = out == nullptr ? 0 : *count;
    *count = static_cast<unsigned>(samples.size());
    if (samples.empty()) return NVML_ERROR_NOT_FOUND;
    if (out == nullptr || room < samples.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (size_t i = 0; i < samples.size(); ++i) out[i] = make(samples[i]);
    return NVML_SUCCESS;
  });
}

}  // namespace

extern "C" {

// The three versions of the three lists differ in their elements only.
#define METE_PROCESS_LIST(name, compute)                                                              \
  nvmlReturn_t name(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_v1_t* infos) {      \
    return List(device, infoCount, infos, compute);                                                   \
  }                                                                                                   \
  nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_v2_t* infos) { \
    return List(device, infoCount, infos, compute);                                                   \
  }                                                                                                   \
  nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned int* infoCount, nvmlProcessInfo_t* infos) {    \
    return List(device, infoCount, infos, compute);                                                   \
  }
METE_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, true)
METE_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, false)
METE_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, false)
#undef METE_PROCESS_LIST

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* plist) {
  return emulator::WithNode([&](NvmlSession&) {
    if (plist == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (plist->version != StructVersion<nvmlProcessDetailList_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (plist->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
    return List(device, &plist->numProcArrayEntries, plist->procArray, plist->mode == 0);
  });
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* utilization,
                                             unsigned int* processSamplesCount, unsigned long long lastSeenTimeStamp) {
  return ProcessSamples(device, processSamplesCount, lastSeenTimeStamp, utilization, [](const ProcessSample& sample) {
    return nvmlProcessUtilizationSample_t{sample.pid, sample.time_us, sample.sm, sample.memory, 0, 0};
  });
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* info) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != StructVersion<nvmlProcessesUtilizationInfo_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return ProcessSamples(device, &info->processSamplesCount, info->lastSeenTimeStamp, info->procUtilArray,
                          [](const ProcessSample& sample) {
                            return nvmlProcessUtilizationInfo_v1_t{
                                sample.time_us, sample.pid, sample.sm, sample.memory, 0, 0, 0, 0};
                          });
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
