#include "emulator/cuda/executor.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {
namespace {

constexpr size_t kQueueLimit = 1024;  // items of a stream before its caller has to wait, as with a real driver
constexpr int kWorkerNiceness = 10;   // interpretation must not starve what is being measured
constexpr uint32_t kPosted = 1, kNever = 2;

std::atomic<uint64_t> g_threads{0};
thread_local uint64_t g_thread_number = 0;
thread_local bool g_in_host_function = false;

// The interpreter polls a volatile flag that says only "stop soon"; nothing is ordered by it.
__attribute__((no_sanitize("thread"), noinline)) void Set(volatile bool* flag) { *flag = true; }

// Reads of dropped content that the engine has not been told of.
uint64_t TakeUndefinedReads() {
  static std::atomic<uint64_t> told{0};
  Driver* driver = Driver::Get();
  if (driver == nullptr) return 0;
  const uint64_t now = driver->content().counters().undefined_reads;
  uint64_t before = told.load(std::memory_order_relaxed);
  while (before < now && !told.compare_exchange_weak(before, now, std::memory_order_relaxed)) continue;
  return before < now ? now - before : 0;
}

void Publish(Instant* instant, uint32_t state) {
  instant->posted.store(state, std::memory_order_release);
  instant->posted.notify_all();
}

}  // namespace

bool InHostFunction() { return g_in_host_function; }

void RunHostFunction(const std::function<void()>& function) {
  g_in_host_function = true;
  function();
  g_in_host_function = false;
}

