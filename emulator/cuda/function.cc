// Functions: attributes, and how many of their blocks fit on an SM.
#include <algorithm>

#include "api.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

CUresult Find(CUfunction handle, Function** function) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return FindFunction(handle, function);
}

int MaxThreads(const Function& function) {
  const ptx::Function& f = *function.entry;
  uint64_t most = 1024;
  if (f.max_threads[0] != 0) {
    most = static_cast<uint64_t>(f.max_threads[0]) * std::max(1u, f.max_threads[1]) * std::max(1u, f.max_threads[2]);
  }
  const uint64_t registers = RoundUp(std::max(1u, f.registers) * 32ull, 256);
  return static_cast<int>(std::min<uint64_t>({most, 1024, 65536 / registers * 32}));
}

CUresult Potential(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of, size_t shared, int limit) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int most = MaxThreads(*function) / 32 * 32;
  if (limit > 0) most = std::min(most, std::max(32, limit / 32 * 32));
  int best = 0, best_blocks = 0;
  for (int threads = most; threads >= 32; threads -= 32) {
    const size_t bytes = shared_of != nullptr ? shared_of(threads) : shared;
    const int blocks = BlocksPerSm(*function, static_cast<uint64_t>(threads), bytes);
    if (blocks * threads > best * best_blocks) {
      best = threads;
      best_blocks = blocks;
    }
  }
  if (best == 0) return CUDA_ERROR_INVALID_VALUE;
  *block = limit > 0 ? std::min(best, limit) : best;
  *grid = best_blocks * static_cast<int>(function->context->device->info.sm_count);
  return CUDA_SUCCESS;
}

}  // namespace

int BlocksPerSm(const Function& function, uint64_t threads, uint64_t dynamic_shared) {
  const GpuInfo& g = function.context->device->info;
  const ptx::Function& f = *function.entry;
  if (threads == 0 || threads > static_cast<uint64_t>(MaxThreads(function))) return 0;
  const uint64_t warps = (threads + 31) / 32;
  uint64_t blocks = std::min<uint64_t>(g.blocks_per_sm, g.threads_per_sm / (warps * 32));
  // Registers are given to a warp in units of 256.
  blocks = std::min<uint64_t>(blocks, g.registers_per_sm / (RoundUp(std::max(1u, f.registers) * 32ull, 256) * warps));
  const uint64_t most_shared = g.shared_bytes_per_block_optin;
  if (dynamic_shared > most_shared || f.static_shared_bytes > most_shared - dynamic_shared) return 0;
  const uint64_t reserved = g.compute_major >= 8 ? 1024 : 0;
  const uint64_t shared = RoundUp(f.static_shared_bytes + dynamic_shared + reserved, 128);
  if (shared != 0) blocks = std::min<uint64_t>(blocks, g.shared_bytes_per_sm / shared);
  return static_cast<int>(blocks);
}

CUresult api::cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ptx::Function& f = *function->entry;
  const GpuInfo& g = function->context->device->info;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MaxThreads(*function); break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(f.static_shared_bytes); break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      uint64_t bytes = 0;
      for (const ptx::Global& global : function->code->globals()) bytes += global.constant ? global.size : 0;
      *value = static_cast<int>(bytes);
      break;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = static_cast<int>(f.local_bytes); break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = static_cast<int>(std::min(255u, std::max(1u, f.registers))); break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = static_cast<int>(function->code->target()); break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = static_cast<int>(g.compute_major * 10 + g.compute_minor); break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->max_dynamic_shared; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = function->carveout; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: *value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult api::cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const int most = static_cast<int>(function->context->device->info.shared_bytes_per_block_optin) -
                     static_cast<int>(function->entry->static_shared_bytes);
    if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic_shared = value;
    return CUDA_SUCCESS;
  }
  if (attribute != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT || value < -1 || value > 100)
    return CUDA_ERROR_INVALID_VALUE;
  function->carveout = value;
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  return api::cuFuncGetAttribute(value, attribute, reinterpret_cast<CUfunction>(kernel));
}

CUresult api::cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice dev) {
  Device* device = nullptr;
  if (CUresult error = FindDevice(dev, &device)) return error;
  return api::cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attribute, value);
}

CUresult api::cuFuncGetModule(CUmodule* out, CUfunction handle) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ToHandle<CUmodule>(function->module);
  return CUDA_SUCCESS;
}

CUresult api::cuFuncGetName(const char** name, CUfunction handle) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->entry->name.c_str();
  return CUDA_SUCCESS;
}

CUresult api::cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult api::cuFuncLoad(CUfunction handle) {
  Function* function = nullptr;
  return Find(handle, &function);
}

CUresult api::cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  return config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult api::cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  return config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult api::cuParamSetTexRef(CUfunction handle, int unit, CUtexref) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  return unit == -1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // CU_PARAM_TR_DEFAULT is the only one documented
}

CUresult api::cuProfilerStart() {
  Context* context = nullptr;
  return CurrentEvenFailed(&context);
}

CUresult api::cuProfilerStop() {
  Context* context = nullptr;
  return CurrentEvenFailed(&context);
}

CUresult api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                                   size_t shared, unsigned int flags) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (blocks == nullptr || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  *blocks = BlocksPerSm(*function, static_cast<uint64_t>(threads), shared);
  return CUDA_SUCCESS;
}

CUresult api::cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
  return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared, 0);
}

CUresult api::cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                                               size_t shared, int limit) {
  return Potential(grid, block, handle, shared_of, shared, limit);
}

CUresult api::cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                        CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                        unsigned int flags) {
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return Potential(grid, block, handle, shared_of, shared, limit);
}

CUresult api::cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
  Function* function = nullptr;
  if (CUresult error = Find(handle, &function)) return error;
  if (bytes == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const GpuInfo& g = function->context->device->info;
  const uint64_t taken = function->entry->static_shared_bytes + (g.compute_major >= 8 ? 1024 : 0);
  const uint64_t each = g.shared_bytes_per_sm / static_cast<uint64_t>(blocks) / 128 * 128;
  *bytes = each > taken ? std::min<uint64_t>(each - taken, g.shared_bytes_per_block_optin) : 0;
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
