// One broker in this process: what commands and tenants can and cannot do.
#include "share/broker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "ledger/account.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "share/testing/node.h"

namespace mete::share {
namespace {

namespace fs = std::filesystem;
using testing::Eventually;
using testing::FakeTenant;
using ::testing::HasSubstr;
using testing::InProcess;
using testing::Node;

class BrokerTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(node_.Start().ok()); }
  size_t GrantsLeft() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(node_.places.grants), fs::directory_iterator()));
  }
  size_t Shares() { return (*node_.Do(Op::kList, {}))["shares"].size(); }
  Json Show(const std::string& name) {
    const StatusOr<Json> shown = node_.Do(Op::kShow, name);
    EXPECT_TRUE(shown.ok()) << Message(shown.status());
    return shown.ok() ? *shown : Json();
  }
  static void Memory8(Command& command) { command.request.memory = Bytes{8 * kGiB}; }

  Node node_;
};

TEST_F(BrokerTest, MakesShowsAndReleases) {
  const StatusOr<Json> made = node_.MakeShare("team", Memory8);
  ASSERT_TRUE(made.ok()) << Message(made.status());
  EXPECT_TRUE(fs::exists((*made)["directory"].get<std::string>() + "/broker.sock"));
  EXPECT_EQ((*made)["gpus"][0]["quota_bytes"], 8 * kGiB);
  EXPECT_TRUE(made->contains("edits"));
  EXPECT_EQ(ExitCodeFor(node_.MakeShare("team").status()), ExitCode::kRefused);
  EXPECT_THAT(Message(node_.MakeShare("big", [](Command& c) { c.request.memory = Bytes{33 * kGiB}; }).status()),
              HasSubstr("team holds a quota of 8 GiB"));
  EXPECT_EQ(ExitCodeFor(node_.Do(Op::kShow, "nobody").status()), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(node_.MakeShare("x", [](Command& c) { c.request.gpu = "7"; }).status()), ExitCode::kUsage);
  EXPECT_TRUE(Show("team")["in_force"].get<bool>());
  EXPECT_TRUE(node_.Do(Op::kRelease, "team").ok());
  EXPECT_EQ(Shares(), 0u);
  EXPECT_EQ(GrantsLeft(), 0u);
}

TEST_F(BrokerTest, AskedTwiceWithOneIdItMakesOneShare) {
  Command command;
  command.op = Op::kMake;
  command.id = RandomId();
  command.hint = "Python3 (x)";
  const StatusOr<Json> first = node_.Call(command), second = node_.Call(command);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)["name"], (*second)["name"]);
  EXPECT_THAT((*first)["name"].get<std::string>(), ::testing::StartsWith("python3x-"));
  EXPECT_EQ(Shares(), 1u);
}

TEST_F(BrokerTest, AFailedShareLeavesNothing) {
  fs::remove(node_.root / "proxies/libcuda.so.1");
  EXPECT_EQ(ExitCodeFor(node_.MakeShare("a").status()), ExitCode::kLacks);
  EXPECT_EQ(GrantsLeft(), 0u);
  EXPECT_EQ(Shares(), 0u);
  std::ofstream(node_.root / "proxies/libcuda.so.1") << "proxy";
  EXPECT_TRUE(node_.MakeShare("a").ok());
}

TEST_F(BrokerTest, TenantsAttachAndTheDeadAreCleared) {
  const Json made = *node_.MakeShare("a", Memory8);
  const auto directory = made["directory"].get<std::string>();
  FakeTenant ours(directory);
  ASSERT_EQ(ours.Attach(), "");
  EXPECT_EQ(ours.view().limits->gpu[0].memory_quota.load(), 8 * kGiB);
  ASSERT_TRUE(ledger::Reserve(ours.view(), kGiB));

  const pid_t child = InProcess([&directory] {
    FakeTenant other(directory);
    if (!other.Attach().empty() || !ledger::Reserve(other.view(), 2 * kGiB)) return 1;
    pause();
    return 0;
  });
  ASSERT_TRUE(Eventually([&] { return ledger::Used(ours.view()) == 3 * kGiB; }));
  EXPECT_EQ(Show("a")["processes"].size(), 2u);
  EXPECT_FALSE(ledger::Reserve(ours.view(), 6 * kGiB));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(Eventually([&] { return ledger::Used(ours.view()) == kGiB; }));
  EXPECT_TRUE(ledger::Reserve(ours.view(), 6 * kGiB));
  EXPECT_EQ(Show("a")["processes"].size(), 1u);
  EXPECT_TRUE(Eventually([&] { return !Show("a")["events"].empty(); }));
  EXPECT_EQ(Show("a")["events"][0]["kind"], "denied");
}

