#include "emulator/engine/client.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "emulator/engine/socket_client.h"

namespace mete::emulator {

namespace {

constexpr uint64_t kLookNs = 20'000'000;  // a waiting thread looks this often whether the engine still lives
constexpr int kHelloFds = 3;              // session page, node page, doorbell

// Sequences of one stream stay far below 2^32 between two uses of a marker slot.
uint64_t MarkerKey(uint32_t stream, uint64_t sequence) {
  return static_cast<uint64_t>(stream) << 32 | static_cast<uint32_t>(sequence);
}

}  // namespace

SocketClient::~SocketClient() {
  if (page_ != nullptr) munmap(page_, sizeof(SessionPage));
  if (node_ != nullptr) munmap(const_cast<NodePage*>(node_), sizeof(NodePage));
  if (owner_ != nullptr) munmap(const_cast<uint8_t*>(owner_), 1);
  if (socket_ >= 0) close(socket_);
  if (doorbell_ >= 0) close(doorbell_);
}

bool SocketClient::Open(const char* node_root, std::string* why) {
  const std::string root = node_root;
  socket_ = ConnectToEngine(root + "/run");
  if (socket_ < 0) {
    *why = "the emulated node at '" + root + "' does not answer (run/engine.sock: " + std::strerror(errno) +
           "); start it with 'mete emulate up', or 'mete emulate up --dir' and its folder";
    return false;
  }
  void* owner = mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (owner == MAP_FAILED) {
    *why = std::string("no memory for the connection to the emulated node: ") + std::strerror(errno);
    return false;
  }
  owner_ = static_cast<uint8_t*>(owner);
  if (madvise(owner, 1, MADV_WIPEONFORK) != 0) {
    *why = "this kernel cannot wipe a page on fork (MADV_WIPEONFORK, Linux 4.14 or newer is needed)";
    return false;
  }
  *static_cast<uint8_t*>(owner) = 1;
  buffer_.resize(kMaxReplyBytes);

  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kHello);
  ReplyHeader reply = {};
  std::string payload;
  int fds[kHelloFds] = {-1, -1, -1};
  const Result result = Call(request, &reply, &payload, fds);
  doorbell_ = fds[2];
  if (result == Result::kOk && fds[0] >= 0 && fds[1] >= 0) {
    void* page = mmap(nullptr, sizeof(SessionPage), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    if (page != MAP_FAILED) page_ = static_cast<SessionPage*>(page);
    void* node = mmap(nullptr, sizeof(NodePage), PROT_READ, MAP_SHARED, fds[1], 0);
    if (node != MAP_FAILED) node_ = static_cast<const NodePage*>(node);
  }
  for (int i = 0; i < 2; ++i) {
    if (fds[i] >= 0) close(fds[i]);
  }
  if (result != Result::kOk || page_ == nullptr || node_ == nullptr || !TakeHello(reply, payload)) {
    *why = "the engine of the emulated node at '" + root +
           "' and this library do not understand each other; bring the node down and up again "
           "('mete emulate down', 'mete emulate up')";
    return false;
  }
  return true;
}

bool SocketClient::TakeHello(const ReplyHeader& reply, const std::string& payload) {
  if (reply.count > kMaxGpus || payload.size() != sizeof(HelloInfo) + size_t{reply.count} * sizeof(GpuInfo))
    return false;
  HelloInfo hello;
  std::memcpy(&hello, payload.data(), sizeof(hello));
  driver_version_.assign(hello.driver_version, strnlen(hello.driver_version, sizeof(hello.driver_version)));
  cuda_version_ = hello.cuda_version;
  backing_bytes_ = hello.backing_bytes;
  unscrubbed_ = hello.unscrubbed != 0;
  gpus_.resize(reply.count);
  std::memcpy(static_cast<void*>(gpus_.data()), payload.data() + sizeof(hello), reply.count * sizeof(GpuInfo));
  next_.assign(kMaxStreams, 1);
  return true;
}

bool SocketClient::LookWhetherLost() const {
  if (Lost()) return true;
  pollfd look = {socket_, POLLRDHUP, 0};
  const bool gone = poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
  if (gone || node_->ended.load(std::memory_order_relaxed) != 0) lost_.store(true, std::memory_order_relaxed);
  return lost_.load(std::memory_order_relaxed);
}

Result SocketClient::Call(Request& request, ReplyHeader* reply, std::string* payload, int* fds, int sent) {
  if (Lost()) return Result::kLost;
  request.magic = kProtocolMagic;
  request.version = kProtocolVersion;
  request.bytes = sizeof(Request);
  const std::lock_guard<std::mutex> lock(calls_);
  iovec request_part = {&request, sizeof(request)};
  alignas(cmsghdr) char sent_control[CMSG_SPACE(sizeof(int))] = {};
  msghdr request_message = {};
  request_message.msg_iov = &request_part;
  request_message.msg_iovlen = 1;
  if (sent >= 0) {
    request_message.msg_control = sent_control;
    request_message.msg_controllen = sizeof(sent_control);
    cmsghdr* c = CMSG_FIRSTHDR(&request_message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &sent, sizeof(int));
  }
  ssize_t n;
  do n = sendmsg(socket_, &request_message, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  if (n == sizeof(request)) {
    iovec part = {buffer_.data(), buffer_.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(kHelloFds * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fds != nullptr) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
    }
    do n = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (fds != nullptr && n > 0) {
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(kHelloFds * sizeof(int)))
          std::memcpy(fds, CMSG_DATA(c), kHelloFds * sizeof(int));
      }
    }
  }
  size_t payload_bytes = 0;
  if (n <= 0 || !DecodeReply(buffer_.data(), static_cast<size_t>(n), reply, &payload_bytes) ||
      reply->type != request.type) {
    // A half-understood stream of replies cannot be continued.
    lost_.store(true, std::memory_order_relaxed);
    return Result::kLost;
  }
  if (payload != nullptr) payload->assign(buffer_.data() + sizeof(ReplyHeader), payload_bytes);
  return static_cast<Result>(reply->result);
}

