// What the program mete-emulator does for each of its commands. Each returns the status that decides the exit status.
// One thread.
#ifndef METE_EMULATOR_ENGINE_COMMANDS_H_
#define METE_EMULATOR_ENGINE_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "emulator/engine/node.h"

namespace mete::emulator {

struct UpOptions {
  std::string gpus;  // "A100-SXM4-40GB,T4"
  std::string dir;   // empty: the default folder
  std::string driver = "580";
  std::string backing;                    // SIZE; empty: a quarter of the machine's memory
  std::vector<std::string> without;       // libraries left out, for tests of the engine alone
  std::string boards;                     // folder with further boards; empty: none
  std::vector<std::string> test_without;  // rules left out, for tests
  bool json = false;
};
Status Up(const UpOptions& options);
Status Down(const std::string& dir, bool json);
Status ShowStatus(const std::string& dir, bool json);
Status ShowEnvironment(const std::string& dir);

struct FaultOptions {
  std::string kind, argument;  // "xid" "79", "throttle" "thermal"
  std::string dir, gpu, after;
  uint32_t pid = 0, count = 1;
  std::optional<double> probability, factor;
  uint64_t seed = 1;
  bool uncontained = false, list = false, json = false;
  std::string clear_id;  // "all", or the number of a fault; empty: does not clear
};
Status BreakNode(const FaultOptions& options);

// The node that a command means: the one named, else the only one that is up, else the one in the default folder.
StatusOr<NodeState> ResolveNode(const std::string& dir);
Status NotUp(const NodeState& node);

// The engine process, as started by Up: `lock_fd` is the held lock, `ready_fd` gets one byte 0 when the node answers,
// or 1 + exit status and a message when it cannot.
struct EngineOptions {
  std::string root, gpus, driver, boards;
  std::vector<std::string> test_without;
  uint64_t backing_bytes = 0;
  int lock_fd = -1, ready_fd = -1;
  bool made_root = false;
};
int RunEngine(const EngineOptions& options);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_COMMANDS_H_
