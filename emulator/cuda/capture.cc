#include "emulator/cuda/capture.h"

#include <algorithm>
#include <set>

#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/graph.h"
#include "emulator/cuda/list.h"

namespace mete::emulator::cuda {

std::atomic<int> g_captures{0};

namespace {

std::atomic<uint64_t> g_next_thread{0};
thread_local uint64_t g_thread = 0;
thread_local CUstreamCaptureMode g_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

uint64_t ThisThread() {
  if (g_thread == 0) g_thread = g_next_thread.fetch_add(1) + 1;
  return g_thread;
}

// All that go on; guarded by GraphMutex.
std::vector<std::shared_ptr<Capture>>& Captures() {
  static auto* captures = new std::vector<std::shared_ptr<Capture>>;
  return *captures;
}

void Leave(Stream* stream) {
  stream->capturing.store(false, std::memory_order_release);
  stream->capture = nullptr;
  stream->capture_tail.clear();
}

void Join(Stream* stream, const std::shared_ptr<Capture>& capture, std::vector<GraphNode*> tail) {
  stream->capture = capture;
  stream->capture_tail = std::move(tail);
  capture->streams.push_back(stream);
  stream->capturing.store(true, std::memory_order_release);
}

// Takes the capture out of its streams; the graph stays.
void End(const std::shared_ptr<Capture>& capture) {
  for (Stream* stream : capture->streams) {
    if (stream->capture == capture) Leave(stream);
  }
  capture->ended = true;
  capture->graph->capturing = false;
  std::erase(Captures(), capture);
  g_captures.fetch_sub(1, std::memory_order_release);
}

CUresult Invalidate(Capture& capture, CUresult why) {
  capture.invalid = true;
  return why;
}

// Whether every stream that took part leads to where the origin stands.
bool Joined(const Capture& capture) {
  std::set<const GraphNode*> reached;
  std::vector<GraphNode*> open = capture.origin->capture_tail;
  while (!open.empty()) {
    GraphNode* node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    open.insert(open.end(), node->after.begin(), node->after.end());
  }
  for (const Stream* stream : capture.streams) {
    if (stream->capture.get() != &capture) continue;
    for (const GraphNode* node : stream->capture_tail) {
      if (!reached.contains(node)) return false;
    }
  }
  return true;
}

// With GraphMutex held: what a legacy default stream may not do beside captures of blocking streams.
CUresult CheckImplicit(Stream* stream) {
  if (!stream->legacy) return CUDA_SUCCESS;
  for (const auto& capture : Captures()) {
    for (const Stream* other : capture->streams) {
      if (other->context == stream->context && other->blocking && other->capture == capture)
        return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  return CUDA_SUCCESS;
}

CUresult FindStream(CUstream handle, Stream** stream) {
  if (reinterpret_cast<uintptr_t>(handle) > 2) {
    Driver* driver = nullptr;
    if (CUresult error = Initialized(&driver)) return error;
    *stream = FromHandle<Stream>(handle);
    return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  return ResolveStream(context, handle, stream);
}

CUresult NodesOf(Graph* graph, const CUgraphNode* handles, size_t count, std::vector<GraphNode*>* nodes) {
  if (!IsList(handles, count)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    auto* node = FromHandle<GraphNode>(handles[i]);
    if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    if (std::find(nodes->begin(), nodes->end(), node) == nodes->end()) nodes->push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult Begin(CUstream handle, Graph* graph, std::vector<GraphNode*> tail, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  if (CUresult error = FindStream(handle, &stream)) return error;
  if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr || (graph != nullptr && graph->capturing)) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = Driver::Get()->NextId();
  capture->own_graph = graph == nullptr;
  capture->graph = graph == nullptr ? NewGraph() : graph;
  capture->graph->capturing = true;
  capture->mode = mode;
  capture->thread = ThisThread();
  capture->origin = stream;
  Captures().push_back(capture);
  g_captures.fetch_add(1, std::memory_order_release);
  Join(stream, capture, std::move(tail));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CaptureOperation(Stream* stream, const Operation& operation, bool* captured) {
  std::lock_guard lock(GraphMutex());
  if (stream->capture == nullptr) return CheckImplicit(stream);
  Capture& capture = *stream->capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Operation own = operation;
  if (auto* child = std::get_if<ChildOperation>(&own)) child->graph = CloneGraph(*child->graph);
  stream->capture_tail = {AddNode(capture.graph, std::move(own), stream->capture_tail)};
  *captured = true;
  return CUDA_SUCCESS;
}

CUresult RefuseWhileCapturing(Context* context, Stream* stream) {
  if (!CapturesActive()) return CUDA_SUCCESS;
  std::lock_guard lock(GraphMutex());
  if (stream != nullptr) {
    if (stream->capture == nullptr) return CheckImplicit(stream);
    return Invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  for (const auto& capture : Captures()) {
    for (const Stream* other : capture->streams) {
      if (other->context == context && other->capture == capture)
        return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return CUDA_SUCCESS;
}

CUresult RefuseUnsafe() {
  if (!CapturesActive() || g_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard lock(GraphMutex());
  for (const auto& capture : Captures()) {
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool everywhere = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && g_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (everywhere || capture->thread == ThisThread())
      return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return CUDA_SUCCESS;
}

CUresult CaptureRecord(Event* event, Stream* stream, bool external, bool* handled) {
  *handled = false;
  if (external) {
    if (!stream->capturing.load()) return CUDA_ERROR_ILLEGAL_STATE;
    return CaptureOperation(stream, RecordOperation{event}, handled);
  }
  if (!CapturesActive()) return CUDA_SUCCESS;
  std::lock_guard lock(GraphMutex());
  if (stream->capture == nullptr) return CheckImplicit(stream);
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto captured = std::make_shared<CapturedInstant>();
  captured->capture = stream->capture;
  captured->nodes = stream->capture_tail;
  std::lock_guard event_lock(event->mutex);
  event->latest = nullptr;
  event->captured = std::move(captured);
  *handled = true;
  return CUDA_SUCCESS;
}

CUresult CaptureWait(Event* event, Stream* stream, bool external, bool* handled) {
  *handled = false;
  if (external) {
    if (!stream->capturing.load()) return CUDA_ERROR_ILLEGAL_STATE;
    return CaptureOperation(stream, WaitOperation{event}, handled);
  }
  std::shared_ptr<CapturedInstant> instant;
  {
    std::lock_guard lock(event->mutex);
    instant = event->captured;
  }
  if (instant == nullptr && !CapturesActive()) return CUDA_SUCCESS;
  std::lock_guard lock(GraphMutex());
  if (instant == nullptr) {
    if (stream->capture == nullptr) return CheckImplicit(stream);
    if (event->Latest() == nullptr) {
      *handled = true;  // never recorded: nothing to wait for
      return CUDA_SUCCESS;
    }
    return Invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  const std::shared_ptr<Capture>& capture = instant->capture;
  if (capture->ended) return CUDA_ERROR_INVALID_VALUE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *handled = true;
  if (stream->legacy) return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream->capture == nullptr) {
    Join(stream, capture, instant->nodes);
    return CUDA_SUCCESS;
  }
  if (stream->capture != capture) {
    Invalidate(*stream->capture, CUDA_SUCCESS);
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  for (GraphNode* node : instant->nodes) {
    auto& tail = stream->capture_tail;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

void AbandonCapture(Stream* stream) {
  if (!stream->capturing.load()) return;
  std::lock_guard lock(GraphMutex());
  if (stream->capture == nullptr) return;
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->invalid = true;
  if (capture->origin != stream) {
    Leave(stream);
    std::erase(capture->streams, stream);
    return;
  }
  End(capture);
  if (capture->own_graph) DestroyGraph(capture->graph);
}

void AbandonCaptures(Context* context) {
  while (CapturesActive()) {
    Stream* found = nullptr;
    {
      std::lock_guard lock(GraphMutex());
      for (const auto& capture : Captures()) {
        for (Stream* stream : capture->streams) {
          if (stream->context == context && stream->capture == capture) found = stream;
        }
      }
    }
    if (found == nullptr) return;
    AbandonCapture(found);
  }
}

CUresult api::cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  std::lock_guard lock(GraphMutex());
  return Begin(stream, nullptr, {}, mode);
}

CUresult api::cuStreamBeginCapture(CUstream stream) {
  return api::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult api::cuStreamBeginCaptureToGraph(CUstream stream, CUgraph handle, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  if (CUresult error = FindGraph(handle, &graph)) return error;
  std::vector<GraphNode*> tail;
  if (CUresult error = NodesOf(graph, dependencies, count, &tail)) return error;
  return Begin(stream, graph, std::move(tail), mode);
}

CUresult api::cuStreamEndCapture(CUstream handle, CUgraph* out) {
  std::lock_guard lock(GraphMutex());
  Stream* stream = nullptr;
  if (CUresult error = FindStream(handle, &stream)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThisThread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  *out = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (capture->invalid) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!Joined(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  End(capture);
  if (result == CUDA_SUCCESS) {
    *out = ToHandle<CUgraph>(capture->graph);
  } else if (capture->own_graph) {
    DestroyGraph(capture->graph);
  }
  return result;
}

namespace {

CUresult Info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  std::lock_guard lock(GraphMutex());
  Stream* stream = nullptr;
  if (CUresult error = FindStream(handle, &stream)) return error;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture == nullptr) {
    if (CUresult error = CheckImplicit(stream)) return error;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  const Capture& capture = *stream->capture;
  *status = capture.invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr) *id = capture.id;
  if (capture.invalid) return CUDA_SUCCESS;
  if (graph != nullptr) *graph = ToHandle<CUgraph>(capture.graph);
  std::vector<CUgraphNode>& handles = stream->capture_view;
  handles.clear();
  for (GraphNode* node : stream->capture_tail) handles.push_back(ToHandle<CUgraphNode>(node));
  if (dependencies != nullptr) *dependencies = handles.data();
  if (edges != nullptr) *edges = nullptr;  // all are plain ones
  if (count != nullptr) *count = handles.size();
  return CUDA_SUCCESS;
}

CUresult Update(CUstream handle, CUgraphNode* dependencies, size_t count, unsigned int flags) {
  std::lock_guard lock(GraphMutex());
  Stream* stream = nullptr;
  if (CUresult error = FindStream(handle, &stream)) return error;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphNode*> tail;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) tail = stream->capture_tail;
  if (CUresult error = NodesOf(stream->capture->graph, dependencies, count, &tail)) return error;
  stream->capture_tail = std::move(tail);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return Info(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult api::cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return Info(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult api::cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, size_t* count) {
  return Info(handle, status, id, graph, dependencies, nullptr, count);
}

CUresult api::cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                                        size_t* count) {
  return Info(handle, status, id, graph, dependencies, edges, count);
}

CUresult api::cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count,
                                                unsigned int flags) {
  return Update(stream, dependencies, count, flags);
}

CUresult api::cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies,
                                                   const CUgraphEdgeData* edges, size_t count, unsigned int flags) {
  if (edges != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // only plain edges are
  return Update(stream, dependencies, count, flags);
}

CUresult api::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (mode == nullptr || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(g_mode, *mode);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
