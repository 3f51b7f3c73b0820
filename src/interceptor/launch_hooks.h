// The hooks of launches and of calls in which completion is seen; part of hooks.h.
#ifndef METE_INTERCEPTOR_LAUNCH_HOOKS_H_
#define METE_INTERCEPTOR_LAUNCH_HOOKS_H_

#include <cstdint>

#include "interceptor/hooks.h"

namespace mete::interceptor {

// Whether a launch may go straight to the driver: the share has one GPU, does not count launches on it, and lives. A
// share of several GPUs finds out in the gate which one is meant. False also before the process has attached.
inline bool Straight() {
  const Process* p = process.load(std::memory_order_acquire);
  if (p == nullptr) return false;
  const Attachment* a = p->attachment.load(std::memory_order_acquire);
  const ledger::LimitsPage& limits = *a->limits;
  const uint32_t gated = limits.ended.load(std::memory_order_relaxed) |
                         (limits.gpu[0].flags.load(std::memory_order_relaxed) & ledger::kTracked) | (a->gpu_count - 1);
  return gated == 0;
}

constexpr uint64_t Shape(uint64_t x, uint64_t y, uint64_t z) { return x ^ y << 24 ^ z << 44; }

// The rest of a launch; the generated wrappers keep it out of line, so that the straight path stays a jump.
template <typename Call>
CUresult ThroughGate(CUstream stream, bool per_thread, uint64_t key, Call call) {
  METE_READY(p);
  return p->tracker.Launch(
      *p, stream, per_thread, key, [](void* argument) { return (*static_cast<Call*>(argument))(); }, &call);
}
template <bool kPerThread, typename... More>
CUresult LaunchKernel(CUresult (*real)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       CUstream, void**, More...),
                      CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
                      More... more) {
  const uint64_t key = CostKey(function, Shape(grid_x, grid_y, grid_z), Shape(block_x, block_y, block_z));
  return ThroughGate(stream, kPerThread, key, [&] {
    return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, more...);
  });
}

template <bool kPerThread>
CUresult LaunchKernelEx(decltype(&::cuLaunchKernelEx) real, const CUlaunchConfig* config, CUfunction function,
                        void** parameters, void** extra) {
  if (config == nullptr) return real(config, function, parameters, extra);
  const uint64_t key = CostKey(function, Shape(config->gridDimX, config->gridDimY, config->gridDimZ),
                               Shape(config->blockDimX, config->blockDimY, config->blockDimZ));
  return ThroughGate(config->hStream, kPerThread, key, [&] { return real(config, function, parameters, extra); });
}

// One launch on several GPUs at once; it waits for the GPU of the current context.
inline CUresult LaunchMulti(decltype(&::cuLaunchCooperativeKernelMultiDevice) real, CUDA_LAUNCH_PARAMS* launches,
                            unsigned count, unsigned flags) {
  if (launches == nullptr || count == 0) return real(launches, count, flags);
  const CUDA_LAUNCH_PARAMS& first = launches[0];
  const uint64_t key = CostKey(first.function, Shape(first.gridDimX, first.gridDimY, first.gridDimZ),
                               Shape(first.blockDimX, first.blockDimY, first.blockDimZ));
  return ThroughGate(first.hStream, false, key, [&] { return real(launches, count, flags); });
}

