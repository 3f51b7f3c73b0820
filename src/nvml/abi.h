// NVML's binary interface as far as mete calls or serves it: result codes, handles, enumerations, structures. Facts of
// the public NVML API, in mete's own words; sizes and offsets are checked against data/nvml/layout.tsv at build time.
// Plain C layouts, no functions, libc only: also for the emulated libnvidia-ml and the tenants' NVML proxy. x86-64.
#ifndef METE_NVML_ABI_H_
#define METE_NVML_ABI_H_

#include <cstdint>

namespace mete::nvml::abi {

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_ALREADY_INITIALIZED = 5,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_INSUFFICIENT_POWER = 8,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_IRQ_ISSUE = 11,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_CORRUPTED_INFOROM = 14,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_RESET_REQUIRED = 16,
  NVML_ERROR_OPERATING_SYSTEM = 17,
  NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
  NVML_ERROR_IN_USE = 19,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_NO_DATA = 21,
  NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
  NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
  NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_DEPRECATED = 26,
  NVML_ERROR_NOT_READY = 27,
  NVML_ERROR_GPU_NOT_FOUND = 28,
  NVML_ERROR_INVALID_STATE = 29,
  NVML_ERROR_RESET_TYPE_NOT_SUPPORTED = 30,
  NVML_ERROR_UNKNOWN = 999,
};

typedef struct nvmlDevice_st* nvmlDevice_t;
typedef struct nvmlEventSet_st* nvmlEventSet_t;

// Enumerations are ints at the boundary: a stranger may pass any value.
using nvmlBrandType_t = int;
using nvmlClockId_t = int;
using nvmlClockType_t = int;
using nvmlComputeMode_t = int;
using nvmlEccCounterType_t = int;
using nvmlEnableState_t = int;
using nvmlGpuP2PCapsIndex_t = int;
using nvmlGpuP2PStatus_t = int;
using nvmlGpuTopologyLevel_t = int;
using nvmlGpuVirtualizationMode_t = int;
using nvmlMemoryErrorType_t = int;
using nvmlPstates_t = int;
using nvmlTemperatureSensors_t = int;
using nvmlBusType_t = unsigned;
using nvmlDeviceArchitecture_t = unsigned;

inline constexpr int NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3;
inline constexpr int NVML_CLOCK_ID_CURRENT = 0, NVML_CLOCK_ID_APP_CLOCK_TARGET = 1, NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
                     NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3;
inline constexpr int NVML_COMPUTEMODE_DEFAULT = 0, NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
                     NVML_COMPUTEMODE_PROHIBITED = 2, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3;
inline constexpr int NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1;
inline constexpr int NVML_BRAND_UNKNOWN = 0, NVML_BRAND_TESLA = 2, NVML_BRAND_GEFORCE = 5, NVML_BRAND_NVIDIA_RTX = 13,
                     NVML_BRAND_NVIDIA = 14, NVML_BRAND_GEFORCE_RTX = 15;
inline constexpr int NVML_TEMPERATURE_GPU = 0;
inline constexpr int NVML_PSTATE_0 = 0, NVML_PSTATE_8 = 8;
inline constexpr int NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5;
inline constexpr int NVML_P2P_CAPS_INDEX_READ = 0, NVML_P2P_CAPS_INDEX_UNKNOWN = 5;
inline constexpr int NVML_TOPOLOGY_INTERNAL = 0, NVML_TOPOLOGY_SYSTEM = 50;
inline constexpr int NVML_GPU_VIRTUALIZATION_MODE_NONE = 0;
inline constexpr unsigned NVML_DEVICE_ARCH_VOLTA = 5, NVML_DEVICE_ARCH_TURING = 6, NVML_DEVICE_ARCH_AMPERE = 7,
                          NVML_DEVICE_ARCH_ADA = 8, NVML_DEVICE_ARCH_HOPPER = 9, NVML_DEVICE_ARCH_BLACKWELL = 10,
                          NVML_DEVICE_ARCH_UNKNOWN = 0xffffffffu;
