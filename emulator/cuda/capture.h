// Stream capture: while it is on, what is put into a stream becomes a node of a graph and is not executed. A capture
// begins in one stream and spreads to others that wait for an event recorded under it.
// Thread rule: any thread; GraphMutex guards captures and graphs. Nothing is paid for it while no stream captures.
#ifndef METE_EMULATOR_CUDA_CAPTURE_H_
#define METE_EMULATOR_CUDA_CAPTURE_H_

#include <memory>
#include <vector>

#include "emulator/cuda/operation.h"

namespace mete::emulator::cuda {

struct Graph;
struct GraphNode;

struct Capture {
  uint64_t id = 0;
  Graph* graph = nullptr;
  bool own_graph = true;  // else the program gave one to capture into
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  // where it began
  Stream* origin = nullptr;
  std::vector<Stream*> streams;  // all that take part
  bool invalid = false;
  bool ended = false;
};

// Where in a capture an event was recorded.
struct CapturedInstant {
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> nodes;
};

extern std::atomic<int> g_captures;  // that are going on in this process
inline bool CapturesActive() { return g_captures.load(std::memory_order_acquire) != 0; }

// Before an operation is queued: makes it a node if the stream captures, refuses what capture forbids.
CUresult CaptureOperation(Stream* stream, const Operation& operation, bool* captured);
template <typename Make>
CUresult CaptureInstead(Stream* stream, bool* captured, Make make) {
  *captured = false;
  return CapturesActive() ? CaptureOperation(stream, make(), captured) : CUDA_SUCCESS;
}

// For calls that wait for, or ask about, a stream or a context (null stream: all of the context's).
CUresult RefuseWhileCapturing(Context* context, Stream* stream);
// For calls that a capture in this thread's mode does not allow anywhere: allocations and frees outside stream order.
CUresult RefuseUnsafe();

// Events. *handled: it was a matter of capture alone.
CUresult CaptureRecord(Event* event, Stream* stream, bool external, bool* handled);
CUresult CaptureWait(Event* event, Stream* stream, bool external, bool* handled);

// A stream is destroyed or its context ends.
void AbandonCapture(Stream* stream);
void AbandonCaptures(Context* context);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_CAPTURE_H_
