// The driver's word against the ledger: memory that nobody charged, memory that outlives its maker, processes that go
// past the library.
#include "share/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "ledger/account.h"
#include "nvml/fake.h"
#include "plan/resolve.h"
#include "share/testing/node.h"

namespace mete::share {
namespace {

using testing::Eventually;
using testing::FakeTenant;
using ::testing::HasSubstr;
using testing::InProcess;
using testing::Node;

// Reported fault 51: on boards with unified memory others panic, or limit nothing.
TEST(ReadGpus, Fault51_AGpuThatDoesNotTellItsMemoryIsNamedAndTheOthersAreUsed) {
  nvml::FakeLibrary library;
  library.Add().memory_failure = absl::UnimplementedError("NVML: not supported");
  const auto none = ReadGpus(library);
  EXPECT_EQ(ExitCodeFor(none.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(none.status()), HasSubstr("GPU 0 (NVIDIA A100-SXM4-40GB)"));
  library.Add();
  const auto one = ReadGpus(library);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].index, 1u);
}

// A node whose driver can be told what processes hold while the broker runs.
class AuditTest : public ::testing::Test {
 protected:
  void Start(const char* on_bypass = nullptr) {
    ASSERT_TRUE(node_.Start(std::chrono::milliseconds(20)).ok());
    const StatusOr<Json> made = node_.MakeShare("a", [&](Command& command) {
      command.request.memory = Bytes{8 * kGiB};
      if (on_bypass != nullptr) command.on_bypass = *plan::ParseOnBypass(on_bypass);
    });
    ASSERT_TRUE(made.ok()) << Message(made.status());
    directory_ = (*made)["directory"].get<std::string>();
  }
  void DriverSays(std::vector<nvml::Process> processes) { node_.driver.devices[0]->SetProcesses(std::move(processes)); }
  // A process that attaches, charges and waits; it is in force when this returns.
  pid_t Tenant(uint64_t charged, bool exported) {
    int ready[2];
    if (pipe(ready) != 0) return -1;
    const pid_t child = InProcess([&] {
      FakeTenant tenant(directory_);
      if (!tenant.Attach().empty() || !ledger::Reserve(tenant.view(), charged)) return 1;
      if (exported) ledger::MarkExported(tenant.view());
      if (write(ready[1], "x", 1) != 1) return 1;
      pause();
      return 0;
    });
    char byte;
    close(ready[1]);
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
  }
  void End(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  static uint32_t Pid(pid_t pid) { return static_cast<uint32_t>(pid); }
  Json Show() { return *node_.Do(Op::kShow, "a"); }
  std::string Events() { return Show()["events"].dump(); }
  static char StateOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string skip;
    char state = '?';
    file >> skip >> skip >> state;
    return state;
  }

