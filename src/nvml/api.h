// The entry points of an opened libnvidia-ml.so.1. Internal to this layer.
// Owns one NVML initialisation; the driver library itself stays loaded, because drivers do not support unloading.
#ifndef METE_NVML_API_H_
#define METE_NVML_API_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "nvml/abi.h"

namespace mete::nvml {

class Api {
 public:
  // Loads `file` and initialises NVML. `file` is a path, or a plain name for the loader.
  static StatusOr<std::shared_ptr<const Api>> Load(const std::string& file);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // OK, or what `call` means when it answered `code` for `object` ("GPU 0", "driver").
  Status Check(abi::nvmlReturn_t code, const std::string& call, const std::string& object) const;

  std::string file;
  bool emulated = false;

  template <typename... A>
  using Call = abi::nvmlReturn_t (*)(A...);
  using Device = abi::nvmlDevice_t;

  // Every driver since 450 has these.
  Call<> init = nullptr, shutdown = nullptr;
  Call<char*, unsigned> driver_version = nullptr, nvml_version = nullptr;
  Call<int*> cuda_version = nullptr;
  Call<unsigned*> count = nullptr;
  Call<unsigned, Device*> handle_by_index = nullptr;
  Call<Device, char*, unsigned> name = nullptr, uuid = nullptr;
  Call<Device, unsigned*> minor = nullptr;
  Call<Device, abi::nvmlPciInfo_t*> pci_info = nullptr;
  Call<Device, int*, int*> capability = nullptr;
  Call<Device, abi::nvmlMemory_t*> memory = nullptr;
  Call<Device, int*> compute_mode = nullptr;
  Call<Device, abi::nvmlUtilization_t*> utilization = nullptr;
  Call<Device, abi::nvmlProcessUtilizationSample_t*, unsigned*, unsigned long long> process_utilization = nullptr;
  const char* (*error_string)(int) = nullptr;

  // Null where the driver is older.
  Call<Device, abi::nvmlMemory_v2_t*> memory_v2 = nullptr;
  Call<Device, unsigned*, unsigned*> mig_mode = nullptr;
  Call<Device, unsigned*, abi::nvmlProcessInfo_t*> processes = nullptr;  // _v3, else _v2
  Call<unsigned, char*, unsigned> process_name = nullptr;

 private:
  Api() = default;
};

}  // namespace mete::nvml

#endif  // METE_NVML_API_H_
