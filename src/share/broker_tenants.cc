// What stands behind the broker.sock of each grant's directory: processes attach, come back after a restart, or only
// look.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "ledger/account.h"
#include "ledger/messages.h"
#include "ledger/wire.h"
#include "share/broker.h"

namespace mete::share {
namespace {

constexpr size_t kMostConnections = 4096;  // of one share

void Reply(int fd, ledger::AttachReply reply, const std::vector<int>& fds) {
  ledger::SendPacket(fd, &reply, sizeof(reply), fds.data(), fds.size());
}

void Refuse(int fd, const Status& why) {
  ledger::AttachReply reply = {};
  reply.header = ledger::HeaderFor(ledger::MessageType::kRefused, sizeof(reply));
  reply.slot = ledger::kNoSlot;
  const std::string message = Message(why);
  std::memcpy(reply.message, message.data(), std::min(message.size(), sizeof(reply.message) - 1));
  Reply(fd, reply, {});
}

ledger::AttachReply Attached(uint32_t slot, uint32_t generation) {
  ledger::AttachReply reply = {};
  reply.header = ledger::HeaderFor(ledger::MessageType::kAttached, sizeof(reply));
  reply.slot = slot;
  reply.generation = generation;
  return reply;
}

// A stranger's bytes become a program's name for people.
std::string Printable(const std::string& text) {
  std::string result;
  for (const unsigned char c : text) result += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  return result;
}

}  // namespace

Status Broker::ListenFor(Share& share) {
  const std::string path = Directory(share.row.grant) + "/broker.sock";
  share.listener.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Lacks("the socket's path {} is too long", path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());
  if (bind(share.listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(share.listener.get(), 1024) != 0) {
    return Lacks("cannot listen on {}: {}", path, std::strerror(errno));
  }
  const std::string id = share.row.grant.id;
  return loop_->Add(share.listener.get(), EPOLLIN, [this, id](uint32_t) { OnTenantConnects(id); });
}

void Broker::OnTenantConnects(const std::string& id) {
  Share* share = FindById(id);
  if (share == nullptr) return;
  for (;;) {
    Fd fd(accept4(share->listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    const int number = fd.get();
    if (share->connections.size() >= kMostConnections) {
      Refuse(number, Refused("share {} has {} connections already", share->row.grant.share, kMostConnections));
      continue;
    }
    if (!loop_->Add(number, EPOLLIN, [this, id, number](uint32_t) { OnTenantSpeaks(id, number); }).ok()) continue;
    share->connections[number] = std::move(fd);
  }
}

void Broker::OnTenantSpeaks(const std::string& id, int fd) {
  Share* share = FindById(id);
  if (share == nullptr) return;
  char buffer[1024];
  ledger::Packet packet;
  const int error = ledger::ReceivePacket(fd, buffer, sizeof(buffer), MSG_DONTWAIT, &packet);
  if (error == -EAGAIN || error == -EINTR) return;
  ledger::AttachRequest attach;
  ledger::ReattachRequest reattach;
  if (error != 0 || packet.size == 0) {
    // The end of a connection says nothing about its process: a forked child may keep it open, or exec have closed it.
    loop_->Remove(fd);
    share->connections.erase(fd);
    return;
  }
  const uint32_t type = ledger::TypeOf(buffer, packet.size);
  if (type == static_cast<uint32_t>(ledger::MessageType::kObserve)) {
    OnObserve(*share, fd);
  } else if (type == static_cast<uint32_t>(ledger::MessageType::kAudit)) {
    RequestRound();
  } else if (ledger::Decode(buffer, packet.size, &attach)) {
    OnAttach(*share, fd, Printable(attach.program));
  } else if (ledger::Decode(buffer, packet.size, &reattach) && packet.fd_count == 1) {
    OnReattach(*share, fd, reattach, packet.fds[0]);
  } else {
    Refuse(fd, Refused("not a message of this version of mete; the share's libraries and its broker differ: make the "
                       "share again"));
  }
  ledger::CloseFds(&packet);
}

StatusOr<Peer> Broker::TenantPeer(int fd) const {
  METE_ASSIGN_OR_RETURN(Peer peer, PeerOf(fd));
  if (peer.uid != geteuid()) return Refused("this share belongs to uid {}, not to uid {}", geteuid(), peer.uid);
  return peer;
}

void Broker::OnAttach(Share& share, int fd, const std::string& program) {
  StatusOr<Peer> peer = TenantPeer(fd);
  if (!peer.ok()) return Refuse(fd, peer.status());
  // The same process again: it has called exec, what it held before is gone.
  if (const Tenancy::Holder* before = share.tenancy->Find(peer->process); before != nullptr) {
    loop_->Remove(before->pidfd.get());
    if (const Status dropped = book_->DropSlot(share.row.grant.id, before->slot); !dropped.ok()) {
      return Refuse(fd, dropped);
    }
  }
  const StatusOr<const Tenancy::Holder*> holder = share.tenancy->Attach(std::move(*peer), program);
  if (!holder.ok()) return Refuse(fd, holder.status());
  options_.reached("attach: slot taken");
  const Tenancy::Holder& taken = **holder;
  const Status written = book_->PutSlot({share.row.grant.id, taken.slot, taken.generation, taken.process, program});
  if (!written.ok()) {
    share.tenancy->Clear(taken.slot);
    return Refuse(fd, written);
  }
  options_.reached("attach: written");
  for (Watch& watch : share.watches) watch.slots.erase(taken.slot);
  WatchSlot(share, taken);
  EnterKernelGroup(share, taken.process.pid);  // one that was not started through `mete run`
  log::Info("share={} attached pid={} program={} slot={}", share.row.grant.share, taken.process.pid, program,
            taken.slot);
  Reply(fd, Attached(taken.slot, taken.generation),
        {share.tenancy->limits_fd(), share.tenancy->ledger_fd(), share.tenancy->doorbell()});
}

void Broker::OnReattach(Share& share, int fd, const ledger::ReattachRequest& request, int ledger_fd) {
  const StatusOr<Peer> peer = TenantPeer(fd);
  if (!peer.ok()) return Refuse(fd, peer.status());
  uint8_t id[16];
  ToBytes(share.row.grant.id, id);
  if (std::memcmp(id, request.share_id, sizeof(id)) != 0) {
    return Refuse(fd, Refused("the share in {} is another one now", Directory(share.row.grant)));
  }
  const Tenancy::Holder* holder = share.tenancy->Find(request.slot, request.generation, peer->process);
  if (holder == nullptr)
    return Refuse(fd, Refused("the book knows no slot {} of process {}", request.slot, peer->process.pid));
  if (share.tenancy->Adoptable(ledger_fd)) {
    LeaveWindows(share);  // no thread may look at the page that goes
    Status adopted = share.tenancy->Adopt(ledger_fd);
    if (const Status joined = JoinWindows(share); adopted.ok()) adopted = joined;
    for (const plan::GpuGrant& gpu : share.row.grant.gpus) Allot(gpu.uuid);
    if (!adopted.ok()) return Refuse(fd, adopted);
  }
  if (!share.tenancy->IsLedger(ledger_fd))
    return Refuse(fd, Refused("the ledger handed back is not that of this share"));
  log::Info("share={} came back pid={} slot={}", share.row.grant.share, peer->process.pid, request.slot);
  Reply(fd, Attached(request.slot, request.generation),
        {share.tenancy->limits_fd(), share.tenancy->ledger_fd(), share.tenancy->doorbell()});
}

void Broker::OnObserve(Share& share, int fd) {
  const StatusOr<Peer> peer = TenantPeer(fd);
  if (!peer.ok()) return Refuse(fd, peer.status());
  if (share.tenancy->awaits_ledger()) {
    return Refuse(fd, Refused("the broker was restarted and waits for this share's processes to come back; try again"));
  }
  Reply(fd, Attached(ledger::kNoSlot, 0), {share.tenancy->limits_fd(), share.tenancy->ledger_fd()});
}

void Broker::WatchSlot(Share& share, const Tenancy::Holder& holder) {
  const std::string id = share.row.grant.id;
  const uint32_t slot = holder.slot;
  const Status watched = loop_->Add(holder.pidfd.get(), EPOLLIN, [this, id, slot](uint32_t) { DropSlot(id, slot); });
  if (!watched.ok())
    log::Error("share={} process {} cannot be watched: {}", share.row.grant.share, holder.process.pid,
               Message(watched));
}

// A tenant has died: what it held goes back at once, and who waited for its window is served.
void Broker::DropSlot(const std::string& id, uint32_t slot) {
  Share* share = FindById(id);
  if (share == nullptr) return;
  const auto holder = share->tenancy->holders().find(slot);
  if (holder == share->tenancy->holders().end()) return;
  loop_->Remove(holder->second.pidfd.get());
  // Only somebody who lives can hold what it made for others.
  if (audit_ && share->tenancy->holders().size() > 1 && !share->tenancy->awaits_ledger() &&
      ledger::Exported(share->tenancy->ledger(), slot)) {
    share->tenancy->Leave(slot);
    share->leavers.push_back({slot, rounds_ + (readings_left_ > 0 ? 2 : 1)});
    share->tenancy->limits().leaving.store(static_cast<uint32_t>(share->leavers.size()));
    RequestRound();
  } else {
    share->tenancy->Clear(slot);
  }
  for (Watch& watch : share->watches) watch.slots.erase(slot);
  if (const Status dropped = book_->DropSlot(id, slot); !dropped.ok()) log::Warn("{}", Message(dropped));
  for (const plan::GpuGrant& gpu : share->row.grant.gpus) {
    if (const auto& windows = gpus_.at(gpu.uuid).windows; windows) windows->Kick();
  }
  EndIfDone(id);
}

// Whoever holds what the dead had made is charged for it by now.
void Broker::ClearLeavers(Share& share) {
  std::erase_if(share.leavers, [this, &share](const Leaver& leaver) {
    if (leaver.round > rounds_) return false;
    share.tenancy->ClearLeft(leaver.slot);
    return true;
  });
}

// Does the process hold a slot of some share, or descend from one that does? Such a one may not change limits.
bool Broker::IsTenantOrBelow(uint32_t pid) const {
  for (int depth = 0; pid > 1 && depth < 256; ++depth) {
    const ProcessId process{pid, StartTime(pid)};
    for (const auto& entry : shares_) {
      const auto member = entry.second->members.find(pid);
      if (member != entry.second->members.end() && member->second == process) return true;
      if (entry.second->tenancy->Find(process) != nullptr) return true;
    }
    pid = ParentOf(pid);
  }
  return false;
}

}  // namespace mete::share
