// What a tenant's interceptor and the broker say to each other over broker.sock (SOCK_SEQPACKET, one message a packet).
//
//   tenant → broker: AttachRequest                 broker → tenant: AttachReply, with fds {limits, ledger, doorbell}
//   tenant → broker: ReattachRequest + ledger fd   broker → tenant: AttachReply, with fds {limits, ledger, doorbell}
//   tenant → broker: AttachRequest of kObserve     broker → tenant: AttachReply, with fds {limits, ledger}
//   tenant → broker: AuditRequest                  no reply: LimitsPage::audits counts up when it is done
//
// An observer (the NVML proxy) takes no slot: its reply carries slot kNoSlot and generation 0.
//
// The broker learns pid and uid from the kernel (SO_PEERCRED, SO_PEERPIDFD), never from the message. The doorbell is an
// eventfd: writing 1 says "look at my ledger". Fixed little-endian layout, versioned by kLayoutVersion; a reader checks
// magic, version and length and treats every string as not terminated. The share is the one whose grant directory holds
// the socket. A JSON request ('{' as first byte) on the same kind of socket is a command's, see share/protocol.h.
#ifndef METE_LEDGER_MESSAGES_H_
#define METE_LEDGER_MESSAGES_H_

#include <cstdint>

#include "ledger/layout.h"

namespace mete::ledger {

inline constexpr uint32_t kMessageMagic = 0x6574656D;  // "mete"

enum class MessageType : uint32_t { kAttach = 1, kReattach = 2, kAttached = 3, kRefused = 4, kObserve = 5, kAudit = 6 };

inline constexpr uint32_t kNoSlot = UINT32_MAX;  // AttachReply::slot of an observer

struct MessageHeader {
  uint32_t magic;
  uint32_t version;  // kLayoutVersion
  uint32_t type;     // MessageType
  uint32_t bytes;    // of the whole message
};

struct AttachRequest {
  MessageHeader header;
  char program[64];  // for people: basename of /proc/self/exe
};

struct ReattachRequest {
  MessageHeader header;
  uint32_t slot;        // as given by the last AttachReply
  uint32_t generation;  // of that slot
  uint8_t share_id[16];
  char program[64];
};

// Hold the driver's word against the ledger now, and not in a second.
struct AuditRequest {
  MessageHeader header;
};

struct AttachReply {
  MessageHeader header;  // kAttached or kRefused
  uint32_t slot;
  uint32_t generation;
  char message[240];  // kRefused: why, and what to do
};

}  // namespace mete::ledger

#endif  // METE_LEDGER_MESSAGES_H_
