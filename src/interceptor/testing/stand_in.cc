#include "interceptor/testing/stand_in.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/messages.h"
#include "ledger/pages.h"
#include "ledger/wire.h"

namespace mete::interceptor::testing {
namespace {

[[noreturn]] void Die(const char* what) {
  perror(what);
  abort();
}

void Link(const std::string& target, const std::string& name) {
  if (!target.empty() && symlink(target.c_str(), name.c_str()) != 0) Die(name.c_str());
}

}  // namespace

Uuid NullDeviceUuid(int device) {
  Uuid uuid;
  uuid.fill(0xAB);
  uuid[0] = static_cast<uint8_t>(device + 1);
  return uuid;
}

StandIn::StandIn(const StandInOptions& options) : options_(options) {
  char pattern[] = "/tmp/mete-stand-in-XXXXXX";
  if (mkdtemp(pattern) == nullptr) Die("mkdtemp");
  directory_ = pattern;
  Link(options.proxy, directory_ + "/libcuda.so.1");
  Link("libcuda.so.1", directory_ + "/libcuda.so");
  Link(options.driver, directory_ + "/libmete-driver-cuda.so.1");
  const std::filesystem::path preload = std::filesystem::path(options.proxy).parent_path() / "libmete-preload.so";
  if (std::filesystem::exists(preload)) Link(preload.string(), directory_ + "/libmete-preload.so");
  Link(options.ml_proxy, directory_ + "/libnvidia-ml.so.1");
  Link(options.ml_driver, directory_ + "/libmete-driver-ml.so.1");
  ledger_fd_ = ledger::CreateLedger(static_cast<uint32_t>(options.gpus.size()), &ledger_);
  doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (ledger_fd_ < 0 || doorbell_ < 0 || wake_ < 0) Die("ledger");
  Start();
}

StandIn::~StandIn() {
  Stop();
  close(ledger_fd_);
  close(doorbell_);
  close(wake_);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void StandIn::MakePages() {
  const uint8_t share_id[16] = {42};
  if (limits_fd_ >= 0) close(limits_fd_);
  limits_fd_ = ledger::CreateLimits(share_id, static_cast<uint32_t>(options_.gpus.size()), ++generation_, &limits_);
  if (limits_fd_ < 0) Die("limits");
  for (size_t i = 0; i < options_.gpus.size(); ++i) {
    ledger::GpuLimits& gpu = limits_->gpu[i];
    memcpy(gpu.uuid, options_.gpus[i].data(), sizeof gpu.uuid);
    gpu.memory_quota = options_.quota;
    gpu.context_bytes = options_.context_bytes;
    gpu.share = options_.share;
    gpu.weight = 1;
    gpu.mode = static_cast<uint32_t>(options_.mode);
    gpu.flags = options_.tracked ? ledger::kTracked : 0;
    gpu.window_until_ns = ledger::kWindowOpen;
  }
  limits_->heartbeat_ns = ledger::MonotonicNs() + options_.heartbeat_ahead_ns;
}

void StandIn::Start() {
  MakePages();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s/broker.sock", directory_.c_str());
  unlink(address.sun_path);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 128) != 0) {
    Die("broker.sock");
  }
  stopping_ = false;
  thread_ = std::thread([this] { Serve(); });
}

void StandIn::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) Die("wake");
  thread_.join();
  uint64_t drained;
  if (read(wake_, &drained, sizeof drained) < 0) Die("wake");
  close(listener_);
  for (int connection : connections_) close(connection);
  connections_.clear();
}

void StandIn::Audit() {
  for (uint32_t gpu = 0; gpu < options_.gpus.size(); ++gpu) {
    for (uint32_t slot = 0; slot < ledger::kMaxSlots; ++slot) {
      const ledger::View view{limits_, ledger_, gpu, slot};
      const uint64_t deferred = ledger_->gpu[gpu].deferred[slot].load();
      if (options_.truth != nullptr && slot == 0) {
        const uint64_t believed = ledger::BelievedBySlot(*ledger_, gpu, slot), held = options_.truth->used[gpu];
        ledger::SetOverhead(*ledger_, gpu, slot, held > believed ? held - believed : 0);
      }
      if (deferred != 0) ledger::ReturnDeferred(view, deferred);
    }
  }
  limits_->audits.fetch_add(2);
  ledger::FutexWake(limits_->audits, INT32_MAX);
}

uint64_t StandIn::Rings() const {
  uint64_t rings = 0;
  return read(doorbell_, &rings, sizeof rings) == sizeof rings ? rings : 0;
}

void StandIn::Serve() {
  while (!stopping_) {
    std::vector<pollfd> waiting = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (int connection : connections_) waiting.push_back({connection, POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), 20) < 0 && errno != EINTR) Die("poll");
    limits_->heartbeat_ns = ledger::MonotonicNs() + options_.heartbeat_ahead_ns;
    for (size_t i = 2; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) Answer(waiting[i].fd);
    }
    if ((waiting[0].revents & POLLIN) != 0) connections_.push_back(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }
}

void StandIn::Answer(int connection) {
  char bytes[512];
  ledger::Packet packet;
  if (ledger::ReceivePacket(connection, bytes, sizeof bytes, MSG_DONTWAIT, &packet) != 0 || packet.size == 0) {
    std::erase(connections_, connection);
    close(connection);
    return;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  if (ledger::TypeOf(bytes, packet.size) == static_cast<uint32_t>(ledger::MessageType::kAudit)) {
    ++audits_asked_;
    Audit();
    return;
  }
  ledger::AttachReply reply{};
  reply.header = ledger::HeaderFor(ledger::MessageType::kAttached, sizeof reply);
  ledger::AttachRequest attach;
  ledger::ReattachRequest reattach;
  bool observer = false;
  if (!options_.refusal.empty()) {
    reply.header.type = static_cast<uint32_t>(ledger::MessageType::kRefused);
    snprintf(reply.message, sizeof reply.message, "%s", options_.refusal.c_str());
    ledger::SendPacket(connection, &reply, sizeof reply, nullptr, 0);
    return;
  }
  if (ledger::Decode(bytes, packet.size, &attach)) {
    observer = attach.header.type == static_cast<uint32_t>(ledger::MessageType::kObserve);
    if (observer) {
      reply.slot = ledger::kNoSlot;
    } else {
      reply.generation = ++slots_given_;
      reply.slot = static_cast<uint32_t>(
          ledger::TakeSlot(*ledger_, static_cast<uint32_t>(peer.pid), reply.generation, reply.generation));
      ++attached_;
    }
  } else if (ledger::Decode(bytes, packet.size, &reattach) && packet.fd_count == 1) {
    reply.slot = reattach.slot;
    reply.generation = reattach.generation;
    ++reattached_;
  } else {
    std::erase(connections_, connection);
    close(connection);
    ledger::CloseFds(&packet);
    return;
  }
  ledger::CloseFds(&packet);
  const int fds[3] = {limits_fd_, ledger_fd_, doorbell_};
  ledger::SendPacket(connection, &reply, sizeof reply, fds, observer ? 2 : 3);
}

}  // namespace mete::interceptor::testing
