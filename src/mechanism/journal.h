// What mechanisms have made or changed on a node, written down before it is done, so that whoever comes after a kill
// can undo or complete it. The book of the broker is one; tests have their own.
//
// Thread rule: the thread that calls the mechanism. Errors: as the store's; a mechanism then does not go on.
#ifndef METE_MECHANISM_JOURNAL_H_
#define METE_MECHANISM_JOURNAL_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace mete::mechanism {

// A thing made (a GPU instance) or a setting changed (the compute mode) for a share.
struct Object {
  std::string share_id;  // of the grant; empty: of no share (a layout that a person applied)
  std::string kind;      // "compute-mode", "time-slice", "mig-mode", "instance"
  std::string gpu;       // UUID
  std::string key;       // tells it from others of its kind on the GPU
  Json data;             // what was found before, what it is now
};

class Journal {
 public:
  virtual ~Journal() = default;
  // Of every share, in the order in which they were first written.
  virtual StatusOr<std::vector<Object>> Objects(const std::string& kind, const std::string& gpu) const = 0;
  // Writes it, or replaces what has the same share, kind, GPU and key.
  virtual Status Put(const Object& object) = 0;
  virtual Status Drop(const Object& object) = 0;
  // Told the name of each point between what is written and what is done; tests die there.
  virtual void Reached(const char* /*point*/) {}
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_JOURNAL_H_
