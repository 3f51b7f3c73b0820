// Launches. A launch is interpreted when it reaches the head of its stream: whole if that fits the budget, else a
// sample for its cost. A cost once found is used again for launches of the same shape and scalars, and looked at afresh
// now and then; such a launch goes to the engine straight from the calling thread.
#include <algorithm>
#include <cstring>

#include "api.h"
#include "emulator/cuda/capture.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/module.h"
#include "emulator/cuda/operation.h"
#include "emulator/engine/launch_label.h"

namespace mete::emulator::cuda {
namespace {

constexpr size_t kCostsKept = 4096;

// What makes two launches alike: shape and parameters, where a pointer counts only as being one.
std::string KeyOf(const LaunchRequest& r) {
  std::string key(reinterpret_cast<const char*>(r.grid), sizeof r.grid);
  key.append(reinterpret_cast<const char*>(r.block), sizeof r.block);
  key.append(reinterpret_cast<const char*>(&r.shared), sizeof r.shared);
  const size_t start = key.size();
  key.append(reinterpret_cast<const char*>(r.parameters.data()), r.parameters.size());
  Content& content = Driver::Get()->content();
  for (size_t at = 0; at + 8 <= r.parameters.size(); at += 8) {
    uint64_t word = 0;
    memcpy(&word, r.parameters.data() + at, 8);
    if (word >= 4096 && content.IsDevice(word)) memset(&key[start + at], 0, 8);
  }
  return key;
}

void Count(ptx::Fidelity fidelity, bool effect) {
  Counters& c = Driver::Get()->counters();
  switch (fidelity) {
    case ptx::Fidelity::kExact: c.exact.fetch_add(1, std::memory_order_relaxed); break;
    case ptx::Fidelity::kExtrapolated: c.extrapolated.fetch_add(1, std::memory_order_relaxed); break;
    case ptx::Fidelity::kCached: c.cached.fetch_add(1, std::memory_order_relaxed); break;
    case ptx::Fidelity::kUnbounded: c.unbounded.fetch_add(1, std::memory_order_relaxed); break;
  }
  if (!effect) c.timed_only.fetch_add(1, std::memory_order_relaxed);
}

// On the worker, when the launch is due.
bool Interpret(Function* function, const std::shared_ptr<ptx::Module>& code, const LaunchRequest& r,
               const std::string& key, Work* work) {
  Driver* driver = Driver::Get();
  Context* context = function->context;
  ptx::Launch launch;
  std::copy(r.grid, r.grid + 3, launch.grid);
  std::copy(r.block, r.block + 3, launch.block);
  launch.dynamic_shared_bytes = r.shared;
  launch.parameters = r.parameters.data();
  launch.clock_hz = context->device->info.clock_khz * 1e3;
  launch.start_ns = driver->client().EngineTime(context->device->gpu);
  launch.sm_count = context->device->info.sm_count;
  DeviceView memory(&driver->content(),
                    {1ull << driver->OrdinalOf(context->device), context->reach.load(std::memory_order_acquire)});
  const ptx::Outcome outcome =
      ptx::Run(*code, *function->entry, launch, memory, driver->budget(), context->executor.cancelled());
  if (*context->executor.cancelled()) return false;
  if (outcome.fault != ptx::FaultKind::kNone) {
    if (Driver::Traced())
      fprintf(stderr, "emulated libcuda: fault at 0x%llx: %s\n", static_cast<unsigned long long>(outcome.fault_address),
              outcome.fault_detail.c_str());
    switch (outcome.fault) {
      case ptx::FaultKind::kIllegalAddress: context->Fail(CUDA_ERROR_ILLEGAL_ADDRESS, 31); break;
      case ptx::FaultKind::kMisalignedAddress: context->Fail(CUDA_ERROR_MISALIGNED_ADDRESS, 13); break;
      default: context->Fail(CUDA_ERROR_LAUNCH_FAILED, 13); break;
    }
    return false;
  }
  Count(outcome.fidelity, outcome.effect);
  // Where memory steers loops, the next launch of this shape may cost something else: each is looked at.
  if (!outcome.effect && outcome.fidelity != ptx::Fidelity::kUnbounded && !function->entry->steered_by_memory) {
    std::lock_guard lock(function->mutex);
    if (function->costs.size() >= kCostsKept) function->costs.clear();
    function->costs[key].cost = outcome.cost;
  }
  work->kind = WorkKind::kKernel;
  work->kernel = outcome.cost;
  work->bytes = (outcome.fidelity == ptx::Fidelity::kExact          ? kLabelExact
                 : outcome.fidelity == ptx::Fidelity::kExtrapolated ? kLabelExtrapolated
                                                                    : kLabelUnbounded) |
                (outcome.effect ? 0 : kLabelTimedOnly);
  return true;
}

// True: what a launch like this costs is known, and it is not time to look at it afresh.
bool FindCost(Function* function, const std::string& key, Work* work) {
  std::lock_guard lock(function->mutex);
  auto it = function->costs.find(key);
  if (it == function->costs.end()) return false;
  if (++it->second.uses >= it->second.next_sample) {
    it->second.next_sample *= 4;
    return false;
  }
  work->kind = WorkKind::kKernel;
  work->kernel = it->second.cost;
  work->bytes = kLabelCached | kLabelTimedOnly;
  return true;
}

CUresult Check(const Function& function, const LaunchRequest& r) {
  const uint64_t threads = static_cast<uint64_t>(r.block[0]) * r.block[1] * r.block[2];
  if (r.grid[0] == 0 || r.grid[1] == 0 || r.grid[2] == 0 || threads == 0) return CUDA_ERROR_INVALID_VALUE;
  if (r.grid[0] > 0x7fffffffu || r.grid[1] > 65535 || r.grid[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (r.block[0] > 1024 || r.block[1] > 1024 || r.block[2] > 64 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (r.shared > static_cast<uint32_t>(function.max_dynamic_shared.load())) return CUDA_ERROR_INVALID_VALUE;
  const ptx::Function& f = *function.entry;
  const uint64_t limit =
      static_cast<uint64_t>(f.max_threads[0]) * std::max(1u, f.max_threads[1]) * std::max(1u, f.max_threads[2]);
  if (limit != 0 && threads > limit) return CUDA_ERROR_INVALID_VALUE;
  if (f.exact_threads && !std::equal(r.block, r.block + 3, f.max_threads)) return CUDA_ERROR_INVALID_VALUE;
  const int fit = BlocksPerSm(function, threads, r.shared);
  if (fit == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const double blocks = static_cast<double>(r.grid[0]) * r.grid[1] * r.grid[2];
  if (r.cooperative && blocks > static_cast<double>(fit) * function.context->device->info.sm_count) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

// Parameters by pointers to each, or as one buffer in `extra`.
CUresult Gather(const ptx::Function& f, void** each, void** extra, std::vector<uint8_t>* out) {
  out->assign(f.parameter_bytes, 0);
  if (f.parameter_bytes == 0) return CUDA_SUCCESS;
  if (each != nullptr) {
    if (extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < f.parameters.size(); ++i) {
      if (each[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      memcpy(out->data() + f.parameters[i].offset, each[i], f.parameters[i].size);
    }
    return CUDA_SUCCESS;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (void** at = extra; at != nullptr && *at != nullptr; at += 2) {
    const auto what = reinterpret_cast<uintptr_t>(at[0]);
    if (what == 1) {
      buffer = at[1];
    } else if (what == 2 && at[1] != nullptr) {
      bytes = *static_cast<size_t*>(at[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || bytes < f.parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  memcpy(out->data(), buffer, f.parameter_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

Item KernelItem(Function* function, const LaunchRequest& request) {
  Item item;
  std::string key = KeyOf(request);
  Work known;
  if (FindCost(function, key, &known)) {
    Count(ptx::Fidelity::kCached, false);
    item.light = true;
    item.effect = [known](Work* work) {
      *work = known;
      return true;
    };
    return item;
  }
  item.effect = [function, code = function->code, r = request, k = std::move(key)](Work* work) {
    return Interpret(function, code, r, k, work);
  };
  return item;
}

CUresult Launch(Function* function, LaunchRequest request, CUstream stream_handle, CUfunction handle) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (function->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult error = Check(*function, request)) return error;
  Stream* stream = nullptr;
  if (CUresult error = ResolveStream(context, stream_handle, &stream)) return error;
  bool captured = false;
  if (CUresult error = CaptureInstead(stream, &captured, [&] {
        return Operation(KernelOperation{function, request, handle, {}});
      }))
    return error;
  if (captured) return CUDA_SUCCESS;
  // The common case, a launch like earlier ones in a stream with nothing to do before it, makes no item.
  std::string key = KeyOf(request);
  Work known;
  if (FindCost(function, key, &known)) {
    Count(ptx::Fidelity::kCached, false);
    if (!context->executor.PostDirectly(stream, known)) {
      Item item;
      item.light = true;
      item.effect = [known](Work* work) {
        *work = known;
        return true;
      };
      if (CUresult error = context->executor.Enqueue(stream, std::move(item))) return error;
    }
  } else {
    Item item;
    item.effect = [function, code = function->code, r = std::move(request), k = std::move(key)](Work* work) {
      return Interpret(function, code, r, k, work);
    };
    if (CUresult error = context->executor.Enqueue(stream, std::move(item))) return error;
  }
  return Driver::Get()->launch_blocking() ? context->executor.Synchronize(stream) : CUDA_SUCCESS;
}

CUresult ApplyAttribute(const CUlaunchAttribute& a, LaunchRequest* request) {
  switch (a.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: request->cooperative = a.value.cooperative != 0; return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      return a.value.clusterDim.x * a.value.clusterDim.y * a.value.clusterDim.z > 1 ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                                                    : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: return CUDA_ERROR_NOT_SUPPORTED;
    // Hints that change no result.
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult MakeKernel(CUfunction handle, const LaunchRequest& shape, void** each, void** extra,
                    const CUlaunchAttribute* attributes, unsigned int attribute_count, KernelOperation* out) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!IsList(attributes, attribute_count)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = FindFunction(handle, &out->function)) return error;
  out->handle = handle;
  out->request = shape;
  for (unsigned int i = 0; i < attribute_count; ++i) {
    if (CUresult error = ApplyAttribute(attributes[i], &out->request)) return error;
    out->attributes.push_back(attributes[i]);
  }
  if (CUresult error = Check(*out->function, out->request)) return error;
  return Gather(*out->function->entry, each, extra, &out->request.parameters);
}

namespace {

CUresult LaunchChecked(CUfunction handle, LaunchRequest request, CUstream stream, void** each, void** extra,
                       const CUlaunchAttribute* attributes, unsigned int attribute_count) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!IsList(attributes, attribute_count)) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  if (CUresult error = FindFunction(handle, &function)) return error;
  for (unsigned int i = 0; i < attribute_count; ++i) {
    if (CUresult error = ApplyAttribute(attributes[i], &request)) return error;
  }
  if (CUresult error = Gather(*function->entry, each, extra, &request.parameters)) return error;
  return Launch(function, std::move(request), stream, handle);
}

}  // namespace

CUresult api::cuLaunchKernel(CUfunction handle, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                             unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void** each,
                             void** extra) {
  return LaunchChecked(handle, {{gx, gy, gz}, {bx, by, bz}, shared, false, {}}, stream, each, extra, nullptr, 0);
}

CUresult api::cuLaunchCooperativeKernel(CUfunction handle, unsigned int gx, unsigned int gy, unsigned int gz,
                                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                        CUstream stream, void** each) {
  return LaunchChecked(handle, {{gx, gy, gz}, {bx, by, bz}, shared, true, {}}, stream, each, nullptr, nullptr, 0);
}

CUresult api::cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction handle, void** each, void** extra) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchRequest request{{c->gridDimX, c->gridDimY, c->gridDimZ},
                              {c->blockDimX, c->blockDimY, c->blockDimZ},
                              c->sharedMemBytes,
                              false,
                              {}};
  return LaunchChecked(handle, request, c->hStream, each, extra, c->attrs, c->numAttrs);
}

// One cooperative kernel on several GPUs: each waits for what is before any of them in its stream, unless told not to.
CUresult api::cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list, unsigned int count, unsigned int flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (list == nullptr || count == 0 || count > driver->devices().size() || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Stream*> streams(count);
  std::vector<KernelOperation> kernels(count);
  for (unsigned int i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    streams[i] = FromHandle<Stream>(p.hStream);
    if (streams[i] == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // default streams are refused as documented
    const LaunchRequest shape{
        {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, true, {}};
    if (CUresult error = MakeKernel(p.function, shape, p.kernelParams, nullptr, nullptr, 0, &kernels[i])) return error;
    if (kernels[i].function->context != streams[i]->context || streams[i]->capturing.load())
      return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = streams[i]->context->Error()) return error;
    for (unsigned int j = 0; j < i; ++j) {
      const bool same_shape = kernels[j].request.shared == kernels[i].request.shared &&
                              std::equal(shape.grid, shape.grid + 3, kernels[j].request.grid) &&
                              std::equal(shape.block, shape.block + 3, kernels[j].request.block);
      if (streams[j]->context->device == streams[i]->context->device || !same_shape) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  auto meet = [&streams]() -> CUresult {
    std::vector<std::shared_ptr<Instant>> instants;
    for (Stream* stream : streams) {
      Item item;
      item.light = true;
      item.records = std::make_shared<Instant>();
      item.records->context = stream->context;
      instants.push_back(item.records);
      if (CUresult error = stream->context->executor.Enqueue(stream, std::move(item))) return error;
    }
    for (Stream* stream : streams) {
      Item item;
      item.light = true;
      item.after = instants;
      if (CUresult error = stream->context->executor.Enqueue(stream, std::move(item))) return error;
    }
    return CUDA_SUCCESS;
  };
  if ((flags & 1) == 0) {
    if (CUresult error = meet()) return error;
  }
  for (unsigned int i = 0; i < count; ++i) {
    Item item = KernelItem(kernels[i].function, kernels[i].request);
    if (CUresult error = streams[i]->context->executor.Enqueue(streams[i], std::move(item))) return error;
  }
  return (flags & 2) == 0 ? meet() : CUDA_SUCCESS;
}

namespace {

CUresult FindLegacy(CUfunction handle, Function** function) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return FindFunction(handle, function);
}

CUresult SetParameter(CUfunction handle, int offset, const void* data, size_t bytes) {
  Function* function = nullptr;
  if (CUresult error = FindLegacy(handle, &function)) return error;
  if (offset < 0 || data == nullptr || bytes > 4096 || offset + bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(function->mutex);
  if (function->legacy_parameters.size() < offset + bytes) function->legacy_parameters.resize(offset + bytes);
  if (bytes > 0) memcpy(function->legacy_parameters.data() + offset, data, bytes);
  return CUDA_SUCCESS;
}

CUresult LaunchLegacy(CUfunction handle, int width, int height, CUstream stream) {
  Function* function = nullptr;
  if (CUresult error = FindLegacy(handle, &function)) return error;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  LaunchRequest request;
  {
    std::lock_guard lock(function->mutex);
    request.grid[0] = static_cast<uint32_t>(width);
    request.grid[1] = static_cast<uint32_t>(height);
    std::copy(function->legacy_block, function->legacy_block + 3, request.block);
    request.shared = function->legacy_shared;
    request.parameters = function->legacy_parameters;
  }
  if (request.parameters.size() < function->entry->parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  return Launch(function, std::move(request), stream, handle);
}

}  // namespace

CUresult api::cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  Function* function = nullptr;
  if (CUresult error = FindLegacy(handle, &function)) return error;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(function->mutex);
  function->legacy_block[0] = static_cast<uint32_t>(x);
  function->legacy_block[1] = static_cast<uint32_t>(y);
  function->legacy_block[2] = static_cast<uint32_t>(z);
  return CUDA_SUCCESS;
}

CUresult api::cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) {
  Function* function = nullptr;
  if (CUresult error = FindLegacy(handle, &function)) return error;
  std::lock_guard lock(function->mutex);
  function->legacy_shared = bytes;
  return CUDA_SUCCESS;
}

CUresult api::cuParamSetSize(CUfunction handle, unsigned int bytes) {
  Function* function = nullptr;
  if (CUresult error = FindLegacy(handle, &function)) return error;
  if (bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(function->mutex);
  function->legacy_parameters.resize(bytes);
  return CUDA_SUCCESS;
}

CUresult api::cuParamSeti(CUfunction handle, int offset, unsigned int value) {
  return SetParameter(handle, offset, &value, 4);
}
CUresult api::cuParamSetf(CUfunction handle, int offset, float value) {
  return SetParameter(handle, offset, &value, 4);
}
CUresult api::cuParamSetv(CUfunction handle, int offset, void* data, unsigned int bytes) {
  return SetParameter(handle, offset, data, bytes);
}
CUresult api::cuLaunch(CUfunction handle) { return LaunchLegacy(handle, 1, 1, nullptr); }
CUresult api::cuLaunchGrid(CUfunction handle, int width, int height) {
  return LaunchLegacy(handle, width, height, nullptr);
}
CUresult api::cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
  return LaunchLegacy(handle, width, height, stream);
}

}  // namespace mete::emulator::cuda