std::thread StartQuietly(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

Result Executor::OpenStream(uint32_t flags, int priority, bool legacy, Stream** out) {
  std::unique_lock lock(mutex_);
  Stream* stream = nullptr;
  for (size_t i = 0; i < closed_.size(); ++i) {
    Stream* candidate = closed_[i];
    if (candidate->busy || candidate->enqueued != candidate->finished) continue;
    if (candidate->posted != 0 && !client_->Done(candidate->engine, candidate->posted)) continue;
    stream = candidate;
    closed_.erase(closed_.begin() + static_cast<long>(i));
    break;
  }
  if (stream == nullptr) {
    stream = new Stream;
    stream->context = context_;
    const Result result = client_->OpenStream(context_->engine, &stream->engine);
    if (result != Result::kOk) {
      delete stream;
      return result;
    }
  }
  stream->flags = flags;
  stream->priority = priority;
  stream->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  stream->legacy = legacy;
  stream->id = Driver::Get()->NextId();
  stream->open = true;
  stream->legacy_seen = 0;
  stream->attributes.clear();
  if (legacy) legacy_ = stream;
  streams_.push_back(stream);
  stream->kind.store(HandleKind::kStream, std::memory_order_release);
  *out = stream;
  return Result::kOk;
}

void Executor::CloseStream(Stream* stream) {
  std::lock_guard lock(mutex_);
  stream->kind.store(HandleKind::kDead, std::memory_order_release);
  stream->open = false;
  // It leaves the scheduling list only when its items are gone.
  if (stream->items.empty() && !stream->busy) {
    streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
    closed_.push_back(stream);
  }
}

Stream* Executor::PerThread() {
  if (g_thread_number == 0) g_thread_number = g_threads.fetch_add(1) + 1;
  {
    std::lock_guard lock(mutex_);
    auto it = per_thread_.find(g_thread_number);
    if (it != per_thread_.end()) return it->second;
  }
  Stream* stream = nullptr;
  if (OpenStream(0, 0, false, &stream) != Result::kOk) return nullptr;
  std::lock_guard lock(mutex_);
  per_thread_[g_thread_number] = stream;
  return stream;
}

// What the legacy default stream means: it waits for every blocking stream, and they wait for it.
void Executor::OrderWithLegacy(Stream* stream, Item* item) {
  if (!stream->blocking) return;
  if (!stream->legacy) {
    if (legacy_ == nullptr || legacy_->enqueued <= stream->legacy_seen) return;
    stream->legacy_seen = legacy_->enqueued;
    item->behind.emplace_back(legacy_, legacy_->enqueued);
    return;
  }
  for (Stream* other : streams_) {
    if (other == stream || !other->blocking) continue;
    uint64_t& seen = stream->seen[other];
    if (other->enqueued <= seen) continue;
    seen = other->enqueued;
    item->behind.emplace_back(other, other->enqueued);
  }
}

bool Executor::Ready(const Stream& stream) const {
  if (stream.busy || stream.items.empty()) return false;
  if (context_->sticky.load(std::memory_order_relaxed) != 0 || stop_) return true;  // to be dropped
  const Item& item = stream.items.front();
  for (const auto& [other, number] : item.behind) {
    if (other->finished < number) return false;
  }
  for (const auto& instant : item.after) {
    // An instant of another context is waited for by the worker itself.
    if (instant->context == context_ && instant->posted.load(std::memory_order_acquire) == 0) return false;
  }
  return !item.due || item.due();
}

CUresult Executor::Enqueue(Stream* stream, Item item) {
  std::unique_lock lock(mutex_);
  if (stream->items.size() >= kQueueLimit && !g_in_host_function) {
    progress_.wait(lock, [&] { return stream->items.size() < kQueueLimit || stop_ || context_->sticky != 0; });
  }
  if (stop_) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (CUresult error = context_->Error()) return error;
  OrderWithLegacy(stream, &item);
  item.ticket = ++next_ticket_;
  ++stream->enqueued;
  const bool light = item.light;
  bool foreign = false;
  for (const auto& instant : item.after) foreign |= instant->context != context_;
  stream->items.push_back(std::move(item));
  if (light && !foreign && stream->items.size() == 1 && Ready(*stream)) {
    Item now = std::move(stream->items.front());
    stream->items.pop_front();
    Run(stream, std::move(now), &lock);
    return CUDA_SUCCESS;
  }
  StartWorker();
  work_.notify_one();
  return CUDA_SUCCESS;
}

bool Executor::PostDirectly(Stream* stream, const Work& work) {
  std::unique_lock lock(mutex_);
  if (stop_ || stream->busy || !stream->items.empty() || context_->sticky.load(std::memory_order_relaxed) != 0)
    return false;
  Item item;
  OrderWithLegacy(stream, &item);
  for (const auto& [other, number] : item.behind) {
    if (other->finished >= number) continue;
    // Not yet: let the queue do it, with the order looked at afresh.
    for (const auto& [again, unused] : item.behind) {
      if (stream->legacy) {
        stream->seen[again] = 0;
      } else {
        stream->legacy_seen = 0;
      }
    }
    return false;
  }
  ++stream->enqueued;
  stream->busy = true;
  lock.unlock();
  for (const auto& [other, number] : item.behind) {
    Work wait;
    wait.kind = WorkKind::kWaitFor;
    wait.wait_stream = other->engine;
    wait.wait_sequence = other->posted;
    if (wait.wait_sequence != 0 && !client_->Done(wait.wait_stream, wait.wait_sequence)) Post(stream, wait);
  }
  Post(stream, work);
  lock.lock();
  Finish(stream);
  return true;
}

void Executor::Post(Stream* stream, const Work& work) {
  Work told = work;
  if (told.kind != WorkKind::kWaitFor) told.wait_sequence = TakeUndefinedReads();
  const uint64_t sequence = client_->Submit(stream->engine, told);
  if (sequence == 0) {
    context_->Fail(CUDA_ERROR_DEVICE_UNAVAILABLE, 0);
    return;
  }
  stream->posted = sequence;
}

void Executor::Finish(Stream* stream) {
  stream->busy = false;
  ++stream->finished;
  if (!stream->open && stream->items.empty()) {
    auto it = std::find(streams_.begin(), streams_.end(), stream);
    if (it != streams_.end()) {
      streams_.erase(it);
      closed_.push_back(stream);
    }
  }
  progress_.notify_all();
  work_.notify_one();
}

// Called with the lock, returns with it; the item is already out of the queue.
void Executor::Run(Stream* stream, Item item, std::unique_lock<std::mutex>* lock) {
  stream->busy = true;
  std::vector<std::pair<uint32_t, uint64_t>> waits;
  for (const auto& [other, number] : item.behind) {
    if (other->posted != 0) waits.emplace_back(other->engine, other->posted);
  }
  const bool drop = stop_ || context_->sticky.load(std::memory_order_relaxed) != 0;
  lock->unlock();
  bool failed = drop;
  if (!drop) {
    for (const auto& instant : item.after) {
      instant->posted.wait(0, std::memory_order_acquire);
      if (instant->posted.load(std::memory_order_acquire) != kPosted) continue;
      if (instant->context->device == context_->device) {
        waits.emplace_back(instant->engine_stream, instant->sequence);
      } else {
        client_->Wait(instant->engine_stream, instant->sequence);  // another GPU has another clock
      }
    }
    for (const auto& [engine, sequence] : waits) {
      if (client_->Done(engine, sequence)) continue;
      Work wait;
      wait.kind = WorkKind::kWaitFor;
      wait.wait_stream = engine;
      wait.wait_sequence = sequence;
      Post(stream, wait);
    }
    if (item.effect) {
      Work work;
      if (item.effect(&work)) Post(stream, work);
    }
    failed = context_->sticky.load(std::memory_order_relaxed) != 0;
    if (!failed && (item.records != nullptr || item.host)) Post(stream, Work{});
  }
  if (item.records != nullptr) {
    item.records->engine_stream = stream->engine;
    item.records->sequence = stream->posted;
    Publish(item.records.get(), failed ? kNever : kPosted);
  }
  item.effect = nullptr;  // lets go of what it holds before anybody is told
  lock->lock();
  if (item.host) {
    if (!host_worker_.joinable()) host_worker_ = StartQuietly([this] { HostWorker(); });
    host_calls_.push_back({stream, failed ? 0 : stream->posted.load(), std::move(item.host), item.host_even_on_error});
    host_work_.notify_one();
    return;  // the stream stays busy until the function has run
  }
  Finish(stream);
}

void Executor::StartWorker() {
  if (worker_.joinable()) return;
  worker_ = StartQuietly([this] { Worker(); });
}

void Executor::Worker() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kWorkerNiceness);
  std::unique_lock lock(mutex_);
  while (true) {
    Stream* next = nullptr;
    bool left = false, polling = false;
    for (Stream* stream : streams_) {
      left |= stream->busy || !stream->items.empty();
      polling |= !stream->busy && !stream->items.empty() && stream->items.front().due != nullptr;
      if (Ready(*stream) && (next == nullptr || stream->items.front().ticket < next->items.front().ticket))
        next = stream;
    }
    if (next == nullptr) {
      if (stop_ && !left) return;
      if (polling) {
        work_.wait_for(lock, kPollInterval);
      } else {
        work_.wait(lock);
      }
      continue;
    }
    Item item = std::move(next->items.front());
    next->items.pop_front();
    Run(next, std::move(item), &lock);
  }
}

