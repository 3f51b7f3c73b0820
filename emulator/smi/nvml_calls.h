// The calls of libnvidia-ml.so.1 that nvidia-smi needs, found in whichever library was opened.
#ifndef METE_EMULATOR_SMI_NVML_CALLS_H_
#define METE_EMULATOR_SMI_NVML_CALLS_H_

#include "emulator/nvml/control.h"
#include "emulator/smi/snapshot.h"
#include "mete/nvml_prototypes.h"

namespace mete::emulator::smi {

// A list that clang-format never settles on.
// clang-format off
#define SMI_CALLS(X) \
  X(nvmlInit_v2) X(nvmlShutdown) X(nvmlErrorString) \
  X(nvmlSystemGetDriverVersion) X(nvmlSystemGetCudaDriverVersion_v2) X(nvmlSystemGetProcessName) \
  X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID) \
  X(nvmlDeviceGetSerial) X(nvmlDeviceGetPciInfo_v3) X(nvmlDeviceGetCudaComputeCapability) \
  X(nvmlDeviceGetBrand) X(nvmlDeviceGetArchitecture) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetBoardId) \
  X(nvmlDeviceGetModuleId) X(nvmlDeviceGetNumGpuCores) X(nvmlDeviceGetVbiosVersion) \
  X(nvmlDeviceGetBoardPartNumber) X(nvmlDeviceGetInforomImageVersion) X(nvmlDeviceGetInforomVersion) \
  X(nvmlDeviceGetGspFirmwareVersion) X(nvmlDeviceGetAddressingMode) X(nvmlDeviceGetGpuFabricInfo) \
  X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetBAR1MemoryInfo) \
  X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetEncoderUtilization) X(nvmlDeviceGetDecoderUtilization) \
  X(nvmlDeviceGetJpgUtilization) X(nvmlDeviceGetOfaUtilization) \
  X(nvmlDeviceGetTemperature) X(nvmlDeviceGetTemperatureThreshold) X(nvmlDeviceGetMarginTemperature) \
  X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetPowerManagementLimit) X(nvmlDeviceGetPowerManagementDefaultLimit) \
  X(nvmlDeviceGetPowerManagementLimitConstraints) X(nvmlDeviceGetEnforcedPowerLimit) \
  X(nvmlDeviceSetPowerManagementLimit) X(nvmlDeviceGetTotalEnergyConsumption) X(nvmlDeviceGetViolationStatus) \
  X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetMaxClockInfo) X(nvmlDeviceGetApplicationsClock) \
  X(nvmlDeviceGetDefaultApplicationsClock) X(nvmlDeviceSetApplicationsClocks) \
  X(nvmlDeviceResetApplicationsClocks) X(nvmlDeviceSetGpuLockedClocks) X(nvmlDeviceResetGpuLockedClocks) \
  X(nvmlDeviceGetSupportedMemoryClocks) X(nvmlDeviceGetSupportedGraphicsClocks) \
  X(nvmlDeviceGetCurrentClocksEventReasons) X(nvmlDeviceGetFanSpeed) \
  X(nvmlDeviceGetCurrPcieLinkGeneration) X(nvmlDeviceGetMaxPcieLinkGeneration) \
  X(nvmlDeviceGetCurrPcieLinkWidth) X(nvmlDeviceGetMaxPcieLinkWidth) X(nvmlDeviceGetPcieReplayCounter) \
  X(nvmlDeviceGetPcieThroughput) X(nvmlDeviceGetPerformanceState) X(nvmlDeviceGetComputeMode) \
  X(nvmlDeviceSetComputeMode) X(nvmlDeviceGetPersistenceMode) X(nvmlDeviceSetPersistenceMode) \
  X(nvmlDeviceGetDisplayMode) X(nvmlDeviceGetDisplayActive) X(nvmlDeviceGetEccMode) X(nvmlDeviceSetEccMode) \
  X(nvmlDeviceClearEccErrorCounts) X(nvmlDeviceGetTotalEccErrors) X(nvmlDeviceGetMemoryErrorCounter) \
  X(nvmlDeviceGetRetiredPages) X(nvmlDeviceGetRetiredPagesPendingStatus) X(nvmlDeviceGetRemappedRows) \
  X(nvmlDeviceGetRowRemapperHistogram) X(nvmlDeviceGetFieldValues) X(nvmlDeviceGetMigMode) \
  X(nvmlDeviceGetAccountingMode) X(nvmlDeviceSetAccountingMode) X(nvmlDeviceClearAccountingPids) \
  X(nvmlDeviceGetAccountingBufferSize) X(nvmlDeviceGetAccountingPids) X(nvmlDeviceGetAccountingStats) \
  X(nvmlDeviceGetComputeRunningProcesses_v3) X(nvmlDeviceGetProcessUtilization) \
  X(nvmlDeviceGetTopologyCommonAncestor) X(nvmlDeviceGetP2PStatus) X(nvmlDeviceGetCpuAffinity) \
  X(nvmlDeviceGetMemoryAffinity) X(nvmlDeviceGetNvLinkState) \
  X(nvmlDeviceGetMemoryLimits_v1) X(nvmlDeviceSetMemoryLimits_v1) \
  X(nvmlDeviceSetMigMode) X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex) \
  X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId) X(nvmlDeviceGetAttributes_v2) \
  X(nvmlDeviceGetGpuInstanceProfileInfoV) X(nvmlDeviceGetGpuInstanceRemainingCapacity) \
  X(nvmlDeviceGetGpuInstancePossiblePlacements_v2) X(nvmlDeviceGetGpuInstances) X(nvmlDeviceGetGpuInstanceById) \
  X(nvmlDeviceCreateGpuInstance) X(nvmlDeviceCreateGpuInstanceWithPlacement) X(nvmlGpuInstanceDestroy) \
  X(nvmlGpuInstanceGetInfo) X(nvmlGpuInstanceGetComputeInstanceProfileInfoV) \
  X(nvmlGpuInstanceGetComputeInstanceRemainingCapacity) X(nvmlGpuInstanceGetComputeInstancePossiblePlacements) \
  X(nvmlGpuInstanceGetComputeInstances) X(nvmlGpuInstanceGetComputeInstanceById) \
  X(nvmlGpuInstanceCreateComputeInstance) X(nvmlGpuInstanceCreateComputeInstanceWithPlacement) \
  X(nvmlComputeInstanceDestroy) X(nvmlComputeInstanceGetInfo_v2)
// clang-format on

struct Calls {
#define SMI_MEMBER(name) decltype(&nvml::abi::name) name = nullptr;
  SMI_CALLS(SMI_MEMBER)
#undef SMI_MEMBER
  decltype(&nvml::abi::mete_emulated_control) control = nullptr;  // null: no emulated node's library
};

// The exit status that says what NVML answered; kOther for what has none of its own.
Exit ExitOf(nvml::abi::nvmlReturn_t code);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_NVML_CALLS_H_
