#include "emulator/engine/protocol.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

namespace mete::emulator {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex word is the low half of a counter");

bool DecodeRequest(const void* data, size_t size, Request* request) {
  if (size != sizeof(Request)) return false;
  std::memcpy(request, data, sizeof(Request));
  return request->magic == kProtocolMagic && request->version == kProtocolVersion &&
         request->bytes == sizeof(Request) && request->type >= 1 &&
         request->type <= static_cast<uint32_t>(MessageType::kLast);
}

bool DecodeReply(const void* data, size_t size, ReplyHeader* header, size_t* payload_bytes) {
  if (size < sizeof(ReplyHeader)) return false;
  std::memcpy(header, data, sizeof(ReplyHeader));
  *payload_bytes = size - sizeof(ReplyHeader);
  return header->magic == kProtocolMagic && header->version == kProtocolVersion && header->bytes == size;
}

sockaddr_un EngineAddress(const std::string& run_folder, int folder) {
  std::string path = run_folder + "/engine.sock";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) path = "/proc/self/fd/" + std::to_string(folder) + "/engine.sock";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

int ConnectToEngine(const std::string& run_folder) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int folder = open(run_folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const sockaddr_un address = EngineAddress(run_folder, folder);
  const int rc = folder < 0 ? -1 : connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  if (folder >= 0) close(folder);
  if (rc != 0) {
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

void FutexWait(const std::atomic<uint64_t>& word, uint64_t seen, uint64_t timeout_ns) {
  const timespec timeout = {static_cast<time_t>(timeout_ns / 1'000'000'000),
                            static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, static_cast<uint32_t>(seen), &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint64_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

uint64_t MonotonicNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace mete::emulator
