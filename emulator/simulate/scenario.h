// What a simulation runs: shares, their processes and kernels, events, and what is expected; read from a YAML file.
//
//   name: thirty-seventy
//   purpose: two hard shares that are always busy
//   seconds: 10                      # of virtual time
//   seed: 1
//   notice_us: [10, 60]              # a completion is noticed so late; ranges are drawn uniformly from the seed
//   broker_wake_us: [20, 120]        # after its doorbell or timer
//   waiter_wake_us: [20, 100]        # after a window opened or a wait ended
//   launch_us: 5                     # the host's own time between two launches
//   gates: true                      # false: the control without mete
//   sweep: {kernel_ms: [0.1, 1, 10], blocks: [1, 100000], processes: [1, 10]}   # one case for each combination,
//   applied
//                                    # to every kernel that has no `ms` or `blocks`; processes to the first share
//   shares:
//     - {name: A, mode: hard, percent: 30, weight: 30, processes: 1, depth: 8, streams: 1,
//        kernel: {ms: 1, blocks: 1000}, on_ms: 50, off_ms: 200, from_ms: 0}
//   events:
//     - {at_ms: 3000, set: A, percent: 70, weight: 70}
//     - {at_ms: 3000, kill: A, process: 0}       # at the first moment from then on when it holds an open window
//     - {at_ms: 3000, broker: stop}              # or start
//   expect:
//     - {share: A, percent: 30, points: 2, from_ms: 0, to_ms: 10000}   # ± points + 100·L(1−p)/W
//     - {share: A, at_least: 10, at_most: 50}                          # GPU time, percent
//     - {share: B, gap_ms: 50}                                         # never so long without a completion
//     - {total: 97}                                                    # percent of unshared throughput, at least
//
// Plain values. Errors: Usage naming the file, the key and what it may be.
#ifndef METE_EMULATOR_SIMULATE_SCENARIO_H_
#define METE_EMULATOR_SIMULATE_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ledger/layout.h"

namespace mete::emulator {

struct Range {  // of nanoseconds, both ends included
  uint64_t least = 0, most = 0;
};

struct ShareSpec {
  std::string name;
  ledger::ComputeMode mode = ledger::ComputeMode::kWorkConserving;
  uint32_t share = ledger::kFullShare;  // hundredths of a percent
  uint32_t weight = 1;
  uint32_t processes = 1;
  uint32_t depth = 8;              // launches that a process keeps in flight
  uint32_t streams = 1;            // of a process
  double kernel_ms = 0;            // 0: from the sweep
  uint64_t blocks = 0;             // 0: from the sweep
  uint64_t on_ns = 0, off_ns = 0;  // bursts; off 0: always busy
  uint64_t from_ns = 0;            // starts then
};

enum class EventKind { kSet, kKill, kStopBroker, kStartBroker };
struct EventSpec {
  EventKind kind = EventKind::kSet;
  uint64_t at_ns = 0;
  uint32_t share = 0;                // index
  uint32_t process = 0;              // kKill
  uint32_t percent = 0, weight = 0;  // kSet: hundredths of a percent, weight
};

enum class ExpectKind { kShare, kBounds, kGap, kTotal };
struct ExpectSpec {
  ExpectKind kind = ExpectKind::kShare;
  uint32_t share = 0;  // index
  double percent = 0, points = 2;
  double at_least = 0, at_most = 100;
  uint64_t from_ns = 0, to_ns = 0;  // to 0: the end
  uint64_t gap_ns = 0;
};

struct Scenario {
  std::string name, purpose;
  uint64_t length_ns = 10'000'000'000;
  uint64_t seed = 1;
  Range notice = {10'000, 60'000}, broker_wake = {20'000, 120'000}, waiter_wake = {20'000, 100'000};
  uint64_t launch_ns = 5'000;
  bool gates = true;
  std::vector<double> sweep_kernel_ms = {1};
  std::vector<uint64_t> sweep_blocks = {1000};
  std::vector<uint32_t> sweep_processes;  // empty: as the share says
  std::vector<ShareSpec> shares;
  std::vector<EventSpec> events;
  std::vector<ExpectSpec> expect;
};

// `what` names the text in errors.
StatusOr<Scenario> ParseScenario(const std::string& text, std::string_view what);
StatusOr<Scenario> ReadScenario(const std::string& path);

// One combination of the sweep, put into the shares.
struct Case {
  double kernel_ms;
  uint64_t blocks;
  std::optional<uint32_t> processes;
  Scenario scenario;
};
std::vector<Case> Cases(const Scenario& scenario);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_SCENARIO_H_
