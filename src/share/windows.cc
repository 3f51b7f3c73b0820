#include "share/windows.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/pages.h"

namespace mete::share {
namespace {

constexpr uint64_t kHeartbeatNs = 20'000'000;
constexpr uint64_t kLeastHandOverNs = 20'000;
constexpr uint64_t kMostHandOverNs = 2'000'000;

void Drain(int fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof(count));
}

}  // namespace

StatusOr<std::unique_ptr<Windows>> Windows::Start() {
  std::unique_ptr<Windows> windows(new Windows());
  windows->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  windows->kick_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  windows->timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!windows->epoll_.valid() || !windows->kick_.valid() || !windows->timer_.valid()) {
    return Lacks("cannot start the arbiter: {}", std::strerror(errno));
  }
  for (const int fd : {windows->kick_.get(), windows->timer_.get()}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(windows->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Lacks("cannot start the arbiter: {}", std::strerror(errno));
    }
  }
  windows->thread_ = std::thread([raw = windows.get()] { raw->Run(); });
  return windows;
}

Windows::~Windows() {
  stop_.store(true);
  Kick();
  if (thread_.joinable()) thread_.join();
}

Status Windows::Add(const Member& member) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    epoll_event event = {};
    // Edge-triggered: every ring is one event here even when another GPU's thread, which has the same share, reads the
    // count first.
    event.events = EPOLLIN | EPOLLET;
    event.data.fd = member.doorbell;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, member.doorbell, &event) != 0) {
      return Lacks("cannot watch a share's doorbell: {}", std::strerror(errno));
    }
    members_.push_back(member);
  }
  Kick();
  return OkStatus();
}

void Windows::Remove(ledger::ShareKey key) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found =
        std::find_if(members_.begin(), members_.end(), [key](const Member& member) { return member.key == key; });
    if (found == members_.end()) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->doorbell, nullptr);
    members_.erase(found);
  }
  Kick();
}

void Windows::Kick() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(kick_.get(), &one, sizeof(one));
}

uint64_t Windows::Step(uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (members_.empty()) return UINT64_MAX;
  std::vector<ledger::ShareState> states;
  states.reserve(members_.size());
  for (const Member& member : members_) {
    member.limits->heartbeat_ns.store(now_ns, std::memory_order_release);
    states.push_back(ledger::Observe(member.key, *member.limits, *member.ledger, member.gpu, now_ns));
  }
  const ledger::Turn turn = arbiter_.Step(now_ns, states, hand_over_ns());
  for (const ledger::Window& window : turn.windows) {
    for (const Member& member : members_) {
      if (member.key != window.key) continue;
      if (ledger::PublishWindow(*member.limits, member.gpu, window.until_ns)) {
        ledger::FutexWake(member.limits->gpu[member.gpu].window_sequence, INT_MAX);
      }
    }
  }
  return std::min(turn.wake_at_ns, now_ns + kHeartbeatNs);
}

// A slow mean that lateness raises quickly: a hand-over planned too short wastes the GPU, one too long only overlaps.
void Windows::NoteLateness(uint64_t late_ns) {
  const uint64_t old = hand_over_ns();
  const uint64_t next = late_ns > old ? old + (late_ns - old) / 4 : old - (old - late_ns) / 16;
  hand_over_ns_.store(std::clamp(next, kLeastHandOverNs, kMostHandOverNs), std::memory_order_relaxed);
}

void Windows::Run() {
  prctl(PR_SET_NAME, "mete-windows");
  prctl(PR_SET_TIMERSLACK, 1);
  uint64_t wake_at = UINT64_MAX;
  while (!stop_.load()) {
    std::array<epoll_event, 16> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), -1);
    if (count < 0 && errno != EINTR) return;
    const uint64_t now = ledger::MonotonicNs();
    for (int i = 0; i < count; ++i) {
      const int fd = ready[static_cast<size_t>(i)].data.fd;
      if (fd == timer_.get() && wake_at != UINT64_MAX && now >= wake_at) NoteLateness(now - wake_at);
      // Doorbells are edge-triggered and need not be read; their numbers may by now belong to something else.
      if (fd == timer_.get() || fd == kick_.get()) Drain(fd);
    }
    wake_at = Step(now);
    itimerspec at = {};
    if (wake_at != UINT64_MAX) {
      // An instant that is already past must still fire; zero would disarm the timer.
      const uint64_t ns = std::max<uint64_t>(wake_at, 1);
      at.it_value.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
      at.it_value.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    }
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
  }
}

}  // namespace mete::share
