// Brokers that are killed: at every point between an intent and its effect, and at random.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "ledger/account.h"
#include "share/testing/node.h"

namespace mete::share {
namespace {

namespace fs = std::filesystem;
using testing::Eventually;
using testing::FakeTenant;
using ::testing::HasSubstr;
using testing::Node;

size_t GrantsLeft(const Node& node) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(node.places.grants), fs::directory_iterator()));
}

// What must hold of a healed node: one directory per share, and every share whole.
void ExpectWhole(Node& node) {
  const StatusOr<Json> list = node.Do(Op::kList, {});
  ASSERT_TRUE(list.ok()) << Message(list.status());
  EXPECT_EQ(GrantsLeft(node), (*list)["shares"].size());
  for (const Json& share : (*list)["shares"]) {
    const StatusOr<Json> shown = node.Do(Op::kShow, share["name"].get<std::string>());
    ASSERT_TRUE(shown.ok());
    EXPECT_TRUE((*shown)["evidence"][0]["holds"].get<bool>());
    EXPECT_TRUE(fs::exists((*shown)["directory"].get<std::string>() + "/broker.sock"));
  }
}

class KilledAt : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledAt, TheNextBrokerHeals) {
  Node node;
  const pid_t first = node.Fork(GetParam());
  // Whatever it was doing: each of these comes to some of the points.
  (void)node.MakeShare("a", [](Command& c) { c.request.memory = Bytes{kGiB}; });
  (void)node.Do(Op::kSet, "a", [](Command& c) { c.memory = {true, Bytes{2 * kGiB}}; });
  (void)node.Do(Op::kRelease, "a");
  ASSERT_TRUE(Node::Kill(first));
  ASSERT_TRUE(node.Start().ok());
  ExpectWhole(node);
  // A share of that name can be had, whether it is there or not.
  const Json list = *node.Do(Op::kList, {});
  if (list["shares"].empty()) {
    EXPECT_TRUE(node.MakeShare("a").ok());
  } else {
    const auto quota = list["shares"][0]["gpus"][0]["quota_bytes"].get<uint64_t>();
    EXPECT_TRUE(quota == kGiB || quota == 2 * kGiB);
  }
  EXPECT_TRUE(node.Do(Op::kRelease, "a").ok());
  EXPECT_EQ(GrantsLeft(node), 0u);
}

INSTANTIATE_TEST_SUITE_P(Points, KilledAt,
                         ::testing::Values("make: row written", "put in force: directory made", "make: prepared",
                                           "make: in force", "set: written", "end: row written", "end: released"));

// The kernel takes a killed process apart in steps, and its locks go last.
TEST(Restart, ABrokerWaitsForTheLocksOfOneThatIsJustDying) {
  Node node;
  ASSERT_TRUE(MakePlaces(node.places).ok());
  Fd dying(open(node.places.broker_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(dying.get(), LOCK_EX), 0);
  std::thread end([&dying] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    dying.Reset();
  });
  const Status started = node.Start();
  end.join();
  EXPECT_TRUE(started.ok()) << Message(started);
}

TEST(Restart, TenantsComeBackWithWhatTheyHold) {
  Node node;
  const pid_t first = node.Fork();
  const Json made = *node.MakeShare("a", [](Command& c) { c.request.memory = Bytes{8 * kGiB}; });
  FakeTenant tenant(made["directory"].get<std::string>());
  ASSERT_EQ(tenant.Attach(), "");
  ASSERT_TRUE(ledger::Reserve(tenant.view(), 3 * kGiB));
  const auto slot = tenant.reply().slot;
  const auto generation = tenant.view().limits->generation.load();
  ASSERT_TRUE(Node::Kill(first));
  EXPECT_TRUE(ledger::Reserve(tenant.view(), kGiB));  // limits stay in force meanwhile
  EXPECT_FALSE(ledger::Reserve(tenant.view(), 5 * kGiB));

  const pid_t second = node.Fork();
  // It has found the ledger already.
  EXPECT_EQ((*node.Do(Op::kShow, "a"))["gpus"][0]["used_bytes"], 4 * kGiB);
  ASSERT_EQ(tenant.Reattach(made["id"].get<std::string>()), "");
  EXPECT_EQ(tenant.reply().slot, slot);
  EXPECT_NE(tenant.view().limits->generation.load(), generation);
  EXPECT_EQ(ledger::Used(tenant.view()), 4 * kGiB);
  EXPECT_EQ(tenant.view().limits->gpu[0].memory_quota.load(), 8 * kGiB);
  EXPECT_EQ((*node.Do(Op::kShow, "a"))["processes"].size(), 1u);
  EXPECT_THAT(tenant.Reattach("00"), HasSubstr("another one"));
  ASSERT_TRUE(Node::Kill(second));
}

