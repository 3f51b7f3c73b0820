#include "emulator/simulate/wall.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "emulator/engine/client.h"
#include "emulator/engine/protocol.h"
#include "emulator/simulate/simulation.h"

namespace mete::emulator {
namespace {

constexpr uint64_t kMostRequests = 100'000;
constexpr uint64_t kTickNs = 5'000'000;

// What a child and its parent share.
struct Board {
  std::atomic<uint32_t> ready{0}, failed{0};
  std::atomic<uint64_t> end_ns{0};  // 0: not begun
};
struct Log {
  std::atomic<uint64_t> count{0};
  ShareTimeline::Request requests[kMostRequests];
};

void SleepUntil(uint64_t ns) {
  const timespec until = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

template <typename T>
T* Shared() {
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) T;
}

// One process of a share: requests one after another until the end.
bool RunProcess(const ShareSpec& share, uint32_t gpu, const std::string& root, Board& board, Log& log) {
  Client* opened = nullptr;
  std::string why;
  uint64_t context = 0;
  uint32_t stream = 0;
  if (!Client::Connect(root.c_str(), &opened, &why) || opened->CreateContext(gpu, &context) != Result::kOk ||
      opened->OpenStream(context, &stream) != Result::kOk) {
    return false;
  }
  board.ready.fetch_add(1);
  while (board.end_ns.load() == 0) SleepUntil(MonotonicNs() + 1'000'000);
  const uint64_t end = board.end_ns.load();
  uint64_t last = 0;
  for (uint64_t begin = MonotonicNs(); begin < end; begin = MonotonicNs()) {
    for (const Step& step : share.steps) {
      if (step.host_ns == 0) {
        last = opened->Submit(stream, step.work);
        if (last == 0) return false;
        continue;
      }
      if (last != 0 && opened->Wait(stream, last) != Result::kOk) return false;
      SleepUntil(MonotonicNs() + step.host_ns);
    }
    if (last != 0 && opened->Wait(stream, last) != Result::kOk) return false;
    const uint64_t at = log.count.load();
    if (at == kMostRequests) break;
    log.requests[at] = {begin, MonotonicNs()};
    log.count.store(at + 1);
    if (share.arrival.think_ns > 0) SleepUntil(MonotonicNs() + share.arrival.think_ns);
  }
  return true;
}

// How late a 5 ms sleep ends, 99th percentile, until `end_ns`.
double TimerLateMs(uint64_t end_ns) {
  std::vector<double> late;
  while (MonotonicNs() < end_ns) {
    const uint64_t due = MonotonicNs() + kTickNs;
    SleepUntil(due);
    late.push_back(static_cast<double>(MonotonicNs() - due) / 1e6);
  }
  if (late.empty()) return 0;
  std::sort(late.begin(), late.end());
  return late[late.size() * 99 / 100];
}

Status CheckNode(const Scenario& scenario, const std::vector<EngineSettings::Gpu>& boards, const std::string& root) {
  if (scenario.gates || scenario.mechanism == SharingMechanism::kMig) {
    return Usage("--wall: scenario {} is for mechanism {}; the wall clock shows time-slicing and exclusive use",
                 scenario.name, scenario.gates ? "intercept" : "mig");
  }
  for (const ShareSpec& share : scenario.shares) {
    if (share.workload.empty() || share.arrival.kind != ArrivalKind::kClosed) {
      return Usage("--wall: share {} needs a workload whose requests follow one another (closed)", share.name);
    }
  }
  Client* opened = nullptr;
  std::string why;
  if (!Client::Connect(root.c_str(), &opened, &why)) return Lacks("{}", why);
  const std::unique_ptr<Client> client(opened);
  for (size_t i = 0; i < boards.size(); ++i) {
    if (i >= client->Gpus().size() || std::strcmp(client->Gpus()[i].board, boards[i].info.board) != 0) {
      return Usage("--wall: GPU {} of the node in {} is not the {} of the scenario", i, root, boards[i].info.board);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<WallReport> RunOnNode(const Scenario& scenario, const std::vector<Placed>& placed,
                               const std::vector<EngineSettings::Gpu>& boards, const std::string& root,
                               double seconds) {
  METE_RETURN_IF_ERROR(CheckNode(scenario, boards, root));
  Board* board = Shared<Board>();
  std::vector<std::pair<size_t, Log*>> logs;  // share, of one process
  std::vector<pid_t> children;
  for (size_t i = 0; i < scenario.shares.size() && board != nullptr; ++i) {
    if (!placed[i].refused.empty()) continue;
    for (uint32_t p = 0; p < scenario.shares[i].processes; ++p) {
      Log* log = Shared<Log>();
      if (log == nullptr) return Lacks("no memory to share with the processes of {}", scenario.shares[i].name);
      logs.emplace_back(i, log);
      const pid_t child = fork();
      if (child == 0) {
        const bool worked = RunProcess(scenario.shares[i], placed[i].gpu, root, *board, *log);
        if (!worked) board->failed.fetch_add(1);
        _exit(worked ? 0 : 1);
      }
      if (child > 0) children.push_back(child);
    }
  }
  if (board == nullptr) return Lacks("no memory to share with the processes");
  while (board->ready.load() + board->failed.load() < children.size()) SleepUntil(MonotonicNs() + 1'000'000);
  const uint64_t begin = MonotonicNs(), end = begin + static_cast<uint64_t>(seconds * 1e9);
  board->end_ns.store(end);
  WallReport report;
  report.timer_late_p99_ms = TimerLateMs(end);
  for (const pid_t child : children) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  const bool failed = board->failed.load() > 0;
  report.shares.resize(scenario.shares.size());
  for (const auto& [share, log] : logs) {
    for (uint64_t i = 0; i < log->count.load(); ++i) {
      const ShareTimeline::Request& request = log->requests[i];
      // The first ones ran beside those that came later or not yet; the last beside those that had left.
      if (request.ended_ns > end) continue;
      report.shares[share].requests.push_back({request.arrived_ns - begin, request.ended_ns - begin});
    }
    munmap(log, sizeof(*log));
  }
  munmap(board, sizeof(*board));
  if (failed) return Fault("a process of the scenario lost the node in {} or got no context", root);
  return report;
}

}  // namespace mete::emulator
