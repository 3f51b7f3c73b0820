// What the program mete-emulator does for each of its commands. Each returns the status that decides the exit status.
// One thread.
#ifndef METE_EMULATOR_ENGINE_COMMANDS_H_
#define METE_EMULATOR_ENGINE_COMMANDS_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace mete::emulator {

struct UpOptions {
  std::string gpus;  // "A100-SXM4-40GB,T4"
  std::string dir;   // empty: the default folder
  std::string driver = "580";
  std::string backing;               // SIZE; empty: a quarter of the machine's memory
  std::vector<std::string> without;  // libraries left out, for tests of the engine alone
  bool json = false;
};
Status Up(const UpOptions& options);
Status Down(const std::string& dir, bool json);
Status ShowStatus(const std::string& dir, bool json);
Status ShowEnvironment(const std::string& dir);

// The engine process, as started by Up: `lock_fd` is the held lock, `ready_fd` gets one byte 0 when the node answers,
// or 1 + exit status and a message when it cannot.
struct EngineOptions {
  std::string root, gpus, driver;
  uint64_t backing_bytes = 0;
  int lock_fd = -1, ready_fd = -1;
  bool made_root = false;
};
int RunEngine(const EngineOptions& options);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_COMMANDS_H_
