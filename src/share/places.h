// Where the broker of one node and user lives: runtime directory, sockets, grants, book, log.
//
//   RUNTIME = $XDG_RUNTIME_DIR/mete, else /tmp/mete-UID (0700, owner checked)
//   RUNTIME/NODE/mete.sock      commands           RUNTIME/NODE/broker.lock   held by the broker while it lives
//   RUNTIME/NODE/start.lock     held by whoever starts it                     RUNTIME/NODE/broker.log
//   RUNTIME/NODE/grants/ID/     one directory per share
//   STATE   = $XDG_STATE_HOME/mete, else ~/.local/state/mete                  STATE/NODE/book.sqlite
//
// NODE names the driver root by device and inode, so two spellings of one path are one node. Values; any thread.
#ifndef METE_SHARE_PLACES_H_
#define METE_SHARE_PLACES_H_

#include <string>

#include "base/status.h"

namespace mete::share {

struct Places {
  std::string driver_root;   // as given
  std::string node;          // "fd00-1a2b"
  std::string runtime;       // RUNTIME
  std::string runtime_node;  // RUNTIME/NODE
  std::string grants, socket, broker_lock, start_lock, log;
  std::string state;       // STATE
  std::string state_node;  // STATE/NODE
  std::string book, book_lock;
};

// "device-inode" of the driver root in hexadecimal; Lacks when it is not there.
StatusOr<std::string> NodeName(const std::string& driver_root);

// Where they would be, from the environment; makes nothing. Lacks when the driver root is missing, or no home is known,
// or a socket's path would be longer than the kernel takes.
StatusOr<Places> PlacesFor(const std::string& driver_root);

// The same below given directories.
StatusOr<Places> PlacesBelow(const std::string& driver_root, const std::string& runtime, const std::string& state);

// Makes the directories, and refuses those that are not this user's own or that others may enter.
Status MakePlaces(const Places& places);

}  // namespace mete::share

#endif  // METE_SHARE_PLACES_H_
