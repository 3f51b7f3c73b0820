// What stands behind mete.sock: requests of commands, one reply each.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "share/broker.h"

namespace mete::share {
namespace {

constexpr size_t kMostCallers = 512;

}  // namespace

void Broker::OnCallerConnects() {
  for (;;) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    ucred credentials = {};
    socklen_t size = sizeof(credentials);
    const bool known = getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
    if (!known || credentials.uid != geteuid() || callers_.size() >= kMostCallers) {
      log::Warn("turned away a caller of uid {}", credentials.uid);
      continue;
    }
    const int number = fd.get();
    if (!loop_->Add(number, EPOLLIN, [this, number](uint32_t events) { OnCaller(number, events); }).ok()) continue;
    callers_[number].fd = std::move(fd);
  }
}

void Broker::OnCaller(int fd, uint32_t events) {
  const auto found = callers_.find(fd);
  if (found == callers_.end()) return;
  Caller& caller = found->second;
  bool open = true;
  if ((events & EPOLLIN) != 0) {
    std::array<char, 16384> buffer;
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      caller.in.Append({buffer.data(), static_cast<size_t>(got)});
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      open = false;
    }
  } else if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    open = false;
  }
  while (open) {
    const auto request = caller.in.Next();
    if (!request.ok()) {
      caller.out += Frame(WriteReply(request.status()));
      open = false;
    } else if (*request) {
      const std::string reply = WriteReply(Answer(**request, caller));
      caller.out += Frame(reply.size() <= kMostReplyBytes ? reply : WriteReply(Fault("the reply is too long")));
      open = caller.out.size() <= kMostReplyBytes + 1024;  // who never reads is not written to for ever
    } else {
      break;
    }
  }
  Send(caller);
  if (open && (caller.out.empty() || errno == EAGAIN)) {
    loop_->Change(fd, caller.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
    return;
  }
  loop_->Remove(fd);
  callers_.erase(fd);
}

void Broker::Send(Caller& caller) {
  errno = 0;
  while (!caller.out.empty()) {
    const ssize_t put = send(caller.fd.get(), caller.out.data(), caller.out.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;
    caller.out.erase(0, static_cast<size_t>(put));
  }
}

StatusOr<Json> Broker::Answer(std::string_view text, const Caller& caller) {
  METE_ASSIGN_OR_RETURN(const Command command, ReadCommand(text));
  METE_ASSIGN_OR_RETURN(Peer peer, PeerOf(caller.fd.get()));
  return Do(command, std::move(peer));
}

StatusOr<Json> Broker::Do(const Command& command, Peer peer) {
  const auto find = [this](const std::string& name) -> StatusOr<Share*> {
    if (Share* share = FindByName(name); share != nullptr) return share;
    std::string names;
    for (const auto& entry : shares_) names += (names.empty() ? "" : ", ") + entry.second->row.grant.share;
    return NoSuch("there is no share {} here; there {}", name, names.empty() ? "are none" : "are " + names);
  };
  switch (command.op) {
    case Op::kHello: return Json({{"node", options_.places.node}, {"pid", getpid()}, {"emulated", nvml_->emulated()}});
    case Op::kMake: {
      METE_ASSIGN_OR_RETURN(Share * share, Make(command, peer));
      return GrantReply(*share);
    }
    case Op::kJoin: {
      METE_ASSIGN_OR_RETURN(Share * share, find(command.share));
      if (!share->intercepted()) {
        (void)Verify(*share);
        if (!share->invalid.empty()) {
          return Refused("share {} is not valid, so nothing may start in it: {}", command.share, share->invalid);
        }
      }
      // Whoever is in a share without the interceptor is known by the `mete run` above it.
      if (share->row.kind == Kind::kRun || !share->intercepted()) {
        METE_RETURN_IF_ERROR(Hold(*share, peer.process, std::move(peer.pidfd)));
      } else {
        EnterKernelGroup(*share, peer.process.pid);
      }
      return GrantReply(*share);
    }
    case Op::kLeave: DropRunHolder(command.id, peer.process); return Json::object();
    case Op::kList: {
      Json json;
      json["emulated"] = nvml_->emulated();
      json["shares"] = Json::array();
      for (const auto& entry : shares_) json["shares"].push_back(Brief(*entry.second));
      json["foreign"] = Foreigners();
      return json;
    }
    case Op::kPlan: return Plan(command);
    case Op::kApply: {
      if (IsTenantOrBelow(peer.process.pid)) {
        return Refused("process {} runs inside a share and may not change the node; ask from outside",
                       peer.process.pid);
      }
      return Apply(command);
    }
    case Op::kShow: {
      METE_ASSIGN_OR_RETURN(Share * share, find(command.share));
      return Full(*share);
    }
    case Op::kSet:
    case Op::kRelease: {
      METE_ASSIGN_OR_RETURN(Share * share, find(command.share));
      if (IsTenantOrBelow(peer.process.pid)) {
        return Refused("process {} runs inside a share and may not change limits; ask from outside", peer.process.pid);
      }
      if (command.op == Op::kSet) {
        METE_RETURN_IF_ERROR(Set(*share, command));
        return Brief(*share);
      }
      if (!share->intercepted()) METE_RETURN_IF_ERROR(Refresh());
      if (const std::string processes = WhoRunsIn(*share); !processes.empty() && !command.force) {
        return Refused(
            "share {} is in use by {}; end them, or release it with --force: then they {}", command.share, processes,
            share->intercepted() ? "get no more memory and launch nothing more"
                                 : "go on as processes of no share, and what cannot be taken back from under "
                                   "them is taken back when they end");
      }
      const Json brief = Brief(*share);
      METE_RETURN_IF_ERROR(End(*share));
      return brief;
    }
  }
  return Fault("unknown operation");
}

}  // namespace mete::share
