// A lock that costs the thread which mostly uses it no locked instruction: it is biased to that thread, its owner,
// whose way in is a store and a load and whose way out is a store. Any other thread takes the bias away first, which
// costs it a system call (membarrier), so whoever only wants to look asks WorthTaking() before.
//
// Why it excludes. `owner_` names the owner, or nobody; only the holder of `slow_` changes it. The owner enters by
// (1) inside = this, (2) owner_ == me? and backs out if not. Another thread enters by (a) taking slow_, (b) owner_ =
// nobody, (c) membarrier, (d) waiting until the former owner's `inside` is not this lock.
//   - membarrier makes every thread of the process pass a full barrier between the beginning and the end of (c). If the
//     owner's (2) comes before its barrier, so does (1), and (d) sees it and waits. If (2) comes after it, it sees (b).
//   - Leaving stores `inside` with release and (d) loads it with acquire, so what the owner did is seen.
//   - Becoming the owner happens with slow_ held and `inside` already set: whoever takes slow_ next finds the lock
//     biased and comes to (d).
//   - `inside` belongs to a record that one live thread has at a time and that is never freed, so a name in owner_ is
//     always good to look at; a thread that takes over the record of a thread that ended is the owner of its locks.
// Two threads that take turns would pay (c) again and again: a thread becomes the owner after some turns in a row, and
// the number doubles each time another one comes between.
//
// Where the kernel has no membarrier, nobody becomes the owner and it is an ordinary SpinLock. Not recursive, not fair;
// any thread of one process. A forked child makes its own locks (ForgetInChild).
#ifndef METE_INTERCEPTOR_BIASED_LOCK_H_
#define METE_INTERCEPTOR_BIASED_LOCK_H_

#include <atomic>
#include <cstdint>

#include "interceptor/spin_lock.h"

namespace mete::interceptor {

// What a thread has of its own, beside the few bytes that thread-local storage has room for. Made at its first use,
// handed on when the thread ends, never freed.
struct ThreadRecord;

class BiasedLock {
 public:
  void lock();
  // Does not take the bias of another thread away.
  bool try_lock();
  void unlock();

  // The owner's way in; false: it is not the calling thread's (whose record, or null, `me` is). Then unlock() or
  // LeaveOwn().
  bool TryOwn(ThreadRecord* me);
  void LeaveOwn(ThreadRecord& me);

  // For a thread that only looks in: false when another thread is inside, or looks in.
  bool TryTakeOver();
  // Whether taking over would need the system call, because the lock is some thread's.
  bool Biased() const { return owner_.load(std::memory_order_relaxed) != nullptr; }

  // In the child of a fork: the parent's registration and lists are not ours.
  static void ForgetInChild();

 private:
  static constexpr uint32_t kFirstStreak = 4, kLookedAtStreak = 16, kLongestStreak = 1024;

  void LockSlowly();
  bool Expel(bool wait);  // with slow_: takes the bias away; false: its owner is inside, and stays the owner

  std::atomic<ThreadRecord*> owner_{nullptr};
  SpinLock slow_;
  // With slow_: who had it last, how often in a row, and how often it must have it to become the owner.
  ThreadRecord* candidate_ = nullptr;
  uint32_t streak_ = 0, needed_ = kFirstStreak;
};

}  // namespace mete::interceptor

#include "interceptor/thread_record.h"

namespace mete::interceptor {

inline bool BiasedLock::TryOwn(ThreadRecord* me) {
  if (me == nullptr || me->inside.load(std::memory_order_relaxed) != nullptr) return false;
  me->inside.store(this, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (owner_.load(std::memory_order_acquire) == me) return true;
  me->inside.store(nullptr, std::memory_order_release);
  return false;
}

inline void BiasedLock::lock() {
  if (!TryOwn(own_record)) LockSlowly();
}

inline void BiasedLock::LeaveOwn(ThreadRecord& me) { me.inside.store(nullptr, std::memory_order_release); }

inline void BiasedLock::unlock() {
  ThreadRecord* me = own_record;
  if (me != nullptr && me->inside.load(std::memory_order_relaxed) == this) return LeaveOwn(*me);
  slow_.unlock();
}

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_BIASED_LOCK_H_
