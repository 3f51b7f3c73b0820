// A node of its own for each test, brought up by the program; clients are real processes.
#include "emulator/engine/client.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "emulator/engine/launch_label.h"
#include "emulator/engine/node.h"
#include "emulator/engine/protocol.h"

namespace mete::emulator {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::Le;
using ::testing::Lt;

constexpr uint64_t kMs = 1'000'000;

// Tests wait for conditions; this bound only keeps a broken one from hanging.
bool Await(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) return true;
    usleep(1000);
  }
  return false;
}

Work Compute(double ns) {
  const GpuParameters gpu;
  Work work;
  work.kind = WorkKind::kKernel;
  work.kernel.threads_per_block = 256;
  work.kernel.blocks = gpu.sm_count * 8;
  work.kernel.warp_instructions[kFp32] = ns * 1e-9 * gpu.clock_hz * 2 / 8;
  return work;
}

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/mete-engine-test-XXXXXX";
    folder_ = mkdtemp(name);
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    root_ = folder_ + "/node with a space";
    ASSERT_EQ(Run("up --gpus A100-SXM4-40GB,T4 --dir '" + root_ + "' --backing 1GiB " + kWithout), 0);
  }
  void TearDown() override {
    Run("down --dir '" + root_ + "'");
    EXPECT_FALSE(fs::exists(root_)) << "down left something behind";
    fs::remove_all(folder_);
  }
  static int Run(const std::string& words) {
    const int status = std::system((METE_EMULATOR " " + words + " >/dev/null 2>&1").c_str());
    return WEXITSTATUS(status);
  }
  std::unique_ptr<Client> Open() {
    Client* client = nullptr;
    std::string why;
    EXPECT_TRUE(Client::Connect(root_.c_str(), &client, &why)) << why;
    return std::unique_ptr<Client>(client);
  }
  // Runs `body` in a child process that ends with 0 if it returns true. The child must not use gtest.
  pid_t Fork(const std::function<bool()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body() ? 0 : 1);
    return child;
  }
  static int Reap(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string Node() const { return root_; }

  static constexpr char kWithout[] = "--without libcuda.so.1 --without libnvidia-ml.so.1 --without nvidia-smi";
  std::string folder_, root_;
};

TEST_F(ClientTest, SaysWhatTheNodeIs) {
  const auto client = Open();
  ASSERT_EQ(client->Gpus().size(), 2u);
  EXPECT_STREQ(client->Gpus()[0].name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(client->Gpus()[0].sm_count, 108u);
  EXPECT_EQ(client->Gpus()[1].compute_minor, 5u);
  EXPECT_EQ(client->DriverVersion().substr(0, 4), "580.");
  EXPECT_EQ(client->CudaVersion(), 13000u);
  EXPECT_EQ(client->BackingBytes(), uint64_t{1} << 30);
}

TEST_F(ClientTest, KernelsCompleteInEngineTime) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  client->Submit(stream, Compute(100.0 * kMs));  // while it runs, the rest is queued: nothing starts late
  const uint64_t first = client->Submit(stream, Work{});
  for (int i = 0; i < 20; ++i) client->Submit(stream, Compute(1.0 * kMs));
  const uint64_t last = client->Submit(stream, Work{});
  EXPECT_EQ(last, 23u);
  EXPECT_EQ(client->Wait(stream, last), Result::kOk);
  EXPECT_TRUE(client->Done(stream, last));
  EXPECT_FALSE(client->Done(stream, last + 1));
  // However late the machine was, the markers tell the model's time.
  const uint64_t took = client->MarkerTime(stream, last) - client->MarkerTime(stream, first);
  EXPECT_THAT(static_cast<double>(took) / kMs, AllOf(Ge(19.9), Le(20.3)));
  EXPECT_GE(client->EngineTime(0), client->MarkerTime(stream, last));
}

