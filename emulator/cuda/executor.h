// What a context has queued, and the order it happens in. Items run in stream order *functionally ahead of modelled
// time*: an item's effect first (memory changes, a kernel is interpreted), then its cost is posted to the engine's
// stream of the same name, so that the engine always has work back to back. Waiting means both: the effect is there and
// the engine has completed it.
//
// One worker thread per context, started by the first item that needs it, runs the effects; items without a costly
// effect run on the calling thread when their stream has nothing before them. A host function runs on a second thread
// when the engine has reached it, and holds only its own stream.
//
// Thread rule: any thread, one mutex per executor, never held over an effect or an engine call that can block.
// Ownership: streams belong to the executor and are recycled; a Stream* stays readable for the life of the process.
#ifndef METE_EMULATOR_CUDA_EXECUTOR_H_
#define METE_EMULATOR_CUDA_EXECUTOR_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "emulator/cuda/exports.h"
#include "emulator/cuda/handle.h"
#include "emulator/engine/client.h"

namespace mete::emulator::cuda {

struct Capture;
struct Context;
struct GraphNode;
struct Stream;

// One recording of an event, or any instant in a stream that others wait for.
struct Instant {
  Context* context = nullptr;
  std::atomic<uint32_t> posted{0};  // 1: stream and sequence are known; 2: never, its context failed
  uint32_t engine_stream = 0;
  uint64_t sequence = 0;
  std::atomic<uint64_t> time_ns{0};  // engine time, once observed
};

struct Item {
  // Runs on the worker or the caller. Fills `work` (preset to nothing); false: nothing to post.
  std::function<bool(Work* work)> effect;
  bool light = false;                                // may run on the calling thread
  std::shared_ptr<Instant> records;                  // posts a marker and publishes it
  std::vector<std::shared_ptr<Instant>> after;       // waits for these
  std::vector<std::pair<Stream*, uint64_t>> behind;  // waits for these streams' items up to that number
  // Waits until this says so: something outside the streams, a word of memory or another process. Asked again and again
  // with the executor locked, so it is quick and takes no lock of a call.
  std::function<bool()> due;
  std::function<void(CUresult status)> host;  // a host function
  bool host_even_on_error = false;
  uint64_t ticket = 0;
};

struct Stream : Handle {
  static constexpr HandleKind kKind = HandleKind::kStream;
  Stream() : Handle(kKind) {}
  Context* context = nullptr;
  uint64_t id = 0;
  uint32_t flags = 0;
  int priority = 0;
  bool blocking = true;  // orders itself with the legacy default stream
  bool legacy = false;
  uint32_t engine = 0;
  // Guarded by the executor's mutex.
  bool open = true;
  bool busy = false;  // an item is being run, or a host function is due
  uint64_t enqueued = 0, finished = 0;
  std::atomic<uint64_t> posted{0};             // last sequence at the engine
  uint64_t legacy_seen = 0;                    // items of the legacy stream this one already waits for
  std::unordered_map<Stream*, uint64_t> seen;  // the legacy stream's own: items of others it already waits for
  std::deque<Item> items;
  // Guarded by the mutex of graphs (graph.h); the flag may be read without it.
  std::atomic<bool> capturing{false};
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_tail;  // what the next captured operation depends on
  std::unordered_map<int, CUlaunchAttributeValue> attributes;
  std::vector<CUgraphNode> capture_view;  // the same, as it was last told to the program
};

class Executor {
 public:
  Executor(Context* context, Client* client) : context_(context), client_(client) {}

  // kOk or the engine's refusal.
  Result OpenStream(uint32_t flags, int priority, bool legacy, Stream** stream);
  void CloseStream(Stream* stream);
  Stream* legacy() { return legacy_; }
  // The calling thread's default stream; null if the engine refuses.
  Stream* PerThread();

  // Queues the item. Blocks while the stream has very many before it.
  CUresult Enqueue(Stream* stream, Item item);
  // A launch whose cost is known and whose effect is not executed: straight to the engine if the stream has nothing to
  // do before it. False: not possible, enqueue it.
  bool PostDirectly(Stream* stream, const Work& work);

  CUresult Synchronize(Stream* stream);
  CUresult SynchronizeAll();
  // Only until the effects of what is queued are there; the engine may be far behind.
  CUresult WaitForEffects(Stream* stream);
  CUresult Query(Stream* stream);  // 0 or 600
  bool Idle(Stream* stream);
  CUresult WaitFor(const std::shared_ptr<Instant>& instant);
  bool Reached(const Instant& instant) const;

  // From here on nothing that is queued starts any more, and a kernel that is being interpreted is abandoned.
  void Cancel();
  // Ends the worker and drops what is queued. The context is dead afterwards.
  void Stop();
  // A sticky error came up: wakes everybody.
  void Wake();
  const volatile bool* cancelled() const { return &cancelled_; }

 private:
  bool Ready(const Stream& stream) const;
  void OrderWithLegacy(Stream* stream, Item* item);
  void Run(Stream* stream, Item item, std::unique_lock<std::mutex>* lock);
  void Post(Stream* stream, const Work& work);
  void Finish(Stream* stream);
  void Worker();
  void HostWorker();
  void StartWorker();

  Context* const context_;
  Client* const client_;
  std::mutex mutex_;
  std::condition_variable work_, progress_, host_work_;
  std::vector<Stream*> streams_;  // open ones
  std::vector<Stream*> closed_;   // to be recycled once drained
  Stream* legacy_ = nullptr;
  std::unordered_map<uint64_t, Stream*> per_thread_;  // thread number → stream
  uint64_t next_ticket_ = 0;
  bool stop_ = false, host_stop_ = false;
  volatile bool cancelled_ = false;
  std::thread worker_, host_worker_;
  struct HostCall {
    Stream* stream;
    uint64_t sequence;
    std::function<void(CUresult)> function;
    bool even_on_error;
  };
  std::deque<HostCall> host_calls_;
};

// How often something is looked at that no stream of ours will tell of.
constexpr std::chrono::microseconds kPollInterval{200};

// True on a thread that is inside a program's host function, where calls into the driver are not permitted.
bool InHostFunction();
// Calls one on this thread.
void RunHostFunction(const std::function<void()>& function);

// A thread that takes no signal meant for the program.
std::thread StartQuietly(std::function<void()> body);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_EXECUTOR_H_
