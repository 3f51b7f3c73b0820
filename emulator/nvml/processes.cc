// NVML's calls about the processes on a GPU. The node runs compute processes only: the graphics and MPS lists are
// empty.
#include <algorithm>

#include "emulator/nvml/state.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::NvmlSession;
using emulator::ProcessInfo;
using emulator::ProcessSample;
using emulator::WithGpu;

constexpr unsigned kNoInstance = 0xffffffffu;

void Fill(const ProcessInfo& from, nvmlProcessInfo_v1_t* to) { *to = {from.pid, from.memory_bytes}; }
void Fill(const ProcessInfo& from, nvmlProcessInfo_v2_t* to) {
  *to = {from.pid, from.memory_bytes, kNoInstance, kNoInstance};
}
void Fill(const ProcessInfo& from, nvmlProcessDetail_v1_t* to) {
  *to = {from.pid, from.memory_bytes, kNoInstance, kNoInstance, 0};
}

// NVML's way of returning lists: *count is the room on the way in and the number on the way out; too little room says
// so with the number needed, and asking with none is how a caller learns it.
template <typename T>
nvmlReturn_t List(nvmlDevice_t device, unsigned* count, T* infos, bool empty) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::vector<ProcessInfo> processes;
    if (!empty) {
      emulator::Result result = session.client->Processes(gpu, &processes);
      if (result != emulator::Result::kOk) return emulator::FromResult(result);
    }
    unsigned room = *count;
    *count = static_cast<unsigned>(processes.size());
    if (processes.empty()) return NVML_SUCCESS;
    if (room < processes.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (size_t i = 0; i < processes.size(); ++i) Fill(processes[i], &infos[i]);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t Samples(NvmlSession& session, unsigned gpu, uint64_t since, std::vector<ProcessSample>* samples) {
  emulator::Result result = session.sampler.Read(*session.client, gpu, since, samples);
  return result == emulator::Result::kOk ? NVML_SUCCESS : emulator::FromResult(result);
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                  nvmlProcessInfo_v1_t* infos) {
  return List(device, infoCount, infos, false);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v2_t* infos) {
  return List(device, infoCount, infos, false);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_t* infos) {
  return List(device, infoCount, infos, false);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                   nvmlProcessInfo_v1_t* infos) {
  return List(device, infoCount, infos, true);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_v2_t* infos) {
  return List(device, infoCount, infos, true);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_t* infos) {
  return List(device, infoCount, infos, true);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v1_t* infos) {
  return List(device, infoCount, infos, true);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                        nvmlProcessInfo_v2_t* infos) {
  return List(device, infoCount, infos, true);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                        nvmlProcessInfo_t* infos) {
  return List(device, infoCount, infos, true);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* plist) {
  return WithGpu(device, [&](NvmlSession&, unsigned) {
    if (plist == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (plist->version != StructVersion<nvmlProcessDetailList_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (plist->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
    return List(device, &plist->numProcArrayEntries, plist->procArray, plist->mode != 0);
  });
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* utilization,
                                             unsigned int* processSamplesCount, unsigned long long lastSeenTimeStamp) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (processSamplesCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::vector<ProcessSample> samples;
    nvmlReturn_t code = Samples(session, gpu, lastSeenTimeStamp, &samples);
    if (code != NVML_SUCCESS) return code;
    unsigned room = *processSamplesCount;
    *processSamplesCount = static_cast<unsigned>(samples.size());
    if (samples.empty()) return NVML_ERROR_NOT_FOUND;
    if (utilization == nullptr || room < samples.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (size_t i = 0; i < samples.size(); ++i) {
      utilization[i] = {samples[i].pid, samples[i].time_us, samples[i].sm, samples[i].memory, 0, 0};
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* info) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != StructVersion<nvmlProcessesUtilizationInfo_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    std::vector<ProcessSample> samples;
    nvmlReturn_t code = Samples(session, gpu, info->lastSeenTimeStamp, &samples);
    if (code != NVML_SUCCESS) return code;
    unsigned room = info->processSamplesCount;
    info->processSamplesCount = static_cast<unsigned>(samples.size());
    if (samples.empty()) return NVML_ERROR_NOT_FOUND;
    if (info->procUtilArray == nullptr || room < samples.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (size_t i = 0; i < samples.size(); ++i) {
      info->procUtilArray[i] = {samples[i].time_us, samples[i].pid, samples[i].sm, samples[i].memory, 0, 0, 0, 0};
    }
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