void Executor::HostWorker() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (host_calls_.empty()) {
      if (host_stop_) return;
      host_work_.wait(lock);
      continue;
    }
    // The one that is due; while several streams have one outstanding, look at each in turn.
    auto due = host_calls_.end();
    for (auto it = host_calls_.begin(); it != host_calls_.end() && due == host_calls_.end(); ++it) {
      if (it->sequence == 0 || stop_ || context_->sticky != 0 || client_->Done(it->stream->engine, it->sequence))
        due = it;
    }
    if (due == host_calls_.end()) {
      const HostCall& oldest = host_calls_.front();
      const uint32_t engine = oldest.stream->engine;
      const uint64_t sequence = oldest.sequence;
      if (host_calls_.size() == 1 && streams_.size() == 1) {
        lock.unlock();
        context_->Explain(client_->Wait(engine, sequence));
        lock.lock();
      } else {
        host_work_.wait_for(lock, std::chrono::microseconds(100));
        uint32_t xid = 0;
        lock.unlock();
        context_->Explain(client_->ContextState(context_->engine, &xid));
        lock.lock();
      }
      continue;
    }
    HostCall call = std::move(*due);
    host_calls_.erase(due);
    CUresult status = context_->Error();
    if (status == CUDA_SUCCESS && stop_) status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    lock.unlock();
    if (status == CUDA_SUCCESS || call.even_on_error) {
      RunHostFunction([&] { call.function(status); });
    }
    call.function = nullptr;
    lock.lock();
    Finish(call.stream);
  }
}

