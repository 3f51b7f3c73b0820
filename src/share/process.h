// What the broker must know of processes, from the kernel: start times, ancestry, pidfds. A pid alone names nobody,
// since it is reused; pid and start time do. No state; any thread. Descriptors are close-on-exec.
#ifndef METE_SHARE_PROCESS_H_
#define METE_SHARE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace mete::share {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~Fd() { Reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct ProcessId {
  uint32_t pid = 0;
  uint64_t start_time = 0;  // /proc/PID/stat field 22, in clock ticks since boot
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

// Start time of a process that has not ended (a zombie has); 0 if there is none.
uint64_t StartTime(uint32_t pid);
bool Alive(const ProcessId& process);
uint32_t ParentOf(uint32_t pid);      // 0: none, or cannot be read
std::string ProgramOf(uint32_t pid);  // for people; empty if it cannot be read
std::string BootId();                 // changes with every boot; empty if it cannot be read

// Who is at the other end of a connected unix socket, according to the kernel.
struct Peer {
  ProcessId process;
  uid_t uid = 0;
  Fd pidfd;  // readable once the process has ended
};
// Lacks when the peer has already ended or cannot be known.
StatusOr<Peer> PeerOf(int socket);
// The same for a process named by pid and start time.
StatusOr<Fd> OpenPidFd(const ProcessId& process);
// Sends a signal to that very process. Lacks when it has ended or we may not.
Status SendSignal(const ProcessId& process, int signal);

// A descriptor of each memfd called `name` that the process has open for writing; empty if it may not be looked at.
std::vector<Fd> MemFdsOf(uint32_t pid, const std::string& name);

}  // namespace mete::share

#endif  // METE_SHARE_PROCESS_H_