// Nobody else tells it that the work it waits for will never end.
TEST_F(BrokerTest, WhoWaitsForWorkOfTheDeadIsWoken) {
  const auto directory = (*node_.MakeShare("a", Memory8))["directory"].get<std::string>();
  FakeTenant ours(directory);
  ASSERT_EQ(ours.Attach(), "");
  const auto in_flight = [&] { return ledger::InFlight(*ours.view().ledger, 0); };
  const pid_t child = InProcess([&directory] {
    FakeTenant other(directory);
    if (!other.Attach().empty()) return 1;
    const auto verdict = ledger::TryStart(other.view(), ledger::kUnknownNs, ledger::MonotonicNs()).verdict;
    if (verdict != ledger::Verdict::kGo) return 2;
    pause();
    return 0;
  });
  ASSERT_TRUE(Eventually([&] { return in_flight() == 1; }));
  const auto ask = [&] { return ledger::TryStart(ours.view(), 1'000'000, ledger::MonotonicNs()); };
  ledger::BeginWait(ours.view(), ledger::MonotonicNs());
  ledger::Decision decision = ask();
  ASSERT_EQ(decision.verdict, ledger::Verdict::kWait);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // Not until the instant that TryStart named: the test is whether somebody wakes us.
  const uint64_t give_up = ledger::MonotonicNs() + 30'000'000'000;
  while (decision.verdict == ledger::Verdict::kWait && ledger::MonotonicNs() < give_up) {
    ledger::FutexWaitUntil(ours.view().limits->gpu[0].window_sequence, decision.window_sequence, give_up);
    decision = ask();
  }
  EXPECT_LT(ledger::MonotonicNs(), give_up);
  EXPECT_EQ(decision.verdict, ledger::Verdict::kGo);
}

TEST_F(BrokerTest, TheSameProcessAgainGetsANewSlotAndTheOldIsCleared) {
  const auto directory = (*node_.MakeShare("a"))["directory"].get<std::string>();
  FakeTenant before(directory), after(directory);
  ASSERT_EQ(before.Attach(), "");
  ASSERT_TRUE(ledger::Reserve(before.view(), kGiB));
  before.Disconnect();  // as exec does
  ASSERT_EQ(after.Attach(), "");
  EXPECT_NE(after.reply().generation, before.reply().generation);
  EXPECT_EQ(ledger::Used(after.view()), 0u);
  EXPECT_EQ(Show("a")["processes"].size(), 1u);
}

TEST_F(BrokerTest, AnObserverTakesNoSlot) {
  FakeTenant observer((*node_.MakeShare("a", Memory8))["directory"].get<std::string>());
  ASSERT_EQ(observer.Observe(), "");
  EXPECT_EQ(observer.reply().slot, ledger::kNoSlot);
  EXPECT_EQ(Show("a")["processes"].size(), 0u);
}

TEST_F(BrokerTest, ATenantMayNotChangeLimits) {
  FakeTenant a((*node_.MakeShare("a", Memory8))["directory"].get<std::string>());
  FakeTenant b((*node_.MakeShare("b"))["directory"].get<std::string>());
  ASSERT_EQ(a.Attach(), "");
  ASSERT_EQ(b.Attach(), "");
  const uint64_t usable = 40960 * kMiB - 512 * kMiB;
  EXPECT_EQ(b.view().limits->gpu[0].memory_quota.load(), usable - 8 * kGiB);
  // This very process holds a slot now.
  const auto set = [](Command& command) {
    command.memory = {true, Bytes{10 * kGiB}};
    command.compute = {true, plan::Compute{plan::ComputeMode::kHard, Percent{3000}}};
  };
  EXPECT_THAT(Message(node_.Do(Op::kSet, "a", set).status()), HasSubstr("runs inside a share"));
  EXPECT_THAT(Message(node_.Do(Op::kRelease, "a").status()), HasSubstr("runs inside a share"));
}