CUresult Executor::Synchronize(Stream* stream) {
  std::unique_lock lock(mutex_);
  const uint64_t target = stream->enqueued;
  progress_.wait(lock, [&] { return stream->finished >= target || stop_ || context_->sticky != 0; });
  const uint64_t sequence = stream->posted;
  const bool stopped = stop_;
  lock.unlock();
  if (CUresult error = context_->Error()) return error;
  if (stopped) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (sequence == 0) return CUDA_SUCCESS;
  return context_->Explain(client_->Wait(stream->engine, sequence));
}

CUresult Executor::WaitForEffects(Stream* stream) {
  std::unique_lock lock(mutex_);
  const uint64_t target = stream->enqueued;
  progress_.wait(lock, [&] { return stream->finished >= target || stop_ || context_->sticky != 0; });
  return stop_ ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context_->Error();
}

CUresult Executor::SynchronizeAll() {
  std::vector<Stream*> all;
  {
    std::lock_guard lock(mutex_);
    all = streams_;
    all.insert(all.end(), closed_.begin(), closed_.end());
  }
  for (Stream* stream : all) {
    if (CUresult error = Synchronize(stream)) return error;
  }
  return context_->Error();
}

bool Executor::Idle(Stream* stream) {
  std::lock_guard lock(mutex_);
  return stream->enqueued == stream->finished && (stream->posted == 0 || client_->Done(stream->engine, stream->posted));
}

CUresult Executor::Query(Stream* stream) {
  const bool idle = Idle(stream);
  if (CUresult error = context_->Error()) return error;
  if (idle) return CUDA_SUCCESS;
  uint32_t xid = 0;
  if (CUresult error = context_->Explain(client_->ContextState(context_->engine, &xid))) return error;
  return CUDA_ERROR_NOT_READY;
}

CUresult Executor::WaitFor(const std::shared_ptr<Instant>& instant) {
  {
    std::unique_lock lock(mutex_);
    progress_.wait(lock, [&] { return instant->posted.load() != 0 || stop_ || context_->sticky != 0; });
  }
  if (instant->posted.load(std::memory_order_acquire) != kPosted) {
    const CUresult error = context_->Error();
    return error != CUDA_SUCCESS ? error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (CUresult error = context_->Explain(client_->Wait(instant->engine_stream, instant->sequence))) return error;
  return CUDA_SUCCESS;
}

bool Executor::Reached(const Instant& instant) const {
  return instant.posted.load(std::memory_order_acquire) == kPosted &&
         client_->Done(instant.engine_stream, instant.sequence);
}

void Executor::Wake() {
  std::lock_guard lock(mutex_);
  progress_.notify_all();
  work_.notify_all();
  host_work_.notify_all();
}

void Executor::Cancel() {
  Set(&cancelled_);
  std::lock_guard lock(mutex_);
  stop_ = true;
  progress_.notify_all();
  work_.notify_all();
  host_work_.notify_all();
}

void Executor::Stop() {
  Cancel();
  if (worker_.joinable()) worker_.join();
  // The host thread stays until the worker is gone: dropped items still have callbacks to make.
  {
    std::lock_guard lock(mutex_);
    host_stop_ = true;
    host_work_.notify_all();
  }
  if (host_worker_.joinable()) host_worker_.join();
}

}  // namespace mete::emulator::cuda
