// The rest of NVML's binary interface that the emulated libnvidia-ml serves: structures, handles and numbers beyond
// what mete itself calls (abi.h, whose rules hold here too). Sizes and offsets are checked against
// data/nvml/layout.tsv.
#ifndef METE_NVML_ABI_DETAILS_H_
#define METE_NVML_ABI_DETAILS_H_

#include "nvml/abi.h"
#include "nvml/abi_mig.h"

namespace mete::nvml::abi {

typedef struct nvmlUnit_st* nvmlUnit_t;
typedef struct nvmlGpmSample_st* nvmlGpmSample_t;

using nvmlAffinityScope_t = unsigned;
using nvmlEncoderType_t = int;
using nvmlFanControlPolicy_t = unsigned;
using nvmlInforomObject_t = int;
using nvmlIntNvLinkDeviceType_t = int;
using nvmlLedColor_t = int;
using nvmlMemoryLocation_t = int;
using nvmlNvLinkCapability_t = int;
using nvmlNvLinkErrorCounter_t = int;
using nvmlPageRetirementCause_t = int;
using nvmlPcieUtilCounter_t = int;
using nvmlPerfPolicyType_t = int;
using nvmlPowerSource_t = unsigned;
using nvmlRestrictedAPI_t = int;
using nvmlSamplingType_t = int;
using nvmlTemperatureThresholds_t = int;
using nvmlValueType_t = int;
using nvmlVgpuInstance_t = unsigned;

inline constexpr int NVML_TOPOLOGY_SINGLE = 10, NVML_TOPOLOGY_MULTIPLE = 20, NVML_TOPOLOGY_HOSTBRIDGE = 30,
                     NVML_TOPOLOGY_NODE = 40;
inline constexpr int NVML_P2P_STATUS_GPU_NOT_SUPPORTED = 2;
inline constexpr int NVML_P2P_CAPS_INDEX_WRITE = 1, NVML_P2P_CAPS_INDEX_NVLINK = 2, NVML_P2P_CAPS_INDEX_ATOMICS = 3,
                     NVML_P2P_CAPS_INDEX_PCI = 4;
inline constexpr int NVML_MEMORY_ERROR_TYPE_CORRECTED = 0, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1;
inline constexpr int NVML_VOLATILE_ECC = 0, NVML_AGGREGATE_ECC = 1;
inline constexpr int NVML_MEMORY_LOCATION_DRAM = 2, NVML_MEMORY_LOCATION_SRAM = 7, NVML_MEMORY_LOCATION_COUNT = 8;
inline constexpr int NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
                     NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2, NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
                     NVML_TEMPERATURE_THRESHOLD_COUNT = 8;
inline constexpr int NVML_PERF_POLICY_POWER = 0, NVML_PERF_POLICY_THERMAL = 1, NVML_PERF_POLICY_RELIABILITY = 5,
                     NVML_PERF_POLICY_TOTAL_APP_CLOCKS = 10, NVML_PERF_POLICY_TOTAL_BASE_CLOCKS = 11;
inline constexpr int NVML_TOTAL_POWER_SAMPLES = 0, NVML_GPU_UTILIZATION_SAMPLES = 1,
                     NVML_MEMORY_UTILIZATION_SAMPLES = 2, NVML_ENC_UTILIZATION_SAMPLES = 3,
                     NVML_DEC_UTILIZATION_SAMPLES = 4, NVML_PROCESSOR_CLK_SAMPLES = 5, NVML_MEMORY_CLK_SAMPLES = 6,
                     NVML_JPG_UTILIZATION_SAMPLES = 8, NVML_OFA_UTILIZATION_SAMPLES = 9, NVML_SAMPLINGTYPE_COUNT = 10;
inline constexpr int NVML_PCIE_UTIL_TX_BYTES = 0, NVML_PCIE_UTIL_RX_BYTES = 1;
inline constexpr int NVML_NVLINK_DEVICE_TYPE_SWITCH = 2;
inline constexpr unsigned NVML_NVLINK_MAX_LINKS = 36;
inline constexpr unsigned NVML_UUID_TYPE_ASCII = 1, NVML_UUID_TYPE_BINARY = 2;
inline constexpr unsigned char NVML_GPU_FABRIC_STATE_NOT_SUPPORTED = 0, NVML_GPU_FABRIC_STATE_COMPLETED = 3;
inline constexpr unsigned NVML_GPM_METRIC_MAX = 333;
inline constexpr int NVML_VALUE_TYPE_DOUBLE = 0, NVML_VALUE_TYPE_SIGNED_INT = 5;
inline constexpr int NVML_PSTATE_UNKNOWN = 32;

struct nvmlAccountingStats_t {
  unsigned gpuUtilization, memoryUtilization;  // percent
  unsigned long long maxMemoryUsage;
  unsigned long long time;       // ms
  unsigned long long startTime;  // µs of the wall clock
  unsigned isRunning;
  unsigned reserved[5];
};

struct nvmlAccountingStats_v2_t {
  unsigned pid, isRunning;
  unsigned gpuUtilization, memoryUtilization;
  unsigned long long maxMemoryUsage;
  unsigned sampleCount;
  unsigned long long sumGpuUtil, sumFbUtil;
  unsigned long long time, startTime;
};

struct nvmlDeviceAddressingMode_v1_t {
  unsigned version;
  unsigned value;  // 0 none, 1 HMM, 2 ATS
};
using nvmlDeviceAddressingMode_t = nvmlDeviceAddressingMode_v1_t;

struct nvmlC2cModeInfo_v1_t {
  unsigned isC2cEnabled;
};

struct nvmlDeviceCapabilities_v1_t {
  unsigned version;
  unsigned capMask;
};
using nvmlDeviceCapabilities_t = nvmlDeviceCapabilities_v1_t;

struct nvmlEccErrorCounts_t {
  unsigned long long l1Cache, l2Cache, deviceMemory, registerFile;
};

struct nvmlEccSramErrorStatus_v1_t {
  unsigned version;
  unsigned long long aggregateUncParity, aggregateUncSecDed, aggregateCor;
  unsigned long long volatileUncParity, volatileUncSecDed, volatileCor;
  unsigned long long aggregateUncBucketL2, aggregateUncBucketSm, aggregateUncBucketPcie, aggregateUncBucketMcu,
      aggregateUncBucketOther;
  unsigned bThresholdExceeded;
};
using nvmlEccSramErrorStatus_t = nvmlEccSramErrorStatus_v1_t;

struct nvmlGpuDynamicPstatesInfo_t {
  unsigned flags;
  struct {
    unsigned bIsPresent, percentage, incThreshold, decThreshold;
  } utilization[8];  // graphics, frame buffer, video, bus
};

struct nvmlEncoderSessionInfo_t {
  unsigned sessionId, pid;
  nvmlVgpuInstance_t vgpuInstance;
  nvmlEncoderType_t codecType;
  unsigned hResolution, vResolution, averageFps, averageLatency;
};

struct nvmlFBCStats_t {
  unsigned sessionsCount, averageFPS, averageLatency;
};

struct nvmlFBCSessionInfo_t {
  unsigned sessionId, pid;
  nvmlVgpuInstance_t vgpuInstance;
  unsigned displayOrdinal;
  int sessionType;
  unsigned sessionFlags, hMaxResolution, vMaxResolution, hResolution, vResolution, averageFPS, averageLatency;
};

struct nvmlGpuFabricInfo_t {
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned cliqueId;
  unsigned char state;
};

struct nvmlGpuFabricInfo_v2_t {
  unsigned version;
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned cliqueId;
  unsigned char state;
  unsigned healthMask;
};

struct nvmlGpuFabricInfo_v3_t {
  unsigned version;
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned cliqueId;
  unsigned char state;
  unsigned healthMask;
  unsigned char healthSummary;  // 0 not supported, 1 healthy
};
using nvmlGpuFabricInfoV_t = nvmlGpuFabricInfo_v3_t;

struct nvmlUUID_v1_t {
  unsigned version;
  unsigned type;
  union {
    char str[41];
    unsigned char bytes[16];
  } value;
};
using nvmlUUID_t = nvmlUUID_v1_t;

struct nvmlMarginTemperature_v1_t {
  unsigned version;
  int marginTemperature;  // to the slowdown
};
using nvmlMarginTemperature_t = nvmlMarginTemperature_v1_t;

struct nvmlPdi_v1_t {
  unsigned version;
  unsigned long long value;
};
using nvmlPdi_t = nvmlPdi_v1_t;

struct nvmlRemappedRowsInfo_v2_t {
  unsigned corrActiveRemaps, corrInactiveRemaps, uncActiveRemaps, uncInactiveRemaps, bPending, bFailureOccurred;
};

struct nvmlRepairStatus_v1_t {
  unsigned version;
  unsigned bChannelRepairPending, bTpcRepairPending;
};
using nvmlRepairStatus_t = nvmlRepairStatus_v1_t;

struct nvmlRowRemapperHistogramValues_t {
  unsigned max, high, partial, low, none;  // banks by what is left of their spare rows
};

struct nvmlSample_t {
  unsigned long long timeStamp;  // µs of the wall clock
  nvmlValue_t sampleValue;
};

struct nvmlGpuThermalSettings_t {
  unsigned count;
  struct {
    int controller, defaultMinTemp, defaultMaxTemp, currentTemp, target;
  } sensor[3];
};

struct nvmlViolationTime_t {
  unsigned long long referenceTime;  // µs of the wall clock
  unsigned long long violationTime;  // ns
};

struct nvmlPowerValue_v2_t {
  unsigned version;
  unsigned char powerScope;  // 0 the GPU
  unsigned powerValueMw;
};

struct nvmlSystemDriverBranchInfo_v1_t {
  unsigned version;
  char branch[80];
};
using nvmlSystemDriverBranchInfo_t = nvmlSystemDriverBranchInfo_v1_t;

struct nvmlHwbcEntry_t {
  unsigned hwbcId;
  char firmwareVersion[32];
};

struct nvmlExcludedDeviceInfo_t {
  nvmlPciInfo_t pciInfo;
  char uuid[80];
};

struct nvmlGpmMetric_t {
  unsigned metricId;
  nvmlReturn_t nvmlReturn;
  double value;
  struct {
    char *shortName, *longName, *unit;
  } metricInfo;
};

struct nvmlGpmMetricsGet_t {
  unsigned version;  // 1, without a size
  unsigned numMetrics;
  nvmlGpmSample_t sample1, sample2;
  nvmlGpmMetric_t metrics[NVML_GPM_METRIC_MAX];
};

struct nvmlGpmSupport_t {
  unsigned version;  // 1, without a size
  unsigned isSupportedDevice;
};

struct nvmlNvLinkUtilizationControl_t {
  int units, pktfilter;
};

struct nvmlUnitInfo_t {
  char name[96], id[96], serial[96], firmwareVersion[96];
};

struct nvmlPSUInfo_t {
  char state[256];
  unsigned current, voltage, power;
};

struct nvmlLedState_t {
  char cause[256];
  nvmlLedColor_t color;
};

struct nvmlUnitFanSpeeds_t {
  struct {
    unsigned speed;
    int state;
  } fans[24];
  unsigned count;
};

// Limits of device memory by cgroup, driver 615 and newer. No limit: soft 0 and hard NVML_DEVICE_MEMORY_LIMIT_MAX.
inline constexpr unsigned long long NVML_DEVICE_MEMORY_LIMIT_MAX = ~0ull;

struct nvmlSetMemoryLimits_v1_t {
  const char* nameSpace;  // full path of the cgroup's folder
  unsigned long long softLimit, hardLimit;
};

struct nvmlGetMemoryLimits_v1_t {
  const char* nameSpace;
  unsigned long long softLimit, hardLimit, currentUsed;
};

}  // namespace mete::nvml::abi

#endif  // METE_NVML_ABI_DETAILS_H_
