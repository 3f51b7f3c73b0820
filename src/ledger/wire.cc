#include "ledger/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace mete::ledger {
namespace {

// Room for more descriptors than allowed, so that surplus ones are seen and closed rather than cut off unnoticed.
constexpr size_t kControlFds = kMaxMessageFds + 4;

union Control {
  cmsghdr alignment;
  char bytes[CMSG_SPACE(sizeof(int) * kControlFds)];
};

size_t SizeOf(MessageType type) {
  switch (type) {
    case MessageType::kAttach:
    case MessageType::kObserve: return sizeof(AttachRequest);
    case MessageType::kReattach: return sizeof(ReattachRequest);
    case MessageType::kAudit: return sizeof(AuditRequest);
    case MessageType::kAttached:
    case MessageType::kRefused: return sizeof(AttachReply);
  }
  return 0;
}

template <typename Message, size_t kSize>
bool CopyOut(const void* bytes, size_t size, Message* message, char (Message::*text)[kSize]) {
  if (size != sizeof(Message)) return false;
  memcpy(message, bytes, sizeof(Message));
  (message->*text)[kSize - 1] = '\0';
  return true;
}

}  // namespace

int SendPacket(int socket, const void* bytes, size_t size, const int* fds, size_t fd_count, int flags) {
  if (fd_count > kMaxMessageFds) return -EINVAL;
  iovec part = {const_cast<void*>(bytes), size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  if (fd_count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
  }
  for (;;) {
    const ssize_t sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent) == size ? 0 : -EMSGSIZE;
    if (errno != EINTR) return -errno;
  }
}

int ReceivePacket(int socket, void* buffer, size_t capacity, int flags, Packet* packet) {
  *packet = Packet{};
  iovec part = {buffer, capacity};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  ssize_t received;
  do {
    received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return -errno;
  bool surplus = false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    if (header->cmsg_len < CMSG_LEN(0)) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      if (packet->fd_count < kMaxMessageFds) {
        packet->fds[packet->fd_count++] = fd;
      } else {
        close(fd);
        surplus = true;
      }
    }
  }
  if (surplus || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    CloseFds(packet);
    return -EMSGSIZE;
  }
  packet->size = static_cast<size_t>(received);
  return 0;
}

void CloseFds(Packet* packet) {
  for (size_t i = 0; i < packet->fd_count; ++i) {
    close(packet->fds[i]);
    packet->fds[i] = -1;
  }
  packet->fd_count = 0;
}

MessageHeader HeaderFor(MessageType type, size_t bytes) {
  return MessageHeader{kMessageMagic, kLayoutVersion, static_cast<uint32_t>(type), static_cast<uint32_t>(bytes)};
}

uint32_t TypeOf(const void* bytes, size_t size) {
  if (bytes == nullptr || size < sizeof(MessageHeader)) return 0;
  MessageHeader header;
  memcpy(&header, bytes, sizeof(header));
  if (header.magic != kMessageMagic || header.version != kLayoutVersion || header.bytes != size) return 0;
  return SizeOf(static_cast<MessageType>(header.type)) == size ? header.type : 0;
}

bool Decode(const void* bytes, size_t size, AttachRequest* message) {
  const uint32_t type = TypeOf(bytes, size);
  return (type == static_cast<uint32_t>(MessageType::kAttach) ||
          type == static_cast<uint32_t>(MessageType::kObserve)) &&
         CopyOut(bytes, size, message, &AttachRequest::program);
}

bool Decode(const void* bytes, size_t size, ReattachRequest* message) {
  return TypeOf(bytes, size) == static_cast<uint32_t>(MessageType::kReattach) &&
         CopyOut(bytes, size, message, &ReattachRequest::program);
}

bool Decode(const void* bytes, size_t size, AttachReply* message) {
  const uint32_t type = TypeOf(bytes, size);
  return (type == static_cast<uint32_t>(MessageType::kAttached) ||
          type == static_cast<uint32_t>(MessageType::kRefused)) &&
         CopyOut(bytes, size, message, &AttachReply::message);
}

}  // namespace mete::ledger
