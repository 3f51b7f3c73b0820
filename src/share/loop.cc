#include "share/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace mete::share {
namespace {

// A closed descriptor's number is reused at once: the serial tells an old event from the new owner's.
uint64_t Tag(int fd, uint32_t serial) { return uint64_t{serial} << 32 | static_cast<uint32_t>(fd); }

}  // namespace

StatusOr<std::unique_ptr<Loop>> Loop::Make() {
  std::unique_ptr<Loop> loop(new Loop());
  loop->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->epoll_.valid() || !loop->wake_.valid()) {
    return Lacks("cannot make an event loop: {}", std::strerror(errno));
  }
  const int wake = loop->wake_.get();
  METE_RETURN_IF_ERROR(loop->Add(wake, EPOLLIN, [wake](uint32_t) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake, &count, sizeof(count));
  }));
  return loop;
}

Status Loop::Add(int fd, uint32_t events, Callback callback) {
  const uint32_t serial = next_serial_++;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = Tag(fd, serial);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Lacks("cannot watch a descriptor: {}", std::strerror(errno));
  }
  entries_[fd] = {serial, std::make_shared<Callback>(std::move(callback))};
  return OkStatus();
}

void Loop::Change(int fd, uint32_t events) {
  const auto found = entries_.find(fd);
  if (found == entries_.end()) return;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = Tag(fd, found->second.serial);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::Remove(int fd) {
  if (entries_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Loop::RunOnce(int timeout_ms) {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = static_cast<int>(ready[static_cast<size_t>(i)].data.u64 & 0xffffffffu);
    const auto serial = static_cast<uint32_t>(ready[static_cast<size_t>(i)].data.u64 >> 32);
    const auto found = entries_.find(fd);
    if (found == entries_.end() || found->second.serial != serial) continue;
    const std::shared_ptr<Callback> callback = found->second.callback;  // it may remove itself
    (*callback)(ready[static_cast<size_t>(i)].events);
  }
}

void Loop::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));
}

}  // namespace mete::share
