#include "share/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace mete::share {
namespace {

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; older headers lack the name
#endif

struct Stat {
  char state = 0;
  uint32_t parent = 0;
  uint64_t start_time = 0;
};

bool ReadStat(uint32_t pid, Stat* stat) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!file || !std::getline(file, line)) return false;
  // The program's name is in parentheses and may itself hold spaces and parentheses.
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return false;
  std::istringstream rest(line.substr(end + 1));
  std::string skip;
  if (!(rest >> stat->state >> stat->parent)) return false;
  for (int field = 5; field < 22; ++field) rest >> skip;
  return static_cast<bool>(rest >> stat->start_time);
}

bool HasEnded(int pidfd) {
  pollfd poll_fd = {pidfd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0;
}

int PidFdOpen(uint32_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)); }

}  // namespace

void Fd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

uint64_t StartTime(uint32_t pid) {
  Stat stat;
  return pid != 0 && ReadStat(pid, &stat) && stat.state != 'Z' && stat.state != 'X' ? stat.start_time : 0;
}

bool Alive(const ProcessId& process) { return process.start_time != 0 && StartTime(process.pid) == process.start_time; }

uint32_t ParentOf(uint32_t pid) {
  Stat stat;
  return ReadStat(pid, &stat) ? stat.parent : 0;
}

std::string ProgramOf(uint32_t pid) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  if (!error) return path.filename().string();
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

StatusOr<Peer> PeerOf(int socket) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Lacks("cannot learn who is at the other end of a socket: {}", std::strerror(errno));
  }
  if (credentials.pid <= 0) return Lacks("the peer of a socket is in another pid name space, which cannot be watched");
  Peer peer;
  peer.uid = credentials.uid;
  peer.process.pid = static_cast<uint32_t>(credentials.pid);
  int pidfd = -1;
  size = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0) {
    if (errno != ENOPROTOOPT && errno != EINVAL) return Lacks("process {} has already ended", credentials.pid);
    // Between the connection and this call the pid may have passed to another; its uid and start time are what is left
    // to tell, and only processes of this user get this far.
    pidfd = PidFdOpen(peer.process.pid);
    if (pidfd < 0) return Lacks("process {} has already ended", credentials.pid);
  }
  peer.pidfd.Reset(pidfd);
  peer.process.start_time = StartTime(peer.process.pid);
  if (peer.process.start_time == 0 || HasEnded(pidfd)) return Lacks("process {} has already ended", credentials.pid);
  return peer;
}

StatusOr<Fd> OpenPidFd(const ProcessId& process) {
  Fd pidfd(PidFdOpen(process.pid));
  if (!pidfd.valid() || !Alive(process) || HasEnded(pidfd.get())) {
    return Lacks("process {} has ended", process.pid);
  }
  return pidfd;
}

Status SendSignal(const ProcessId& process, int signal) {
  METE_ASSIGN_OR_RETURN(const Fd pidfd, OpenPidFd(process));
  if (syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0) return OkStatus();
  return Lacks("process {} cannot be sent signal {}: {}", process.pid, signal, std::strerror(errno));
}

std::vector<Fd> MemFdsOf(uint32_t pid, const std::string& name) {
  std::vector<Fd> found;
  std::error_code error;
  std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid), error);
  if (error) return found;
  const std::string wanted = "/memfd:" + name + " (deleted)";
  for (; entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    if (error) break;
    const auto target = std::filesystem::read_symlink(entries->path(), error);
    if (error || target.string() != wanted) continue;
    Fd fd(open(entries->path().c_str(), O_RDWR | O_CLOEXEC));
    if (fd.valid()) found.push_back(std::move(fd));
  }
  return found;
}

}  // namespace mete::share
