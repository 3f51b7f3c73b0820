// NVML's calls about accounting: what processes that have ended took.
#include <algorithm>

#include "emulator/nvml/give.h"
#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

using emulator::AccountingRecord;
using emulator::GpuInfo;
using emulator::GpuState;
using emulator::NvmlSession;
using emulator::WithGpu;

// The engine's records of a GPU whose accounting is on.
nvmlReturn_t Records(NvmlSession& session, unsigned gpu, std::vector<AccountingRecord>* records) {
  GpuState state = {};
  emulator::Result result = session.client->State(gpu, &state);
  if (result == emulator::Result::kOk && state.accounting_mode == 0) return NVML_ERROR_NOT_SUPPORTED;
  if (result == emulator::Result::kOk) result = session.client->Accounting(gpu, records);
  return emulator::FromResult(result);
}

nvmlReturn_t Find(NvmlSession& session, unsigned gpu, unsigned pid, AccountingRecord* found) {
  std::vector<AccountingRecord> records;
  const nvmlReturn_t code = Records(session, gpu, &records);
  if (code != NVML_SUCCESS) return code;
  for (const AccountingRecord& record : records) {
    if (record.pid != pid) continue;
    *found = record;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return emulator::GiveState(device, mode, [](const GpuInfo&, const GpuState& state) { return state.accounting_mode; });
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  if (mode < 0 || mode > 1) return WithGpu(device, [](NvmlSession&, unsigned) { return NVML_ERROR_INVALID_ARGUMENT; });
  return emulator::Change(device, emulator::GpuSetting::kAccounting, static_cast<uint64_t>(mode));
}

nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device) {
  return emulator::Change(device, emulator::GpuSetting::kClearAccounting, 0);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int* bufferSize) {
  return emulator::GiveSame(device, bufferSize, static_cast<unsigned>(emulator::kMostAccounted));
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int* count, unsigned int* pids) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::vector<AccountingRecord> records;
    const nvmlReturn_t code = Records(session, gpu, &records);
    if (code != NVML_SUCCESS) return code;
    std::vector<unsigned> list;
    for (const AccountingRecord& record : records) list.push_back(record.pid);
    return emulator::GiveList(list, count, pids);
  });
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t* stats) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (stats == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    AccountingRecord record = {};
    const nvmlReturn_t code = Find(session, gpu, pid, &record);
    if (code != NVML_SUCCESS) return code;
    *stats = {record.utilization_gpu,
              record.utilization_memory,
              record.most_memory_bytes,
              record.milliseconds,
              record.started_us,
              record.running,
              {}};
    return NVML_SUCCESS;
  });
}

// The caller says the process in the structure. Sums are those of one sample a percent of its life.
nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t* stats) {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    if (stats == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    AccountingRecord record = {};
    const nvmlReturn_t code = Find(session, gpu, stats->pid, &record);
    if (code != NVML_SUCCESS) return code;
    *stats = {record.pid,
              record.running,
              record.utilization_gpu,
              record.utilization_memory,
              record.most_memory_bytes,
              1,
              record.utilization_gpu,
              record.utilization_memory,
              record.milliseconds,
              record.started_us};
    return NVML_SUCCESS;
  });
}

}  // extern "C"

}  // namespace mete::nvml::abi
