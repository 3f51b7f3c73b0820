#include "emulator/engine/server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <vector>

#include "base/log.h"
#include "emulator/engine/export_lock.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace mete::emulator {

namespace {

constexpr size_t kMostClients = 1024;
constexpr uint64_t kWantedNs = 2'000'000'000;  // how often still_wanted is asked
// Events closer together than this are replayed in one go, each at its own instant: what it costs is that a client
// notices a completion this much later, what it saves is a processor.
constexpr uint64_t kNapNs = 50'000;
constexpr int kPriority = -10;  // a late engine is a late node; only works for root

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

enum class Source : uint64_t { kListen, kSignal, kSocket, kDeath, kDoorbell };
uint64_t Tag(Source source, uint64_t id) { return static_cast<uint64_t>(source) << 56 | id; }

struct Connection {
  Fd socket, pidfd, doorbell, memory;
  SessionPage* page = nullptr;
  bool greeted = false;
  ~Connection() {
    if (page != nullptr) munmap(page, sizeof(SessionPage));
  }
};

// A page of shared memory that nobody can shrink under us.
Fd SharedMemory(const char* name, size_t bytes, void** mapped) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  *mapped = nullptr;
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return Fd();
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED) return Fd();
  *mapped = page;
  return fd;
}

std::string ProgramOf(uint32_t pid) {
  char path[PATH_MAX];
  const ssize_t n = readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path, sizeof(path) - 1);
  if (n > 0) return std::string(path, static_cast<size_t>(n));
  const Fd comm(open(("/proc/" + std::to_string(pid) + "/comm").c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = comm.get() < 0 ? -1 : read(comm.get(), path, sizeof(path));
  return got > 0 ? std::string(path, static_cast<size_t>(got - 1)) : "unknown";
}

class EpollServer final : public Server {
 public:
  EpollServer(EngineSettings settings, int listen_fd, std::function<bool()> still_wanted)
      : engine_(std::move(settings), MonotonicNs()), listen_(listen_fd), still_wanted_(std::move(still_wanted)) {}
  ~EpollServer() override {
    connections_.clear();
    if (node_ != nullptr) munmap(node_, sizeof(NodePage));
  }
  Status Prepare();
  Status Run() override;

 private:
  void Watch(int fd, Source source, uint64_t id) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = Tag(source, id);
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  void Accept();
  void Serve(uint64_t id);
  void Drop(uint64_t id);
  bool Reply(Connection& connection, const std::vector<uint8_t>& bytes);
  int Sleep(epoll_event* events, int most);

  Engine engine_;
  Fd listen_, epoll_, signals_, node_memory_;
  NodePage* node_ = nullptr;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::function<bool()> still_wanted_;
  uint64_t asked_ns_ = 0;
  bool stopping_ = false;
};

Status EpollServer::Prepare() {
  prctl(PR_SET_TIMERSLACK, 1000UL);
  setpriority(PRIO_PROCESS, 0, kPriority);
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  void* page = nullptr;
  node_memory_ = SharedMemory("mete-node", sizeof(NodePage), &page);
  if (page == nullptr) return Lacks("no shared memory for the engine: {}", std::strerror(errno));
  node_ = static_cast<NodePage*>(page);
  node_->magic = kProtocolMagic;
  node_->version = kProtocolVersion;
  // The mapping above stays writable, later ones cannot be.
  if (fcntl(node_memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return Lacks("this kernel cannot seal shared memory against writing (Linux 5.1 or newer is needed): {}",
                 std::strerror(errno));
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signals_ = Fd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (signals_.get() < 0 || epoll_.get() < 0)
    return Lacks("the engine cannot wait for events: {}", std::strerror(errno));
  Watch(listen_.get(), Source::kListen, 0);
  Watch(signals_.get(), Source::kSignal, 0);
  return OkStatus();
}

void EpollServer::Accept() {
  for (;;) {
    auto connection = std::make_unique<Connection>();
    connection->socket = Fd(accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int fd = connection->socket.get();
    if (fd < 0) return;
    ucred credentials = {};
    socklen_t size = sizeof(credentials);
    if (connections_.size() >= kMostClients || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
      continue;
    }
    int pidfd = -1;
    size = sizeof(pidfd);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0) {
      pidfd = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0));
    }
    connection->pidfd = Fd(pidfd);
    // Dead already, or of a pid name space that this kernel cannot look into: its deaths could not be seen.
    if (pidfd < 0) continue;
    connection->doorbell = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    void* page = nullptr;
    connection->memory = SharedMemory("mete-session", sizeof(SessionPage), &page);
    connection->page = static_cast<SessionPage*>(page);
    if (page == nullptr || connection->doorbell.get() < 0 ||
        fcntl(connection->memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      log::Warn("client turned away pid={} why={}", credentials.pid, std::strerror(errno));
      continue;
    }
    const uint64_t id = engine_.AddSession(connection->page, {static_cast<uint32_t>(credentials.pid), credentials.uid,
                                                              ProgramOf(static_cast<uint32_t>(credentials.pid))});
    Watch(fd, Source::kSocket, id);
    Watch(pidfd, Source::kDeath, id);
    Watch(connection->doorbell.get(), Source::kDoorbell, id);
    connections_.emplace(id, std::move(connection));
  }
}

bool EpollServer::Reply(Connection& connection, const std::vector<uint8_t>& bytes) {
  iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const int fds[3] = {connection.memory.get(), node_memory_.get(), connection.doorbell.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  ReplyHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.type == static_cast<uint32_t>(MessageType::kHello) && !connection.greeted) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    std::memcpy(CMSG_DATA(c), fds, sizeof(fds));
    connection.greeted = true;
  }
  // One that does not read its replies is not waited for.
  const ssize_t sent = sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (connection.greeted) connection.memory = Fd();
  return sent == static_cast<ssize_t>(bytes.size());
}

void EpollServer::Serve(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  uint8_t buffer[sizeof(Request)];
  iovec part = {buffer, sizeof(buffer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(found->second->socket.get(), &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  int sent = -1;
  const cmsghdr* c = size < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (c != nullptr && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
    std::memcpy(&sent, CMSG_DATA(c), sizeof(int));
  PhysicalMemory::StillOpen exported;
  if (sent >= 0) exported = [file = std::make_shared<Fd>(sent)] { return HasExported(file->get()); };
  std::vector<uint8_t> reply;
  Engine::Handled handled = Engine::Handled::kHangUp;
  if (size == sizeof(buffer)) {
    handled = engine_.Handle(id, buffer, static_cast<size_t>(size), MonotonicNs(), &reply, std::move(exported));
  }
  if (handled == Engine::Handled::kHangUp || !Reply(*found->second, reply)) Drop(id);
  if (handled == Engine::Handled::kStop) stopping_ = true;
}

void EpollServer::Drop(uint64_t id) {
  if (connections_.find(id) == connections_.end()) return;
  engine_.RemoveSession(id, MonotonicNs());
  connections_.erase(id);
}

int EpollServer::Sleep(epoll_event* events, int most) {
  const uint64_t now = MonotonicNs();
  uint64_t wait = kWantedNs;
  if (const auto next = engine_.NextEventNs()) wait = *next > now ? *next - now : 0;
  wait = std::clamp(wait, kNapNs, kWantedNs);
  node_->sleeping.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (engine_.RingsPending()) wait = 0;
  const timespec timeout = {static_cast<time_t>(wait / 1'000'000'000), static_cast<long>(wait % 1'000'000'000)};
  int n = epoll_pwait2(epoll_.get(), events, most, &timeout, nullptr);
  if (n < 0 && errno == ENOSYS) n = epoll_wait(epoll_.get(), events, most, static_cast<int>(wait / 1'000'000));
  node_->sleeping.store(0, std::memory_order_seq_cst);
  return n;
}

Status EpollServer::Run() {
  epoll_event events[64];
  while (!stopping_) {
    const int n = Sleep(events, 64);
    if (n < 0 && errno != EINTR) return Fault("the engine cannot wait for events: {}", std::strerror(errno));
    engine_.AdvanceTo(MonotonicNs());
    for (int i = 0; i < n; ++i) {
      const uint64_t id = events[i].data.u64 & ((uint64_t{1} << 56) - 1);
      switch (static_cast<Source>(events[i].data.u64 >> 56)) {
        case Source::kListen: Accept(); break;
        case Source::kSignal: stopping_ = true; break;
        case Source::kSocket: Serve(id); break;
        case Source::kDeath: Drop(id); break;
        case Source::kDoorbell: {
          uint64_t rings;
          const auto found = connections_.find(id);
          if (found != connections_.end() && read(found->second->doorbell.get(), &rings, sizeof(rings)) < 0) continue;
          break;
        }
      }
    }
    for (const uint64_t id : engine_.TakeBroken()) {
      log::Warn("client dropped, its ring is scribbled over or the driver was restarted session={}", id);
      Drop(id);
    }
    if (engine_.EventCount() != node_->events.load(std::memory_order_relaxed)) {
      node_->events.store(engine_.EventCount(), std::memory_order_seq_cst);
      FutexWakeAll(node_->events);
    }
    if (const uint64_t now = MonotonicNs(); now - asked_ns_ >= kWantedNs) {
      asked_ns_ = now;
      if (!still_wanted_()) stopping_ = true;
    }
  }
  node_->ended.store(1, std::memory_order_seq_cst);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::Make(EngineSettings settings, int listen_fd,
                                               std::function<bool()> still_wanted) {
  auto server = std::make_unique<EpollServer>(std::move(settings), listen_fd, std::move(still_wanted));
  METE_RETURN_IF_ERROR(server->Prepare());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace mete::emulator