TEST_F(BrokerTest, SetFromOutside) {
  const auto directory = (*node_.MakeShare("a", Memory8))["directory"].get<std::string>();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = InProcess([&] {
    FakeTenant tenant(directory);
    const char ok = tenant.Attach().empty() ? 'y' : 'n';
    char byte;
    if (write(ready[1], &ok, 1) != 1 || read(done[0], &byte, 1) != 1) return 1;
    const ledger::GpuLimits& limits = tenant.view().limits->gpu[0];
    const bool changed = limits.memory_quota.load() == 10 * kGiB && limits.share.load() == 3000 &&
                         limits.mode.load() == static_cast<uint32_t>(ledger::ComputeMode::kHard) &&
                         limits.flags.load() == ledger::kTracked;
    if (!changed || write(ready[1], "y", 1) != 1 || read(done[0], &byte, 1) != 1) return 2;
    return tenant.view().limits->ended.load() == 1 ? 0 : 3;
  });
  char byte = 'n';
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  ASSERT_TRUE(node_
                  .Do(Op::kSet, "a",
                      [](Command& command) {
                        command.memory = {true, Bytes{10 * kGiB}};
                        command.compute = {true, plan::Compute{plan::ComputeMode::kHard, Percent{3000}}};
                      })
                  .ok());
  ASSERT_EQ(write(done[1], "x", 1), 1);
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(Message(node_.Do(Op::kRelease, "a").status()), HasSubstr("is in use by"));
  EXPECT_TRUE(node_.Do(Op::kRelease, "a", [](Command& command) { command.force = true; }).ok());
  ASSERT_EQ(write(done[1], "x", 1), 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST_F(BrokerTest, AShareMadeByRunEndsWithItsLastProcess) {
  std::string directory;
  const pid_t runner = InProcess([this] {
    Client client(node_.places, [] { return Lacks("no broker"); });
    Command command;
    command.op = Op::kMake;
    command.id = RandomId();
    command.request.share = "job";
    command.run = true;
    const StatusOr<Json> made = client.Call(command);
    if (!made.ok()) return 1;
    const pid_t tenant = InProcess([&made] {
      FakeTenant process((*made)["directory"].get<std::string>());
      if (!process.Attach().empty()) return 1;
      pause();
      return 0;
    });
    return Eventually([&] {
             Command show;
             show.op = Op::kShow;
             show.share = "job";
             const StatusOr<Json> shown = client.Call(show);
             return shown.ok() && shown->at("processes").size() == 1;
           }) && tenant > 0
               ? 0
               : 2;
  });
  int status = -1;
  waitpid(runner, &status, 0);
  ASSERT_EQ(status, 0);
  // The runner has gone, its tenant lives: the share stays.
  const auto pid = Show("job")["processes"][0]["pid"].get<pid_t>();
  kill(pid, SIGKILL);
  EXPECT_TRUE(Eventually([this] { return Shares() == 0; }));
  EXPECT_EQ(GrantsLeft(), 0u);
}

TEST_F(BrokerTest, AFullDiskLeavesNoPartialState) {
  // Files may not grow: what SQLite appends fails as on a full disk.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const StatusOr<Json> made = node_.MakeShare("a");
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(ExitCodeFor(made.status()), ExitCode::kLacks) << Message(made.status());
  EXPECT_THAT(Message(made.status()), HasSubstr(node_.places.book));
  EXPECT_EQ(Shares(), 0u);
  EXPECT_EQ(GrantsLeft(), 0u);
  EXPECT_TRUE(node_.MakeShare("a").ok());
}

TEST_F(BrokerTest, ASecondBrokerOfTheNodeIsRefused) {
  const auto second = Broker::Start(node_.Options());
  EXPECT_EQ(ExitCodeFor(second.status()), ExitCode::kRefused);
  EXPECT_THAT(Message(second.status()), HasSubstr(std::to_string(getpid())));
}

TEST_F(BrokerTest, NonsenseFromATenantIsRefusedAndNothingElseSuffers) {
  const auto directory = (*node_.MakeShare("a"))["directory"].get<std::string>();
  FakeTenant tenant(directory);
  EXPECT_THAT(tenant.Reattach("00"), HasSubstr("not a message"));  // no ledger with it
  ASSERT_EQ(tenant.Attach(), "");
  EXPECT_THAT(tenant.Reattach("00"), HasSubstr("another one"));
  EXPECT_EQ(Show("a")["processes"].size(), 1u);
}

TEST(BrokerAudit, SeesProcessesWithoutAShare) {
  Node node;
  const pid_t stranger = InProcess([] {
    pause();
    return 0;
  });
  node.driver.devices[0]->processes = {{static_cast<uint32_t>(stranger), Bytes{kGiB}, "stranger"}};
  ASSERT_TRUE(node.Start().ok());
  ASSERT_TRUE(node.MakeShare("a", [](Command& c) { c.request.memory = Bytes{kGiB}; }).ok());
  const Json list = *node.Do(Op::kList, {});
  ASSERT_EQ(list["foreign"].size(), 1u);
  EXPECT_EQ(list["foreign"][0]["pid"], stranger);
  const Json promises = list["shares"][0]["gpus"][0]["promises"];
  EXPECT_EQ(promises[0]["promise"], "memory-quota");
  EXPECT_FALSE(promises[0]["kept"].get<bool>());
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return (*node.Do(Op::kList, {}))["foreign"].empty(); }));
  EXPECT_TRUE((*node.Do(Op::kList, {}))["shares"][0]["gpus"][0]["promises"][0]["kept"].get<bool>());
}

TEST(BrokerIdle, EndsWhenNobodyNeedsItAndCleansUp) {
  Node node;
  Broker::Options options = node.Options();
  options.idle = std::chrono::milliseconds(1);
  auto broker = Broker::Start(std::move(options));
  ASSERT_TRUE(broker.ok());
  EXPECT_TRUE((*broker)->Run().ok());
  EXPECT_FALSE(fs::exists(node.places.socket));
}

TEST(BrokerNode, EndsEverythingWhenTheNodeIsTakenDown) {
  Node node;
  auto broker = Broker::Start(node.Options());
  ASSERT_TRUE(broker.ok());
  std::thread thread([&broker] { (void)(*broker)->Run(); });
  EXPECT_TRUE(node.MakeShare("a").ok());
  fs::remove_all(node.root / "node");
  thread.join();
  EXPECT_FALSE(fs::exists(node.places.runtime_node));
  EXPECT_FALSE(fs::exists(node.places.state_node));
}

}  // namespace
}  // namespace mete::share
