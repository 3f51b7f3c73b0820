// Devices as the program sees them: everything is determined by what the engine says of the board.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {
namespace {

struct PciId {
  unsigned domain = 0, bus = 0, device = 0;
};

bool ParsePci(const char* text, PciId* id) {
  unsigned function = 0;
  return sscanf(text, "%x:%x:%x.%x", &id->domain, &id->bus, &id->device, &function) >= 3 ||
         (id->domain = 0, sscanf(text, "%x:%x.%x", &id->bus, &id->device, &function) >= 2);
}

// What the system keeps of each block's shared memory, by architecture.
uint32_t ReservedShared(const GpuInfo& g) { return g.compute_major >= 8 ? 1024 : 0; }

// FP32 rate to FP64 rate.
int SingleToDouble(const GpuInfo& g) {
  const uint32_t cc = g.compute_major * 10 + g.compute_minor;
  if (cc == 60 || cc == 70 || cc == 80 || cc == 90 || cc == 100) return 2;
  return g.compute_major >= 8 ? 64 : 32;
}

// What the board decides; the rest is data (data/cuda/attributes.tsv). False: unknown.
bool BoardAttribute(const GpuInfo& g, int attribute, int* value) {
  PciId pci;
  ParsePci(g.pci_bus_id, &pci);
  const bool ampere = g.compute_major >= 8, hopper = g.compute_major >= 9;
  auto put = [value](auto number) {
    *value = static_cast<int>(number);
    return true;
  };
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return put(1024);
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return put(g.clock_khz);
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return put(g.sm_count);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return put(pci.bus);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return put(pci.device);
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return put(pci.domain);
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: return put(g.pci_device_id);
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return put(g.memory_clock_khz);
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return put(g.memory_bus_bits);
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return put(std::min<uint64_t>(g.l2_bytes, 0x7fffffff));
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return put(g.threads_per_sm);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return put(g.compute_major);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return put(g.compute_minor);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return put(g.shared_bytes_per_sm);
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return put(g.registers_per_sm);
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: return put(SingleToDouble(g));
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return put(g.shared_bytes_per_block_optin);
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return put(g.blocks_per_sm);
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: return put(ampere ? g.l2_bytes * 3 / 4 : 0);
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: return put(ampere ? 128 << 20 : 0);
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return put(ReservedShared(g));
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: return put(hopper ? 4 : 1);
    // On by default on data-centre boards; GeForce boards have none.
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: return put(strstr(g.name, "GeForce") == nullptr);
    default: return false;
  }
}

bool Attribute(const GpuInfo& g, int attribute, int* value) {
  if (BoardAttribute(g, attribute, value)) return true;
  const ConstantAttribute* end = kConstantAttributes + kConstantAttributeCount;
  const ConstantAttribute* found = std::lower_bound(
      kConstantAttributes, end, attribute, [](const ConstantAttribute& a, int key) { return a.attribute < key; });
  if (found == end || found->attribute != attribute) return false;
  *value = found->value;
  return true;
}

}  // namespace

CUresult api::cuInit(unsigned int flags) { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : Driver::Init(); }

CUresult api::cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver* driver = Driver::Get();
  *version = driver == nullptr ? CUDA_VERSION : static_cast<int>(driver->client().CudaVersion());
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetCount(int* count) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(driver->devices().size());
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGet(CUdevice* out, int ordinal) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(ordinal, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetName(char* name, int length, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, static_cast<size_t>(length), "%s", device->info.name);
  return CUDA_SUCCESS;
}

namespace {

const uint8_t* OwnUuid(const Device& device) { return device.mig ? device.mig->uuid : device.info.uuid; }

}  // namespace

// The GPU's, of a compute instance too; the later version gives the compute instance's own.
CUresult api::cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, device->info.uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, OwnUuid(*device), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetPCIBusId(char* text, int length, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  PciId id;
  if (text == nullptr || length <= 0 || !ParsePci(device->info.pci_bus_id, &id)) return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, static_cast<size_t>(length), "%04X:%02X:%02X.0", id.domain, id.bus, id.device);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  PciId wanted;
  if (out == nullptr || text == nullptr || !ParsePci(text, &wanted)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < driver->devices().size(); ++i) {
    PciId id;
    ParsePci(driver->devices()[i]->info.pci_bus_id, &id);
    if (id.domain != wanted.domain || id.bus != wanted.bus || id.device != wanted.device) continue;
    *out = static_cast<int>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult api::cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->info.memory_bytes - device->info.reserved_bytes;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) {
    GpuState state{};
    if (Driver::Get()->client().State(device->gpu, &state) != Result::kOk) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    *value = static_cast<int>(state.compute_mode);
    return CUDA_SUCCESS;
  }
  return Attribute(device->info, attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = static_cast<int>(device->info.compute_major);
  *minor = static_cast<int>(device->info.compute_minor);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetProperties(CUdevprop* p, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = {};
  const std::pair<int, int*> fields[] = {{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p->maxThreadsPerBlock},
                                         {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &p->maxThreadsDim[0]},
                                         {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &p->maxThreadsDim[1]},
                                         {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &p->maxThreadsDim[2]},
                                         {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &p->maxGridSize[0]},
                                         {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &p->maxGridSize[1]},
                                         {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &p->maxGridSize[2]},
                                         {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &p->sharedMemPerBlock},
                                         {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &p->totalConstantMemory},
                                         {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &p->SIMDWidth},
                                         {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &p->memPitch},
                                         {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &p->regsPerBlock},
                                         {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &p->clockRate},
                                         {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &p->textureAlign}};
  for (const auto& [attribute, field] : fields) Attribute(device->info, attribute, field);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetExecAffinitySupport(int* value, CUexecAffinityType type, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  if (value == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  return CUDA_SUCCESS;
}

namespace {

// Atomics across the bus: none of the operations that may be asked for.
CUresult NoAtomics(unsigned int* capabilities, const CUatomicOperation* operations, unsigned int count) {
  if (count == 0 || !IsList(capabilities, count) || !IsList(operations, count)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (operations[i] < 0 || operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    capabilities[i] = 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                                unsigned int count, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  return NoAtomics(capabilities, operations, count);
}

CUresult api::cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                               unsigned int count, CUdevice from, CUdevice to) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(from, &device)) return error;
  if (CUresult error = FindDevice(to, &device)) return error;
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  return NoAtomics(capabilities, operations, count);
}

}  // namespace mete::emulator::cuda
