#include "interceptor/biased_lock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <mutex>
#include <new>

namespace mete::interceptor {

thread_local constinit __attribute__((tls_model("initial-exec"))) ThreadRecord* own_record = nullptr;
constinit std::atomic<uint64_t> lane_generation{1};

namespace {

// ---- records

constinit SpinLock records_lock;
constinit ThreadRecord* unused_records = nullptr;
constinit pthread_once_t key_once = PTHREAD_ONCE_INIT;
constinit bool have_key = false;
pthread_key_t record_key;

void ThreadEnds(void* record) {
  auto* mine = static_cast<ThreadRecord*>(record);
  own_record = nullptr;
  mine->generation = 0;
  std::lock_guard lock(records_lock);
  mine->next = unused_records;
  unused_records = mine;
}

void MakeKey() { have_key = pthread_key_create(&record_key, ThreadEnds) == 0; }

// ---- the barrier

enum : uint32_t { kUnknown, kThere, kMissing };
constinit std::atomic<uint32_t> membarrier_state{kUnknown};

bool Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

// Whether locks may be biased at all. Registers at the first question.
bool HaveMembarrier() {
  uint32_t state = membarrier_state.load(std::memory_order_relaxed);
  if (state == kUnknown) {
    state = Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) ? kThere : kMissing;
    membarrier_state.store(state, std::memory_order_relaxed);
  }
  return state == kThere;
}

void Pause(long ns) {
  const timespec pause{0, ns};
  nanosleep(&pause, nullptr);
}

void BarrierInEveryThread() {
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) || Membarrier(MEMBARRIER_CMD_GLOBAL)) return;
  // A filter that the program installed after we registered. No processor holds a store back for milliseconds.
  membarrier_state.store(kMissing, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  constexpr long kLongNs = 20'000'000;
  Pause(kLongNs);
}

}  // namespace

ThreadRecord* OwnRecord() {
  if (own_record != nullptr) return own_record;
  pthread_once(&key_once, MakeKey);
  if (!have_key) return nullptr;
  ThreadRecord* record = nullptr;
  {
    std::lock_guard lock(records_lock);
    record = unused_records;
    if (record != nullptr) unused_records = record->next;
  }
  if (record == nullptr) record = new (std::nothrow) ThreadRecord;
  if (record == nullptr) return nullptr;
  if (pthread_setspecific(record_key, record) != 0) {  // nobody would hand it on
    std::lock_guard lock(records_lock);
    record->next = unused_records;
    unused_records = record;
    return nullptr;
  }
  own_record = record;
  return record;
}

bool BiasedLock::Expel(bool wait) {
  ThreadRecord* const owner = owner_.load(std::memory_order_relaxed);
  if (owner == nullptr) return true;
  if (owner == own_record) {  // inside another lock of its own, or it would have come in by TryOwn
    owner_.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  if (!wait && owner->inside.load(std::memory_order_relaxed) == this) return false;
  owner_.store(nullptr, std::memory_order_relaxed);
  BarrierInEveryThread();
  constexpr uint32_t kSpins = 100;
  for (uint32_t tries = 0; owner->inside.load(std::memory_order_acquire) == this; ++tries) {
    if (!wait) {
      owner_.store(owner, std::memory_order_release);
      return false;
    }
    if (tries < kSpins) {
      ledger::internal::Relax();
    } else {
      constexpr long kShortNs = 50'000;
      Pause(kShortNs);
    }
  }
  return true;
}

void BiasedLock::LockSlowly() {
  ThreadRecord* const me = own_record;
  slow_.lock();
  if (Biased()) {
    Expel(true);
    if (candidate_ != me) needed_ = needed_ < kLongestStreak ? 2 * needed_ : kLongestStreak;
  }
  if (candidate_ != me) {
    candidate_ = me;
    streak_ = 0;
  }
  if (++streak_ < needed_ || me == nullptr || me->inside.load(std::memory_order_relaxed) != nullptr ||
      !HaveMembarrier()) {
    return;
  }
  me->inside.store(this, std::memory_order_release);
  owner_.store(me, std::memory_order_release);
  slow_.unlock();
}

bool BiasedLock::try_lock() {
  if (TryOwn(own_record)) return true;
  if (Biased() || !slow_.try_lock()) return false;
  if (!Biased()) return true;
  slow_.unlock();
  return false;
}

bool BiasedLock::TryTakeOver() {
  if (!slow_.try_lock()) return false;
  if (!Biased()) return true;
  if (!Expel(false)) {
    slow_.unlock();
    return false;
  }
  streak_ = 0;
  if (needed_ < kLookedAtStreak) needed_ = kLookedAtStreak;
  return true;
}

void BiasedLock::ForgetInChild() {
  new (&records_lock) SpinLock;
  unused_records = nullptr;  // the parent's other threads are not here; what they had is left
  membarrier_state.store(kUnknown, std::memory_order_relaxed);
  if (own_record != nullptr) {
    own_record->inside.store(nullptr, std::memory_order_relaxed);
    own_record->generation = 0;
  }
}

}  // namespace mete::interceptor
