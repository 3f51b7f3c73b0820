// The engine process's loop: accepts clients on engine.sock, knows their deaths by pidfd, feeds the engine requests and
// the time, and sleeps until the next event of a model, a request or a doorbell. One thread. Times: CLOCK_MONOTONIC.
#ifndef METE_EMULATOR_ENGINE_SERVER_H_
#define METE_EMULATOR_ENGINE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"
#include "emulator/engine/engine.h"

namespace mete::emulator {

class Server {
 public:
  // Takes over `listen_fd`, a listening SOCK_SEQPACKET socket. `still_wanted` is asked every other second; false ends
  // the loop. Blocks SIGTERM and SIGINT for the process.
  static StatusOr<std::unique_ptr<Server>> Make(EngineSettings settings, int listen_fd,
                                                std::function<bool()> still_wanted);
  virtual ~Server() = default;
  // Until a client that may do so asks for the end, or SIGTERM or SIGINT comes.
  virtual Status Run() = 0;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_SERVER_H_
