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
#include <mutex>
#include <unordered_map>

#include "emulator/engine/protocol.h"

namespace mete::emulator {

namespace {

constexpr uint64_t kLookNs = 20'000'000;  // a waiting thread looks this often whether the engine still lives
constexpr int kHelloFds = 3;              // session page, node page, doorbell

class SocketClient final : public Client {
 public:
  SocketClient() = default;
  ~SocketClient() override;
  bool Open(const char* node_root, std::string* why);

  const std::vector<GpuInfo>& Gpus() const override { return gpus_; }
  const std::string& DriverVersion() const override { return driver_version_; }
  uint32_t CudaVersion() const override { return cuda_version_; }
  uint64_t BackingBytes() const override { return backing_bytes_; }

  Result CreateContext(uint32_t gpu, uint64_t* context) override;
  Result DestroyContext(uint64_t context) override { return Simple(MessageType::kDestroyContext, context, 0, 0); }
  Result FailContext(uint64_t context, uint32_t xid) override {
    return Simple(MessageType::kFailContext, context, 0, xid);
  }
  Result ReserveMemory(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReserveMemory, context, bytes, 0);
  }
  Result ReturnMemory(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReturnMemory, context, bytes, 0);
  }
  Result ReserveManaged(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReserveManaged, context, bytes, 0);
  }
  Result ReturnManaged(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReturnManaged, context, bytes, 0);
  }
  Result SetLimits(uint32_t gpu, const std::string& group, uint64_t soft, uint64_t hard) override;
  Result GetLimits(uint32_t gpu, const std::string& group, uint64_t* soft, uint64_t* hard, uint64_t* current) override;
  Result MakePhysical(uint64_t context, uint64_t bytes, uint64_t* name) override {
    return Named(MessageType::kMakePhysical, context, bytes, name);
  }
  Result SharePhysical(uint64_t context, uint64_t bytes, uint64_t* name) override {
    return Named(MessageType::kSharePhysical, context, bytes, name);
  }
  Result HoldPhysical(uint64_t name) override { return Simple(MessageType::kHoldPhysical, 0, name, 0); }
  Result DropPhysical(uint64_t name) override { return Simple(MessageType::kDropPhysical, 0, name, 0); }
  Result ExportPhysical(uint64_t name, int descriptor) override;
  Result MemoryInfo(uint32_t gpu, uint64_t* free_bytes, uint64_t* total_bytes) override;
  void LeaveWord(uint32_t gpu, uint32_t word) override {
    if (unscrubbed_) OfGpu(MessageType::kLeaveWord, gpu, word, 0);
  }
  uint32_t FoundWord(uint32_t gpu) override;
  bool TakeBacking(uint64_t bytes) override { return Simple(MessageType::kTakeBacking, 0, bytes, 0) == Result::kOk; }
  void GiveBacking(uint64_t bytes) override { Simple(MessageType::kGiveBacking, 0, bytes, 0); }
  void CountUnsupportedCall(const char* symbol) override;

  Result OpenStream(uint64_t context, uint32_t* stream) override;
  Result CloseStream(uint32_t stream) override { return Simple(MessageType::kCloseStream, 0, 0, stream); }
  uint64_t Submit(uint32_t stream, const Work& work) override;
  bool Done(uint32_t stream, uint64_t sequence) const override;
  Result Wait(uint32_t stream, uint64_t sequence) override;
  uint64_t MarkerTime(uint32_t stream, uint64_t sequence) const override;
  Result ContextState(uint64_t context, uint32_t* xid) const override;
  uint64_t EngineTime(uint32_t) const override { return MonotonicNs(); }

  Result State(uint32_t gpu, GpuState* state) override;
  Result Processes(uint32_t gpu, std::vector<ProcessInfo>* processes) override;
  Result SetComputeMode(uint32_t gpu, uint32_t mode) override {
    return OfGpu(MessageType::kSetComputeMode, gpu, mode, 0);
  }
  Result SetTimeSliceClass(uint32_t gpu, uint32_t time_slice_class) override {
    return OfGpu(MessageType::kSetTimeSlice, gpu, time_slice_class, 0);
  }
  Result Set(uint32_t gpu, GpuSetting setting, uint64_t value) override {
    return OfGpu(MessageType::kSet, gpu, static_cast<uint32_t>(setting), value);
  }
  Result Accounting(uint32_t gpu, std::vector<AccountingRecord>* records) override {
    return List(MessageType::kAccounting, gpu, 0, records);
  }
  Result ResetGpu(uint32_t gpu) override { return OfGpu(MessageType::kResetGpu, gpu, 0, 0); }
  uint32_t ContextError(uint64_t context) const override;
  Result Events(uint64_t after, std::vector<EventInfo>* events) override {
    return List(MessageType::kEvents, 0, after, events);
  }
  uint64_t EventCount() const override { return Ours() ? node_->events.load(std::memory_order_acquire) : 0; }
  void AwaitEvent(uint64_t seen, uint64_t timeout_ns) const override {
    if (Ours()) FutexWait(node_->events, seen, timeout_ns);
  }
  Result InjectFault(const FaultSpec& fault, uint64_t* id) override;
  Result ClearFaults(uint32_t gpu, uint64_t id) override { return OfGpu(MessageType::kClearFaults, gpu, 0, id); }
  Result Faults(std::vector<FaultInfo>* faults) override { return List(MessageType::kFaults, 0, 0, faults); }

 private:
  // A fork wipes the page, so that the child knows that this connection is its parent's.
  bool Ours() const { return owner_ != nullptr && *owner_ == 1; }
  bool Lost() const { return !Ours() || lost_.load(std::memory_order_relaxed); }
  // Asks the kernel whether the engine's end of the socket still stands.
  bool LookWhetherLost() const;
  // fds: places for kHelloFds that come with the reply. sent: goes with the request; -1: none.
  Result Call(Request& request, ReplyHeader* reply, std::string* payload, int* fds = nullptr, int sent = -1);
  Result Named(MessageType type, uint64_t context, uint64_t bytes, uint64_t* name);
  Result Simple(MessageType type, uint64_t context, uint64_t amount, uint32_t value);
  Result OfGpu(MessageType type, uint32_t gpu, uint32_t value, uint64_t amount);
  template <typename T>
  Result List(MessageType type, uint32_t gpu, uint64_t amount, std::vector<T>* list);
  void RingDoorbell() const;

  int socket_ = -1, doorbell_ = -1;
  const volatile uint8_t* owner_ = nullptr;
  SessionPage* page_ = nullptr;
  const NodePage* node_ = nullptr;
  mutable std::atomic<bool> lost_{false};
  std::mutex calls_;            // one request at a time on the socket
  std::string buffer_;          // of the reply; under calls_
  std::mutex submissions_;      // the ring has one writer
  std::vector<uint64_t> next_;  // next sequence by stream slot; under submissions_
  mutable std::mutex markers_;
  std::unordered_map<uint64_t, uint32_t> marker_slots_;  // stream and sequence → slot
  std::vector<uint64_t> marker_keys_;                    // by slot; 0: unused
  uint32_t next_marker_ = 0;

  std::vector<GpuInfo> gpus_;
  std::string driver_version_;
  uint32_t cuda_version_ = 0;
  uint64_t backing_bytes_ = 0;
  bool unscrubbed_ = false;
};