TEST_F(ClientTest, RingLongerThanItsSizeLosesNothing) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  uint64_t last = 0;
  for (int i = 0; i < 20'000; ++i) last = client->Submit(stream, Work{});
  EXPECT_EQ(last, 20'000u);
  EXPECT_EQ(client->Wait(stream, last), Result::kOk);
  EXPECT_NE(client->MarkerTime(stream, 1), 0u);
}

TEST_F(ClientTest, MemoryIsCountedAndRefused) {
  const auto client = Open();
  uint64_t context = 0, free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(client->MemoryInfo(0, &free_before, &total), Result::kOk);
  EXPECT_EQ(total, client->Gpus()[0].memory_bytes);
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->MemoryInfo(0, &free_after, &total), Result::kOk);
  EXPECT_EQ(free_before - free_after, client->Gpus()[0].context_bytes);
  EXPECT_EQ(client->ReserveMemory(context, free_after + 1), Result::kOutOfMemory);
  EXPECT_EQ(client->ReserveMemory(context, free_after), Result::kOk);
  EXPECT_EQ(client->ReserveMemory(context, 1), Result::kOutOfMemory);
  uint64_t second = 0;
  EXPECT_EQ(client->CreateContext(0, &second), Result::kOutOfMemory);
  EXPECT_EQ(client->ReturnMemory(context, free_after + 1), Result::kRefused);
  EXPECT_EQ(client->ReturnMemory(context, free_after), Result::kOk);
  EXPECT_EQ(client->DestroyContext(context), Result::kOk);
  EXPECT_EQ(client->DestroyContext(context), Result::kNoSuchObject);
  ASSERT_EQ(client->MemoryInfo(0, &free_after, &total), Result::kOk);
  EXPECT_EQ(free_after, free_before);
  EXPECT_TRUE(client->TakeBacking(uint64_t{1} << 30));
  EXPECT_FALSE(client->TakeBacking(1));
  client->GiveBacking(uint64_t{1} << 30);
  EXPECT_TRUE(client->TakeBacking(1));
}

TEST_F(ClientTest, KilledProcessGivesEverythingBackEvenIfItsChildKeepsTheSocket) {
  const auto watcher = Open();
  for (const bool with_child : {false, true}) {
    int alive[2];  // the child ends when the test closes its end
    ASSERT_EQ(pipe(alive), 0);
    const pid_t tenant = Fork([&] {
      Client* client = nullptr;
      std::string why;
      uint64_t context = 0;
      uint32_t stream = 0;
      if (!Client::Connect(root_.c_str(), &client, &why) || client->CreateContext(0, &context) != Result::kOk)
        return false;
      Work endless = Compute(1.0 * kMs);
      endless.kernel.unbounded = 1;
      client->OpenStream(context, &stream);
      client->Submit(stream, endless);
      client->ReserveMemory(context, uint64_t{8} << 30);
      // The child keeps a copy of the socket, and may do nothing with it.
      if (with_child && fork() == 0) {
        if (client->ReserveMemory(context, 1) != Result::kLost || client->Submit(stream, endless) != 0) _exit(1);
        char none;
        close(alive[1]);
        _exit(read(alive[0], &none, 1) == 0 ? 0 : 1);
      }
      pause();
      return true;
    });
    GpuState state = {};
    ASSERT_TRUE(Await([&] {
      return watcher->State(0, &state) == Result::kOk && state.memory_used_bytes > uint64_t{8} << 30 &&
             state.utilization_gpu > 0;
    }));
    std::vector<ProcessInfo> processes;
    ASSERT_EQ(watcher->Processes(0, &processes), Result::kOk);
    ASSERT_EQ(processes.size(), 1u);
    EXPECT_EQ(processes[0].pid, static_cast<uint32_t>(tenant));
    EXPECT_GT(processes[0].busy_ns, 0u);
    EXPECT_THAT(processes[0].name, ::testing::HasSubstr("emulator_client_test"));
    kill(tenant, SIGKILL);
    EXPECT_EQ(Reap(tenant), 128 + SIGKILL);
    EXPECT_TRUE(Await([&] { return watcher->State(0, &state) == Result::kOk && state.memory_used_bytes == 0; }));
    EXPECT_EQ(state.contexts, 0u);
    close(alive[0]);
    close(alive[1]);
  }
}

