#include "share/client.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace mete::share {
namespace {

constexpr int kAttempts = 20;
constexpr time_t kPatienceSeconds = 60;  // a driver may take long to answer

}  // namespace

bool Client::TryConnect() {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (!fd.valid() || places_.socket.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, places_.socket.c_str(), places_.socket.size() + 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return false;
  const timeval patience = {kPatienceSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  fd_ = std::move(fd);
  return true;
}

// A broker that a command began which was killed since has the lock, and will listen. False: nobody has the lock.
bool Client::AwaitListening() {
  const Fd lock(open(places_.broker_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (lock.valid() && flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && std::chrono::steady_clock::now() < until) {
    if (TryConnect()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Of several commands that find no broker one starts it; the others wait for the lock and then find it.
Status Client::Connect() {
  METE_RETURN_IF_ERROR(MakePlaces(places_));
  if (TryConnect()) return OkStatus();
  const Fd lock(open(places_.start_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return Lacks("cannot open {}: {}", places_.start_lock, std::strerror(errno));
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Lacks("cannot lock {}: {}", places_.start_lock, std::strerror(errno));
  }
  if (TryConnect()) return OkStatus();
  const Status started = start_();
  if (TryConnect()) return OkStatus();
  if (!started.ok()) return ExitCodeFor(started) == ExitCode::kRefused && AwaitListening() ? OkStatus() : started;
  return Lacks("the broker of {} was started and does not listen on {}; {} says more", places_.driver_root,
               places_.socket, places_.log);
}

StatusOr<std::string> Client::Exchange(const std::string& frame, bool* lost) {
  *lost = true;
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t put = send(fd_.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Lacks("the broker has gone");
    sent += static_cast<size_t>(put);
  }
  Unframer reply(kMostReplyBytes + 1024);
  for (;;) {
    METE_ASSIGN_OR_RETURN(std::optional<std::string> text, reply.Next());
    if (text) {
      *lost = false;
      return std::move(*text);
    }
    std::array<char, 16384> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      *lost = false;
      fd_.Reset();
      return Lacks("the broker of {} has not answered for {} s; {} says more", places_.driver_root, kPatienceSeconds,
                   places_.log);
    }
    if (got <= 0) return Lacks("the broker has gone");
    reply.Append({buffer.data(), static_cast<size_t>(got)});
  }
}

StatusOr<Json> Client::Call(const Command& command) {
  const std::string frame = Frame(WriteCommand(command));
  Status last = OkStatus();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!fd_.valid()) METE_RETURN_IF_ERROR(Connect());
    bool lost = false;
    StatusOr<std::string> text = Exchange(frame, &lost);
    if (text.ok()) {
      StatusOr<Json> reply = ReadReply(*text);
      // Asked again after a broker died: the first may have released it already.
      const bool released =
          command.op == Op::kRelease && attempt > 0 && ExitCodeFor(reply.status()) == ExitCode::kUsage;
      if (released) return Json::object();
      return reply;
    }
    if (!lost) return text.status();
    last = text.status();
    fd_.Reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(attempt));
  }
  return Lacks("the broker of {} ended {} times before it answered; {} says more", places_.driver_root, kAttempts,
               places_.log);
}

}  // namespace mete::share
