// One thread's event loop over epoll: descriptors with a callback each, and a repeating tick. Callbacks may add and
// remove any descriptor, their own included. Owns nothing but its epoll descriptor; not thread-safe but for Wake().
#ifndef METE_SHARE_LOOP_H_
#define METE_SHARE_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/status.h"
#include "share/process.h"

namespace mete::share {

class Loop {
 public:
  using Callback = std::function<void(uint32_t events)>;

  static StatusOr<std::unique_ptr<Loop>> Make();

  // `fd` stays the caller's and must be removed before it is closed. `events` as for epoll.
  Status Add(int fd, uint32_t events, Callback callback);
  void Change(int fd, uint32_t events);
  void Remove(int fd);

  // Waits for at most `timeout_ms` (-1: for ever) and runs what is ready.
  void RunOnce(int timeout_ms);
  // Ends a RunOnce early; from any thread, and from a signal handler.
  void Wake() const;

 private:
  Loop() = default;
  struct Entry {
    uint32_t serial;
    std::shared_ptr<Callback> callback;
  };
  Fd epoll_, wake_;
  uint32_t next_serial_ = 1;
  std::unordered_map<int, Entry> entries_;
};

}  // namespace mete::share

#endif  // METE_SHARE_LOOP_H_