// cuLaunch and cuLaunchGrid: on the legacy default stream; the block's shape is the function's state.
template <typename... Grid>
CUresult LaunchOld(CUresult (*real)(CUfunction, Grid...), CUfunction function, Grid... grid) {
  uint64_t shape = 1;
  ((shape = shape << 24 ^ static_cast<unsigned>(grid)), ...);
  return ThroughGate(nullptr, false, CostKey(function, shape, 0), [&] { return real(function, grid...); });
}
inline CUresult LaunchOldAsync(decltype(&::cuLaunchGridAsync) real, CUfunction function, int width, int height,
                               CUstream stream) {
  const uint64_t shape = Shape(static_cast<unsigned>(width), static_cast<unsigned>(height), 1);
  return ThroughGate(stream, false, CostKey(function, shape, 0), [&] { return real(function, width, height, stream); });
}
// Calls what may make a graph's memory appear, if there is room for it.
template <typename Call>
CUresult WithGraphMemory(Process& p, CUgraphExec graph, Call call) {
  bool needs;
  const CUresult room = p.graphs.Begin(p, graph, &needs);
  if (room != CUDA_SUCCESS) return room;
  const CUresult result = call();
  if (needs) p.graphs.End(p, graph, result == CUDA_SUCCESS);
  return result;
}
template <bool kPerThread>
CUresult GraphLaunch(decltype(&::cuGraphLaunch) real, CUgraphExec graph, CUstream stream) {
  METE_READY(p);
  return WithGraphMemory(*p, graph, [&] {
    if (Straight()) return real(graph, stream);
    return ThroughGate(stream, kPerThread, CostKey(graph, 0, 0), [&] { return real(graph, stream); });
  });
}
inline CUresult UploadGraph(decltype(&::cuGraphUpload) real, CUgraphExec graph, CUstream stream) {
  METE_READY(p);
  return WithGraphMemory(*p, graph, [&] { return real(graph, stream); });
}
template <typename... More>
CUresult InstantiateGraph(CUresult (*real)(CUgraphExec*, CUgraph, More...), CUgraphExec* exec, CUgraph graph,
                          More... more) {
  METE_READY(p);
  const CUresult result = real(exec, graph, more...);
  if (result == CUDA_SUCCESS && exec != nullptr) p->graphs.Instantiated(*p, *exec, graph);
  return result;
}
inline CUresult DestroyGraph(decltype(&::cuGraphExecDestroy) real, CUgraphExec graph) {
  METE_READY(p);
  const CUresult result = real(graph);
  if (result == CUDA_SUCCESS) p->graphs.Destroyed(*p, graph);
  return result;
}
inline CUresult DestroyGraphTemplate(decltype(&::cuGraphDestroy) real, CUgraph graph) {
  METE_READY(p);
  const CUresult result = real(graph);
  if (result == CUDA_SUCCESS) p->graphs.Refresh(*p);
  return result;
}
inline CUresult TrimGraphs(decltype(&::cuDeviceGraphMemTrim) real, CUdevice device) {
  METE_READY(p);
  const CUresult result = real(device);
  if (result == CUDA_SUCCESS) p->graphs.Trimmed(*p);
  return result;
}

// ---- where completion is seen

template <bool kPerThread>
CUresult StreamSynchronize(CUresult (*real)(CUstream), CUstream stream) {
  METE_READY(p);
  if (!p->tracker.Used()) [[likely]] {
    const CUresult result = real(stream);
    p->pools.RefreshIfLoose(*p);
    return result;
  }
  const Tracker::Mark mark = p->tracker.Before(*p, stream, kPerThread);
  const CUresult result = real(stream);
  p->tracker.After(*p, mark, result);
  p->pools.RefreshIfLoose(*p);
  return result;
}

template <typename Call>
CUresult SynchronizeContext(CUcontext context, Call call) {
  METE_READY(p);
  Tracker::Mark marks[Tracker::kMaxMarks];
  const unsigned count = p->tracker.Used() ? p->tracker.BeforeContext(*p, context, marks) : 0;
  const CUresult result = call();
  for (unsigned i = 0; i < count; ++i) p->tracker.After(*p, marks[i], result);
  p->pools.RefreshIfLoose(*p);
  return result;
}
inline CUresult ContextSynchronize(decltype(&::cuCtxSynchronize) real) {
  return SynchronizeContext(nullptr, [&] { return real(); });
}
inline CUresult ContextSynchronizeOf(decltype(&::cuCtxSynchronize_v2) real, CUcontext context) {
  return SynchronizeContext(context, [&] { return real(context); });
}

inline CUresult EventSynchronize(CUresult (*real)(CUevent), CUevent event) {
  METE_READY(p);
  if (p->tracker.Used()) p->tracker.BeforeEvent(*p);
  const CUresult result = real(event);
  if (result != CUDA_ERROR_NOT_READY) {
    if (p->tracker.Used()) p->tracker.AfterEvent(*p);
    p->pools.RefreshIfLoose(*p);
  }
  return result;
}

inline CUresult StreamDestroy(CUresult (*real)(CUstream), CUstream stream) {
  METE_READY(p);
  p->tracker.StreamGoing(*p, stream);
  return real(stream);
}

// Once a program captures, every tracked launch asks whether its stream is being captured.
template <typename... Arguments>
CUresult BeginCapture(CUresult (*real)(CUstream, Arguments...), CUstream stream, Arguments... arguments) {
  METE_READY(p);
  p->tracker.CaptureBegan();
  return real(stream, arguments...);
}

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_LAUNCH_HOOKS_H_
