// A libnvidia-ml.so.1 for library_test: three GPUs, and the moods of a driver, chosen by $METE_TEST_DRIVER.
#include <cstdlib>
#include <cstring>
#include <string>

#include "mete/nvml_prototypes.h"

namespace mete::nvml::abi {

namespace {

bool Mood(const char* name) {
  const char* mood = getenv("METE_TEST_DRIVER");
  return mood != nullptr && strcmp(mood, name) == 0;
}
int g_initialised = 0;
char g_devices[3];
int Index(nvmlDevice_t device) { return static_cast<int>(reinterpret_cast<char*>(device) - g_devices); }
nvmlReturn_t Text(const std::string& text, char* out, unsigned length) {
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int scripted_initialised() { return g_initialised; }
#ifdef METE_SCRIPTED_EMULATED
__attribute__((visibility("default"))) int mete_emulated_node = 1;
#endif

nvmlReturn_t nvmlInit_v2(void) {
  if (Mood("not-loaded")) return NVML_ERROR_DRIVER_NOT_LOADED;
  if (Mood("mismatch")) return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
  ++g_initialised;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown(void) {
  --g_initialised;
  return NVML_SUCCESS;
}
const char* nvmlErrorString(nvmlReturn_t) { return "scripted"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) { return Text("550.54.15", version, length); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned length) { return Text("12.550.54.15", version, length); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index == 2 && Mood("hidden")) return NVML_ERROR_NO_PERMISSION;
  *device = reinterpret_cast<nvmlDevice_t>(&g_devices[index]);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return Text(Index(device) == 0 ? "NVIDIA H100 80GB HBM3" : "Tesla T4", name, length);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  return Text("GPU-" + std::to_string(Index(device)), uuid, length);
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned* minor) {
  *minor = 4u + static_cast<unsigned>(Index(device));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return Text("00000000:0" + std::to_string(Index(device)) + ":00.0", pci->busId, sizeof(pci->busId));
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  *memory = {1000, 600, 400};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (Index(device) != 0) return NVML_ERROR_NOT_SUPPORTED;
  if (memory->version != (40u | 2u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  *memory = {memory->version, 1000, 100, 600, 300};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current, unsigned* pending) {
  if (Index(device) != 0) return NVML_ERROR_NOT_SUPPORTED;
  *current = 0;
  *pending = 1;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  if (Mood("lost")) return NVML_ERROR_GPU_IS_LOST;
  *mode = Index(device) == 2 ? 99 : NVML_COMPUTEMODE_EXCLUSIVE_PROCESS;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  if (Index(device) == 1) return NVML_ERROR_NOT_SUPPORTED;
  *utilization = {42, 7};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  unsigned room = *count, have = Index(device) == 0 ? 200 : 0;  // more than anybody expects
  *count = have;
  if (room < have) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < have; ++i) infos[i] = {1000 + i, i == 0 ? NVML_VALUE_NOT_AVAILABLE : i, 0, 0};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  if (Index(device) != 0) return NVML_ERROR_NOT_SUPPORTED;
  *count = 2;  // one that computes as well, and one that does not
  infos[0] = {1002, 5000, 0, 0};
  infos[1] = {77, 4000, 0, 0};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  return pid == 1001 ? Text("/bin/one", name, length) : NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* samples,
                                             unsigned* count, unsigned long long) {
  if (Index(device) != 0) return NVML_ERROR_NOT_FOUND;
  if (*count < 2) return NVML_ERROR_INSUFFICIENT_SIZE;
  samples[0] = {1001, 5, 30, 3, 0, 0};
  samples[1] = {};
  *count = 2;
  return NVML_SUCCESS;
}

}  // extern "C"

}  // namespace mete::nvml::abi
