// A process's way to its share: the broker's socket in the directory of the proxy's own file, and the two pages that
// come through it. Used by both proxies. libc only.
//
// The proxy's place is its identity: no variable, no inherited descriptor. Links are not resolved, because the grant
// directory holds links to one installed file. Everything that arrives is checked before it is used: a message of the
// wrong size, an unsealed or short page, an unknown version or a slot out of range is a refusal with its reason.
//
// Pages are never unmapped: another thread may still read them. Descriptors are ours to close, but the program may have
// closed them behind our back (closefrom) and the number may be in use for something else: OwnFd tells.
#ifndef METE_INTERCEPTOR_CONNECTION_H_
#define METE_INTERCEPTOR_CONNECTION_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "ledger/layout.h"
#include "ledger/messages.h"

namespace mete::interceptor {

// A descriptor with the identity of what it was opened for.
class OwnFd {
 public:
  OwnFd() = default;
  explicit OwnFd(int fd);  // takes it over; moves it out of the range that programs use, if there is room
  int Get() const;         // -1 when it is not (any more) what it was
  void Close();            // closes it if it still is ours

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// One attachment: what the broker gave. Plain data; immutable once published.
struct Attachment {
  const ledger::LimitsPage* limits = nullptr;
  ledger::LedgerPage* ledger = nullptr;  // an observer's is read-only: it must only load
  uint32_t slot = ledger::kNoSlot;
  uint32_t generation = 0;
  uint32_t gpu_count = 0;  // checked copy of limits->gpu_count
  OwnFd connection, ledger_fd, doorbell;
};

struct Why {
  char text[400] = "";
};

// The directory of the file this function was loaded from, as the loader was told (links unresolved, absolute).
// Computed when the library is loaded, since a relative path means something else after chdir.
const char* GrantDirectory();

// Attaches (kAttach), or looks on (kObserve). False: `why` says what failed and what to do.
bool Attach(ledger::MessageType type, Attachment* attachment, Why* why);

// Says again who we are to a broker that was started after `old` was made, with the ledger that the old one gave.
bool Reattach(const Attachment& old, Attachment* attachment, Why* why);

// False when the broker's end of the connection is gone.
bool Connected(const Attachment& attachment);

// Asks the broker for an audit (ledger/messages.h). False: the connection is gone. A system call.
bool AskForAudit(const Attachment& attachment);

// Tells the broker to look at the ledger. A system call; only from paths that wait anyway.
void Ring(const Attachment& attachment);

// Checks of what arrives; separate so that they can be fuzzed. Null when sound, else the reason.
const char* CheckReply(const void* bytes, size_t size, ledger::AttachReply* reply);
const char* CheckPages(const ledger::LimitsPage& limits, const ledger::LedgerPage& ledger, uint32_t slot);

// Writes "mete: TEXT\n" to standard error in one piece; used only where the program would otherwise run unlimited.
void Complain(const char* text);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_CONNECTION_H_