  Node node_;
  std::string directory_;
};

TEST_F(AuditTest, MemoryThatNobodyChargedCountsAgainstTheQuota) {
  Start();
  FakeTenant tenant(directory_);
  ASSERT_EQ(tenant.Attach(), "");
  ASSERT_TRUE(ledger::Reserve(tenant.view(), kGiB));
  DriverSays({{Pid(getpid()), Bytes{3 * kGiB}, "test"}});
  ASSERT_TRUE(Eventually([&] { return ledger::Used(tenant.view()) == 3 * kGiB; }));
  EXPECT_FALSE(ledger::Reserve(tenant.view(), 6 * kGiB));
  EXPECT_EQ(Show()["processes"][0]["memory_bytes"][0], 3 * kGiB);
  EXPECT_EQ(Show()["gpus"][0]["used_bytes"], 3 * kGiB);
  // What is charged later was part of it.
  ASSERT_TRUE(ledger::Reserve(tenant.view(), kGiB));
  ASSERT_TRUE(Eventually([&] { return ledger::Used(tenant.view()) == 3 * kGiB; }));
  DriverSays({{Pid(getpid()), Bytes{kGiB}, "test"}});
  ASSERT_TRUE(Eventually([&] { return ledger::Used(tenant.view()) == 2 * kGiB; }));
}

TEST_F(AuditTest, ATenantMayAskForARound) {
  Start();
  FakeTenant tenant(directory_);
  ASSERT_EQ(tenant.Attach(), "");
  const uint32_t before = tenant.view().limits->audits.load();
  ASSERT_TRUE(tenant.AskForAudit());
  EXPECT_TRUE(Eventually([&] {
    const uint32_t now = tenant.view().limits->audits.load();
    return now % 2 == 0 && now - before >= 2;
  }));
}

TEST_F(AuditTest, WhatADeadProcessMadeForOthersIsChargedToWhoHoldsItBeforeItIsGivenBack) {
  Start();
  FakeTenant heir(directory_);
  ASSERT_EQ(heir.Attach(), "");
  const pid_t maker = Tenant(5 * kGiB, true);
  DriverSays({{Pid(maker), Bytes{5 * kGiB}, "maker"}});
  // From now on nobody may take the 5 GiB, whenever the maker's death is noticed.
  std::atomic<bool> ended{false};
  std::atomic<int> taken{0};
  std::thread racer([&] {
    while (!ended) {
      if (ledger::Reserve(heir.view(), 4 * kGiB)) ++taken, ledger::Return(heir.view(), 4 * kGiB);
    }
  });
  DriverSays({{Pid(maker), Bytes{5 * kGiB}, "maker"}, {Pid(getpid()), Bytes{5 * kGiB}, "heir"}});
  End(maker);
  EXPECT_TRUE(Eventually([&] { return Show()["processes"].size() == 1 && heir.view().limits->leaving.load() == 0; }));
  ended = true;
  racer.join();
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(ledger::Used(heir.view()), 5 * kGiB);
  DriverSays({});
  EXPECT_TRUE(Eventually([&] { return ledger::Used(heir.view()) == 0; }));
}

TEST_F(AuditTest, WhatNobodyHoldsAnyMoreIsGivenBack) {
  Start();
  FakeTenant other(directory_);
  ASSERT_EQ(other.Attach(), "");
  const pid_t maker = Tenant(5 * kGiB, true);
  DriverSays({{Pid(maker), Bytes{5 * kGiB}, "maker"}});
  End(maker);
  DriverSays({});
  EXPECT_TRUE(Eventually([&] { return ledger::Used(other.view()) == 0; }));
  EXPECT_TRUE(ledger::Reserve(other.view(), 8 * kGiB));
}

TEST_F(AuditTest, ABypassIsReportedAndOtherwiseLeftAlone) {
  Start();
  const pid_t tenant = Tenant(kGiB, false);
  DriverSays({{Pid(tenant), Bytes{9 * kGiB}, "greedy"}});
  EXPECT_TRUE(Eventually([&] { return Events().find("\"bypass\"") != std::string::npos; }));
  EXPECT_THAT(Events(), HasSubstr("only reported"));
  EXPECT_EQ(kill(tenant, 0), 0);
  EXPECT_NE(StateOf(tenant), 'T');
  End(tenant);
}

TEST_F(AuditTest, ABypassIsStoppedUntilItIsLetGo) {
  Start("freeze");
  const pid_t tenant = Tenant(kGiB, false);
  DriverSays({{Pid(tenant), Bytes{9 * kGiB}, "greedy"}});
  EXPECT_TRUE(Eventually([&] { return StateOf(tenant) == 'T'; }));
  EXPECT_THAT(Events(), HasSubstr("stopped"));
  ASSERT_TRUE(node_.Do(Op::kSet, "a", [](Command& command) { command.on_bypass = plan::OnBypass::kReport; }).ok());
  EXPECT_TRUE(Eventually([&] { return StateOf(tenant) == 'S'; }));
  EXPECT_EQ(Show()["on_bypass"], "report");
  End(tenant);
}

TEST_F(AuditTest, ABypassIsKilledAndItsNeighboursAreNot) {
  Start("kill");
  const pid_t honest = Tenant(kGiB, false), greedy = Tenant(kGiB, false);
  DriverSays({{Pid(honest), Bytes{kGiB}, "honest"}, {Pid(greedy), Bytes{9 * kGiB}, "greedy"}});
  int status = 0;
  EXPECT_EQ(waitpid(greedy, &status, 0), greedy);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(kill(honest, 0), 0);
  EXPECT_TRUE(Eventually([&] { return Events().find("killed") != std::string::npos; }));
  End(honest);
}

TEST_F(AuditTest, AQuotaThatWasLoweredUnderATenantIsNoBypass) {
  Start("kill");
  const pid_t tenant = Tenant(6 * kGiB, false);
  DriverSays({{Pid(tenant), Bytes{6 * kGiB + 300 * kMiB}, "fat context"}});
  ASSERT_TRUE(node_.Do(Op::kSet, "a", [](Command& command) { command.memory = {true, Bytes{4 * kGiB}}; }).ok());
  EXPECT_TRUE(Eventually([&] { return Events().find("over-quota") != std::string::npos; }));
  FakeTenant observer(directory_);
  ASSERT_EQ(observer.Observe(), "");
  const uint32_t before = observer.view().limits->audits.load();
  EXPECT_TRUE(Eventually([&] { return observer.view().limits->audits.load() - before > 40; }));
  EXPECT_EQ(kill(tenant, 0), 0);
  EXPECT_NE(StateOf(tenant), 'Z');
  End(tenant);
}

}  // namespace
}  // namespace mete::share
