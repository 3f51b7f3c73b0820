// Devices as the program sees them: everything is determined by what the engine says of the board.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api.h"
#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {
namespace {

CUresult Find(CUdevice dev, Device** device) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *device = driver->DeviceAt(dev);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

struct PciId {
  unsigned domain = 0, bus = 0, device = 0;
};

bool ParsePci(const char* text, PciId* id) {
  unsigned function = 0;
  return sscanf(text, "%x:%x:%x.%x", &id->domain, &id->bus, &id->device, &function) >= 3 ||
         (id->domain = 0, sscanf(text, "%x:%x.%x", &id->bus, &id->device, &function) >= 2);
}

// Shared memory of a block without opting in, and what the system keeps of each block's, by architecture.
constexpr uint32_t kDefaultSharedBytes = 48 << 10;
uint32_t ReservedShared(const GpuInfo& g) { return g.compute_major >= 8 ? 1024 : 0; }

uint32_t MaxThreads(const GpuInfo&) { return 1024; }

// FP32 rate to FP64 rate.
int SingleToDouble(const GpuInfo& g) {
  const uint32_t cc = g.compute_major * 10 + g.compute_minor;
  if (cc == 60 || cc == 70 || cc == 80 || cc == 90 || cc == 100) return 2;
  return g.compute_major >= 8 ? 64 : 32;
}

// False: not determined by what is known of the board.
bool Attribute(const GpuInfo& g, int attribute, int* value) {
  PciId pci;
  ParsePci(g.pci_bus_id, &pci);
  const bool ampere = g.compute_major >= 8, hopper = g.compute_major >= 9;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = static_cast<int>(MaxThreads(g)); return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = kDefaultSharedBytes; return true;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: *value = 65536; return true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: *value = 2147483647; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; return true;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = static_cast<int>(g.clock_khz); return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: *value = 512; return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: *value = 32; return true;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: *value = 1; return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = static_cast<int>(g.sm_count); return true;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: *value = 1; return true;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH: *value = 131072; return true;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT: *value = 65536; return true;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH: *value = 16384; return true;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT: *value = 32768; return true;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS: *value = 2048; return true;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; return true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = static_cast<int>(pci.bus); return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = static_cast<int>(pci.device); return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = static_cast<int>(pci.domain); return true;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: *value = static_cast<int>(g.pci_device_id); return true;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = static_cast<int>(g.memory_clock_khz); return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = static_cast<int>(g.memory_bus_bits); return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = static_cast<int>(std::min<uint64_t>(g.l2_bytes, 0x7fffffff));
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = static_cast<int>(g.threads_per_sm); return true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; return true;  // the engine has one per direction
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = static_cast<int>(g.compute_major); return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = static_cast<int>(g.compute_minor); return true;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: *value = 1; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = static_cast<int>(g.shared_bytes_per_sm);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = static_cast<int>(g.registers_per_sm);
      return true;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: *value = 1; return true;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: *value = SingleToDouble(g); return true;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
      *value = attribute == CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST ? 0 : 1;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = static_cast<int>(g.shared_bytes_per_block_optin);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = static_cast<int>(g.blocks_per_sm); return true;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      *value = ampere ? static_cast<int>(g.l2_bytes * 3 / 4) : 0;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: *value = ampere ? 128 << 20 : 0; return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = static_cast<int>(ReservedShared(g));
      return true;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: *value = hopper ? 4 : 1; return true;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: *value = 0; return true;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: *value = -1; return true;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID: *value = -1; return true;
    // What the emulated driver does not have, it does not claim.
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_TCC_DRIVER:
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD:
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
    case CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER:
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID: *value = 0; return true;
    default: return false;
  }
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
  if (CUresult error = Find(ordinal, &device)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetName(char* name, int length, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, static_cast<size_t>(length), "%s", device->info.name);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, device->info.uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetPCIBusId(char* text, int length, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
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
  if (CUresult error = Find(dev, &device)) return error;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->info.memory_bytes - device->info.reserved_bytes;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
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
  if (CUresult error = Find(dev, &device)) return error;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = static_cast<int>(device->info.compute_major);
  *minor = static_cast<int>(device->info.compute_minor);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetProperties(CUdevprop* p, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
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

CUresult api::cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  Device *device = nullptr, *other = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
  if (CUresult error = Find(peer, &other)) return error;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer) {
  Device *device = nullptr, *other = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
  if (CUresult error = Find(peer, &other)) return error;
  if (value == nullptr || device == other || attribute < 1 || attribute > 5) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetExecAffinitySupport(int* value, CUexecAffinityType type, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = Find(dev, &device)) return error;
  if (value == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
