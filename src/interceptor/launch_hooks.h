// The hooks of launches and of calls in which completion is seen; part of hooks.h.
#ifndef METE_INTERCEPTOR_LAUNCH_HOOKS_H_
#define METE_INTERCEPTOR_LAUNCH_HOOKS_H_

#include <cstdint>

#include "interceptor/hooks.h"

namespace mete::interceptor {

// Whether a launch may go straight to the driver: its thread never launched anything that was counted, the share has
// one GPU, does not count launches on it, and lives. A share of several GPUs finds out in the gate which one is meant.
// False also before the process has attached.
inline bool Straight() {
  if (own_record != nullptr) return false;
  const Process* p = process.load(std::memory_order_acquire);
  if (p == nullptr) return false;
  const Attachment* a = p->attachment.load(std::memory_order_acquire);
  const ledger::LimitsPage& limits = *a->limits;
  const uint32_t gated = limits.ended.load(std::memory_order_relaxed) |
                         (limits.gpu[0].flags.load(std::memory_order_relaxed) & ledger::kTracked) | (a->gpu_count - 1);
  return gated == 0;
}

constexpr uint64_t Shape(uint64_t x, uint64_t y, uint64_t z) { return x ^ y << 24 ^ z << 44; }
inline uint64_t CostKey(const LaunchKind& kind) {
  return CostKey(kind.function, Shape(kind.grid_x, kind.grid_y, kind.grid_z),
                 Shape(kind.block_x, kind.block_y, kind.block_z));
}

// The share lives, the track is this thread's, and the batch that is open has room.
inline __attribute__((always_inline)) bool Tracker::Enter(ThreadRecord& me, const Lane& lane) {
  if (lane.limits->ended.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return false;
  Track& track = *lane.track;
  if (!track.mutex.TryOwn(&me)) [[unlikely]]
    return false;
  if (track.Admits(lane.cost)) [[likely]]
    return true;
  track.mutex.LeaveOwn(me);
  return false;
}

inline __attribute__((always_inline)) void Tracker::Leave(ThreadRecord& me, const Lane& lane, CUresult result) {
  Track& track = *lane.track;
  if (result == CUDA_SUCCESS && track.Count(lane.key, lane.cost) == 0) [[unlikely]]
    CloseFull(track);
  track.mutex.LeaveOwn(me);
}

// The rest of a launch; the generated wrappers keep it out of line, so that the straight path stays a jump.
template <typename Call>
CUresult ThroughGate(CUstream stream, bool per_thread, uint64_t key, const LaunchKind* kind, Call call) {
  METE_READY(p);
  return p->tracker.Launch(
      *p, stream, per_thread, key, kind, [](void* argument) { return (*static_cast<Call*>(argument))(); }, &call);
}
template <typename Call>
CUresult LookedUp(CUstream stream, bool per_thread, const LaunchKind& kind, Call call) {
  return ThroughGate(stream, per_thread, CostKey(kind), &kind, call);
}
// The lane by which such a launch may go now; null: none. Not null: Leave() follows the launch.
inline __attribute__((always_inline)) const Lane* EnterLane(ThreadRecord* me, CUstream stream, bool per_thread,
                                                            const LaunchKind& kind) {
  if (me == nullptr || me->generation != lane_generation.load(std::memory_order_acquire)) return nullptr;
  const Lane* lane = me->Find(kind, stream, per_thread);
  return lane != nullptr && Tracker::Enter(*me, *lane) ? lane : nullptr;
}

// Out of line, so that a launch by its lane needs no room for this.
template <bool kPerThread, typename Function, typename... More>
__attribute__((noinline)) CUresult LaunchKernelLookedUp(Function real, CUfunction function, unsigned grid_x,
                                                        unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                        unsigned block_y, unsigned block_z, unsigned shared,
                                                        CUstream stream, void** parameters, More... more) {
  return LookedUp(stream, kPerThread, {function, grid_x, grid_y, grid_z, block_x, block_y, block_z}, [&] {
    return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, more...);
  });
}
template <bool kPerThread, typename... More>
inline __attribute__((always_inline)) CUresult LaunchKernel(CUresult (*real)(CUfunction, unsigned, unsigned, unsigned,
                                                                             unsigned, unsigned, unsigned, unsigned,
                                                                             CUstream, void**, More...),
                                                            CUfunction function, unsigned grid_x, unsigned grid_y,
                                                            unsigned grid_z, unsigned block_x, unsigned block_y,
                                                            unsigned block_z, unsigned shared, CUstream stream,
                                                            void** parameters, More... more) {
  ThreadRecord* const me = own_record;
  const Lane* lane = EnterLane(me, stream, kPerThread, {function, grid_x, grid_y, grid_z, block_x, block_y, block_z});
  if (lane == nullptr) [[unlikely]] {
    return LaunchKernelLookedUp<kPerThread>(real, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                            stream, parameters, more...);
  }
  const CUresult result =
      real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, more...);
  Tracker::Leave(*me, *lane, result);
  return result;
}

template <bool kPerThread>
CUresult LaunchKernelEx(decltype(&::cuLaunchKernelEx) real, const CUlaunchConfig* config, CUfunction function,
                        void** parameters, void** extra) {
  if (config == nullptr) return real(config, function, parameters, extra);
  const LaunchKind kind{function,          config->gridDimX,  config->gridDimY, config->gridDimZ,
                        config->blockDimX, config->blockDimY, config->blockDimZ};
  ThreadRecord* const me = own_record;
  const Lane* lane = EnterLane(me, config->hStream, kPerThread, kind);
  if (lane == nullptr) {
    return LookedUp(config->hStream, kPerThread, kind, [&] { return real(config, function, parameters, extra); });
  }
  const CUresult result = real(config, function, parameters, extra);
  Tracker::Leave(*me, *lane, result);
  return result;
}

// One launch on several GPUs at once; it waits for the GPU of the current context.
inline CUresult LaunchMulti(decltype(&::cuLaunchCooperativeKernelMultiDevice) real, CUDA_LAUNCH_PARAMS* launches,
                            unsigned count, unsigned flags) {
  if (launches == nullptr || count == 0) return real(launches, count, flags);
  const CUDA_LAUNCH_PARAMS& first = launches[0];
  const LaunchKind kind{first.function,  first.gridDimX,  first.gridDimY, first.gridDimZ,
                        first.blockDimX, first.blockDimY, first.blockDimZ};
  return ThroughGate(first.hStream, false, CostKey(kind), nullptr, [&] { return real(launches, count, flags); });
}

// cuLaunch and cuLaunchGrid: on the legacy default stream; the block's shape is the function's state.
template <typename... Grid>
CUresult LaunchOld(CUresult (*real)(CUfunction, Grid...), CUfunction function, Grid... grid) {
  uint64_t shape = 1;
  ((shape = shape << 24 ^ static_cast<unsigned>(grid)), ...);
  return ThroughGate(nullptr, false, CostKey(function, shape, 0), nullptr, [&] { return real(function, grid...); });
}
inline CUresult LaunchOldAsync(decltype(&::cuLaunchGridAsync) real, CUfunction function, int width, int height,
                               CUstream stream) {
  const uint64_t shape = Shape(static_cast<unsigned>(width), static_cast<unsigned>(height), 1);
  return ThroughGate(stream, false, CostKey(function, shape, 0), nullptr,
                     [&] { return real(function, width, height, stream); });
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
    return ThroughGate(stream, kPerThread, CostKey(graph, 0, 0), nullptr, [&] { return real(graph, stream); });
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