// A tenant that was not answered asks again; what the broker did for it before is not counted twice.
TEST(Restart, KilledWhileATenantAttaches) {
  for (const char* point : {"attach: slot taken", "attach: written"}) {
    Node node;
    const pid_t first = node.Fork(point, 2);
    const auto directory = (*node.MakeShare("a"))["directory"].get<std::string>();
    FakeTenant before(directory), during(directory);
    ASSERT_EQ(before.Attach(), "");
    ASSERT_TRUE(ledger::Reserve(before.view(), kGiB));
    ASSERT_NE(during.Attach(), "");
    ASSERT_TRUE(Node::Kill(first));
    const pid_t second = node.Fork();
    ASSERT_EQ(during.Attach(), "");
    EXPECT_EQ((*node.Do(Op::kShow, "a"))["processes"].size(), 1u);
    EXPECT_EQ(ledger::Used(during.view()), 0u);
    ASSERT_TRUE(Node::Kill(second));
  }
}

TEST(Restart, AShareWhoseLastProcessDiedMeanwhileEnds) {
  Node node;
  const pid_t first = node.Fork();
  const pid_t runner = testing::InProcess([&node] {
    Client client(node.places, [] { return Lacks("no broker"); });
    Command command;
    command.op = Op::kMake;
    command.id = RandomId();
    command.run = true;
    if (!client.Call(command).ok()) return 1;
    pause();
    return 0;
  });
  ASSERT_TRUE(node.MakeShare("kept").ok());
  ASSERT_TRUE(Eventually([&] { return (*node.Do(Op::kList, {}))["shares"].size() == 2; }));
  ASSERT_TRUE(Node::Kill(first));
  kill(runner, SIGKILL);
  waitpid(runner, nullptr, 0);
  ASSERT_TRUE(node.Start().ok());
  const Json list = *node.Do(Op::kList, {});
  ASSERT_EQ(list["shares"].size(), 1u);
  EXPECT_EQ(list["shares"][0]["name"], "kept");
  EXPECT_EQ(GrantsLeft(node), 1u);
}

TEST(Restart, AHundredKillsAtRandomLoseNothing) {
  Node node;
  constexpr uint32_t kSeed = 20261129;
  std::mt19937 random(kSeed);
  RecordProperty("seed", static_cast<int>(kSeed));
  std::set<std::string> confirmed;  // shares whose making was answered and whose release was not asked
  for (int round = 0; round < 100; ++round) {
    const char* points[] = {"make:", "put in force:", "end:", "set:", ""};
    const pid_t broker = node.Fork(points[random() % 5], 1 + static_cast<int>(random() % 4));
    for (int step = 0; step < 6; ++step) {
      const std::string name = "s" + std::to_string(random() % 5);
      switch (random() % 3) {
        case 0:
          if (node.MakeShare(name, [](Command& c) { c.request.memory = Bytes{kGiB}; }).ok()) confirmed.insert(name);
          break;
        case 1:
          confirmed.erase(name);
          (void)node.Do(Op::kRelease, name);
          break;
        default: (void)node.Do(Op::kSet, name, [](Command& c) { c.memory = {true, Bytes{2 * kGiB}}; });
      }
    }
    ASSERT_TRUE(Node::Kill(broker));
  }
  ASSERT_TRUE(node.Start().ok());
  ExpectWhole(node);
  const Json list = *node.Do(Op::kList, {});
  for (const std::string& name : confirmed) {
    EXPECT_TRUE(std::any_of(list["shares"].begin(), list["shares"].end(), [&name](const Json& share) {
      return share["name"] == name;
    })) << name;
  }
  for (const Json& share : list["shares"]) {
    EXPECT_TRUE(node.Do(Op::kRelease, share["name"].get<std::string>()).ok());
  }
  EXPECT_EQ(GrantsLeft(node), 0u);
}

TEST(Restart, AScribbledBookIsLeftAloneAndNamed) {
  Node node;
  ASSERT_TRUE(node.Start().ok());
  ASSERT_TRUE(node.MakeShare("a").ok());
  node.Stop();
  fs::remove(node.places.book + "-wal");
  std::ofstream(node.places.book, std::ios::binary) << std::string(8192, 'x');
  const Status started = node.Start();
  EXPECT_EQ(ExitCodeFor(started), ExitCode::kLacks);
  EXPECT_THAT(Message(started), HasSubstr("Move it aside"));
  EXPECT_EQ(fs::file_size(node.places.book), 8192u);
  EXPECT_EQ(GrantsLeft(node), 1u);
}

TEST(Places, ThatAreNotOursAreRefused) {
  Node node;
  fs::create_directory(node.root / "r");
  fs::permissions(node.root / "r", fs::perms::all);
  EXPECT_THAT(Message(node.Start()), HasSubstr("could be written by others"));
  fs::remove(node.root / "r");
  std::ofstream(node.root / "r") << "x";
  EXPECT_THAT(Message(node.Start()), HasSubstr("not a directory"));
  fs::remove(node.root / "r");
  fs::create_directory_symlink("/tmp", node.root / "r");
  EXPECT_EQ(ExitCodeFor(node.Start()), ExitCode::kLacks);
  fs::remove(node.root / "r");
  EXPECT_TRUE(node.Start().ok());
  EXPECT_EQ(ExitCodeFor(PlacesBelow(node.root.string(), "/" + std::string(90, 'x'), "/s").status()), ExitCode::kLacks);
  EXPECT_EQ(ExitCodeFor(PlacesBelow("/nowhere", "/r", "/s").status()), ExitCode::kLacks);
}

}  // namespace
}  // namespace mete::share