TEST_F(ClientTest, ForkedChildIsNotConnected) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  const pid_t child = Fork([&] {
    uint64_t other = 0;
    return client->CreateContext(0, &other) == Result::kLost && client->Submit(stream, Work{}) == 0 &&
           client->Wait(stream, 1) == Result::kLost && client->ContextState(context, nullptr) == Result::kLost;
  });
  EXPECT_EQ(Reap(child), 0);
  EXPECT_EQ(client->Wait(stream, client->Submit(stream, Work{})), Result::kOk);
}

TEST_F(ClientTest, TenProcessesShareOneGpuByTime) {
  constexpr int kTenants = 10;
  std::vector<pid_t> tenants;
  for (int i = 0; i < kTenants; ++i) {
    tenants.push_back(Fork([&] {
      Client* client = nullptr;
      std::string why;
      uint64_t context = 0;
      uint32_t stream = 0;
      if (!Client::Connect(root_.c_str(), &client, &why) || client->CreateContext(0, &context) != Result::kOk ||
          client->OpenStream(context, &stream) != Result::kOk) {
        return false;
      }
      for (;;) {
        const uint64_t last = client->Submit(stream, Compute(1.0 * kMs));
        if (last == 0) return false;
        if (last > 16 && client->Wait(stream, last - 16) != Result::kOk) return false;
      }
    }));
  }
  const auto watcher = Open();
  std::vector<ProcessInfo> first, second;
  ASSERT_TRUE(Await([&] {
    if (watcher->Processes(0, &first) != Result::kOk || first.size() != kTenants) return false;
    return std::all_of(first.begin(), first.end(), [](const ProcessInfo& p) { return p.busy_ns > 0; });
  }));
  // Half a second of GPU time later each has had a tenth of it.
  uint64_t total = 0;
  ASSERT_TRUE(Await([&] {
    total = 0;
    if (watcher->Processes(0, &second) != Result::kOk || second.size() != kTenants) return false;
    for (int i = 0; i < kTenants; ++i) total += second[i].busy_ns - first[i].busy_ns;
    return total > 500 * kMs;
  }));
  for (int i = 0; i < kTenants; ++i) {
    EXPECT_NEAR(static_cast<double>(second[i].busy_ns - first[i].busy_ns) / static_cast<double>(total), 0.1, 0.03);
  }
  GpuState state = {};
  ASSERT_TRUE(Await([&] { return watcher->State(0, &state) == Result::kOk && state.utilization_gpu >= 90; }));
  EXPECT_GT(state.power_mw, 100'000u);
  for (const pid_t tenant : tenants) kill(tenant, SIGKILL);
  for (const pid_t tenant : tenants) EXPECT_EQ(Reap(tenant), 128 + SIGKILL);
  EXPECT_TRUE(Await([&] { return watcher->State(0, &state) == Result::kOk && state.contexts == 0; }));
  EXPECT_TRUE(Await([&] { return watcher->State(0, &state) == Result::kOk && state.utilization_gpu == 0; }));
}

TEST_F(ClientTest, FailedContextWakesItsWaitersAndHurtsNobodyElse) {
  const auto client = Open();
  uint64_t bad = 0, good = 0;
  uint32_t hung = 0, fine = 0, xid = 0;
  ASSERT_EQ(client->CreateContext(0, &bad), Result::kOk);
  ASSERT_EQ(client->CreateContext(0, &good), Result::kOk);
  ASSERT_EQ(client->OpenStream(bad, &hung), Result::kOk);
  ASSERT_EQ(client->OpenStream(good, &fine), Result::kOk);
  Work endless = Compute(1.0 * kMs);
  endless.kernel.unbounded = 1;
  const uint64_t sequence = client->Submit(hung, endless);
  std::atomic<bool> waiting = false;
  Result result = Result::kOk;
  std::thread waiter([&] {
    waiting = true;
    result = client->Wait(hung, sequence);
  });
  ASSERT_TRUE(Await([&] { return waiting.load(); }));
  EXPECT_EQ(client->Wait(fine, client->Submit(fine, Compute(5.0 * kMs))), Result::kOk);
  EXPECT_EQ(client->ContextState(bad, &xid), Result::kOk);
  EXPECT_EQ(client->FailContext(bad, 31), Result::kOk);
  waiter.join();
  EXPECT_EQ(result, Result::kContextDead);
  EXPECT_EQ(client->ContextState(bad, &xid), Result::kContextDead);
  EXPECT_EQ(xid, 31u);
  EXPECT_EQ(client->ReserveMemory(bad, 1), Result::kContextDead);
  EXPECT_NE(client->Submit(hung, Work{}), 0u);
  EXPECT_EQ(client->ContextState(good, nullptr), Result::kOk);
  EXPECT_EQ(client->Wait(fine, client->Submit(fine, Compute(1.0 * kMs))), Result::kOk);
  EXPECT_EQ(client->DestroyContext(bad), Result::kOk);
  EXPECT_EQ(client->Wait(hung, sequence), Result::kOk);  // a stream that is gone
}

TEST_F(ClientTest, StreamsOfTwoGpusWaitForEachOther) {
  const auto client = Open();
  uint64_t here = 0, there = 0;
  uint32_t a = 0, b = 0;
  ASSERT_EQ(client->CreateContext(0, &here), Result::kOk);
  ASSERT_EQ(client->CreateContext(1, &there), Result::kOk);
  ASSERT_EQ(client->OpenStream(here, &a), Result::kOk);
  ASSERT_EQ(client->OpenStream(there, &b), Result::kOk);
  Work wait;
  wait.kind = WorkKind::kWaitFor;
  client->Submit(a, Compute(20.0 * kMs));
  wait.wait_stream = a;
  wait.wait_sequence = client->Submit(a, Work{});
  client->Submit(b, wait);
  const uint64_t after = client->Submit(b, Work{});
  ASSERT_EQ(client->Wait(b, after), Result::kOk);
  EXPECT_EQ(client->MarkerTime(b, after), client->MarkerTime(a, wait.wait_sequence));
}

TEST_F(ClientTest, ClosedStreamFinishesAndItsSlotIsUsedAgain) {
  const auto client = Open();
  uint64_t context = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  uint32_t first = 0, second = 0;
  ASSERT_EQ(client->OpenStream(context, &first), Result::kOk);
  const uint64_t last = client->Submit(first, Compute(10.0 * kMs));
  EXPECT_EQ(client->CloseStream(first), Result::kOk);
  EXPECT_EQ(client->CloseStream(first), Result::kNoSuchObject);
  EXPECT_EQ(client->Wait(first, last), Result::kOk);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(client->OpenStream(context, &second), Result::kOk);
    ASSERT_NE(second, first);
    ASSERT_EQ(client->CloseStream(second), Result::kOk);
  }
  EXPECT_TRUE(client->Done(first, last));
}