// --- Streams -------------------------------------------------------------------------------------------------------

Result SocketClient::OpenStream(uint64_t context, uint32_t* stream) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kOpenStream);
  request.context = context;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result != Result::kOk) return result;
  *stream = static_cast<uint32_t>(reply.a);
  if (StreamSlot(*stream) >= kMaxStreams) return Result::kNoSuchObject;
  const std::lock_guard<std::mutex> lock(submissions_);
  next_[StreamSlot(*stream)] = 1;
  return result;
}

void SocketClient::RingDoorbell() const {
  const uint64_t one = 1;
  if (write(doorbell_, &one, sizeof(one)) != sizeof(one)) return;  // full: it rings already
}

uint64_t SocketClient::Submit(uint32_t stream, const Work& work) {
  const uint32_t slot = StreamSlot(stream);
  if (slot >= kMaxStreams) return 0;
  for (;;) {
    if (Lost()) return 0;
    uint64_t head;
    {
      const std::lock_guard<std::mutex> lock(submissions_);
      const uint64_t tail = page_->tail.load(std::memory_order_relaxed);
      head = page_->head.load(std::memory_order_acquire);
      if (tail - head < kRingEntries) {
        const uint64_t sequence = next_[slot]++;
        uint32_t marker = kNoMarker;
        if (work.kind == WorkKind::kMarker) {
          const std::lock_guard<std::mutex> markers(markers_);
          if (marker_keys_.empty()) marker_keys_.assign(kMarkerSlots, 0);
          marker = next_marker_++ % kMarkerSlots;
          if (marker_keys_[marker] != 0) marker_slots_.erase(marker_keys_[marker]);
          marker_keys_[marker] = MarkerKey(stream, sequence);
          marker_slots_[marker_keys_[marker]] = marker;
          page_->marker_time[marker].store(0, std::memory_order_relaxed);
        }
        page_->ring[tail % kRingEntries] = {MonotonicNs(), stream, marker, work};
        page_->tail.store(tail + 1, std::memory_order_release);
        // The engine says that it sleeps before it looks at the rings for the last time; here it is the other way
        // round.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        // A stream with work under way wakes the engine by itself, and what waits behind it is found then.
        const bool begins = page_->streams[slot].done.load(std::memory_order_relaxed) + 1 >= sequence;
        const bool half_full = tail - head >= kRingEntries / 2;
        if ((begins || half_full) && node_->sleeping.load(std::memory_order_relaxed) != 0) RingDoorbell();
        return sequence;
      }
    }
    RingDoorbell();
    page_->head_waiters.fetch_add(1);
    FutexWait(page_->head, head, kLookNs);
    page_->head_waiters.fetch_sub(1);
    LookWhetherLost();
  }
}

