// Which node a command works on: where its driver is, and how that was found.
//
//   METE_ASSIGN_OR_RETURN(const Node node, FindNode(options.driver_root));
//   auto library = nvml::Library::Open(node.roots.driver);
//
// In this order: what the caller names, $METE_DRIVER_ROOT, the machine's own driver, the user's emulated node that is
// up. Errors: NoSuch for a named root that does not exist; Usage when several emulated nodes are up and none is named;
// Lacks, with the ways on, when there is no driver at all. Plain values; any thread.
#ifndef METE_MECHANISM_NODE_H_
#define METE_MECHANISM_NODE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "gpu/roots.h"

namespace mete::mechanism {

enum class FoundBy { kName, kVariable, kHost, kEmulatedNode };

struct Node {
  gpu::Roots roots;
  FoundBy found_by = FoundBy::kName;
  uint64_t device = 0, inode = 0;  // of the driver root: the node's identity

  // "/srv/node (named by --driver-root)", for the line in which a command says what it uses.
  std::string Description() const;
};

// Where discovery looks. Tests put other places in.
struct NodePlaces {
  std::string variable;    // value of $METE_DRIVER_ROOT; empty: not set
  std::string host = "/";  // where the machine's own driver would be
  std::string proc = "/proc";
  std::string runtime;  // the user's runtime folder: `nodes/` below it lists the emulated nodes
  static NodePlaces OfThisProcess();
};

StatusOr<Node> FindNode(std::string_view named, const NodePlaces& places = NodePlaces::OfThisProcess());

// $XDG_RUNTIME_DIR/mete, else /tmp/mete-UID. Not created here.
std::string RuntimeFolder();

// What an emulated node says of itself in run/engine.json.
struct EngineFile {
  std::string driver_root;
  uint32_t pid = 0;
  uint64_t start_time = 0;  // of that process: /proc/PID/stat, field 22
};
// Usage, naming `what`, if the text is not such a file.
StatusOr<EngineFile> ParseEngineFile(std::string_view text, std::string_view what);

// Field 22 of the text of /proc/PID/stat; 0 if it has none.
uint64_t StartTimeOf(std::string_view stat);

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_NODE_H_