TEST_F(ClientTest, ComputeModeForbidsContexts) {
  const auto client = Open();
  uint64_t context = 0;
  EXPECT_EQ(client->SetComputeMode(0, 1), Result::kRefused);
  EXPECT_EQ(client->SetComputeMode(0, 2), Result::kOk);
  EXPECT_EQ(client->CreateContext(0, &context), Result::kRefused);
  EXPECT_EQ(client->CreateContext(1, &context), Result::kOk);
  EXPECT_EQ(client->SetComputeMode(0, 3), Result::kOk);
  EXPECT_EQ(client->CreateContext(0, &context), Result::kOk);
  const pid_t other = Fork([&] {
    Client* mine = nullptr;
    std::string why;
    uint64_t refused = 0;
    return Client::Connect(root_.c_str(), &mine, &why) && mine->CreateContext(0, &refused) == Result::kRefused;
  });
  EXPECT_EQ(Reap(other), 0);
}

TEST_F(ClientTest, UnsupportedCallsAreCounted) {
  const auto client = Open();
  client->CountUnsupportedCall("cuSomething");
  client->CountUnsupportedCall("cuSomething");
  client->CountUnsupportedCall("not a symbol\n");
  const auto text = Ask(root_, MessageType::kStatus);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = ParseJson(*text, "status");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["unsupported_calls"].dump(), "{\"cuSomething\":2}");
}