bool SocketClient::Done(uint32_t stream, uint64_t sequence) const {
  if (!Ours() || StreamSlot(stream) >= kMaxStreams) return false;
  const StreamEntry& entry = page_->streams[StreamSlot(stream)];
  // A slot is used again only when its stream was closed and had finished.
  if (entry.id.load(std::memory_order_acquire) != stream) return true;
  return entry.done.load(std::memory_order_acquire) >= sequence;
}

Result SocketClient::Wait(uint32_t stream, uint64_t sequence) {
  if (StreamSlot(stream) >= kMaxStreams) return Result::kNoSuchObject;
  if (!Ours()) return Result::kLost;
  StreamEntry& entry = page_->streams[StreamSlot(stream)];
  for (bool first = true;; first = false) {
    const uint64_t done = entry.done.load(std::memory_order_acquire);
    if (Done(stream, sequence)) return Result::kOk;
    const uint32_t context = entry.context_slot.load(std::memory_order_relaxed) % kMaxContexts;
    switch (static_cast<ContextWord>(page_->contexts[context].state.load(std::memory_order_acquire))) {
      case ContextWord::kAlive: break;
      case ContextWord::kDeviceLost: return Result::kDeviceLost;
      default: return Result::kContextDead;
    }
    if (!first && LookWhetherLost()) return Result::kLost;
    entry.waiters.fetch_add(1);
    FutexWait(entry.done, done, kLookNs);
    entry.waiters.fetch_sub(1);
  }
}

uint64_t SocketClient::MarkerTime(uint32_t stream, uint64_t sequence) const {
  if (!Ours() || !Done(stream, sequence)) return 0;
  const std::lock_guard<std::mutex> lock(markers_);
  const auto found = marker_slots_.find(MarkerKey(stream, sequence));
  return found == marker_slots_.end() ? 0 : page_->marker_time[found->second].load(std::memory_order_relaxed);
}

Result SocketClient::ContextState(uint64_t context, uint32_t* xid) const {
  if (Lost()) return Result::kLost;
  if (node_->ended.load(std::memory_order_relaxed) != 0) return Result::kLost;
  const ContextEntry& entry = page_->contexts[ContextSlot(context)];
  if (entry.id.load(std::memory_order_acquire) != context) return Result::kNoSuchObject;
  const auto state = static_cast<ContextWord>(entry.state.load(std::memory_order_acquire));
  if (xid != nullptr) *xid = entry.xid.load(std::memory_order_relaxed);
  if (state == ContextWord::kAlive) return Result::kOk;
  return state == ContextWord::kDeviceLost ? Result::kDeviceLost : Result::kContextDead;
}

uint32_t SocketClient::ContextError(uint64_t context) const {
  if (!Ours()) return 0;
  const ContextEntry& entry = page_->contexts[ContextSlot(context)];
  if (entry.id.load(std::memory_order_acquire) != context) return 0;
  return entry.error.load(std::memory_order_relaxed);
}

bool Client::Connect(const char* node_root, Client** client, std::string* why) {
  auto connected = std::make_unique<SocketClient>();
  if (!connected->Open(node_root, why)) return false;
  *client = connected.release();
  return true;
}

std::string NodeRootOf(const void* address_in_library) {
  Dl_info info = {};
  if (dladdr(address_in_library, &info) == 0 || info.dli_fname == nullptr) return {};
  char* real = realpath(info.dli_fname, nullptr);
  if (real == nullptr) return {};
  std::string path = real;
  free(real);
  for (size_t slash = path.rfind('/'); slash != std::string::npos; slash = path.rfind('/')) {
    path.resize(slash);
    struct stat found = {};
    if (stat((path + "/run/engine.json").c_str(), &found) == 0) return path.empty() ? "/" : path;
  }
  return {};
}

}  // namespace mete::emulator
