// The broker as a process of its own: started by need by a command, in the background, with nothing inherited.
// Thread rule: called by the one thread of a command. Errors: what kept the broker from starting, as it said itself.
#ifndef METE_SHARE_DAEMON_H_
#define METE_SHARE_DAEMON_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "share/places.h"

namespace mete::share {

// Starts this very program as `mete _broker` and returns when it listens, or with the reason why it does not.
Status StartBroker(const Places& places);

// What `mete _broker` does: becomes the broker of these places, says so on `ready_fd` (or why not, also where there are
// no places), serves until it is not needed.
Status RunBroker(const StatusOr<Places>& found, int ready_fd);

// Makes this process unreadable for others of its user: no core, no ptrace, no /proc/PID/mem.
void HideMemory();

}  // namespace mete::share

#endif  // METE_SHARE_DAEMON_H_
