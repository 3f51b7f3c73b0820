#include "cli/top_screen.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace mete::cli {
namespace {

// ECMA-48, and xterm's alternate screen: not mixed with what the user had in view.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l", kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H", kClearLine = "\x1b[K", kClearRest = "\x1b[J";

void Put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(STDOUT_FILENO, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

sigset_t Answered() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH}) sigaddset(&set, number);
  return set;
}

// The first `columns` columns of a line.
std::string_view CutTo(std::string_view line, size_t columns) {
  size_t at = 0;
  for (size_t seen = 0; at < line.size(); ++at) {
    if ((static_cast<unsigned char>(line[at]) & 0xC0) != 0x80 && ++seen > columns) break;
  }
  return line.substr(0, at);
}

}  // namespace

bool Screen::OnTerminal() { return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1; }

StatusOr<std::unique_ptr<Screen>> Screen::Take() {
  termios before = {};
  if (tcgetattr(STDIN_FILENO, &before) != 0) return Lacks("standard input is no terminal");
  std::unique_ptr<Screen> screen(new Screen);
  screen->before_ = before;
  const sigset_t answered = Answered();
  sigprocmask(SIG_BLOCK, &answered, &screen->mask_before_);
  screen->signals_.Reset(signalfd(-1, &answered, SFD_CLOEXEC | SFD_NONBLOCK));
  screen->Enter();
  if (!screen->signals_.valid()) return Lacks("cannot wait for signals: {}", std::strerror(errno));
  return screen;
}

Screen::~Screen() {
  Leave();
  signals_.Reset();
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Screen::Enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  Put(kEnter);
}

void Screen::Leave() {
  Put(kLeave);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

Screen::Size Screen::SizeNow() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

void Screen::Show(const std::string& text) {
  const Size size = SizeNow();
  const std::vector<std::string> lines = Wrap(text, 0);
  const size_t count = !lines.empty() && lines.back().empty() ? lines.size() - 1 : lines.size();
  const bool all = count <= size.rows;
  std::string picture(kHome);
  for (size_t i = 0; i < (all ? count : size.rows); ++i) {
    if (i != 0) picture += "\r\n";
    const bool last = !all && i + 1 == size.rows;
    picture += last ? fmt::format("… {} more lines", count - i) : CutTo(lines[i], size.columns);
    picture += kClearLine;
  }
  Put(picture.append(kClearRest));
}

bool Screen::Wait(std::chrono::milliseconds time) {
  std::array<pollfd, 2> ready = {{{signals_.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
  const int count = poll(ready.data(), ready.size(), static_cast<int>(time.count()));
  if (count <= 0) return true;
  signalfd_siginfo info = {};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGWINCH) continue;
    if (info.ssi_signo != SIGTSTP) return false;
    Leave();
    raise(SIGSTOP);
    Enter();
  }
  if (ready[1].revents == 0) return true;
  char key = 0;
  if (read(STDIN_FILENO, &key, 1) <= 0) return false;  // the terminal has gone
  constexpr char kEscape = '\x1b', kEndOfInput = '\x04';
  return key != 'q' && key != 'Q' && key != kEscape && key != kEndOfInput;
}

}  // namespace mete::cli
