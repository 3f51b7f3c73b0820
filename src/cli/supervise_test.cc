#include "cli/supervise.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace mete::cli {
namespace {

const std::vector<std::string> kEnvironment = {"PATH=/usr/bin:/bin", "COLOUR=red"};

// Supervise changes the signal mask of its process, so each run has one of its own. Returns its exit status.
pid_t InProcess(const std::vector<std::string>& words) {
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);  // a group whose leader's parent is in another: what a terminal's stop has an effect on
    const StatusOr<Outcome> outcome = Supervise(words, kEnvironment, {});
    if (!outcome.ok()) _exit(250);
    _exit(outcome->started ? outcome->exit_status : 200 + outcome->start_errno);
  }
  return child;
}

int Wait(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Supervise, EndsAsTheProgramEnds) {
  EXPECT_EQ(Wait(InProcess({"true"})), 0);
  EXPECT_EQ(Wait(InProcess({"sh", "-c", "exit 7"})), 7);
  EXPECT_EQ(Wait(InProcess({"sh", "-c", "kill -KILL $$"})), 128 + SIGKILL);
  EXPECT_EQ(Wait(InProcess({"sh", "-c", "test \"$COLOUR\" = red"})), 0);
}

TEST(Supervise, SaysWhyAProgramCannotStart) {
  EXPECT_EQ(Wait(InProcess({"no-such-program"})), 200 + ENOENT);
  EXPECT_EQ(Wait(InProcess({"/no/such/program"})), 200 + ENOENT);
  EXPECT_EQ(Wait(InProcess({"/etc/passwd"})), 200 + EACCES);
  EXPECT_EQ(Wait(InProcess({"/etc"})), 200 + EACCES);
}

// The program says on a pipe when its trap stands; then the signal goes to the supervisor alone.
int ExitAfter(int number, const std::string& trap) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const std::string script =
      "trap '" + trap + "'; echo ready >&" + std::to_string(ready[1]) + "; while :; do sleep 0.01; done";
  const pid_t supervisor = InProcess({"sh", "-c", script});
  close(ready[1]);
  char byte;
  const bool told = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  kill(supervisor, told ? number : SIGKILL);
  return Wait(supervisor);
}

TEST(Supervise, PassesSignalsOn) {
  EXPECT_EQ(ExitAfter(SIGTERM, "exit 9' TERM; : '"), 9);
  EXPECT_EQ(ExitAfter(SIGINT, "exit 10' INT; : '"), 10);
  EXPECT_EQ(ExitAfter(SIGUSR1, "exit 11' USR1; : '"), 11);
  EXPECT_EQ(ExitAfter(SIGHUP, "exit 12' HUP; : '"), 12);
}

TEST(Supervise, AProgramThatIsStoppedByItselfGoesOnByItself) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t supervisor = InProcess({"sh", "-c", "echo $$ >&" + std::to_string(ready[1]) + "; kill -STOP $$; exit 5"});
  close(ready[1]);
  char text[16] = {};
  ASSERT_GT(read(ready[0], text, sizeof(text) - 1), 0);
  close(ready[0]);
  const pid_t program = atoi(text);
  const std::string stat = "/proc/" + std::to_string(program) + "/stat";
  for (std::string line; line.find(") T ") == std::string::npos;) std::getline(std::ifstream(stat), line);
  kill(program, SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(supervisor, &status, WUNTRACED), supervisor);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 5);
  if (WIFSTOPPED(status)) kill(supervisor, SIGKILL), waitpid(supervisor, nullptr, 0);
}

TEST(Supervise, StopsAndGoesOnWithTheProgram) {
  const pid_t supervisor = InProcess({"sh", "-c", "kill -TSTP $$; exit 5"});
  int status = 0;
  ASSERT_EQ(waitpid(supervisor, &status, WUNTRACED), supervisor);
  ASSERT_TRUE(WIFSTOPPED(status));
  kill(supervisor, SIGCONT);
  EXPECT_EQ(Wait(supervisor), 5);
}

TEST(Supervise, AttendsToTheSide) {
  int side[2], back[2];
  ASSERT_EQ(pipe(side), 0);
  ASSERT_EQ(pipe(back), 0);
  const pid_t child = fork();
  if (child == 0) {
    // The program ends only once the side was attended to.
    const std::function<int()> attend = [&back] { return write(back[1], "x\n", 2) == 2 ? -1 : -2; };
    const std::string script = "read word <&" + std::to_string(back[0]) + "; test $word = x";
    const auto outcome = Supervise({"sh", "-c", script}, kEnvironment, {side[0], attend});
    _exit(outcome.ok() ? outcome->exit_status : 1);
  }
  ASSERT_EQ(write(side[1], "x", 1), 1);
  EXPECT_EQ(Wait(child), 0);
  for (const int fd : {side[0], side[1], back[0], back[1]}) close(fd);
}

}  // namespace
}  // namespace mete::cli
