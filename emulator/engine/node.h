// The folder of an emulated node and the registry of the user's nodes: what `up` makes, `down` removes and everybody
// reads. README.md documents the format. Any thread; errors are Status values fit for the command line.
#ifndef METE_EMULATOR_ENGINE_NODE_H_
#define METE_EMULATOR_ENGINE_NODE_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "emulator/engine/boards.h"
#include "emulator/engine/protocol.h"

namespace mete::emulator {

// $XDG_RUNTIME_DIR/mete, else /tmp/mete-UID. Made when missing (0700); Lacks if it is not the user's alone.
StatusOr<std::string> RuntimeFolder();

// A node as its run/engine.json tells; `running` only if the engine that wrote it lives.
struct NodeState {
  std::string root;
  bool running = false;
  int pid = 0;
  Json json;
};
// Nothing there: `json` is null. Usage if there is an engine.json that cannot be understood.
StatusOr<NodeState> ReadNode(const std::string& root);
// The user's nodes that are up, by the registry; stale entries are removed on the way.
std::vector<NodeState> NodesUp();

// Holds a node's folder for one `up` and then its engine: a lock on run/engine.pid.
// -1 with Refused if an engine or another `up` holds it.
StatusOr<int> LockNode(const std::string& root);

// Makes usr, dev, proc, sys below `root`; `libraries` is where the emulated libraries and nvidia-smi are, `without`
// names those to leave out.
Status MakeTree(const std::string& root, const std::string& libraries, const std::vector<std::string>& without,
                size_t gpus, const DriverBranch& driver);
// Removes what `up` made below `root` and nothing else; `root` itself only if `and_root` and nothing is left in it.
void RemoveTree(const std::string& root, bool and_root);
// True if `root` holds something that no `up` has made.
bool HoldsForeignFiles(const std::string& root);

// Written by the engine when it answers, and its symlink in the registry.
Status PublishNode(const std::string& root, const EngineSettings& settings, bool made_root);
void UnpublishNode(const std::string& root);

uint64_t StartTime(int pid);  // /proc/PID/stat field 22; 0 if there is no such process

// One request to the engine of a node, for the commands. Waits at most five seconds.
StatusOr<std::string> Ask(const std::string& root, MessageType type);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_NODE_H_