TEST_F(ClientTest, StatusSaysHowLaunchesWereTimed) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  for (const uint64_t label : {kLabelExact, kLabelExtrapolated | kLabelTimedOnly, kLabelCached | kLabelTimedOnly,
                               kLabelCached | kLabelTimedOnly}) {
    Work work = Compute(0.01 * kMs);
    work.bytes = label;
    client->Submit(stream, work);
  }
  Work marker;
  marker.wait_sequence = 7;  // reads of dropped content
  ASSERT_EQ(client->Wait(stream, client->Submit(stream, marker)), Result::kOk);
  const auto text = Ask(root_, MessageType::kStatus);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = ParseJson(*text, "status");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["launches"].dump(),
            "{\"exact\":1,\"extrapolated\":1,\"cached\":2,\"unbounded\":0,\"timed_only\":3,\"undefined_reads\":7}");
}

TEST_F(ClientTest, KilledEngineIsNoticedAndItsLeftoversAreCleared) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  Work endless = Compute(1.0 * kMs);
  endless.kernel.unbounded = 1;
  const uint64_t sequence = client->Submit(stream, endless);
  const auto node = ReadNode(root_);
  ASSERT_TRUE(node.ok() && node->running);
  ASSERT_EQ(NodesUp().size(), 1u);
  EXPECT_EQ(Run("up --gpus T4 --dir '" + root_ + "' " + kWithout), 3);  // taken
  kill(node->pid, SIGKILL);
  EXPECT_EQ(client->Wait(stream, sequence), Result::kLost);
  EXPECT_EQ(client->CreateContext(0, &context), Result::kLost);
  EXPECT_EQ(client->Submit(stream, endless), 0u);
  ASSERT_TRUE(Await([&] { return StartTime(node->pid) == 0 || !ReadNode(root_)->running; }));
  EXPECT_TRUE(NodesUp().empty());
  EXPECT_EQ(Run("status --dir '" + root_ + "'"), 2);
  EXPECT_EQ(Run("up --gpus T4 --dir '" + root_ + "' " + kWithout), 0);
  EXPECT_EQ(Open()->Gpus().size(), 1u);
}

TEST_F(ClientTest, LateEngineReplaysWorkAtTheInstantOfItsSubmission) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  const auto node = ReadNode(root_);
  ASSERT_TRUE(node.ok());
  kill(node->pid, SIGSTOP);
  const uint64_t begin = client->EngineTime(0);
  const uint64_t first = client->Submit(stream, Work{});
  client->Submit(stream, Compute(5.0 * kMs));
  const uint64_t kernel = client->Submit(stream, Work{});
  usleep(30'000);
  const uint64_t second = client->Submit(stream, Work{});
  const uint64_t end = client->EngineTime(0);
  kill(node->pid, SIGCONT);
  ASSERT_EQ(client->Wait(stream, second), Result::kOk);
  EXPECT_THAT(client->MarkerTime(stream, first), AllOf(Ge(begin), Le(end)));
  EXPECT_NEAR(static_cast<double>(client->MarkerTime(stream, kernel) - client->MarkerTime(stream, first)), 5.0 * kMs,
              1e5);
  EXPECT_THAT(client->MarkerTime(stream, second), AllOf(Ge(client->MarkerTime(stream, first) + 30 * kMs), Le(end)));
}

