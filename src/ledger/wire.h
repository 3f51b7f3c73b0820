// Packets with descriptors over a SOCK_SEQPACKET unix socket, and the decoding of messages.h. libc only; no state, any
// thread. Errors are -errno. Received descriptors are close-on-exec and belong to the caller; on any error, and for
// those beyond the caller's room, they are closed here.
#ifndef METE_LEDGER_WIRE_H_
#define METE_LEDGER_WIRE_H_

#include <cstddef>
#include <cstdint>

#include "ledger/messages.h"

namespace mete::ledger {

inline constexpr size_t kMaxMessageFds = 4;

// Sends one packet with up to kMaxMessageFds descriptors. 0 or -errno (never SIGPIPE). Retries on EINTR. `flags` is for
// sendmsg (MSG_DONTWAIT).
int SendPacket(int socket, const void* bytes, size_t size, const int* fds, size_t fd_count, int flags = 0);

struct Packet {
  size_t size = 0;  // 0: the other side closed
  size_t fd_count = 0;
  int fds[kMaxMessageFds] = {-1, -1, -1, -1};
};
// Receives one packet into `buffer`. -EMSGSIZE: it was longer than `capacity` or brought more descriptors than allowed.
// `flags` is for recvmsg (MSG_DONTWAIT). Retries on EINTR.
int ReceivePacket(int socket, void* buffer, size_t capacity, int flags, Packet* packet);
void CloseFds(Packet* packet);

// Fills in a message's header.
MessageHeader HeaderFor(MessageType type, size_t bytes);
// The type of a well-formed message of `size` bytes; 0 for anything else.
uint32_t TypeOf(const void* bytes, size_t size);
// Copy a well-formed message out and terminate its strings; false if it is not one of that type.
bool Decode(const void* bytes, size_t size, AttachRequest* message);  // kAttach and kObserve: see header.type
bool Decode(const void* bytes, size_t size, ReattachRequest* message);
bool Decode(const void* bytes, size_t size, AttachReply* message);

}  // namespace mete::ledger

#endif  // METE_LEDGER_WIRE_H_