// Sequences of one stream stay far below 2^32 between two uses of a marker slot.
uint64_t MarkerKey(uint32_t stream, uint64_t sequence) {
  return static_cast<uint64_t>(stream) << 32 | static_cast<uint32_t>(sequence);
}

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
  const size_t expected = sizeof(HelloInfo) + size_t{reply.count} * sizeof(GpuInfo);
  if (result != Result::kOk || page_ == nullptr || node_ == nullptr || reply.count > kMaxGpus ||
      payload.size() != expected) {
    *why = "the engine of the emulated node at '" + root +
           "' and this library do not understand each other; bring the node down and up again "
           "('mete emulate down', 'mete emulate up')";
    return false;
  }
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

Result SocketClient::Simple(MessageType type, uint64_t context, uint64_t amount, uint32_t value) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.context = context;
  request.amount = amount;
  request.value = value;
  ReplyHeader reply;
  return Call(request, &reply, nullptr);
}

Result SocketClient::Named(MessageType type, uint64_t context, uint64_t bytes, uint64_t* name) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.context = context;
  request.amount = bytes;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *name = reply.a;
  return result;
}

Result SocketClient::ExportPhysical(uint64_t name, int descriptor) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kExportPhysical);
  request.amount = name;
  ReplyHeader reply;
  return Call(request, &reply, nullptr, nullptr, descriptor);
}