TEST_F(ClientTest, CommandsRefuseWhatIsWrongAndLeaveNothing) {
  const std::string other = folder_ + "/other";
  EXPECT_EQ(Run("up --gpus A1000 --dir " + other + " " + kWithout), 2);
  EXPECT_EQ(Run("up --gpus T4 --driver 1 --dir " + other + " " + kWithout), 2);
  EXPECT_EQ(Run("up --gpus T4 --backing lots --dir " + other + " " + kWithout), 2);
  EXPECT_EQ(Run("up --gpus T4 --dir " + folder_ + "/no/such/parent " + kWithout), 4);
  EXPECT_EQ(Run("down --dir " + other), 2);
  // A full disk, as far as the program can see.
  const std::string full =
      "trap '' XFSZ; ulimit -f 0; exec " METE_EMULATOR " up --gpus T4 --dir " + other + " " + kWithout;
  EXPECT_EQ(WEXITSTATUS(std::system(("(" + full + ") >/dev/null 2>&1").c_str())), 4);
  EXPECT_FALSE(fs::exists(other));
  // With two nodes up, a command has to say which one it means.
  EXPECT_EQ(Run("status"), 0);
  EXPECT_EQ(Run("up --gpus T4 --dir " + other + " " + kWithout), 0);
  EXPECT_EQ(Run("status"), 2);
  EXPECT_EQ(Run("down --dir " + other), 0);
  EXPECT_EQ(Run("status"), 0);
}

TEST_F(ClientTest, EnvironmentIsForEval) {
  const std::string script = "eval \"$(" METE_EMULATOR
                             " env)\" && test -f \"$METE_DRIVER_ROOT/run/engine.json\" && "
                             "test \"${LD_LIBRARY_PATH%%:*}\" = \"$METE_DRIVER_ROOT/usr/lib/x86_64-linux-gnu\" && "
                             "test \"${PATH%%:*}\" = \"$METE_DRIVER_ROOT/usr/bin\"";
  EXPECT_EQ(WEXITSTATUS(std::system(script.c_str())), 0);
}

TEST_F(ClientTest, EngineEndsWhenItsFolderIsTakenAway) {
  const auto client = Open();
  const auto node = ReadNode(root_);
  ASSERT_TRUE(node.ok());
  fs::remove_all(root_);
  EXPECT_TRUE(Await([&] { return StartTime(node->pid) == 0 || client->ContextState(0, nullptr) == Result::kLost; }));
  EXPECT_TRUE(NodesUp().empty());
}

TEST_F(ClientTest, DownEndsTheNodeForItsUsers) {
  const auto client = Open();
  uint64_t context = 0;
  uint32_t stream = 0;
  ASSERT_EQ(client->CreateContext(0, &context), Result::kOk);
  ASSERT_EQ(client->OpenStream(context, &stream), Result::kOk);
  std::ofstream(root_ + "/mine") << "a file of the user's";
  EXPECT_EQ(Run("down --dir '" + root_ + "'"), 0);
  EXPECT_EQ(client->Wait(stream, 1), Result::kLost);
  EXPECT_EQ(client->ContextState(context, nullptr), Result::kLost);
  EXPECT_TRUE(fs::exists(root_ + "/mine"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
  EXPECT_EQ(Run("down --dir '" + root_ + "'"), 2);
  EXPECT_EQ(Run("up --gpus T4 --dir '" + root_ + "' " + kWithout), 3);  // holds a stranger's file
  fs::remove_all(root_);
}

}  // namespace
}  // namespace mete::emulator