inline constexpr unsigned NVML_BUS_TYPE_PCIE = 2;
inline constexpr unsigned NVML_DEVICE_MIG_DISABLE = 0, NVML_DEVICE_MIG_ENABLE = 1;
inline constexpr unsigned NVML_INIT_FLAG_NO_GPUS = 1, NVML_INIT_FLAG_NO_ATTACH = 2, NVML_INIT_FLAG_FORCE_INIT = 4;
inline constexpr unsigned long long nvmlEventTypeXidCriticalError = 8;
inline constexpr unsigned long long NVML_VALUE_NOT_AVAILABLE = ~0ull;
inline constexpr int NVML_VALUE_TYPE_UNSIGNED_INT = 1, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3;
inline constexpr unsigned NVML_FI_DEV_ECC_CURRENT = 1, NVML_FI_DEV_ECC_PENDING = 2,
                          NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83, NVML_FI_DEV_POWER_AVERAGE = 185,
                          NVML_FI_DEV_POWER_INSTANT = 186, NVML_FI_DEV_POWER_MIN_LIMIT = 187,
                          NVML_FI_DEV_POWER_MAX_LIMIT = 188, NVML_FI_DEV_POWER_DEFAULT_LIMIT = 189,
                          NVML_FI_DEV_POWER_CURRENT_LIMIT = 190;

struct nvmlPciInfo_t {
  char busIdLegacy[16];  // "0000:07:00.0"
  unsigned domain, bus, device;
  unsigned pciDeviceId;  // device << 16 | vendor
  unsigned pciSubSystemId;
  char busId[32];  // "00000000:07:00.0"
};

// What nvmlDeviceGetPciInfo_v2 fills; the first version ends before pciSubSystemId.
struct nvmlPciInfo_v2_t {
  char busId[16];
  unsigned domain, bus, device;
  unsigned pciDeviceId;
  unsigned pciSubSystemId;
};

struct nvmlPciInfoExt_v1_t {
  unsigned version;
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  unsigned baseClass, subClass;
  char busId[32];
};

struct nvmlUtilization_t {
  unsigned gpu, memory;  // percent
};

struct nvmlMemory_t {
  unsigned long long total, free, used;  // used includes what the driver keeps
};

struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;  // used without reserved
};

struct nvmlBAR1Memory_t {
  unsigned long long bar1Total, bar1Free, bar1Used;
};

struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
};

struct nvmlProcessInfo_v2_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;  // all ones: not in a MIG instance
};
using nvmlProcessInfo_t = nvmlProcessInfo_v2_t;

struct nvmlProcessDetail_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory;
};

struct nvmlProcessDetailList_v1_t {
  unsigned version;
  unsigned mode;  // 0 compute, 1 graphics, 2 MPS
  unsigned numProcArrayEntries;
  nvmlProcessDetail_v1_t* procArray;
};

struct nvmlProcessUtilizationSample_t {
  unsigned pid;
  unsigned long long timeStamp;  // µs of the wall clock
  unsigned smUtil, memUtil, encUtil, decUtil;
};

struct nvmlProcessUtilizationInfo_v1_t {
  unsigned long long timeStamp;
  unsigned pid;
  unsigned smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
};

struct nvmlProcessesUtilizationInfo_v1_t {
  unsigned version;
  unsigned processSamplesCount;
  unsigned long long lastSeenTimeStamp;
  nvmlProcessUtilizationInfo_v1_t* procUtilArray;
};

union nvmlValue_t {
  double dVal;
  int siVal;
  unsigned uiVal;
  unsigned long ulVal;
  unsigned long long ullVal;
  signed long long sllVal;
  unsigned short usVal;
};

struct nvmlFieldValue_t {
  unsigned fieldId;
  unsigned scopeId;
  long long timestamp;
  long long latencyUsec;
  int valueType;
  int nvmlReturn;
  nvmlValue_t value;
};

struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned gpuInstanceId, computeInstanceId;
};

struct nvmlTemperature_v1_t {
  unsigned version;
  int sensorType;
  int temperature;  // degrees Celsius
};

using nvmlPciInfoExt_t = nvmlPciInfoExt_v1_t;
using nvmlProcessDetailList_t = nvmlProcessDetailList_v1_t;
using nvmlProcessesUtilizationInfo_t = nvmlProcessesUtilizationInfo_v1_t;
using nvmlTemperature_t = nvmlTemperature_v1_t;

// Versioned structures carry their own size and version in the first word.
template <typename T>
constexpr unsigned StructVersion(unsigned version) {
  return static_cast<unsigned>(sizeof(T)) | version << 24;
}

}  // namespace mete::nvml::abi

#endif  // METE_NVML_ABI_H_
