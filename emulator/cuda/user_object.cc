// User objects: something of the program's that lives as long as somebody holds it, graphs above all. When the last
// reference goes its destructor runs once, on a thread of our own, where calls into the driver are not permitted.
#include <condition_variable>
#include <deque>
#include <thread>

#include "api.h"
#include "emulator/cuda/graph.h"

namespace mete::emulator::cuda {

struct UserObject : Handle {
  static constexpr HandleKind kKind = HandleKind::kUserObject;
  UserObject() : Handle(kKind) {}
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  unsigned int references = 0;  // guarded by GraphMutex
};

namespace {

struct Undertaker {
  std::mutex mutex;
  std::condition_variable work;
  std::deque<std::pair<CUhostFn, void*>> queue;
  bool started = false;
};

void RunLater(CUhostFn function, void* data) {
  static auto* undertaker = new Undertaker;
  std::lock_guard lock(undertaker->mutex);
  undertaker->queue.emplace_back(function, data);
  undertaker->work.notify_one();
  if (undertaker->started) return;
  undertaker->started = true;
  StartQuietly([] {
    std::unique_lock own(undertaker->mutex);
    while (true) {
      undertaker->work.wait(own, [] { return !undertaker->queue.empty(); });
      const auto [call, argument] = undertaker->queue.front();
      undertaker->queue.pop_front();
      own.unlock();
      RunHostFunction([call, argument] { call(argument); });
      own.lock();
    }
  }).detach();
}

CUresult Find(CUuserObject handle, UserObject** object) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  *object = FromHandle<UserObject>(handle);
  return *object == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

void RetainObject(UserObject* object, unsigned int count) { object->references += count; }

void ReleaseObject(UserObject* object, unsigned int count) {
  object->references -= std::min(count, object->references);
  if (object->references != 0) return;
  RunLater(object->destroy, object->data);
  Shells<UserObject>::Get().Give(object);
}

CUresult api::cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned int references,
                                 unsigned int flags) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  if (out == nullptr || destroy == nullptr || references == 0 || references > 0x7fffffff ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  UserObject* object = Shells<UserObject>::Get().Take();
  object->data = data;
  object->destroy = destroy;
  object->references = references;
  object->kind.store(HandleKind::kUserObject, std::memory_order_release);
  *out = ToHandle<CUuserObject>(object);
  return CUDA_SUCCESS;
}

CUresult api::cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  std::lock_guard lock(GraphMutex());
  UserObject* object = nullptr;
  if (CUresult error = Find(handle, &object)) return error;
  if (count == 0 || count > 0x7fffffff - object->references) return CUDA_ERROR_INVALID_VALUE;
  RetainObject(object, count);
  return CUDA_SUCCESS;
}

CUresult api::cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  std::lock_guard lock(GraphMutex());
  UserObject* object = nullptr;
  if (CUresult error = Find(handle, &object)) return error;
  if (count == 0 || count > object->references) return CUDA_ERROR_INVALID_VALUE;
  ReleaseObject(object, count);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                      unsigned int flags) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  UserObject* object = nullptr;
  if (CUresult error = FindGraph(graph_handle, &graph)) return error;
  if (CUresult error = Find(handle, &object)) return error;
  if (count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  const bool move = flags == CU_GRAPH_USER_OBJECT_MOVE;
  if (move ? count > object->references : count > 0x7fffffff - object->references) return CUDA_ERROR_INVALID_VALUE;
  if (!move) RetainObject(object, count);
  graph->objects[object] += count;
  return CUDA_SUCCESS;
}

CUresult api::cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
  std::lock_guard lock(GraphMutex());
  Graph* graph = nullptr;
  UserObject* object = nullptr;
  if (CUresult error = FindGraph(graph_handle, &graph)) return error;
  if (CUresult error = Find(handle, &object)) return error;
  auto it = graph->objects.find(object);
  if (count == 0 || it == graph->objects.end() || it->second < count) return CUDA_ERROR_INVALID_VALUE;
  it->second -= count;
  if (it->second == 0) graph->objects.erase(it);
  ReleaseObject(object, count);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
