// The terminal while `mete top` runs: pictures one over the other on the alternate screen, keys without Enter, and
// everything as it was when the object goes, however the program is asked to end. One object at a time, one thread:
// while it lives, SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGWINCH are blocked in this thread and answered by Wait.
#ifndef METE_CLI_TOP_SCREEN_H_
#define METE_CLI_TOP_SCREEN_H_

#include <termios.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include "base/status.h"
#include "share/process.h"

namespace mete::cli {

class Screen {
 public:
  // Standard input and output must be a terminal; `OnTerminal` tells. Lacks if it cannot be set up.
  static StatusOr<std::unique_ptr<Screen>> Take();
  static bool OnTerminal();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    size_t columns, rows;
  };
  static Size SizeNow();

  // Shows as many lines as there is room for; what does not fit is counted in the last one.
  void Show(const std::string& text);

  // Until `time` has passed or the terminal has another size (true), or the user wants to leave (false). Ctrl-Z stops
  // the program, and the picture comes back when it goes on.
  bool Wait(std::chrono::milliseconds time);

 private:
  Screen() = default;
  void Enter();
  void Leave();

  termios before_ = {};
  sigset_t mask_before_ = {};
  share::Fd signals_;
};

}  // namespace mete::cli

#endif  // METE_CLI_TOP_SCREEN_H_