Result SocketClient::SetLimits(uint32_t gpu, const std::string& group, uint64_t soft, uint64_t hard) {
  Request request = {};
  if (group.size() >= sizeof(request.text)) return Result::kInvalid;
  request.type = static_cast<uint32_t>(MessageType::kSetLimits);
  request.gpu = gpu;
  request.context = soft;
  request.amount = hard;
  std::memcpy(request.text, group.data(), group.size());
  ReplyHeader reply;
  return Call(request, &reply, nullptr);
}

Result SocketClient::GetLimits(uint32_t gpu, const std::string& group, uint64_t* soft, uint64_t* hard,
                               uint64_t* current) {
  Request request = {};
  if (group.size() >= sizeof(request.text)) return Result::kInvalid;
  request.type = static_cast<uint32_t>(MessageType::kGetLimits);
  request.gpu = gpu;
  std::memcpy(request.text, group.data(), group.size());
  ReplyHeader reply;
  std::string payload;
  const Result result = Call(request, &reply, &payload);
  if (result != Result::kOk) return result;
  if (payload.size() != sizeof(*current)) return Result::kLost;
  *hard = reply.a;
  *soft = reply.b;
  std::memcpy(current, payload.data(), sizeof(*current));
  return result;
}

Result SocketClient::OfGpu(MessageType type, uint32_t gpu, uint32_t value, uint64_t amount) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.gpu = gpu;
  request.value = value;
  request.amount = amount;
  ReplyHeader reply;
  return Call(request, &reply, nullptr);
}

template <typename T>
Result SocketClient::List(MessageType type, uint32_t gpu, uint64_t amount, std::vector<T>* list) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.gpu = gpu;
  request.amount = amount;
  ReplyHeader reply;
  std::string payload;
  const Result result = Call(request, &reply, &payload);
  if (result != Result::kOk) return result;
  list->resize(payload.size() / sizeof(T));
  std::memcpy(static_cast<void*>(list->data()), payload.data(), list->size() * sizeof(T));
  return result;
}

Result SocketClient::CreateContext(uint32_t gpu, uint64_t* context) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kCreateContext);
  request.gpu = gpu;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *context = reply.a;
  return result;
}

Result SocketClient::MemoryInfo(uint32_t gpu, uint64_t* free_bytes, uint64_t* total_bytes) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kMemoryInfo);
  request.gpu = gpu;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) {
    *free_bytes = reply.a;
    *total_bytes = reply.b;
  }
  return result;
}

void SocketClient::CountUnsupportedCall(const char* symbol) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kCountUnsupported);
  std::memcpy(request.text, symbol, std::min(std::strlen(symbol), sizeof(request.text)));
  ReplyHeader reply;
  Call(request, &reply, nullptr);
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

uint32_t SocketClient::FoundWord(uint32_t gpu) {
  if (!unscrubbed_) return 0;
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kFoundWord);
  request.gpu = gpu;
  ReplyHeader reply;
  return Call(request, &reply, nullptr) == Result::kOk ? static_cast<uint32_t>(reply.a) : 0;
}

uint32_t SocketClient::ContextError(uint64_t context) const {
  if (!Ours()) return 0;
  const ContextEntry& entry = page_->contexts[ContextSlot(context)];
  if (entry.id.load(std::memory_order_acquire) != context) return 0;
  return entry.error.load(std::memory_order_relaxed);
}

// --- For NVML ------------------------------------------------------------------------------------------------------

Result SocketClient::State(uint32_t gpu, GpuState* state) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kState);
  request.gpu = gpu;
  ReplyHeader reply;
  std::string payload;
  const Result result = Call(request, &reply, &payload);
  if (result != Result::kOk) return result;
  if (payload.size() != sizeof(GpuState)) return Result::kLost;
  std::memcpy(state, payload.data(), sizeof(GpuState));
  return result;
}

Result SocketClient::Processes(uint32_t gpu, std::vector<ProcessInfo>* processes) {
  const Result result = List(MessageType::kProcesses, gpu, 0, processes);
  if (result != Result::kOk) return result;
  for (ProcessInfo& process : *processes) process.name[sizeof(process.name) - 1] = 0;
  return result;
}

Result SocketClient::InjectFault(const FaultSpec& fault, uint64_t* id) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kInjectFault);
  static_assert(sizeof(fault) <= sizeof(request.text));
  std::memcpy(request.text, &fault, sizeof(fault));
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  *id = result == Result::kOk ? reply.a : 0;
  return result;
}

}  // namespace

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
